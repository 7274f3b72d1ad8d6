"""Strategies for the values of structural schemas, with few distinct values: states shall meet again."""

from __future__ import annotations

import base64
import functools
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from trioperator.apiserver.custom.patterns import (
    PatternError,
    UnsupportedPatternError,
    compile_pattern,
    is_installed,
)
from trioperator.testing.exploring.names import find_strategy

_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_MAX_ITEMS: Final = 3
# A repetition without end, or what looks like one: escapes, and classes of characters.
_REPETITION: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[*+]|\{(?P<least>\d+),\}", re.DOTALL)
_WORDS: Final = ("a", "b", "web", "example-1")
_NUMBERS: Final = (0, 1, 2, 3, 5, 10)
_FORMATS: Final[Mapping[str, Sequence[str]]] = {
    "byte": ("YQ==", "Yg=="),
    "cidr": ("10.0.0.0/8", "192.168.0.0/16"),
    "date": ("2024-01-01", "2024-12-31"),
    "date-time": ("2024-01-01T00:00:00Z", "2024-12-31T12:00:00Z"),
    "duration": ("30s", "5m", "1h"),
    "email": ("a@example.com", "b@example.com"),
    "hostname": ("a.example.com", "b.example.com"),
    "ipv4": ("10.0.0.1", "10.0.0.2"),
    "ipv6": ("::1", "fd00::1"),
    "password": ("secret-1", "secret-2"),
    "uri": ("https://a.example.com", "https://b.example.com/x"),
    "uuid": ("123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-42d3-a456-426614174001"),
}


def from_schema(schema: Mapping[str, Any], name: str = "") -> SearchStrategy[Any]:
    """Return a strategy for the values of a structural schema; *name* is the field's, which may say more."""
    strategy = None
    if "enum" not in schema:
        strategy = find_strategy(name, schema, fits=functools.partial(_fits, schema))
    if strategy is None:
        strategy = _by_type(schema)
    return st.one_of(strategy, st.none()) if schema.get("nullable") else strategy


def _by_type(schema: Mapping[str, Any]) -> SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(list(schema["enum"]))
    if schema.get(_INT_OR_STRING):
        return st.sampled_from([1, 2, "25%", "50%"])
    match schema.get("type"):
        case "object":
            return _objects(schema)
        case "array":
            return _arrays(schema)
        case "string":
            return _strings(schema)
        case "integer":
            return st.sampled_from(_bounded(schema, 1))
        case "number":
            return st.sampled_from([*_bounded(schema, 0.5), *(v for v in (0.5,) if _fits(schema, v))])
        case "boolean":
            return st.booleans()
    return st.just({}) if schema.get(_PRESERVE) else st.none()


def _objects(schema: Mapping[str, Any]) -> SearchStrategy[Any]:
    properties: Mapping[str, Any] = schema.get("properties", {})
    required = set(schema.get("required", ()))
    fields = {name: from_schema(each, name) for name, each in properties.items()}
    if fields:
        return st.fixed_dictionaries(
            {name: strategy for name, strategy in fields.items() if name in required},
            optional={name: strategy for name, strategy in fields.items() if name not in required},
        )
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        least, most = schema.get("minProperties", 0), schema.get("maxProperties", _MAX_ITEMS)
        keys = st.sampled_from([*_WORDS, *(f"key-{number}" for number in range(least))])
        return st.dictionaries(keys, from_schema(values), min_size=least, max_size=min(most, max(least, _MAX_ITEMS)))
    return st.just({})


def _arrays(schema: Mapping[str, Any]) -> SearchStrategy[Any]:
    least, most = schema.get("minItems", 0), schema.get("maxItems", _MAX_ITEMS)
    kind, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys", ())
    unique: Callable[[Any], Any] | None = None
    if kind == "map" and keys:
        unique = lambda item: tuple(repr(item.get(key)) for key in keys)  # noqa: E731 -- short
    elif kind == "set" or schema.get("uniqueItems"):
        unique = repr
    items = from_schema(schema.get("items", {}))
    return st.lists(items, min_size=least, max_size=min(most, max(least, _MAX_ITEMS)), unique_by=unique)


def _strings(schema: Mapping[str, Any]) -> SearchStrategy[str]:
    pattern, formatted = schema.get("pattern"), _FORMATS.get(schema.get("format", ""))
    words = [word for word in formatted or _WORDS if _fits(schema, word)]
    if words:
        return st.sampled_from(words)
    least, most = schema.get("minLength", 0), schema.get("maxLength", 63)
    if pattern is None:
        return st.sampled_from([letter * max(least, 1) if most else "" for letter in "ab"])
    return _matching(pattern, max(_MAX_ITEMS, least)).filter(lambda text: _fits(schema, text))


def _matching(pattern: str, most: int) -> SearchStrategy[str]:
    """Return a strategy for strings that match a pattern, in the alphabet of names, with few repetitions."""
    letters = st.sampled_from("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789-._/:@")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            compiled = re.compile(_with_few_repetitions(pattern.replace(r"\z", r"\Z"), most))
            return st.from_regex(compiled, fullmatch=True, alphabet=letters)
        except Exception:  # noqa: BLE001 -- RE2 has what Python has not: the server decides
            return st.sampled_from(_WORDS)


def _with_few_repetitions(pattern: str, most: int) -> str:
    """Return a pattern that matches only short ones of these texts: nested repetitions without end take for ever."""

    def limit(found: re.Match[str]) -> str:
        match found[0][0], found["least"]:
            case "+", _:
                return f"{{1,{most}}}"
            case "*", _:
                return f"{{0,{most}}}"
            case "{", str(least):
                return f"{{{least},{int(least) + most}}}"
        return found[0]  # an escape, or a class of characters

    return _REPETITION.sub(limit, pattern)


def _matches(pattern: str, text: str) -> bool:
    """Return whether a text matches; also if that is not known, as the server decides."""
    try:
        if is_installed():
            return compile_pattern(pattern).search(text) is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.search(pattern, text) is not None
    except (re.error, PatternError, UnsupportedPatternError):
        return True


def _bounded(schema: Mapping[str, Any], step: float) -> list[Any]:
    """Return numbers within the bounds of a schema, and next to them."""
    numbers: set[Any] = set(_NUMBERS)
    for bound in (schema.get("minimum"), schema.get("maximum")):
        if bound is not None:
            numbers |= {bound, bound + 1, bound - 1}
    if multiple := schema.get("multipleOf"):
        numbers |= {multiple, 2 * multiple}
    fitting = sorted(number for number in numbers if _fits(schema, number))
    if not fitting:
        fitting = [schema.get("minimum", schema.get("maximum", 0) - step)]
    return fitting if schema.get("type") == "number" else [int(number) for number in fitting]


def _fits(schema: Mapping[str, Any], value: Any) -> bool:
    """Return whether a value keeps the limits of a schema for its type; the server checks all the rest."""
    if isinstance(value, str):
        pattern = schema.get("pattern")
        is_long_enough = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
        return is_long_enough and (pattern is None or _matches(pattern, value))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        low, high, multiple = schema.get("minimum"), schema.get("maximum"), schema.get("multipleOf")
        return (
            (low is None or (value > low if schema.get("exclusiveMinimum") else value >= low))
            and (high is None or (value < high if schema.get("exclusiveMaximum") else value <= high))
            and (not multiple or value % multiple == 0)
        )
    return True


def from_examples(examples: Sequence[Any], name: str = "") -> SearchStrategy[Any]:
    """Return a strategy for values like these examples: the same fields, present or not, and other values for them."""
    if all(isinstance(value, Mapping) for value in examples):
        fields: dict[str, list[Any]] = {}
        for value in examples:
            for key, item in value.items():
                fields.setdefault(key, []).append(item)
        return st.fixed_dictionaries({}, optional={key: from_examples(items, key) for key, items in fields.items()})
    if all(isinstance(value, list) for value in examples):
        items = [item for value in examples for item in value]
        return st.one_of(
            st.sampled_from(examples), st.lists(from_examples(items), max_size=_MAX_ITEMS) if items else st.just([])
        )
    strategy = find_strategy(name, {"type": _type_of(examples[0])})
    given = st.sampled_from([*examples, *(other for value in examples for other in _vary(value))])
    return given if strategy is None else st.one_of(given, strategy)


def _type_of(value: Any) -> str:
    types = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return types.get(type(value), "")


def _decode_base64(value: str) -> bytes | None:
    """Return what a text encodes, as those in Secrets do; None if it is not base64."""
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        return None


def _vary(value: Any) -> Sequence[Any]:
    match value:
        case bool():
            return (not value,)
        case int():
            return (0, 1, value + 1)
        case float():
            return (0.5, value + 1)
        case str() if value.endswith("=") and (decoded := _decode_base64(value)) is not None:
            return (base64.b64encode(decoded + b"2").decode(),)
        case str() if value and not re.search(r"\d$", value):
            return (f"{value}-2",)
        case str() if value:
            return (f"{value}1",)
    return ()
