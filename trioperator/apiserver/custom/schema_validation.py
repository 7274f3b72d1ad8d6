"""Validation of the schemas of definitions: keywords that are not supported, list types, map types, rules. Pure.

:mod:`.structural_schema` checks that schemas are structural.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..model.status_causes import StatusCause, first_causes, forbidden, invalid_value, required, unsupported
from .rule_types import RuleTypes
from .rule_validation import check_expressions, check_rule_fields
from .schema_defaults import check_defaults
from .structural_schema import check_structural

_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_UNSUPPORTED: Final = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_UNCONVERTIBLE: Final = frozenset({*_UNSUPPORTED, "$schema"})  # into a structural schema
_HEAD: Final = frozenset({"apiVersion", "kind", "metadata"})
_MAP_TYPES: Final = ("atomic", "granular")
_LIST_TYPES: Final = ("atomic", "set", "map")
_LIST, _MAP, _KEYS = "x-kubernetes-list-type", "x-kubernetes-map-type", "x-kubernetes-list-map-keys"
# With the status subresource, the status is validated by its part of the schema alone.
_ROOT_WORDS: Final = (
    *("Description", "Type", "Format", "Title", "Maximum", "ExclusiveMaximum", "Minimum", "ExclusiveMinimum"),
    *("MaxLength", "MinLength", "Pattern", "MaxItems", "MinItems", "UniqueItems", "MultipleOf", "Required", "Items"),
    *("Properties", "ExternalDocs", "Example", "XPreserveUnknownFields", "XValidations"),
)
_ALLOWED_AT_ROOT: Final = frozenset(
    {word[:1].lower() + word[1:] for word in _ROOT_WORDS if not word.startswith("X")}
    | {"x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations", "nullable"}
)
_NUMBER_FORMATS: Final = {"integer": ("int32", "int64"), "number": ("float", "double")}
_STRING_FORMATS: Final = frozenset(
    {"bsonobjectid", "byte", "cidr", "creditcard", "date", "datetime", "duration", "email", "hexcolor", "hostname"}
    | {"ipv4", "ipv6", "isbn", "isbn10", "isbn13", "k8slongname", "k8sshortname", "mac", "password", "rgbcolor", "ssn"}
    | {"uri", "uuid", "uuid3", "uuid4", "uuid5"}
)

Schema = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """Where a schema is: in the root, in metadata, in a list that forbids ``oldSelf``."""

    is_root: bool = False
    is_in_metadata: bool = False
    no_defaults: str = ""  # why there may not be defaults
    uncorrelatable: str = ""  # path of an enclosing list without map keys


def check_schema(schema: Schema, path: str, *, has_status: bool) -> list[StatusCause]:
    """Return the errors of the schema of a version, which has a status subresource or not."""
    causes = [*_check_root(schema, path, has_status=has_status)]
    is_convertible = all(_UNCONVERTIBLE.isdisjoint(node) for node in _nodes(schema))
    if is_convertible:
        causes += check_structural(schema, path) or check_defaults(schema, path)
    is_structural = is_convertible and not causes
    causes += first_causes(_check(schema, path, _Place(is_root=True)))
    if not causes and not is_convertible:
        causes.append(invalid_value(path, "", "OpenAPIV3Schema 'schema' is not supported"))
    return [*causes, *(_check_rules(schema, path, RuleTypes(schema), "") if is_structural and not causes else ())]


def _check_root(schema: Schema, path: str, *, has_status: bool) -> Iterator[StatusCause]:
    if has_status and schema.get("type") not in {None, "", "object"}:
        text = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
        yield invalid_value(f"{path}.type", schema["type"], text)
    elif has_status and not schema.keys() <= _ALLOWED_AT_ROOT:
        words = " ".join(_ROOT_WORDS)
        text = f"only [{words}] fields are allowed at the root of the schema if the status subresource is enabled"
        yield invalid_value(path, schema, text)
    if schema.get("nullable"):
        yield forbidden(f"{path}.nullable", "nullable cannot be true at the root")


def _check(schema: Schema, path: str, place: _Place) -> Iterator[StatusCause]:
    """Yield the errors of the schema and its parts, but not of expressions."""
    yield from _check_words(schema, path, place)
    yield from _check_parts(schema, path, place)
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        yield invalid_value(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined")
    yield from _check_map_type(schema, path)
    yield from _check_list_type(schema, path)
    yield from check_rule_fields(schema, path)


def _check_words(schema: Schema, path: str, place: _Place) -> Iterator[StatusCause]:
    found = schema.get("type")
    if found and found not in _TYPES:
        yield unsupported(f"{path}.type", found, _TYPES)
    if schema.get("default") is not None and place.no_defaults:
        yield forbidden(f"{path}.default", f"must not be set {place.no_defaults}")
    for word in _UNSUPPORTED if not _UNCONVERTIBLE.isdisjoint(schema) else ():
        if schema.get(word) not in (None, "", {}) or (word in schema and word in {"$ref", "additionalItems"}):
            yield forbidden(f"{path}.{word}", f"{word} is not supported")
    if found == "null":
        yield forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if isinstance(schema.get("items"), list):
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    if place.is_in_metadata and schema.get("x-kubernetes-embedded-resource"):
        yield forbidden(f"{path}.x-kubernetes-embedded-resource", "must not be used inside of resource meta")
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(f"{path}.uniqueItems", text)
    if schema.get("properties") and schema.get("additionalProperties") not in (None, True):
        text = "additionalProperties and properties are mutual exclusive"
        yield forbidden(f"{path}.additionalProperties", text)


def _check_parts(schema: Schema, path: str, place: _Place) -> Iterator[StatusCause]:
    inner = dataclasses.replace(place, is_root=False) if place.is_root else place
    if isinstance(schema.get("additionalProperties"), Mapping):
        reason = "inside additionalProperties applying to object metadata" if place.is_in_metadata else ""
        values = dataclasses.replace(inner, no_defaults=reason or inner.no_defaults)
        yield from _check(schema["additionalProperties"], f"{path}.additionalProperties", values)
    for name, sub in (schema.get("properties") or {}).items():
        field = inner
        if name in _HEAD and (place.is_root or schema.get("x-kubernetes-embedded-resource")):
            reason = f"in top-level {name}" if place.is_root else inner.no_defaults
            field = dataclasses.replace(inner, is_in_metadata=True, no_defaults=reason)
        yield from _check(sub, f"{path}.properties[{name}]", field)
    for word in ("allOf", "oneOf", "anyOf"):
        for at, sub in enumerate(schema.get(word) or ()):
            yield from _check(sub, f"{path}.{word}[{at}]", inner)
    for word in ("not", "items"):
        if isinstance(schema.get(word), Mapping):
            yield from _check(schema[word], f"{path}.{word}", inner)


def _check_map_type(schema: Schema, path: str) -> Iterator[StatusCause]:
    wanted, found = schema.get(_MAP), schema.get("type")
    if wanted is None:
        return
    if found != "object":
        text = f"must be object if {_MAP} is specified"
        yield invalid_value(f"{path}.type", found, text) if found else required(f"{path}.type", text)
    if wanted not in _MAP_TYPES:
        yield unsupported(f"{path}.{_MAP}", wanted, _MAP_TYPES)


def _check_list_type(schema: Schema, path: str) -> Iterator[StatusCause]:
    wanted, found, keys = schema.get(_LIST), schema.get("type"), schema.get(_KEYS) or ()
    items = schema["items"] if isinstance(schema.get("items"), Mapping) else None
    if wanted is not None and found != "array":
        text = f"must be array if {_LIST} is specified"
        yield invalid_value(f"{path}.type", found, text) if found else required(f"{path}.type", text)
    elif wanted == "set" and items is not None:
        yield from _check_set_items(items, f"{path}.items")
    if wanted is not None and wanted not in _LIST_TYPES:
        yield unsupported(f"{path}.{_LIST}", wanted, _LIST_TYPES)
    if keys and wanted != "map":
        text = f"must be map if {_KEYS} is non-empty"
        yield required(f"{path}.{_LIST}", text) if wanted is None else invalid_value(f"{path}.{_LIST}", wanted, text)
    if wanted == "map":
        yield from _check_keyed_list(schema, items, path)
    if wanted in {"map", "set"} and items is not None and items.get("nullable"):
        yield forbidden(f"{path}.items.nullable", f"cannot be nullable when {_LIST} is {wanted}")


def _check_set_items(items: Schema, path: str) -> Iterator[StatusCause]:
    text = f"must be atomic as item of a list with {_LIST}=set"
    if items.get("type") == "array" and items.get(_LIST) not in {None, "atomic"}:
        yield invalid_value(f"{path}.{_LIST}", items[_LIST], text)
    elif items.get("type") == "object" and items.get(_MAP) != "atomic":
        yield invalid_value(f"{path}.{_MAP}", items.get(_LIST), text)


def _check_keyed_list(schema: Schema, items: Schema | None, path: str) -> Iterator[StatusCause]:
    keys = schema.get(_KEYS) or ()
    if not keys:
        yield required(f"{path}.{_KEYS}", f"must not be empty if {_LIST} is map")
    if "items" not in schema:
        yield required(f"{path}.items", f"must have a schema if {_LIST} is map")
    if items is None:
        return
    if items.get("type") != "object":
        text = f"must be object if parent array's {_LIST} is map"
        yield invalid_value(f"{path}.items.type", items.get("type") or "", text)
        return
    seen, needed = set[str](), frozenset(items.get("required") or ())
    for key in keys:
        sub = (items.get("properties") or {}).get(key)
        place = f"{path}.items.properties[{key}]"
        if sub is None:
            yield invalid_value(f"{path}.{_KEYS}", keys, "entries must all be names of item properties")
        elif sub.get("type") in {"array", "object"}:
            text = f"must be a scalar type if parent array's {_LIST} is map"
            yield invalid_value(f"{place}.type", items["type"], text)
        if key in seen:
            yield invalid_value(f"{path}.{_KEYS}", keys, "must not contain duplicate entries")
        seen.add(key)
        if sub is not None:
            yield from _check_key(sub, place, is_required=key in needed)


def _check_key(schema: Schema, path: str, *, is_required: bool) -> Iterator[StatusCause]:
    about = f"this property is in {_KEYS}, so it"
    if not is_required and schema.get("default") is None:
        yield required(f"{path}.default", f"{about} must have a default or be a required property")
    if schema.get("nullable"):
        yield forbidden(f"{path}.nullable", f"{about} cannot be nullable")


def _check_rules(schema: Schema, path: str, types: RuleTypes, uncorrelatable: str) -> Iterator[StatusCause]:
    """Check the CEL rules of an otherwise valid schema; *uncorrelatable* is an enclosing list without map keys."""
    yield from check_expressions(schema, path, types, uncorrelatable=uncorrelatable)
    for name, sub in (schema.get("properties") or {}).items():
        yield from _check_rules(sub, f"{path}.properties[{name}]", types, uncorrelatable)
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), Mapping):
            has_keys = word != "items" or schema.get(_LIST) == "map"
            yield from _check_rules(schema[word], f"{path}.{word}", types, uncorrelatable or ("" if has_keys else path))


def unrecognized_formats(schema: Schema) -> Iterator[str]:
    """Yield the formats in the schema that the server does not know, and ignores."""
    for node in _nodes(schema):
        name, kind = node.get("format") or "", node.get("type") or ""
        if kind in {"", "string"}:
            is_known = name.replace("-", "") in _STRING_FORMATS
        else:
            is_known = name in _NUMBER_FORMATS.get(kind, ())
        if name and not is_known:
            yield name


def _nodes(schema: Schema) -> Iterator[Schema]:
    pending: list[Any] = [schema]
    while pending:
        node = pending.pop()
        yield node
        parts = [*(node.get("properties") or {}).values(), node.get("items"), node.get("additionalProperties")]
        parts += [node.get("not"), *(sub for word in ("allOf", "anyOf", "oneOf") for sub in node.get(word) or ())]
        pending += [part for part in reversed(parts) if isinstance(part, Mapping)]
