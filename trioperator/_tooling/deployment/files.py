"""Files of a deployment: objects as YAML, byte for byte the same each time, and files that are not overwritten."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import yaml

from trioperator.errors import ConfigError

# Strings that PyYAML would not quote, and that Kubernetes takes for numbers or truth values: 1e3, 0o17, y.
_AMBIGUOUS: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?0[oO][0-7]+|[yYnN]")


class _QuotingDumper(yaml.SafeDumper):
    """Dumper that quotes what other readers of YAML would not take for a string."""


class _Dumper(_QuotingDumper):
    """Dumper without anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _represent_string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "'" if _AMBIGUOUS.fullmatch(text) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_QuotingDumper.add_representer(str, _represent_string)


def render(objects: Iterable[Any]) -> str:
    """Return the objects as YAML documents."""
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


def render_compact(objects: Iterable[Any]) -> str:
    """Return the objects as YAML documents in which lists of strings are on one line."""
    return yaml.dump_all(objects, Dumper=_QuotingDumper, sort_keys=False, default_flow_style=None, width=120)


def write_files(directory: pathlib.Path, files: Mapping[str, str], *, force: bool = False) -> list[str]:
    """Write files by their names, unless they are as they should be; return the names of those that were written.

    Raises ConfigError, before anything is written, if a file exists with other content and *force* is not set.
    """
    different = [name for name, text in files.items() if not _is_same(directory / name, text)]
    existing = [name for name in different if (directory / name).exists()]
    if existing and not force:
        names = ", ".join(existing)
        raise ConfigError(
            f"In {directory}, these files exist with other content: {names}. Pass --force to replace them."
        )
    try:
        for name in different:
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files[name].encode())
    except OSError as error:
        raise ConfigError(f"Cannot write to {directory}: {error.strerror}.") from None
    return different


def describe_written(directory: pathlib.Path, written: Collection[str], *, count: int) -> str:
    """Return a sentence that says which of the files were written."""
    names = f": {', '.join(written)}" if written else ""
    return f"{len(written)} of {count} files in {directory} have changed{names}."


def _is_same(path: pathlib.Path, text: str) -> bool:
    try:
        return path.read_bytes() == text.encode()
    except OSError:
        return False


def find_leftovers(directory: pathlib.Path, files: Iterable[str], possible: Iterable[str]) -> list[str]:
    """Return which of the *possible* files are in the directory, but not among those that were just written."""
    return [name for name in possible if name not in files and (directory / name).exists()]
