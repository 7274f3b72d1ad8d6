"""Compiled schemas as pure functions; for their use by the API see test_definitions."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.custom.schema import compile_schema, default, prune
from trioperator.apiserver.custom.validation import check

scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2)
names = st.sampled_from(["a", "b", "c"])
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3))
objects = st.dictionaries(names, values, max_size=3)

NODE = compile_schema(
    {
        "type": "object",
        "properties": {
            "a": {
                "type": "object",
                "default": {},
                "properties": {"a": {"type": "integer", "default": 1}, "b": {"type": "string"}},
            },
            "b": {
                "type": "array",
                "items": {"type": "object", "properties": {"c": {"type": "boolean", "default": True}}},
            },
        },
    }
)


def problems(schema: dict[str, Any], value: Any) -> list[str]:
    node = compile_schema({"type": "object", "properties": {"x": schema}}, is_root=True)
    return [cause.message for cause in check(node, {"x": value}, None, [])]


@given(objects)
def test_pruning_and_defaulting_change_nothing_in_place(value: Any) -> None:
    before = copy.deepcopy(value)
    default(NODE, prune(NODE, value, []))
    assert value == before


@given(objects)
def test_pruning_and_defaulting_are_idempotent(value: Any) -> None:
    once = default(NODE, prune(NODE, value, []))
    assert default(NODE, prune(NODE, once, [])) == once


@given(objects)
def test_pruned_objects_have_only_declared_fields(value: Any) -> None:
    unknown: list[str] = []
    pruned = prune(NODE, value, unknown)
    assert set(pruned) <= {"a", "b"}
    assert bool(unknown) is (pruned != value)


def test_defaults_apply_inside_defaults_and_lists() -> None:
    assert default(NODE, {"b": [{}, {"c": False}]}) == {"a": {"a": 1}, "b": [{"c": True}, {"c": False}]}


@given(values)
def test_validation_accepts_any_value(value: Any) -> None:
    check(NODE, {"x": value}, None, [])


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
