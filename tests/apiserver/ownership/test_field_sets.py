"""The algebra of sets of fields, and their text forms."""

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
    insert,
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


def make(members: set[Path]) -> FieldSet:
    """Make the set of the paths."""
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
def test_a_set_has_the_paths_that_were_put_in(wanted: set[Path]) -> None:
    fields = make(wanted)
    assert members(fields) == wanted
    assert all(contains(fields, path) for path in wanted)


@given(sets_of_paths)
def test_the_form_of_managed_fields_is_read_back_as_it_is(wanted: set[Path]) -> None:
    assert normalize(make(wanted)) == make(wanted)


@given(sets_of_paths, sets_of_paths)
def test_a_union_has_what_either_set_has(one: set[Path], other: set[Path]) -> None:
    assert members(union(make(one), make(other))) == one | other
    assert union(make(one), make(other)) == make(one | other)


@given(sets_of_paths, sets_of_paths)
def test_an_intersection_has_what_both_sets_have(one: set[Path], other: set[Path]) -> None:
    assert intersection(make(one), make(other)) == make(one & other)


@given(sets_of_paths, sets_of_paths)
def test_a_difference_has_what_only_the_first_set_has(one: set[Path], other: set[Path]) -> None:
    assert difference(make(one), make(other)) == make(one - other)


@given(sets_of_paths, sets_of_paths)
def test_to_exclude_a_path_is_to_exclude_what_is_below_it(one: set[Path], other: set[Path]) -> None:
    left = {path for path in one if not any(path[: len(prefix)] == prefix for prefix in other)}
    assert exclude(make(one), make(other)) == make(left)


@given(sets_of_paths, sets_of_paths)
def test_no_operation_changes_what_it_was_given(one: set[Path], other: set[Path]) -> None:
    first, second = make(one), make(other)
    for operation in (union, intersection, difference, exclude):
        operation(first, second)
    assert (members(first), members(second)) == (one, other)


@given(sets_of_paths, sets_of_paths)
def test_what_is_taken_away_and_given_back_is_all_there_was(one: set[Path], other: set[Path]) -> None:
    first, second = make(one), make(other)
    assert union(difference(first, second), intersection(first, second)) == first


def test_what_nothing_is_taken_from_stays_the_same_object() -> None:
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
def test_paths_have_texts(path: Path, text: str) -> None:
    assert path_text(path) == text


def test_paths_come_in_order_members_before_what_is_below_them() -> None:
    fields = make({("f:b",), ("f:a", "f:z"), ("f:a", "f:y"), ("f:c",), ("f:a",), ("v:2",), ("v:10",)})
    expected = [("f:a",), ("f:b",), ("f:c",), ("v:2",), ("v:10",), ("f:a", "f:y"), ("f:a", "f:z")]
    assert list(paths(fields)) == expected


def test_keys_are_written_in_one_way() -> None:
    assert normalize({'k:{"b": 1, "a":"x"}': {}}) == {'k:{"a":"x","b":1}': {}}


def test_elements_of_unknown_types_are_dropped() -> None:
    assert normalize({"x:y": {"f:a": {}}, "f:b": {"x:z": {}}}) == {"f:b": {}}


@pytest.mark.parametrize(
    "wrong", [[], {"nonsense": {}}, {"f:a": 5}, {"k:[1]": {}}, {"k:{": {}}, {"v:": {}}, {"i:x": {}}]
)
def test_what_is_no_set_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError):
        normalize(wrong)
