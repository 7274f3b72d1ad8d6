"""Validation of single values: enums, limits, patterns, formats; with the messages of the real server. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from typing import Any, Final

import msgspec

from ..model.status_causes import StatusCause
from ..model.structure import Check
from .formats import FORMATS
from .patterns import compile_pattern

_EXACT_LIMIT: Final = 2**53  # larger floats have no fractions
_TOLERANCE: Final = 1e-9
_FLOAT_MAX: Final = 3.4028234663852886e38
_NUMBER_LIMITS: Final = {"int32": (-(2**31), 2**31 - 1), "float": (-_FLOAT_MAX, _FLOAT_MAX)}


def value_checks(schema: Mapping[str, Any]) -> Iterable[Check]:
    """Yield the checks for the keywords of the schema."""
    yield from _size_checks(schema)
    if pattern := schema.get("pattern"):
        yield _pattern_check(pattern)
    if (known := FORMATS.get(schema.get("format", ""))) is not None:
        yield _format_check(schema["format"], known)
    yield from _number_checks(schema)
    if isinstance(enum := schema.get("enum"), list):
        yield _enum_check(enum)


def type_name(value: Any) -> str:
    """Return the JSON type of the value, as in schemas."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def text_of(value: Any) -> str:
    """Return the value as formatted in messages."""
    return msgspec.json.encode(value).decode()


def _wrong(value: Any, path: str, text: str) -> StatusCause:
    return StatusCause(path, f"Invalid value: {text_of(value)}: {path} in body {text}")


def _enum_check(enum: list[Any]) -> Check:
    texts = [text_of(value) for value in enum]
    shown = ", ".join(text if isinstance(value, str) else f'"{text}"' for value, text in zip(enum, texts, strict=True))
    known = frozenset(texts)

    def check(value: Any, path: str) -> StatusCause | None:
        if text_of(value) in known:
            return None
        text = f"Unsupported value: {text_of(value)}: supported values: {shown}"
        return StatusCause(path, text, "FieldValueNotSupported")

    return check


def _number_checks(schema: Mapping[str, Any]) -> Iterable[Check]:
    def bound(fits: Callable[[float], bool], text: str) -> Check:
        def check(value: Any, path: str) -> StatusCause | None:
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            return _wrong(value, path, text) if is_number and not fits(value) else None

        return check

    low, high, step = schema.get("minimum"), schema.get("maximum"), schema.get("multipleOf")
    if low is not None and schema.get("exclusiveMinimum"):
        yield bound(lambda value: value > low, f"should be greater than {low}")
    elif low is not None:
        yield bound(lambda value: value >= low, f"should be greater than or equal to {low}")
    if high is not None and schema.get("exclusiveMaximum"):
        yield bound(lambda value: value < high, f"should be less than {high}")
    elif high is not None:
        yield bound(lambda value: value <= high, f"should be less than or equal to {high}")
    if step:
        yield bound(lambda value: _is_multiple(value, step), f"should be a multiple of {step}")
    if (limit := _NUMBER_LIMITS.get(schema.get("format", ""))) is not None:
        yield _limit_check(schema, *limit)


def _is_multiple(value: float, step: float) -> bool:
    """Return whether the value is a multiple, within the tolerance of the real server: 0.3 is one of 0.1."""
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    ratio = value * (1 / step) if step < 1 else value / step
    return abs(ratio) < _EXACT_LIMIT and math.isclose(ratio, round(ratio), rel_tol=_TOLERANCE)


def _limit_check(schema: Mapping[str, Any], low: float, high: float) -> Check:
    about = f"Checked value must be of type {schema.get('type')} with format {schema['format']}"

    def check(value: Any, path: str) -> StatusCause | None:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or low <= value <= high:
            return None
        return StatusCause("<nil>", f'Invalid value: "": {about} in {path}')

    return check


_SIZES: Final[Sequence[tuple[str, type[Sized], str]]] = (
    ("minLength", str, "should be at least {0} chars long"),
    ("minItems", list, "should have at least {0} items"),
    ("minProperties", dict, "should have at least {0} properties"),
    ("maxLength", str, "Too long: may not be more than {0} bytes"),
    ("maxItems", list, "Too many: {1}: must have at most {0} items"),
    ("maxProperties", dict, "Too many: {1}: must have at most {0} items"),
)


def _size_checks(schema: Mapping[str, Any]) -> Iterable[Check]:
    for word, kind, text in _SIZES:
        limit = schema.get(word)
        if limit is not None:
            yield _size_check(word, kind, limit, text)


def _size_check(word: str, kind: type[Sized], limit: int, text: str) -> Check:
    def check(value: Any, path: str) -> StatusCause | None:
        if not isinstance(value, kind):
            return None
        size = len(value)
        if word.startswith("min"):
            shown = value if kind is str else size
            return _wrong(shown, path, text.format(limit)) if size < limit else None
        if size <= limit:
            return None
        return StatusCause(path, text.format(limit, size), "FieldValueTooLong" if kind is str else "FieldValueTooMany")

    return check


def _pattern_check(pattern: str) -> Check:
    try:
        compiled = compile_pattern(pattern)
    except ValueError:  # who has created the definition knows it
        return lambda value, path: None

    def check(value: Any, path: str) -> StatusCause | None:
        if not isinstance(value, str):
            return None
        return None if compiled.search(value) else _wrong(value, path, f"should match '{pattern}'")

    return check


def _format_check(name: str, fits: Callable[[str], bool]) -> Check:
    def check(value: Any, path: str) -> StatusCause | None:
        if isinstance(value, str) and not fits(value):
            text = f"Invalid value: {text_of(value)}: {path} in body must be of type {name}: {text_of(value)}"
            return StatusCause(path, text, "FieldValueTypeInvalid")
        return None

    return check
