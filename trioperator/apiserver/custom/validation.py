"""Validation of custom objects by structural schemas, with the messages of the real server. Pure.

Updates are ratcheted: errors in unchanged parts of an object are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from ..model.status_causes import StatusCause, invalid_value, required
from ..model.structure import Structure
from .correlation import correlate, is_unchanged, part
from .validation_rules import check_rules
from .value_validation import text_of, type_name

__all__ = ["check", "null_causes", "validate"]

_BLOCKING: Final = (
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
)
_UNCHECKED: Final = (
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation"
)


def check(
    node: Structure, obj: Mapping[str, Any], old: Mapping[str, Any] | None, warnings: list[str]
) -> list[StatusCause]:
    """Return the validation errors of the object, new or as an update of *old*.

    Errors of rules that are ignored as the value is unchanged are added to *warnings*.
    """
    causes: list[StatusCause] = []
    validate(node, obj, causes, old=old)
    if node.special_below:
        causes.extend(_embedded_causes(node, obj, ""))
        if old is None or not any(_duplicate_causes(node, old, "")):
            causes.extend(_duplicate_causes(node, obj, ""))
    if node.rules_below:
        if any(cause.reason in _BLOCKING for cause in causes):
            causes.append(StatusCause("<nil>", _UNCHECKED))
        else:
            causes.extend(check_rules(node, obj, old, warnings))
    return causes


def validate(node: Structure, value: Any, causes: list[StatusCause], path: str = "", *, old: Any = None) -> None:
    """Add the validation errors of the value to *causes*, unless it is unchanged."""
    start = len(causes)
    _validate(node, value, causes, path, old)
    if old is not None and len(causes) > start and is_unchanged(node, value, old):
        del causes[start:]


def _validate(node: Structure, value: Any, causes: list[StatusCause], path: str, old: Any) -> None:
    if node.trivial or (value is None and node.nullable):
        return
    if node.types and not _has_type(value, node.types):
        causes.append(_type_cause(value, node.types, path))
        if isinstance(value, float) and node.types == ("integer",):
            text = f'Invalid value: "": Checked value must be of type integer (default format) in {path}'
            causes.append(StatusCause("<nil>", text))
        return
    if node.junctions:
        causes.extend(_junction_causes(node, value, path))
    causes.extend(cause for check in node.checks if (cause := check(value, path)) is not None)
    for sub, item, place, before in _parts(node, value, path, old):
        validate(sub, item, causes, place, old=before)
    if isinstance(value, dict):
        missing = [f"{path}.{name}" if path else name for name in node.required if name not in value]
        causes.extend(StatusCause(name, "Required value", "FieldValueRequired") for name in missing)


def _parts(node: Structure, value: Any, path: str, old: Any) -> Iterator[tuple[Structure, Any, str, Any]]:
    """Yield schema, value, path and old value (None if it cannot be correlated) of each part of the value."""
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for key, item in value.items():
            sub = part(node, key)
            if sub is not None:
                yield sub, item, f"{path}.{key}" if path else key, before.get(key)
    elif isinstance(value, list) and node.items is not None:
        before_of = correlate(node, old)
        for at, item in enumerate(value):
            yield node.items, item, f"{path}[{at}]", before_of(item)


def _embedded_causes(node: Structure, value: Any, path: str) -> Iterator[StatusCause]:
    for sub, item, place, _ in _parts(node, value, path, None):
        if not sub.special_below:
            continue
        if sub.embedded and isinstance(item, dict):
            yield from _identity_causes(item, place)
        yield from _embedded_causes(sub, item, place)


def _identity_causes(value: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
    yield from (required(f"{path}.{name}") for name in ("apiVersion", "kind") if name not in value)
    for name in ("apiVersion", "kind"):
        if value.get(name) == "":
            yield invalid_value(f"{path}.{name}", "", "must not be empty")


def _duplicate_causes(node: Structure, value: Any, path: str) -> Iterator[StatusCause]:
    if node.keys is not None and isinstance(value, list):
        seen = set[bytes]()
        for at, item in enumerate(value):
            identity = {key: item.get(key) for key in node.keys} if node.keys and isinstance(item, dict) else item
            token = msgspec.json.encode(identity, order="sorted")
            if token in seen:
                yield StatusCause(f"{path}[{at}]", f"Duplicate value: {token.decode()}", "FieldValueDuplicate")
            seen.add(token)
    for sub, item, place, _ in _parts(node, value, path, None):
        if sub.special_below:
            yield from _duplicate_causes(sub, item, place)


def null_causes(node: Structure, value: Any, path: str = "") -> Iterable[StatusCause]:
    """Return the errors for null fields that are neither nullable nor have a default."""
    if isinstance(value, dict):
        for key, item in value.items():
            sub = part(node, key)
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


def _type_cause(value: Any, types: tuple[str, ...], path: str) -> StatusCause:
    found, wanted = type_name(value), ",".join(types)
    where = f"{path} in body" if path else "in body"
    text = f'Invalid value: "{found}": {where} must be of type {wanted}: "{found}"'
    return StatusCause(path or "<nil>", text, "FieldValueTypeInvalid")


def _fits(node: Structure, value: Any) -> bool:
    causes: list[StatusCause] = []
    validate(node, value, causes)
    return not causes


_JUNCTION_TEXTS: Final = {
    "allOf": "must validate all the schemas (allOf)",
    "anyOf": "must validate at least one schema (anyOf)",
    "oneOf": "must validate one and only one schema (oneOf)",
    "not": "must not validate the schema (not)",
}


def _junction_causes(node: Structure, value: Any, path: str) -> Iterator[StatusCause]:
    for word, subs in node.junctions.items():
        count = sum(_fits(sub, value) for sub in subs)
        if not {"allOf": count == len(subs), "anyOf": count > 0, "oneOf": count == 1, "not": count == 0}[word]:
            shown = f'"{type_name(value)}"' if isinstance(value, (dict, list)) else text_of(value)
            text = f'Invalid value: {shown}: "{path}" {_JUNCTION_TEXTS[word]}'
            yield StatusCause(path or "<nil>", text)
