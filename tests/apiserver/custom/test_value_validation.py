"""Tests for :mod:`trioperator.apiserver.custom.value_validation`: values are checked by the keywords of schemas."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.custom.value_validation import text_of, type_name, value_checks
from trioperator.apiserver.model.status_causes import StatusCause

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = scalars | st.lists(scalars) | st.dictionaries(st.text(), scalars)


def problems(schema: dict[str, Any], value: Any) -> list[StatusCause]:
    """Return the validation errors of the value."""
    return [cause for check in value_checks(schema) if (cause := check(value, "spec.x")) is not None]


@pytest.mark.parametrize(
    ("schema", "good", "bad", "text"),
    [
        ({"minimum": 2}, 2, 1, "should be greater than or equal to 2"),
        ({"minimum": 2, "exclusiveMinimum": True}, 3, 2, "should be greater than 2"),
        ({"maximum": 2}, 2, 3, "should be less than or equal to 2"),
        ({"maximum": 2, "exclusiveMaximum": True}, 1.5, 2, "should be less than 2"),
        ({"minimum": 0}, 0, -1, "should be greater than or equal to 0"),
        ({"multipleOf": 3}, 6, 7, "should be a multiple of 3"),
        ({"multipleOf": 0.1}, 0.3, 0.35, "should be a multiple of 0.1"),
        ({"multipleOf": 0.5}, 2, 1e308, "should be a multiple of 0.5"),
        ({"minLength": 2}, "ab", "a", "should be at least 2 chars long"),
        ({"pattern": "^a"}, "ab", "ba", "should match '^a'"),
        ({"pattern": "a"}, "bab", "b", "should match 'a'"),
    ],
)
def test_a_wrong_value_is_shown(schema: dict[str, Any], good: Any, bad: Any, text: str) -> None:
    assert problems(schema, good) == []
    message = f"Invalid value: {text_of(bad)}: spec.x in body {text}"
    assert problems(schema, bad) == [StatusCause("spec.x", message)]


@pytest.mark.parametrize(
    ("schema", "good", "bad", "text"),
    [
        ({"minItems": 1}, [1], [], "0: spec.x in body should have at least 1 items"),
        ({"minProperties": 2}, {"a": 1, "b": 2}, {"a": 1}, "1: spec.x in body should have at least 2 properties"),
    ],
)
def test_too_few_items_are_counted(schema: dict[str, Any], good: Any, bad: Any, text: str) -> None:
    assert problems(schema, good) == []
    assert problems(schema, bad) == [StatusCause("spec.x", f"Invalid value: {text}")]


@pytest.mark.parametrize(
    ("schema", "good", "bad", "text", "reason"),
    [
        ({"maxLength": 1}, "a", "ab", "Too long: may not be more than 1 bytes", "FieldValueTooLong"),
        ({"maxItems": 0}, [], [1], "Too many: 1: must have at most 0 items", "FieldValueTooMany"),
        (
            {"maxProperties": 1},
            {"a": 1},
            {"a": 1, "b": 2},
            "Too many: 2: must have at most 1 items",
            "FieldValueTooMany",
        ),
        (
            {"enum": ["a", 1, None]},
            None,
            "b",
            'Unsupported value: "b": supported values: "a", "1", "null"',
            "FieldValueNotSupported",
        ),
        (
            {"format": "ipv4"},
            "1.2.3.4",
            "x",
            'Invalid value: "x": spec.x in body must be of type ipv4: "x"',
            "FieldValueTypeInvalid",
        ),
    ],
)
def test_some_errors_have_reasons_of_their_own(
    schema: dict[str, Any], good: Any, bad: Any, text: str, reason: str
) -> None:
    assert problems(schema, good) == []
    assert problems(schema, bad) == [StatusCause("spec.x", text, reason)]


def test_true_is_not_1() -> None:
    assert problems({"enum": [1]}, True)
    assert problems({"minimum": 2}, True) == []


@pytest.mark.parametrize("schema", [{}, {"format": "unknown"}, {"pattern": "("}, {"multipleOf": 0}, {"enum": None}])
@given(values)
def test_keywords_that_cannot_be_checked_accept_any_value(schema: dict[str, Any], value: Any) -> None:
    assert problems(schema, value) == []


@given(values)
def test_keywords_apply_to_the_values_of_their_types(value: Any) -> None:
    schemas: dict[str, dict[str, Any]] = {
        "number": {"minimum": 1, "maximum": 0},
        "string": {"minLength": 1, "maxLength": 0},
        "array": {"minItems": 1, "maxItems": 0},
        "object": {"minProperties": 1, "maxProperties": 0},
    }
    kind = type_name(value).replace("integer", "number")
    for name, schema in schemas.items():
        assert bool(problems(schema, value)) is (name == kind)


@pytest.mark.parametrize(
    ("value", "name", "text"),
    [
        (None, "null", "null"),
        (True, "boolean", "true"),
        (1, "integer", "1"),
        (1.5, "number", "1.5"),
        ("a", "string", '"a"'),
        ([1], "array", "[1]"),
        ({"a": 1}, "object", '{"a":1}'),
    ],
)
def test_values_have_the_types_and_the_text_of_json(value: Any, name: str, text: str) -> None:
    assert (type_name(value), text_of(value)) == (name, text)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer", "format": "int32"}, -(2**31), 2**31),
        ({"type": "number", "format": "float"}, 1e38, 1e39),
    ],
)
def test_a_number_fits_into_its_format(schema: dict[str, Any], good: Any, bad: Any) -> None:
    assert problems(schema, good) == []
    text = f"Checked value must be of type {schema['type']} with format {schema['format']} in spec.x"
    assert problems(schema, bad) == [StatusCause("<nil>", f'Invalid value: "": {text}')]
