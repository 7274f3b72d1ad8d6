"""Operations on field sets, and their formats."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.ownership.field_sets import (
    FieldSet,
    Path,
    contains,
    difference,
    exclude,
    intersection,
    item_element,
    normalize,
    path_text,
    paths,
    union,
    value_element,
)

ELEMENTS = ["f:a", "f:b", "f:c.d/e", value_element("x"), item_element({"name": "n", "port": 80}), "i:0"]
paths_of_few_elements = st.lists(st.sampled_from(ELEMENTS), min_size=1, max_size=4).map(tuple)
sets_of_paths = st.sets(paths_of_few_elements, max_size=12)


def insert(one: FieldSet, path: Path) -> FieldSet:
    """Return the set with the path in it."""
    node: FieldSet = {}
    for element in reversed(path):
        node = {element: node}
    return union(one, node)


def make(members: set[Path]) -> FieldSet:
    """Return the set of the paths."""
    result: FieldSet = {}
    for path in sorted(members):
        result = insert(result, path)
    return result


def members(fields: FieldSet) -> set[Path]:
    """Return the paths of the set."""
    found = list(paths(fields))
    assert len(found) == len(set(found))
    return set(found)


@given(sets_of_paths)
def test_a_set_contains_the_inserted_paths(wanted: set[Path]) -> None:
    fields = make(wanted)
    assert members(fields) == wanted
    assert all(contains(fields, path) for path in wanted)


@given(sets_of_paths)
def test_managed_fields_are_normalized_to_themselves(wanted: set[Path]) -> None:
    assert normalize(make(wanted)) == make(wanted)


@given(sets_of_paths, sets_of_paths)
def test_a_union_contains_the_paths_of_either_set(one: set[Path], other: set[Path]) -> None:
    assert members(union(make(one), make(other))) == one | other
    assert union(make(one), make(other)) == make(one | other)


@given(sets_of_paths, sets_of_paths)
def test_an_intersection_contains_the_paths_of_both_sets(one: set[Path], other: set[Path]) -> None:
    assert intersection(make(one), make(other)) == make(one & other)


@given(sets_of_paths, sets_of_paths)
def test_a_difference_contains_the_paths_of_only_the_first_set(one: set[Path], other: set[Path]) -> None:
    assert difference(make(one), make(other)) == make(one - other)


@given(sets_of_paths, sets_of_paths)
def test_excluding_a_path_excludes_the_paths_below_it(one: set[Path], other: set[Path]) -> None:
    left = {path for path in one if not any(path[: len(prefix)] == prefix for prefix in other)}
    assert exclude(make(one), make(other)) == make(left)


@given(sets_of_paths, sets_of_paths)
def test_no_operation_changes_its_arguments(one: set[Path], other: set[Path]) -> None:
    first, second = make(one), make(other)
    for operation in (union, intersection, difference, exclude):
        operation(first, second)
    assert (members(first), members(second)) == (one, other)


@given(sets_of_paths, sets_of_paths)
def test_difference_and_intersection_add_up_to_the_set(one: set[Path], other: set[Path]) -> None:
    first, second = make(one), make(other)
    assert union(difference(first, second), intersection(first, second)) == first


def test_an_unchanged_set_is_the_same_object() -> None:
    fields = make({("f:a", "f:b"), ("f:c",)})
    assert difference(fields, make({("f:a", "f:x")})) is fields


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("f:spec", "f:replicas"), ".spec.replicas"),
        (("f:spec", item_element({"port": 80, "name": "x"}), "f:a"), '.spec[name="x",port=80].a'),
        (("f:tags", value_element("x")), '.tags[="x"]'),
        (("f:list", "i:3"), ".list[3]"),
    ],
)
def test_paths_are_formatted_for_messages(path: Path, text: str) -> None:
    assert path_text(path) == text


def test_paths_are_sorted_with_members_before_the_paths_below_them() -> None:
    fields = make({("f:b",), ("f:a", "f:z"), ("f:a", "f:y"), ("f:c",), ("f:a",), ("v:2",), ("v:10",)})
    expected = [("f:a",), ("f:b",), ("f:c",), ("v:2",), ("v:10",), ("f:a", "f:y"), ("f:a", "f:z")]
    assert list(paths(fields)) == expected


def test_keys_are_normalized() -> None:
    assert normalize({'k:{"b": 1, "a":"x"}': {}}) == {'k:{"a":"x","b":1}': {}}


def test_elements_of_unknown_types_are_dropped() -> None:
    assert normalize({"x:y": {"f:a": {}}, "f:b": {"x:z": {}}}) == {"f:b": {}}


@pytest.mark.parametrize(
    "wrong", [[], {"nonsense": {}}, {"f:a": 5}, {"k:[1]": {}}, {"k:{": {}}, {"v:": {}}, {"i:x": {}}]
)
def test_invalid_sets_are_rejected(wrong: Any) -> None:
    with pytest.raises(ValueError):
        normalize(wrong)
