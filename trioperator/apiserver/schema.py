"""Structural schemas of custom resources: compiled once, then pruning, defaulting and validation of objects; pure.

Values are never changed in place: what a function returns shares its untouched parts with what it was given.
Rules in CEL (``x-kubernetes-validations``) are not evaluated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from .checks import Check, text_of, type_name, value_checks
from .refusals import Cause

__all__ = ["Structure", "compile_schema", "default", "null_causes", "prune", "validate"]


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Structure:
    """One node of a compiled schema."""

    types: tuple[str, ...] = ()
    properties: dict[str, Structure] = dataclasses.field(default_factory=dict)
    extra: Structure | bool = False  # additionalProperties
    items: Structure | None = None
    required: tuple[str, ...] = ()
    default: Any = None
    nullable: bool = False
    preserve: bool = False
    embedded: bool = False
    keys: tuple[str, ...] | None = None  # of list maps; () marks a set
    checks: tuple[Check, ...] = ()
    # Whether anything below has defaults or anything to prune or to check: nodes without are passed by.
    defaults_below: bool = False
    trivial: bool = False


def compile_schema(schema: Mapping[str, Any], *, is_root: bool = False) -> Structure:
    """Compile an ``openAPIV3Schema`` or a part of it."""
    node = Structure(
        types=_types(schema),
        required=tuple(schema.get("required") or ()),
        default=schema.get("default"),
        nullable=bool(schema.get("nullable")),
        preserve=bool(schema.get("x-kubernetes-preserve-unknown-fields")),
        embedded=bool(schema.get("x-kubernetes-embedded-resource")),
        keys=_list_keys(schema),
        checks=tuple(_compile_checks(schema)),
    )
    for name, sub in (schema.get("properties") or {}).items():
        if not (is_root and name in {"apiVersion", "kind", "metadata"}):
            node.properties[name] = compile_schema(sub)
    if node.embedded and not is_root:
        for name in ("apiVersion", "kind"):
            node.properties.setdefault(name, Structure(types=("string",)))
        node.properties["metadata"] = Structure(types=("object",), preserve=True)
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping):
        node.extra = compile_schema(extra)
    elif extra:
        node.extra = True
    if isinstance(schema.get("items"), Mapping):
        node.items = compile_schema(schema["items"])
    below = [*node.properties.values(), *([node.items] if node.items else [])]
    if isinstance(node.extra, Structure):
        below.append(node.extra)
    node.defaults_below = any(sub.default is not None or sub.defaults_below or not sub.nullable for sub in below)
    node.trivial = node.preserve and not node.checks and not node.types and not below and not node.required
    return node


def _types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    return (schema["type"],) if schema.get("type") else ()


def _list_keys(schema: Mapping[str, Any]) -> tuple[str, ...] | None:
    match schema.get("x-kubernetes-list-type"):
        case "set":
            return ()
        case "map":
            return tuple(schema.get("x-kubernetes-list-map-keys") or ())
    return None


# -- pruning -------------------------------------------------------------------------------------------------------


def prune(node: Structure, value: Any, unknown: list[str], path: str = "") -> Any:
    """Return the value without the fields that the schema does not know; add their paths to *unknown*."""
    if isinstance(value, dict):
        return _prune_object(node, value, unknown, path)
    if isinstance(value, list) and node.items is not None:
        items = [prune(node.items, item, unknown, f"{path}[{at}]") for at, item in enumerate(value)]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def _prune_object(node: Structure, value: dict[str, Any], unknown: list[str], path: str) -> dict[str, Any]:
    result: dict[str, Any] | None = None
    for key, item in value.items():
        sub = node.properties.get(key)
        if sub is None:
            if isinstance(node.extra, Structure):
                sub = node.extra
            elif node.preserve or node.extra or (not path and key in {"apiVersion", "kind", "metadata"}):
                continue
            else:
                unknown.append(f"{path}.{key}" if path else key)
                result = dict(value) if result is None else result
                del result[key]
                continue
        new = prune(sub, item, unknown, f"{path}.{key}" if path else key)
        if new is not item:
            result = dict(value) if result is None else result
            result[key] = new
    return value if result is None else result


# -- defaulting ----------------------------------------------------------------------------------------------------


def default(node: Structure, value: Any) -> Any:
    """Return the value with the schema's defaults filled in, and without the nulls of fields that may not be null."""
    if not node.defaults_below:
        return value
    if isinstance(value, dict):
        return _default_object(node, value)
    if isinstance(value, list) and node.items is not None:
        items = [default(node.items, item) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def _default_object(node: Structure, value: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] | None = None
    for key, sub in node.properties.items():
        present = key in value
        item = value.get(key)
        if item is None and not (present and sub.nullable):
            if sub.default is not None:
                item = sub.default
            elif present:
                result = dict(value) if result is None else result
                del result[key]
                continue
            else:
                continue
        new = default(sub, item)
        if not present or new is not value[key]:
            result = dict(value) if result is None else result
            result[key] = new
    if isinstance(node.extra, Structure):
        for key, item in value.items():
            if key not in node.properties:
                new = default(node.extra, item)
                if new is not item:
                    result = dict(value) if result is None else result
                    result[key] = new
    return value if result is None else result


# -- validation ----------------------------------------------------------------------------------------------------


def validate(node: Structure, value: Any, causes: list[Cause], path: str = "") -> None:
    """Add to *causes* why the value is not valid."""
    if node.trivial or (value is None and node.nullable):
        return
    if node.types and not _has_type(value, node.types):
        causes.append(_type_cause(value, node.types, path))
        if isinstance(value, float) and node.types == ("integer",):
            text = f'Invalid value: "": Checked value must be of type integer (default format) in {path}'
            causes.append(Cause("<nil>", text))
        return
    for check in node.checks:
        cause = check(value, path)
        if cause is not None:
            causes.append(cause)
    if isinstance(value, dict):
        missing = [f"{path}.{name}" if path else name for name in node.required if name not in value]
        causes.extend(Cause(name, "Required value", "FieldValueRequired") for name in missing)
        for key, item in value.items():
            sub = node.properties.get(key) or (node.extra if isinstance(node.extra, Structure) else None)
            if sub is not None:
                validate(sub, item, causes, f"{path}.{key}" if path else key)
        if node.embedded and path:
            _validate_embedded(value, causes, path)
    elif isinstance(value, list):
        if node.items is not None:
            for at, item in enumerate(value):
                validate(node.items, item, causes, f"{path}[{at}]")
        if node.keys is not None:
            _validate_unique(node.keys, value, causes, path)


def _validate_embedded(value: Mapping[str, Any], causes: list[Cause], path: str) -> None:
    missing = [f"{path}.{name}" for name in ("apiVersion", "kind") if not value.get(name)]
    causes.extend(Cause(name, "Required value: must not be empty", "FieldValueRequired") for name in missing)


def _validate_unique(keys: tuple[str, ...], value: list[Any], causes: list[Cause], path: str) -> None:
    seen = set[bytes]()
    for at, item in enumerate(value):
        identity = {key: item.get(key) for key in keys} if keys and isinstance(item, dict) else item
        token = msgspec.json.encode(identity, order="sorted")
        if token in seen:
            causes.append(Cause(f"{path}[{at}]", f"Duplicate value: {token.decode()}", "FieldValueDuplicate"))
        seen.add(token)


def null_causes(node: Structure, value: Any, path: str = "") -> Iterable[Cause]:
    """Return which fields are null that may not be, and have no default in the place of null."""
    if isinstance(value, dict):
        for key, item in value.items():
            sub = node.properties.get(key) or (node.extra if isinstance(node.extra, Structure) else None)
            place = f"{path}.{key}" if path else key
            if sub is None:
                continue
            if item is not None:
                yield from null_causes(sub, item, place)
            elif sub.types and not sub.nullable and sub.default is None:
                yield _type_cause(None, sub.types, place)
    elif isinstance(value, list) and node.items is not None:
        for at, item in enumerate(value):
            yield from null_causes(node.items, item, f"{path}[{at}]")


_PYTHON_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "number": (int, float),
    "integer": int,
}


def _has_type(value: Any, types: tuple[str, ...]) -> bool:
    for name in types:
        wanted = _PYTHON_TYPES.get(name)
        if wanted is None or (isinstance(value, wanted) and (name == "boolean" or not isinstance(value, bool))):
            return True
    return False


def _type_cause(value: Any, types: tuple[str, ...], path: str) -> Cause:
    found, wanted = type_name(value), ",".join(types)
    where = f"{path} in body" if path else "in body"
    text = f'Invalid value: "{found}": {where} must be of type {wanted}: "{found}"'
    return Cause(path or "<nil>", text, "FieldValueTypeInvalid")


def _compile_checks(schema: Mapping[str, Any]) -> Iterable[Check]:
    yield from value_checks(schema)
    for word in ("allOf", "anyOf", "oneOf"):
        if subs := schema.get(word):
            yield _junction_check(word, [compile_schema(sub) for sub in subs])
    if isinstance(schema.get("not"), Mapping):
        yield _negation_check(compile_schema(schema["not"]))


def _fits(node: Structure, value: Any) -> bool:
    causes: list[Cause] = []
    validate(node, value, causes)
    return not causes


def _junction_check(word: str, nodes: list[Structure]) -> Check:
    texts = {
        "allOf": "must validate all the schemas (allOf)",
        "anyOf": "must validate at least one schema (anyOf)",
        "oneOf": "must validate one and only one schema (oneOf)",
    }

    def check(value: Any, path: str) -> Cause | None:
        count = sum(_fits(node, value) for node in nodes)
        good = {"allOf": count == len(nodes), "anyOf": count > 0, "oneOf": count == 1}[word]
        return None if good else _junction_cause(value, path, texts[word])

    return check


def _negation_check(node: Structure) -> Check:
    def check(value: Any, path: str) -> Cause | None:
        return _junction_cause(value, path, "must not validate the schema (not)") if _fits(node, value) else None

    return check


def _junction_cause(value: Any, path: str, text: str) -> Cause:
    shown = f'"{type_name(value)}"' if isinstance(value, (dict, list)) else text_of(value)
    where = f'"{path}" ' if path else '"" '
    return Cause(path or "<nil>", f"Invalid value: {shown}: {where}{text}")
