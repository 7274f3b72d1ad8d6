"""Tests for :mod:`trioperator.apiserver.ownership.field_types`: schemas tell fields of their own from leaves."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.model.kinds import Catalog
from trioperator.apiserver.ownership.field_types import (
    DEDUCED,
    FieldType,
    UntypedItemError,
    type_of_kind,
    typing_problems,
)

SET = FieldType({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}})
KEYED = FieldType(
    {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name", "proto"],
        "items": {"properties": {"name": {"type": "string"}, "proto": {"type": "string", "default": "tcp"}}},
    }
)
NAMED = FieldType(
    {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "integer"}}},
    }
)
scalars = st.none() | st.booleans() | st.integers() | st.text()
values = st.recursive(scalars, lambda below: st.lists(below) | st.dictionaries(st.text(), below), max_leaves=5)


@pytest.mark.parametrize(
    ("schema", "keys"),
    [
        ({}, None),
        ({"x-kubernetes-list-type": "atomic"}, None),
        ({"x-kubernetes-list-type": "set"}, ()),
        ({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"]}, ("a", "b")),
        ({"x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "a"}, ("a",)),
        ({"x-kubernetes-patch-strategy": "merge"}, ()),
        ({"x-kubernetes-patch-strategy": "replace", "x-kubernetes-patch-merge-key": "a"}, None),
        ({"x-kubernetes-list-type": "atomic", "x-kubernetes-patch-strategy": "merge"}, None),
    ],
)
def test_lists_are_atomic_unless_their_schemas_say_otherwise(
    schema: dict[str, Any], keys: tuple[str, ...] | None
) -> None:
    assert FieldType(schema).keys == keys


@pytest.mark.parametrize(
    ("node", "item", "element"),
    [
        (SET, "a", 'v:"a"'),
        (SET, 1, "v:1"),
        (KEYED, {"proto": "udp", "name": "a", "x": 1}, 'k:{"name":"a","proto":"udp"}'),
        (KEYED, {"name": "a"}, 'k:{"name":"a","proto":"tcp"}'),
        (KEYED, {}, 'k:{"proto":"tcp"}'),
    ],
)
def test_items_are_identified_by_their_values_or_keys(node: FieldType, item: Any, element: str) -> None:
    assert node.element(item) == element


@pytest.mark.parametrize(
    ("node", "item", "problem"),
    [
        (SET, {}, "associative list without keys has an element that's a map type"),
        (SET, [], "not supported: associative list with lists as elements"),
        (SET, None, "associative list without keys has an element that's an explicit null"),
        (KEYED, None, "associative list with keys may not have a null element"),
        (KEYED, "a", "associative list with keys may not have non-map elements"),
        (NAMED, {"x": 1}, 'associative list with keys has an element that omits all key fields ["name"] '),
    ],
)
def test_other_items_have_no_identity(node: FieldType, item: Any, problem: str) -> None:
    with pytest.raises(UntypedItemError) as caught:
        node.element(item)
    assert str(caught.value).startswith(problem)


def test_undeclared_fields_have_the_type_of_additional_properties() -> None:
    node = FieldType({"properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "integer"}})
    assert node.field("a").type_problem("x") is None
    assert node.field("b").type_problem("x") is not None


@pytest.mark.parametrize(
    ("schema", "is_allowed"),
    [
        ({"properties": {"a": {}}}, False),
        ({"properties": {"a": {}}, "additionalProperties": False}, False),
        ({"properties": {"a": {}}, "additionalProperties": True}, True),
        ({"properties": {"a": {}}, "x-kubernetes-preserve-unknown-fields": True}, True),
        ({}, True),
    ],
)
def test_undeclared_fields_may_be_allowed(schema: dict[str, Any], is_allowed: bool) -> None:
    problems = list(typing_problems(FieldType(schema), {"b": 1}))
    assert problems == ([] if is_allowed else [".b: field not declared in schema"])


def test_fields_are_preserved_below_a_node_that_preserves_them() -> None:
    schema = {"x-kubernetes-preserve-unknown-fields": True, "properties": {"a": {"properties": {"b": {}}}}}
    assert list(typing_problems(FieldType(schema), {"a": {"c": 1}})) == []


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ({"type": "object"}, [1], "expected map, got &{[1]}"),
        ({"type": "array"}, {"a": 1}, "expected list, got &{map[a:1]}"),
        ({"type": "integer"}, "a", "expected numeric (int or float), got string"),
        ({"type": "number"}, True, "expected numeric (int or float), got bool"),
        ({"type": "boolean"}, 1, "expected boolean, got &{1}"),
        ({"type": "string"}, 1, "expected string, got &value.valueUnstructured{Value:1}"),
        (
            {"type": "string"},
            {"a": ["b", None]},
            'expected string, got &value.valueUnstructured{Value:map[string]interface {}{"a":'
            '[]interface {}{"b", interface {}(nil)}}}',
        ),
        ({"type": "string", "format": "int-or-string"}, [], "expected any scalar, got &{[]}"),
        ({"type": "string", "format": "int-or-string"}, 1, None),
        ({"type": "integer"}, None, None),
        ({"type": "number"}, 1.5, None),
    ],
)
def test_values_of_the_wrong_type_are_shown_as_go_prints_them(
    schema: dict[str, Any], value: Any, problem: str | None
) -> None:
    assert FieldType(schema).type_problem(value) == problem


@pytest.mark.parametrize(
    ("items", "problems"),
    [
        ([{"name": "a"}, {"name": "b"}], []),
        ([{"name": "a"}, {"name": "a"}], ['duplicate entries for key [name="a"]']),
        ([{"name": "a", "value": "x"}], ['[name="a"].value: expected numeric (int or float), got string']),
    ],
)
def test_problems_of_lists_name_the_item(items: list[Any], problems: list[str]) -> None:
    assert list(typing_problems(NAMED, items)) == problems


def test_problems_name_the_path() -> None:
    node = FieldType({"properties": {"a": {"additionalProperties": {"type": "array", "items": {"type": "string"}}}}})
    (problem,) = typing_problems(node, {"a": {"b": ["x", 1]}})
    assert problem == ".a.b[1]: expected string, got &value.valueUnstructured{Value:1}"


@given(values)
def test_without_a_schema_any_value_has_the_type(value: Any) -> None:
    assert list(typing_problems(DEDUCED, value)) == []


def test_an_empty_object_has_its_required_fields_and_its_defaults() -> None:
    node = FieldType(
        {
            "required": ["a", "b"],
            "properties": {
                "a": {"type": "string"},
                "b": {"type": "string", "default": ""},
                "c": {"default": {}, "properties": {"d": {"default": 0}, "e": {}}},
                "f": {"default": "x"},
                "g": {},
            },
        }
    )
    assert node.blank == {"a": None, "b": "", "c": {"d": 0}}


def test_the_types_of_built_in_kinds_are_compiled_once_for_all_clusters() -> None:
    one, same = (Catalog().find("deployments") for _ in range(2))
    assert one is not None
    assert one is same
    assert type_of_kind(one) is type_of_kind(dataclasses.replace(one))


def test_built_in_kinds_have_types() -> None:
    kind = Catalog().get("", "v1", "pods")
    assert kind is not None
    containers = type_of_kind(kind).field("spec").field("containers")
    assert containers.keys == ("name",)
    assert containers.item.field("ports").element({"containerPort": 80}) == ('k:{"containerPort":80,"protocol":"TCP"}')
    assert type_of_kind(kind).field("metadata").field("ownerReferences").keys == ("uid",)
