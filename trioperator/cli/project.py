"""The project of an operator: its files and modules, and those that these import from their directories."""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from trioperator._tooling.checking import Source

#: The settings by which the operator manages its webhook configurations, and those by which it has replicas.
MANAGES: Final = (("admission", "managed"),)
ELECTS: Final = (("leadership", "enabled"), ("leadership", "shards"))

_LIBRARIES = ("site-packages", "dist-packages")
_STANDARD_LIBRARY = os.path.join(os.path.dirname(os.__file__), "")
_OWN_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def find_roots(files: Iterable[str], modules: Iterable[str]) -> tuple[str, ...]:
    """Return the directories of the files, and of the packages of those modules that are imported."""
    roots = [os.path.dirname(os.path.abspath(path)) for path in files]
    for name in modules:
        package = sys.modules.get(name.partition(".")[0])
        path = getattr(package, "__file__", None)
        roots.append(os.path.dirname(os.path.abspath(path)) if path else os.getcwd())
    return tuple(dict.fromkeys(roots))


def find_project_modules(files: Iterable[str], modules: Iterable[str]) -> Mapping[str, str]:
    """Return the paths of the project's modules that are imported, by their names. Libraries in it do not count."""
    roots = find_roots(files, modules)
    found = {}
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and path.endswith(".py") and is_in_project(path, roots):
            found[name] = os.path.abspath(path)
    return found


def parse_sources(files: Iterable[str], modules: Iterable[str]) -> Iterator[Source]:
    """Parse the project's sources, including files that could not be imported; skip those that cannot be parsed."""
    from trioperator._tooling.checking import Source

    paths = {os.path.abspath(path): path for path in files}
    paths |= {path: name for name, path in find_project_modules(files, modules).items()}
    for path, name in paths.items():
        try:
            yield Source.parse(name, path, pathlib.Path(path).read_bytes())
        except (SyntaxError, ValueError, OSError):
            continue


def assigns(sources: Iterable[Source], *settings: tuple[str, str]) -> bool:
    """Return whether the sources assign one of the *settings*, by their sections and names."""
    from trioperator._tooling.checking import find_assignments

    return any(line for each in sources for setting in settings for line in find_assignments(each, *setting))


def is_library(path: str, root: str = "") -> bool:
    """Return whether a file is this package's, or installed: below *root*, by default anywhere."""
    full = os.path.abspath(path)
    parts = (os.path.relpath(full, root) if root else full).split(os.sep)
    own = full.startswith((os.path.join(_OWN_PACKAGE, ""), _STANDARD_LIBRARY))
    return own or path.startswith("<") or any(part in _LIBRARIES for part in parts)


def is_in_project(path: str, roots: Iterable[str]) -> bool:
    """Return whether a file is in one of the directories, and no library in it."""
    full = os.path.abspath(path)
    return any(full.startswith(os.path.join(root, "")) and not is_library(path, root) for root in roots)
