"""Structural schemas: what the real server requires of an ``openAPIV3Schema``, with its messages. Pure.

Schemas are decoded: nulls and empty lists and maps are absent.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..model.status_causes import StatusCause, first_causes, forbidden, invalid_value, required
from .patterns import check_pattern

INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]
_JUNCTION_LISTS: Final = ("anyOf", "allOf", "oneOf")
_EMPTY: Final = {"root": "at the root", "item": "for specified array items", "field": "for specified object fields"}
_PRESERVE, _EMBEDDED, _INT = (
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
)
# Keywords that a schema in a junction may not have, as it would not be structural.
_STRUCTURAL_WORDS: Final = {
    "type": "must be empty",
    "default": "must be undefined",
    "title": "must be empty",
    "description": "must be empty",
    "nullable": "must be false",
    _PRESERVE: "must be false",
    _EMBEDDED: "must be false",
    _INT: "must be false",
    "x-kubernetes-list-map-keys": "must be empty",
    "x-kubernetes-list-type": "must be undefined",
    "x-kubernetes-map-type": "must be undefined",
    "x-kubernetes-validations": "must be empty",
}

Schema = Mapping[str, Any]


def check_structural(schema: Schema, path: str) -> list[StatusCause]:
    """Return the errors of a schema that is not structural."""
    parts = (_check_node(schema, path, "root"), _check_counterparts(schema, schema, path, path))
    causes = first_causes(itertools.chain.from_iterable(parts))
    return sorted(causes, key=lambda cause: (cause.field, cause.message))


def subschemas(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the structural parts of the schema, with their paths relative to it."""
    for name, sub in _properties(schema):
        yield f".properties[{name}]", sub
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), Mapping):
            yield f".{word}", schema[word]


def _properties(schema: Schema) -> Iterator[tuple[str, Schema]]:
    yield from (schema.get("properties") or {}).items()


# -- structural nodes ------------------------------------------------------------------------------------------------


def _check_node(schema: Schema, path: str, level: str) -> Iterator[StatusCause]:
    if schema.get("type") == "array" and "items" not in schema:
        yield required(f"{path}.items", "must be specified")
    for place, sub in subschemas(schema):
        yield from _check_node(sub, path + place, "item" if place == ".items" else "field")
    if level == "root" and "additionalProperties" in schema:
        yield forbidden(f"{path}.additionalProperties", "must not be used at the root")
    if schema.get(_INT):
        for word in (_PRESERVE, _EMBEDDED):
            if schema.get(word):
                yield invalid_value(f"{path}.{word}", True, f"must be false if {_INT} is true")
    yield from _check_values(schema, path, is_int_or_string=True)
    yield from _check_type(schema, path, level)
    if schema.get(_EMBEDDED):
        yield from _check_embedded(schema, path)
    if level == "root" or schema.get(_EMBEDDED):
        yield from _check_head(schema, path, is_root=level == "root")


def _check_type(schema: Schema, path: str, level: str) -> Iterator[StatusCause]:
    found = schema.get("type")
    if schema.get(_EMBEDDED) and found != "object":
        text = f"must be object if {_EMBEDDED} is true"
        yield invalid_value(f"{path}.type", found, text) if found else required(f"{path}.type", text)
    elif not found and not schema.get(_INT) and not schema.get(_PRESERVE):
        yield required(f"{path}.type", f"must not be empty {_EMPTY[level]}")
    if level == "root" and found and found != "object":
        yield invalid_value(f"{path}.type", found, "must be object at the root")


def _check_embedded(schema: Schema, path: str) -> Iterator[StatusCause]:
    if "additionalProperties" in schema:
        yield forbidden(f"{path}.additionalProperties", f"must not be used if {_EMBEDDED} is set")
    if not schema.get(_PRESERVE) and not schema.get("properties"):
        text = f"must not be empty if {_EMBEDDED} is true without {_PRESERVE}"
        yield required(f"{path}.properties", text)


def _check_head(schema: Schema, path: str, *, is_root: bool) -> Iterator[StatusCause]:
    """Check the types of the fields that all objects have, and that nothing else is specified of them at the root."""
    properties = schema.get("properties") or {}
    for name, wanted in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
        if name in properties and properties[name].get("type") != wanted:
            found = properties[name].get("type") or ""
            yield invalid_value(f"{path}.properties[{name}].type", found, f"must be {wanted}")
    if is_root and "metadata" in properties:
        rest = {word: value for word, value in properties["metadata"].items() if word not in {"type", "default"}}
        if rest.get("properties") and rest["properties"].keys() <= {"name", "generateName"}:
            del rest["properties"]
        if rest:
            text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            yield forbidden(f"{path}.properties[metadata]", text)


# -- junctions -------------------------------------------------------------------------------------------------------


def _junctions(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the schemas of the junctions, with their paths relative to the schema."""
    for word in _JUNCTION_LISTS:
        for at, sub in enumerate(schema.get(word) or ()):
            yield f".{word}[{at}]", sub
    if isinstance(schema.get("not"), Mapping):
        yield ".not", schema["not"]


def _check_values(schema: Schema, path: str, *, is_int_or_string: bool) -> Iterator[StatusCause]:
    """Check the pattern and the junctions.

    ``anyOf`` may name the types of an int-or-string, also in the first part of ``allOf``.
    """
    yield from check_pattern(schema, path)
    for place, sub in _junctions(schema):
        if not (is_int_or_string and place.startswith(".anyOf") and schema["anyOf"] == INT_OR_STRING):
            yield from _check_nested(sub, path + place, is_int_or_string=is_int_or_string and place == ".allOf[0]")


def _check_nested(schema: Schema, path: str, *, is_int_or_string: bool = False) -> Iterator[StatusCause]:
    yield from _check_values(schema, path, is_int_or_string=is_int_or_string)
    if isinstance(schema.get("items"), Mapping):
        yield from _check_nested(schema["items"], f"{path}.items")
    for name, sub in _properties(schema):
        yield from _check_nested(sub, f"{path}.properties[{name}]")
    if schema.get("additionalProperties") not in (None, False):
        yield forbidden(f"{path}.additionalProperties", "must be undefined to be structural")
    for word, text in _STRUCTURAL_WORDS.items():
        if schema.get(word) not in (None, False, "", [], {}) or (word == "default" and schema.get(word) is not None):
            yield forbidden(f"{path}.{word}", f"{text} to be structural")
    if "metadata" in (schema.get("properties") or {}):
        yield forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")


def _check_counterparts(schema: Schema, found: Schema | None, path: str, where: str) -> Iterator[StatusCause]:
    """Check that what the junctions at *where* specify is also specified by the structural schema at *path*."""
    for place, sub in _junctions(schema):
        yield from _check_counterpart(sub, found, path, where + place)


def _check_counterpart(schema: Schema, found: Schema | None, path: str, where: str) -> Iterator[StatusCause]:
    if found is None:
        yield required(path, f"because it is defined in {where}")
        return
    yield from _check_counterparts(schema, found, path, where)
    if isinstance(schema.get("items"), Mapping):
        items = found.get("items")
        items = items if isinstance(items, Mapping) else None
        yield from _check_counterpart(schema["items"], items, f"{path}.items", f"{where}.items")
    for name, sub in _properties(schema):
        place = f".properties[{name}]"
        own = (found.get("properties") or {}).get(name)
        yield from _check_counterpart(sub, own, path + place, where + place)
