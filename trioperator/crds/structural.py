"""Parts of structural schemas, for classes of all libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from trioperator.errors import ConfigError

Schema: TypeAlias = dict[str, Any]

PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
# Keys that annotations may add: no others are parts of structural schemas.
_EXTRAS: Final = frozenset({"description", "title", "format", "example", "externalDocs"})
_DROPPED: Final = frozenset({"examples"})  # of JSON Schema; kubectl explain shows none


def make_nullable(schema: Schema) -> Schema:
    """Return the schema made nullable. Enumerations stay as they are: the API server never accepts null for these."""
    if "enum" in schema or (PRESERVE in schema and "type" not in schema):
        return schema
    return schema | {"nullable": True}


def make_values(values: Sequence[Any], where: str) -> Schema:
    """Return the schema of one of these values, all strings or all integers; None is left out.

    Raises ConfigError for others.
    """
    some = [value for value in values if value is not None]
    types = {type(value) for value in some}
    if types not in ({str}, {int}):
        raise ConfigError(f"{where} has values of several types: they must be all strings or all integers.")
    return {"type": "string" if types == {str} else "integer", "enum": some}


def join_union(schemas: Sequence[Schema], where: str) -> Schema:
    """Return the schema of a union: of integers and strings, of numbers, or of values of one type.

    Limits of integers and strings stay: each applies to values of its own type only. Raises ConfigError for others.
    """
    types = {schema.get("type") for schema in schemas}
    merged: Schema = {}
    for schema in schemas:
        merged |= {key: value for key, value in schema.items() if key != "type"}
    if len(types) == 1 and all("enum" in schema for schema in schemas):
        return {"type": types.pop(), "enum": [value for schema in schemas for value in schema["enum"]]}
    if types == {"integer", "string"} and "enum" not in merged:
        return merged | {"x-kubernetes-int-or-string": True}
    if types == {"integer", "number"} and not merged:
        return {"type": "number"}
    raise ConfigError(
        f"{where} is a union of types that the schema of a CRD cannot express: only int | str, int | float, literals of"
        " one type, and these or any type with None can be. Use one class with optional fields, or Any."
    )


def read_extras(extras: Mapping[str, Any], where: str) -> Schema:
    """Return what an annotation adds to a schema. Raises ConfigError for keys that CRDs do not have."""
    wrong = [key for key in extras if not (key in _EXTRAS | _DROPPED or key.startswith("x-kubernetes-"))]
    if wrong:
        raise ConfigError(f"{where} has {', '.join(wrong)} in extra_json_schema: a CRD has no place for it.")
    return {key: value for key, value in extras.items() if key not in _DROPPED}


def present(limits: Mapping[str, Any]) -> Schema:
    """Return the limits that are set."""
    return {key: value for key, value in limits.items() if value is not None}


def without_defaults(schema: Schema) -> Schema:
    """Return the schema without the defaults of fields."""
    made = {key: value for key, value in schema.items() if key != "default"}
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), dict):
            made[key] = without_defaults(made[key])
    if "properties" in made:
        made["properties"] = {name: without_defaults(each) for name, each in made["properties"].items()}
    return made
