"""Validation of the defaults in a structural schema: each must be valid and have no unknown fields. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..model.status_causes import StatusCause, invalid_value
from .embedded import EmbeddedError, check_embedded, coerce_embedded
from .schema import compile_schema, prune
from .structural_schema import subschemas
from .validation import validate
from .validation_rules import check_rules

__all__ = ["check_defaults"]


def check_defaults(schema: Mapping[str, Any], path: str) -> list[StatusCause]:
    """Return the errors of the defaults. Those in values of maps are not checked, as on the real server."""
    causes = [] if schema.get("default") is None else list(_check_default(schema, f"{path}.default"))
    for place, sub in subschemas(schema):
        if place != ".additionalProperties":
            causes += check_defaults(sub, path + place)
    return causes


def _check_default(schema: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
    value = schema["default"]
    node = compile_schema(schema)
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
