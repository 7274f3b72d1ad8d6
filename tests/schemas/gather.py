"""From the OpenAPI documents of a real API server to the data of the embedded one; pure but for the reading."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

__all__ = ["gather", "pack"]

_GROUP_VERSION: Final = re.compile(r"apis?/([^/]+/)?v[0-9][^/]*")


def gather(read: Callable[[str], Any]) -> dict[str, Any]:
    """Read all documents by their paths; return the definitions, and which of them is which kind's."""
    definitions: dict[str, Any] = {}
    for path in read("/openapi/v3")["paths"]:
        if _GROUP_VERSION.fullmatch(path):
            document = read(f"/openapi/v3/{path}")
            for name, schema in document["components"]["schemas"].items():
                definitions[name] = _bare(schema)
    kinds = {key: name for name, schema in sorted(definitions.items()) for key in _kinds_of(schema)}
    return {"kinds": kinds, "definitions": definitions}


def _bare(schema: Any) -> Any:
    """Return the schema without descriptions."""
    if isinstance(schema, list):
        return [_bare(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    bare: dict[str, Any] = {}
    for word, value in schema.items():
        if word == "properties":
            bare[word] = {name: _bare(sub) for name, sub in value.items()}
        elif word in {"default", "enum"}:
            bare[word] = value
        elif word != "description":
            bare[word] = _bare(value)
    return bare


def _kinds_of(schema: Mapping[str, Any]) -> Iterable[str]:
    """Return the group, version and kind of what is an object of its own, and not an option or a list."""
    if "metadata" in schema.get("properties", {}) and "items" not in schema["properties"]:
        for kind in schema.get("x-kubernetes-group-version-kind", ()):
            yield "/".join((kind["group"], kind["version"], kind["kind"]))


def pack(data: Any) -> bytes:
    """Return the content of the file: the same data gives the same bytes."""
    return gzip.compress(msgspec.json.encode(data, order="sorted"), 9, mtime=0)
