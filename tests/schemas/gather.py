"""Conversion of the OpenAPI documents of a real API server to the data of the embedded one."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

_GROUP_VERSION: Final = re.compile(r"apis?/([^/]+/)?v[0-9][^/]*")


def gather(read: Callable[[str], Any]) -> dict[str, Any]:
    """Read all OpenAPI documents; return the definitions, and the names of those of each kind."""
    definitions: dict[str, Any] = {}
    for path in read("/openapi/v3")["paths"]:
        if _GROUP_VERSION.fullmatch(path):
            document = read(f"/openapi/v3/{path}")
            for name, schema in document["components"]["schemas"].items():
                definitions[name] = _strip_descriptions(schema)
    kinds = {key: name for name, schema in sorted(definitions.items()) for key in _kinds_of(schema)}
    return {"kinds": kinds, "definitions": definitions}


def _strip_descriptions(schema: Any) -> Any:
    """Return the schema without descriptions."""
    if isinstance(schema, list):
        return [_strip_descriptions(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    stripped: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword == "properties":
            stripped[keyword] = {name: _strip_descriptions(sub) for name, sub in value.items()}
        elif keyword in {"default", "enum"}:
            stripped[keyword] = value
        elif keyword != "description":
            stripped[keyword] = _strip_descriptions(value)
    return stripped


def _kinds_of(schema: Mapping[str, Any]) -> Iterable[str]:
    """Yield the group, version and kind of schemas of objects, but not of options and lists."""
    if "metadata" in schema.get("properties", {}) and "items" not in schema["properties"]:
        for kind in schema.get("x-kubernetes-group-version-kind", ()):
            yield "/".join((kind["group"], kind["version"], kind["kind"]))


def pack(data: Any) -> bytes:
    """Return the content of the file; the same data produces the same bytes."""
    return gzip.compress(msgspec.json.encode(data, order="sorted"), 9, mtime=0)
