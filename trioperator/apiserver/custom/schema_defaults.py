"""Validation of the defaults in a structural schema: each must be valid and have no unknown fields. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..model.status_causes import StatusCause, first_causes, invalid_value
from ..model.structure import Structure
from .embedded import EmbeddedError, check_embedded, coerce_embedded
from .schema import compile_schema, prune
from .structural_schema import subschemas
from .validation import validate
from .validation_rules import check_rules

_HEAD: Final = frozenset({"apiVersion", "kind", "metadata"})  # of embedded objects, whose schemas are not compiled


def check_defaults(schema: Mapping[str, Any], path: str) -> list[StatusCause]:
    """Return the errors of the defaults. Those in values of maps are not checked, as on the real server."""
    if not _has_defaults(schema):
        return []
    return first_causes(_check_defaults(schema, compile_schema(schema), path))


def _has_defaults(schema: Mapping[str, Any]) -> bool:
    return schema.get("default") is not None or any(_has_defaults(sub) for _, sub in subschemas(schema))


def _check_defaults(schema: Mapping[str, Any], node: Structure, path: str) -> Iterator[StatusCause]:
    if schema.get("default") is not None:
        yield from _check_default(schema["default"], node, f"{path}.default")
    for name, sub in (schema.get("properties") or {}).items():
        below = compile_schema(sub) if node.embedded and name in _HEAD else node.properties[name]
        yield from _check_defaults(sub, below, f"{path}.properties[{name}]")
    if isinstance(schema.get("items"), Mapping) and node.items is not None:
        yield from _check_defaults(schema["items"], node.items, f"{path}.items")


def _check_default(value: Any, node: Structure, path: str) -> Iterator[StatusCause]:
    unknown: list[str] = []
    prune(node, value, unknown)
    if unknown:
        yield invalid_value(path, value, "must not have unknown fields")
    try:
        coerce_embedded(node, value, [], "")
    except EmbeddedError as error:
        yield StatusCause(path, str(error))
        return
    causes = list(check_embedded(node, value))
    if not causes:
        validate(node, value, causes)
    if not causes:
        causes = list(check_rules(node, value, None, []))
    for cause in causes:
        place = "" if cause.field == "<nil>" else cause.field
        separator = "" if not place or place.startswith("[") else "."
        yield StatusCause(f"{path}{separator}{place}", cause.message, cause.reason)
