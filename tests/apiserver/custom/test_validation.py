"""Tests for :mod:`trioperator.apiserver.custom.validation`: custom objects are validated, updates are ratcheted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.custom.schema import compile_schema
from trioperator.apiserver.custom.validation import check, null_causes
from trioperator.apiserver.model.status_causes import StatusCause, required

scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2)
names = st.sampled_from(["a", "b", "c"])
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3))


def causes(schema: dict[str, Any], value: Any, *old: Any) -> list[StatusCause]:
    """Return the validation errors of an object whose field ``x`` has the schema and the value."""
    node = compile_schema({"type": "object", "properties": {"x": schema}}, is_root=True)
    return list(check(node, {"x": value}, {"x": old[0]} if old else None, []))


def problems(schema: dict[str, Any], value: Any) -> list[str]:
    return [cause.message for cause in causes(schema, value)]


KEYED = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["n"],
    "items": {"type": "object", "properties": {"n": {"type": "string"}, "v": {"type": "integer", "minimum": 1}}},
}
SET = {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}}
NESTED = {
    "type": "object",
    "properties": {
        "a": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}},
        "b": {"type": "array", "items": {"type": "object", "properties": {"c": {"type": "boolean"}}}},
    },
}
EMBEDDED = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}


@given(values)
def test_validation_accepts_any_value(value: Any) -> None:
    causes(NESTED, value)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "number", "exclusiveMinimum": True, "minimum": 1}, 1.5, 1),
        ({"type": "number", "exclusiveMaximum": True, "maximum": 1}, 0.5, 1),
        ({"type": "integer", "multipleOf": 3}, 6, 7),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1}, ["a"], []),
        (
            {"type": "object", "maxProperties": 1, "additionalProperties": {"type": "integer"}},
            {"a": 1},
            {"a": 1, "b": 2},
        ),
        ({"type": "object", "minProperties": 1, "additionalProperties": {"type": "integer"}}, {"a": 1}, {}),
        ({"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 1}]}, 7, 3),
        ({"type": "integer", "oneOf": [{"minimum": 5}, {"maximum": 7}]}, 9, 6),
        ({"type": "integer", "allOf": [{"minimum": 5}, {"maximum": 7}]}, 6, 9),
        ({"type": "string", "not": {"enum": ["x"]}}, "y", "x"),
        ({"type": "string", "format": "ipv4"}, "1.2.3.4", "1.2.3"),
        ({"type": "string", "format": "uuid"}, "12345678-1234-1234-1234-123456789012", "1"),
        ({"type": "string", "format": "byte"}, "YWJj", "%"),
        ({"type": "string", "format": "date-time"}, "2020-01-01T00:00:00Z", "2020-01-01"),
        ({"type": "string", "format": "duration"}, "1h30m", "long"),
        ({"type": "string", "format": "unknown"}, "anything", None),
        ({"type": "string", "nullable": True}, None, 1),
        (
            {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["n"],
                "items": {"type": "object", "properties": {"n": {"type": "string"}}},
            },
            [{"n": "a"}, {"n": "b"}],
            [{"n": "a"}, {"n": "a"}],
        ),
        (
            {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}},
            {"spec": {}},
        ),
    ],
)
def test_keywords_of_schemas_are_validated(schema: dict[str, Any], good: Any, bad: Any) -> None:
    assert problems(schema, good) == []
    assert problems(schema, bad)


@pytest.mark.parametrize(
    ("wanted", "value", "found"),
    [
        ("integer", "a", "string"),
        ("integer", True, "boolean"),
        ("string", 1, "integer"),
        ("string", None, "null"),
        ("object", [], "array"),
        ("array", {}, "object"),
        ("boolean", 0, "integer"),
        ("number", False, "boolean"),
    ],
)
def test_a_wrong_type_is_an_error(wanted: str, value: Any, found: str) -> None:
    text = f'Invalid value: "{found}": x in body must be of type {wanted}: "{found}"'
    assert causes({"type": wanted}, value) == [StatusCause("x", text, "FieldValueTypeInvalid")]


def test_errors_name_the_path_of_the_value() -> None:
    schema = {
        "type": "object",
        "required": ["a", "b"],
        "properties": {"a": {"type": "array", "items": {"type": "object", "additionalProperties": {"minimum": 1}}}},
    }
    assert [cause.field for cause in causes(schema, {"a": [{}, {"k": 0}]})] == ["x.a[1].k", "x.b"]


def test_items_with_the_same_keys_are_duplicates() -> None:
    assert causes(KEYED, [{"n": "a"}, {"n": "b"}, {"n": "a", "v": 2}]) == [
        StatusCause("x[2]", 'Duplicate value: {"n":"a"}', "FieldValueDuplicate")
    ]
    assert causes(SET, [1, 2, 1]) == [StatusCause("x[2]", "Duplicate value: 1", "FieldValueDuplicate")]
    assert causes({**SET, "x-kubernetes-list-type": "atomic"}, [1, 1]) == []


def test_embedded_objects_need_an_api_version_and_a_kind() -> None:
    assert causes(EMBEDDED, {"kind": "Pod"}) == [required("x.apiVersion")]
    assert causes(EMBEDDED, {"apiVersion": "v1", "kind": ""}) == [
        StatusCause("x.kind", 'Invalid value: "": must not be empty')
    ]


class TestUpdates:
    def test_errors_in_unchanged_values_are_ignored(self) -> None:
        schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}, "b": {"type": "string"}}}
        assert causes(schema, {"a": 0, "b": "new"}, {"a": 0, "b": "old"}) == []
        assert [cause.field for cause in causes(schema, {"a": -1}, {"a": 0})] == ["x.a"]

    def test_items_are_compared_with_the_item_that_has_their_keys(self) -> None:
        old = [{"n": "a", "v": 0}, {"n": "b", "v": 1}]
        assert causes(KEYED, [{"n": "c"}, {"n": "a", "v": 0}], old) == []
        assert [cause.field for cause in causes(KEYED, [{"n": "b", "v": 0}], old)] == ["x[0].v"]

    def test_duplicates_are_accepted_where_there_were_some(self) -> None:
        assert causes(SET, [1, 1], [2, 2]) == []
        assert [cause.field for cause in causes(SET, [1, 1], [2])] == ["x[1]"]

    @pytest.mark.parametrize("schema", [{"type": "integer"}, SET, KEYED, {"enum": [1]}, {"not": {}}])
    @given(st.recursive(scalars, lambda inner: st.lists(inner, max_size=3)))
    def test_unchanged_values_are_valid(self, schema: dict[str, Any], value: Any) -> None:
        assert causes(schema, value, value) == []

    def test_an_unchanged_value_without_a_schema_counts_as_changed(self) -> None:
        (cause,) = causes({"type": "integer"}, {"unknown": 1}, {"unknown": 1})
        assert cause.reason == "FieldValueTypeInvalid"


@pytest.mark.parametrize(
    ("schema", "fields"),
    [
        ({"type": "string"}, ["x"]),
        ({"type": "string", "nullable": True}, []),
        ({"type": "string", "default": "a"}, []),
        ({"x-kubernetes-preserve-unknown-fields": True}, []),
    ],
)
def test_null_needs_a_nullable_field_or_a_default(schema: dict[str, Any], fields: list[str]) -> None:
    node = compile_schema({"type": "object", "properties": {"x": schema}})
    assert [cause.field for cause in null_causes(node, {"x": None, "unknown": None})] == fields
    nested = compile_schema({"type": "object", "properties": {"list": {"type": "array", "items": {**schema}}}})
    assert list(null_causes(nested, {"list": ["a"]})) == []


def test_null_below_lists_is_an_error_as_well() -> None:
    node = compile_schema({"properties": {"x": KEYED}})
    assert [cause.field for cause in null_causes(node, {"x": [{"n": "a"}, {"n": None}]})] == ["x[1].n"]


def test_an_unchanged_value_with_very_many_errors_is_ignored() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}}
    value = {"a": ["x"] * 5000}
    assert 1000 < len(causes(schema, value)) < 2000
    assert causes(schema, value, value) == []
    assert causes(schema, {"a": [*value["a"], "x"]}, value)


def test_rules_that_take_too_long_are_not_all_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cel_expr_python")
    monkeypatch.setattr("trioperator.apiserver.custom.validation_rules._SECONDS", -1.0)
    schema = {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]}
    (problem,) = problems(schema, 1)
    assert "running out of cost budget" in problem
