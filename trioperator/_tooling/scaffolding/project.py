"""The files of a new project, with the names of its operator in them."""

from __future__ import annotations

import importlib.resources
import keyword
import re
import sys
from collections.abc import Mapping
from typing import Final

import msgspec

from trioperator._version import __version__
from trioperator.errors import ConfigError

# Of the templates: where they go.
_PATHS: Final = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "gitignore": ".gitignore",
    "dockerignore": ".dockerignore",
    "Dockerfile": "Dockerfile",
    "ci.yaml": ".github/workflows/ci.yaml",
    "example.yaml": "examples/@@singular@@.yaml",
    "init.py": "@@package@@/__init__.py",
    "kinds.py": "@@package@@/kinds.py",
    "handlers.py": "@@package@@/handlers.py",
    "test_handlers.py": "tests/test_handlers.py",
}
# As for the names of deployments, which get suffixes.
_NAME: Final = re.compile(r"[a-z]([a-z0-9-]{0,50}[a-z0-9])?")
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,59}")
_GROUP: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)+")
_MAX_GROUP: Final = 150
# Modules that a package of this name would hide, or be hidden by.
_TAKEN: Final = frozenset({"trioperator", "trio", "tests", "deploy", "examples", *sys.stdlib_module_names})


class ProjectOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Names of a project: its own, the kind and the API group of its objects. Raises ConfigError for invalid ones."""

    name: str
    kind: str
    group: str = "example.com"
    namespaced: bool = True

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"The name {self.name!r} is invalid: use at most 52 lower-case letters, digits and hyphens, beginning"
                " with a letter."
            )
        if self.package in _TAKEN or keyword.iskeyword(self.package):
            raise ConfigError(f"The name {self.name!r} is taken by another Python module or keyword: use another one.")
        if not _KIND.fullmatch(self.kind):
            raise ConfigError(
                f"The kind {self.kind!r} is invalid: use at most 60 letters and digits, beginning with a capital"
                " letter, such as Database."
            )
        if not _GROUP.fullmatch(self.group) or len(self.group) > _MAX_GROUP:
            raise ConfigError(f"The group {self.group!r} is invalid: use a domain name, such as example.com.")
        if self.group.endswith(".k8s.io"):
            raise ConfigError(f"The group {self.group!r} is reserved for Kubernetes: use a domain of your own.")

    @property
    def package(self) -> str:
        """The name of the Python package."""
        return self.name.replace("-", "_")

    @property
    def plural(self) -> str:
        """The plural name of the kind."""
        return _make_plural(self.kind.lower())

    @property
    def words(self) -> Mapping[str, str]:
        """The values for the templates."""
        return {
            "name": self.name,
            "package": self.package,
            "kind": self.kind,
            "singular": self.kind.lower(),
            "plural": self.plural,
            "group": self.group,
            "scope": "" if self.namespaced else "\n    namespaced=False,",
            "version": __version__,
        }


def derive_kind(name: str) -> str:
    """Return a kind for the name of a project: Database for database-operator."""
    base = name.removesuffix("-operator")
    return "".join(part[:1].upper() + part[1:] for part in base.split("-"))


def _make_plural(noun: str) -> str:
    if noun.endswith(("s", "x", "z", "ch", "sh")):
        return f"{noun}es"
    if noun.endswith("y") and noun[-2:-1] not in tuple("aeiou"):
        return f"{noun[:-1]}ies"
    return f"{noun}s"


def render_project(options: ProjectOptions) -> dict[str, str]:
    """Return the files of a project by their paths; the files of its deployment are made from its handlers."""
    folder = importlib.resources.files("trioperator._tooling.scaffolding") / "templates"
    texts = {path: (folder / f"{name}.tmpl").read_text(encoding="utf-8") for name, path in _PATHS.items()}
    return {_fill(path, options.words): _fill(text, options.words) for path, text in texts.items()}


def _fill(text: str, words: Mapping[str, str]) -> str:
    return re.sub(r"@@(\w+)@@", lambda match: words[match[1]], text)
