"""Scalar pointer fields of the API's Go types, which distinguish zero from absent."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

_STRUCT: Final = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_POINTER: Final = re.compile(r'^\s+\w+\s+\*[\w.]+\s+`json:"([\w$-]+)', re.MULTILINE)
_SCALARS: Final = ("boolean", "integer", "number", "string")


def pointers(definitions: Mapping[str, Any], modules: pathlib.Path, version: str) -> dict[str, list[str]]:
    """Return the scalar pointer fields of each definition; *modules* is the Go module cache."""
    found = {}
    for name, schema in definitions.items():
        scalars = {field for field, node in schema.get("properties", {}).items() if node.get("type") in _SCALARS}
        fields = scalars & set(_fields(modules, version, name))
        if fields:
            found[name] = sorted(fields)
    return found


def _fields(modules: pathlib.Path, version: str, name: str) -> Iterator[str]:
    _, _, module, *path, kind = name.split(".")
    folder = modules / "k8s.io" / f"{module}@{version}" / pathlib.Path(*path)
    for source in folder.glob("*.go"):
        for struct, body in _STRUCT.findall(source.read_text(encoding="utf-8")):
            if struct == kind:
                yield from _POINTER.findall(body)
