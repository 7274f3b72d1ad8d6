"""Compiled schemas as pure functions; for their use by the API see test_definitions."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.custom.schema import compile_schema, default, prune

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


def test_nulls_get_the_default_or_are_removed() -> None:
    fields = {"a": {"type": "integer", "default": 1}, "b": {"type": "integer"}, "c": {"nullable": True}}
    node = compile_schema({"type": "object", "properties": fields, "additionalProperties": False})
    assert list(default(node, {"c": None, "b": None, "a": None}).items()) == [("c", None), ("a", 1)]


def test_a_nullable_field_gets_its_default_where_it_is_missing() -> None:
    node = compile_schema({"type": "object", "properties": {"a": {"type": "integer", "nullable": True, "default": 1}}})
    assert default(node, {}) == {"a": 1}
    assert default(node, {"a": None}) == {"a": None}
