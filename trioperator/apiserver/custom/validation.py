"""Validation of custom objects by structural schemas, with the messages of the real server. Pure.

Updates are ratcheted: errors in unchanged parts of an object are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import NoneType
from typing import Any, Final

import msgspec

from ..model.status_causes import StatusCause, duplicate, invalid_value
from ..model.structure import Structure
from .correlation import correlate, is_unchanged, part
from .embedded import check_embedded
from .validation_rules import check_rules
from .value_validation import type_name

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
    causes.extend(check_embedded(node, obj))
    if node.keys_below and (old is None or not any(_duplicate_causes(node, old, ""))):
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
    if node.trivial:
        return
    if value is None and node.nullable:
        causes.extend(cause for check in node.checks if (cause := check(value, path)) is not None)
        return
    if node.types and not _has_type(value, node.types):
        causes.append(_type_cause(value, node.types, path))
        if isinstance(value, float) and node.types == ("integer",):
            text = f'Invalid value: "": Checked value must be of type integer (default format) in {path}'
            causes.append(StatusCause("<nil>", text))
        causes.extend(cause for check in node.checks if (cause := check(value, path)) is not None)
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


def _duplicate_causes(node: Structure, value: Any, path: str) -> Iterator[StatusCause]:
    if not node.keys_below:
        return
    if node.keys is not None and isinstance(value, list):
        strange = next((at for at, item in enumerate(value) if not isinstance(item, (dict, NoneType))), None)
        if node.keys and strange is not None:
            text = "must be an object for an array of list-type map"
            yield invalid_value(f"{path}[{strange}]", value[strange], text)
        else:
            yield from _repeated_items(node.keys, value, path)
    for sub, item, place, _ in _parts(node, value, path, None):
        yield from _duplicate_causes(sub, item, place)


def _repeated_items(keys: tuple[str, ...], items: list[Any], path: str) -> Iterator[StatusCause]:
    """Yield an error for the first repetition of each item, or of its keys."""
    counts: dict[bytes, int] = {}
    for at, item in enumerate(items):
        identity = {key: item[key] for key in keys if key in (item or ())} if keys else item
        token = msgspec.json.encode(identity, order="sorted")
        counts[token] = counts.get(token, 0) + 1
        if counts[token] == 2:
            yield duplicate(f"{path}[{at}]", identity)


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
    text = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
    return StatusCause(path or "<nil>", text, "FieldValueTypeInvalid")


_JUNCTION_TEXTS: Final = {
    "allOf": "must validate all the schemas (allOf)",
    "anyOf": "must validate at least one schema (anyOf)",
    "oneOf": "must validate one and only one schema (oneOf)",
    "not": "must not validate the schema (not)",
}


def _junction_causes(node: Structure, value: Any, path: str) -> Iterator[StatusCause]:
    for word, subs in node.junctions.items():
        failures = [causes for sub in subs if (causes := _causes(sub, value, path))]
        count, more = len(subs) - len(failures), ""
        match word:
            case "allOf":
                shown = [cause for causes in failures for cause in causes]
                more = "" if count else ". None validated"
            case "anyOf" | "oneOf":
                shown = failures[0] if not count else []
            case _:
                shown = []
        if word == "oneOf":
            more = f". Found {count} valid alternatives" if count else ". Found none valid"
        if not {"allOf": not failures, "anyOf": count > 0, "oneOf": count == 1, "not": count == 0}[word]:
            yield StatusCause("<nil>", f'Invalid value: "": "{path}" {_JUNCTION_TEXTS[word]}{more}')
            yield from shown


def _causes(node: Structure, value: Any, path: str) -> list[StatusCause]:
    causes: list[StatusCause] = []
    validate(node, value, causes, path)
    return causes
