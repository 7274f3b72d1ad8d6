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

_BLOCKING: Final = (
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
)
_ENOUGH: Final = 1_000  # errors of the parts of one value
_ALTERNATIVES: Final = ("anyOf", "oneOf")
_UNCHECKED: Final = (
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation"
)


def check(
    node: Structure, obj: Mapping[str, Any], old: Mapping[str, Any] | None, warnings: list[str]
) -> Iterator[StatusCause]:
    """Yield the validation errors of the object, new or as an update of *old*.

    Errors of rules that are ignored as the value is unchanged are added to *warnings*.
    """
    causes: list[StatusCause] = []
    validate(node, obj, causes, old=old)
    causes.extend(check_embedded(node, obj))
    if node.keys_below and (old is None or not any(_duplicate_causes(node, old, ""))):
        causes.extend(_duplicate_causes(node, obj, ""))
    yield from causes
    if node.rules_below:
        if any(cause.reason in _BLOCKING for cause in causes):
            yield StatusCause("<nil>", _UNCHECKED)
        else:
            yield from check_rules(node, obj, old, warnings)


def validate(node: Structure, value: Any, causes: list[StatusCause], *, old: Any = None) -> None:
    """Add the validation errors of the value to *causes*, unless it is unchanged."""
    _Validation(causes).validate(node, value, "", old)


class _Validation:
    """Validation of one object. ``causes`` are its errors."""

    def __init__(self, causes: list[StatusCause]) -> None:
        self.causes = causes
        self._unchanged: dict[tuple[int, int], bool] = {}

    def validate(self, node: Structure, value: Any, path: str, old: Any) -> None:
        """Add the errors of the value, unless it is unchanged."""
        start = len(self.causes)
        self._validate(node, value, path, old)
        if old is not None and len(self.causes) > start and is_unchanged(node, value, old, self._unchanged):
            del self.causes[start:]

    def _validate(self, node: Structure, value: Any, path: str, old: Any) -> None:
        if node.trivial:
            return
        if value is None and node.nullable:
            self._check(node, value, path)
            return
        if node.types and not _has_type(value, node.types):
            self.causes.append(_type_cause(value, node.types, path))
            if isinstance(value, float) and node.types == ("integer",):
                text = f'Invalid value: "": Checked value must be of type integer (default format) in {path}'
                self.causes.append(StatusCause("<nil>", text))
            self._check(node, value, path)
            return
        for word, subs in node.junctions.items():
            self._check_junction(word, subs, value, path)
        self._check(node, value, path)
        start = len(self.causes)
        for sub, item, place, before in _parts(node, value, path, old):
            self.validate(sub, item, place, before)
            # Either all are ignored as the whole value is unchanged, or these are enough.
            if len(self.causes) - start > _ENOUGH:
                return
        if isinstance(value, dict) and node.required:
            self._check_required(node, value, path)

    def _check(self, node: Structure, value: Any, path: str) -> None:
        for check in node.checks:
            if (cause := check(value, path)) is not None:
                self.causes.append(cause)

    def _check_required(self, node: Structure, value: Mapping[str, Any], path: str) -> None:
        for name in node.required:
            if name not in value:
                self.causes.append(
                    StatusCause(f"{path}.{name}" if path else name, "Required value", "FieldValueRequired")
                )

    def _check_junction(self, word: str, subs: list[Structure], value: Any, path: str) -> None:
        failures, shown = 0, list[StatusCause]()
        for sub in subs:
            causes = self._causes_of(sub, value, path)
            failures += bool(causes)
            if word == "allOf" or (failures == 1 and not shown and word in _ALTERNATIVES):
                shown += causes
        count, more = len(subs) - failures, ""
        if word in _ALTERNATIVES and count:
            shown = []
        if word == "allOf" and not count:
            more = ". None validated"
        elif word == "oneOf":
            more = f". Found {count} valid alternatives" if count else ". Found none valid"
        if not {"allOf": not failures, "anyOf": count > 0, "oneOf": count == 1, "not": count == 0}[word]:
            self.causes.append(StatusCause("<nil>", f'Invalid value: "": "{path}" {_JUNCTION_TEXTS[word]}{more}'))
            for cause in shown:
                self.causes.append(cause)

    def _causes_of(self, node: Structure, value: Any, path: str) -> list[StatusCause]:
        """Return the errors of the value by a schema that is part of a junction."""
        causes, self.causes = self.causes, []
        try:
            self.validate(node, value, path, None)
            return self.causes
        finally:
            self.causes = causes


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
