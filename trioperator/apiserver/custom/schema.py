"""Structural schemas of custom resources: compilation, pruning and defaulting. Pure.

Values are never changed in place: results share unchanged parts with the arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..model.structure import Structure
from .validation_rules import rules_of
from .value_validation import value_checks

JUNCTIONS: Final = ("allOf", "anyOf", "oneOf", "not")


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
        checks=tuple(value_checks(schema)),
        junctions=_compile_junctions(schema),
        rules=rules_of(schema),
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
    _sum_up(node)
    return node


def _sum_up(node: Structure) -> None:
    below = [*node.properties.values(), *([node.items] if node.items else [])]
    if isinstance(node.extra, Structure):
        below.append(node.extra)
    node.defaults_below = any(sub.default is not None or sub.defaults_below or not sub.nullable for sub in below)
    node.defaulted = {name: sub for name, sub in node.properties.items() if sub.default is not None}
    node.rules_below = bool(node.rules) or any(sub.rules_below for sub in below)
    node.keys_below = node.keys is not None or any(sub.keys_below for sub in below)
    node.embedded_below = node.embedded or any(sub.embedded_below for sub in below)
    has_checks = node.checks or node.junctions or node.types or node.required
    node.trivial = node.preserve and not has_checks and not below


def _compile_junctions(schema: Mapping[str, Any]) -> dict[str, list[Structure]]:
    found = {word: schema.get(word) for word in JUNCTIONS}
    lists = {word: subs if isinstance(subs, list) else [subs] for word, subs in found.items() if subs}
    return {word: [compile_schema(sub) for sub in subs] for word, subs in lists.items()}


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
    """Return the value without fields that the schema does not declare; add their paths to *unknown*."""
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
    """Return the value with the schema's defaults, and without nulls of non-nullable fields."""
    if not node.defaults_below:
        return value
    if isinstance(value, dict):
        return _fill_object(node, value)
    if isinstance(value, list) and node.items is not None:
        sub = node.items
        items = [default(sub, sub.default if item is None and not sub.nullable else item) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def _fill_object(node: Structure, value: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] | None = None
    extra = node.extra if isinstance(node.extra, Structure) else None
    for key, item in value.items():
        sub = node.properties.get(key, extra)
        if sub is None:
            continue
        new = _filled(sub, item)
        if new is not item or (new is None and not sub.nullable):
            result = dict(value) if result is None else result
            result[key] = new
            if new is None:
                del result[key]
    for key, sub in node.defaulted.items():
        if key not in value:
            result = dict(value) if result is None else result
            result[key] = default(sub, sub.default)
    return value if result is None else result


def _filled(sub: Structure, item: Any) -> Any:
    """Return the value of a field; None if it is to be removed, or is null and may be."""
    if item is None and not sub.nullable:
        item = sub.default
    return None if item is None else default(sub, item)
