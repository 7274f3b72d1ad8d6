"""Tests for :mod:`trioperator.apiserver.ownership.comparison`: changes are found field by field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.ownership.comparison import UNMANAGED, Scope, compare, fields_of
from trioperator.apiserver.ownership.field_sets import FieldSet, paths
from trioperator.apiserver.ownership.field_types import FieldType

ROOT = FieldType(
    {
        "properties": {
            "metadata": {},
            "map": {"additionalProperties": {}},
            "whole": {"x-kubernetes-map-type": "atomic"},
            "items": {
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["n"],
                "items": {"properties": {"n": {"type": "string"}, "v": {}}},
            },
            "set": {"x-kubernetes-list-type": "set"},
            "list": {"type": "array"},
        },
    }
)
A = 'k:{"n":"a"}'
scalars = st.none() | st.booleans() | st.integers(0, 2) | st.text("ab", max_size=1)
values = st.recursive(
    scalars, lambda below: st.dictionaries(st.text("ab", max_size=1), below) | st.lists(below), max_leaves=5
)
objects = st.dictionaries(st.sampled_from(["map", "whole", "list"]), values)


@pytest.mark.parametrize(
    ("old", "new", "changed", "removed"),
    [
        ({}, {"map": {"a": 1}}, {"f:map": {".": {}, "f:a": {}}}, {}),
        ({"map": {"a": 1, "b": 1}}, {"map": {"a": 2}}, {"f:map": {"f:a": {}}}, {"f:map": {"f:b": {}}}),
        ({"map": {"a": 1}}, {}, {}, {"f:map": {".": {}, "f:a": {}}}),
        ({"whole": {"a": 1}}, {"whole": {"a": 1, "b": 2}}, {"f:whole": {}}, {}),
        ({"list": [1]}, {"list": [1, 2]}, {"f:list": {}}, {}),
        ({"set": [1, 2]}, {"set": [3, 2]}, {"f:set": {"v:3": {}}}, {"f:set": {"v:1": {}}}),
        (
            {"items": [{"n": "a", "v": 1}, {"n": "b"}]},
            {"items": [{"n": "b"}, {"n": "a", "v": 2}]},
            {"f:items": {A: {"f:v": {}}}},
            {},
        ),
        ({"items": [{"n": "a"}]}, {"items": []}, {}, {"f:items": {A: {".": {}, "f:n": {}}}}),
        ({"set": [1, 1]}, {"set": [1]}, {"f:set": {"v:1": {}}}, {"f:set": {"v:1": {}}}),
        ({"map": 1}, {"map": {"a": 1}}, {"f:map": {".": {}, "f:a": {}}}, {}),
        ({"map": 1}, {"map": True}, {"f:map": {}}, {}),
        ({"map": 1}, {"map": 1.0}, {}, {}),
    ],
)
def test_each_change_is_a_field(old: dict[str, Any], new: dict[str, Any], changed: FieldSet, removed: FieldSet) -> None:
    assert compare(ROOT, old, new, Scope()) == (changed, removed)


@given(objects)
def test_an_object_does_not_differ_from_itself(obj: dict[str, Any]) -> None:
    assert compare(ROOT, obj, dict(obj), Scope()) == ({}, {})


@given(objects)
def test_a_creation_and_a_deletion_are_about_the_same_fields(obj: dict[str, Any]) -> None:
    assert compare(ROOT, {}, obj, Scope()).changed == compare(ROOT, obj, {}, Scope()).removed


def test_fields_without_managers_are_not_compared() -> None:
    old = {"kind": "A", "metadata": {"uid": "a", "labels": {"a": "b"}}}
    new = {"kind": "B", "metadata": {"uid": "b", "generation": 2, "labels": {"a": "c"}}}
    assert compare(ROOT, old, new, Scope()) == ({"f:metadata": {"f:labels": {"f:a": {}}}}, {})
    metadata = {element[2:]: "new" for element in UNMANAGED["f:metadata"] if element != "."}
    assert compare(ROOT, {}, {"apiVersion": "v1", "metadata": metadata}, Scope()) == ({}, {})


@pytest.mark.parametrize(
    ("scope", "changed"),
    [
        (Scope("map"), ["f:metadata", "f:set"]),
        (Scope("map", "metadata"), ["f:set"]),
        (Scope("set", metadata=("labels",)), ["f:map"]),
    ],
)
def test_fields_that_a_subresource_cannot_change_are_not_compared(scope: Scope, changed: list[str]) -> None:
    new = {"map": {"a": 1}, "set": [1], "metadata": {"labels": {"a": "b"}}}
    assert sorted(compare(ROOT, {}, new, scope).changed) == changed


def test_the_fields_of_an_object_are_its_leaves_and_items() -> None:
    obj = {
        "map": {},
        "whole": {"a": 1},
        "items": [{"n": "a", "v": {"x": 1}}],
        "set": ["x"],
        "list": [],
        "metadata": {"name": "a"},
        "unknown": 1,
    }
    assert fields_of(ROOT, obj) == {
        "f:map": {},
        "f:whole": {},
        "f:items": {A: {".": {}, "f:n": {}, "f:v": {"f:x": {}}}},
        "f:set": {'v:"x"': {}},
        "f:list": {},
        "f:metadata": {"f:name": {}},
        "f:unknown": {},
    }


@given(objects)
def test_the_fields_of_an_object_are_changed_by_its_creation(obj: dict[str, Any]) -> None:
    created = compare(ROOT, {}, obj, Scope()).changed
    assert set(paths(fields_of(ROOT, obj))) <= set(paths(created))
