"""Differences of objects."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given

from tests.model.strategies import Untouched, fields, objects, untimed, without_nulls
from trioperator._model.diff import MAX_DEPTH, MAX_ITEMS, Diff, DiffItem, DiffOperation, diff, reduce_diff
from trioperator._model.fields import FieldPath, ensure, remove, resolve


def apply(old: dict[str, Any], items: Iterable[DiffItem]) -> Any:
    """Apply a diff to an object."""
    result = copy.deepcopy(old)
    for item in items:
        if not item.field:
            return item.new
        elif item.op is DiffOperation.REMOVE:
            parent = resolve(result, item.field[:-1])
            del parent[item.field[-1]]
        else:
            ensure(result, item.field, item.new)
    return result


@pytest.mark.parametrize(
    ("old", "new", "items"),
    [
        ({"a": 1}, {"a": 1}, ()),
        ({"a": 1}, {"a": 2}, (("change", ("a",), 1, 2),)),
        ({"a": {"b": 1}}, {"a": {"b": 2}, "c": [1]}, (("change", ("a", "b"), 1, 2), ("add", ("c",), None, [1]))),
        ({"a": {"b": 1}}, {"a": 5}, (("change", ("a",), {"b": 1}, 5),)),
        ({"a": {}}, {}, (("remove", ("a",), {}, None),)),
        (None, {"a": {"b": 1}}, (("add", (), None, {"a": {"b": 1}}),)),
        ({"a": 1}, None, (("remove", (), {"a": 1}, None),)),
        (None, None, ()),
        (1, 2, (("change", (), 1, 2),)),
    ],
)
def test_differences_are_computed_field_by_field(old: Any, new: Any, items: tuple[Any, ...]) -> None:
    assert sorted(diff(old, new), key=lambda item: item.field) == sorted(items, key=lambda item: item[1])


def test_none_is_the_same_as_absent() -> None:
    assert diff({"a": None}, {}) == ()
    assert diff({}, {"a": None}) == ()
    assert diff({"a": None}, {"a": 1}) == (("add", ("a",), None, 1),)
    assert diff({"a": 1}, {"a": None}) == (("remove", ("a",), 1, None),)


def test_lists_are_compared_as_a_whole() -> None:
    assert diff({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}) == (("change", ("a",), [1, {"b": 2}], [1, {"b": 3}]),)


@given(objects, objects)
@untimed
def test_the_differences_lead_from_one_to_the_other(old: dict[str, Any], new: dict[str, Any]) -> None:
    with Untouched(old, new):
        items = diff(old, new)
    assert without_nulls(apply(old, items)) == without_nulls(new)


@given(objects)
@untimed
def test_equal_values_have_no_differences(value: dict[str, Any]) -> None:
    assert not diff(value, copy.deepcopy(value))
    assert not diff(value, without_nulls(value))


@given(objects, objects)
@untimed
def test_both_objects_are_safe_from_whoever_has_private_differences(old: dict[str, Any], new: dict[str, Any]) -> None:
    before = copy.deepcopy((old, new))
    private = diff(old, new, private=True)
    assert (private, bool(private)) == (diff(old, new), bool(diff(old, new)))
    for item in private:
        for value in (item.old, item.new):
            if isinstance(value, dict | list):
                value.clear()
    assert (old, new) == before


@given(objects, objects)
@untimed
def test_the_reverse_diff_has_the_reverse_operations(old: dict[str, Any], new: dict[str, Any]) -> None:
    opposite = {"add": "remove", "remove": "add", "change": "change"}
    back = {(opposite[item.op], item.field, str(item.new), str(item.old)) for item in diff(new, old)}
    assert back == {(item.op.value, item.field, str(item.old), str(item.new)) for item in diff(old, new)}


@given(objects, objects, fields)
@untimed
def test_a_diff_reduced_to_a_field_is_the_diff_of_the_field(
    old: dict[str, Any], new: dict[str, Any], path: FieldPath
) -> None:
    assert reduce_diff(diff(old, new), path) == diff(resolve(old, path), resolve(new, path))


@given(objects, fields)
@untimed
def test_a_created_object_is_reduced_to_the_creation_of_the_field(new: dict[str, Any], path: FieldPath) -> None:
    assert reduce_diff(diff(None, new), path) == diff(None, resolve(new, path))


def test_a_diff_is_not_reduced_to_the_root() -> None:
    whole = diff({"a": 1}, {"a": 2})
    assert reduce_diff(whole, ()) is whole


def test_a_field_that_shares_only_the_beginning_of_its_name_is_another_one() -> None:
    assert reduce_diff(diff({"spec": {"size": 1}}, {"spec": {"size": 2}}), ("spec", "siz")) == ()


class TestDiff:
    def test_it_is_a_sequence_of_named_tuples(self) -> None:
        items = diff({}, {"a": 1, "b": 2})
        assert len(items) == 2
        assert items[0].operation is items[0].op is DiffOperation.ADD
        assert isinstance(items[:1], Diff)
        assert [new for _, _, _, new in items] == [1, 2]
        assert items[1] in items

    def test_it_equals_plain_tuples(self) -> None:
        items = diff({"a": 1}, {"a": 2})
        assert items == (("change", ("a",), 1, 2),)
        assert items == [("change", ("a",), 1, 2)]
        assert items == Diff([("change", ("a",), 1, 2)])
        assert items != (("add", ("a",), 1, 2),)
        assert items != ()
        assert items != "change"
        assert items != 5

    def test_what_is_equal_has_the_same_hash(self) -> None:
        items = diff({"a": 1}, {"a": 2})
        assert hash(items) == hash((("change", ("a",), 1, 2),))
        assert len({items, diff({"a": 1}, {"a": 2})}) == 1

    def test_it_is_always_hashable(self) -> None:
        assert hash(diff({"a": [1]}, {"a": {}})) == hash(diff({"a": [1]}, {"a": {}}))

    def test_operations_are_strings(self) -> None:
        assert str(DiffOperation.ADD) == "add"
        assert DiffOperation.ADD in {"add"}
        assert f"{DiffOperation.CHANGE}" == "change"
        assert repr((*diff({"a": 1}, {"a": 2})[0],)) == "('change', ('a',), 1, 2)"
        assert DiffOperation("remove") is DiffOperation.REMOVE

    def test_it_is_true_if_there_is_any_difference(self) -> None:
        assert not Diff()
        assert diff(1, 2)

    def test_it_is_immutable(self) -> None:
        with pytest.raises(TypeError):
            diff(1, 2)[0] = None  # type: ignore[index]

    def test_its_repr_is_that_of_the_tuples(self) -> None:
        assert repr((*diff({"a": 1}, {"a": 2})[0],)) == "('change', ('a',), 1, 2)"


def test_the_test_itself_applies_removals() -> None:
    target: dict[str, Any] = {"a": {"b": 1}}
    remove(target, ("a", "b"))
    assert apply({"a": {"b": 1}}, diff({"a": {"b": 1}}, target)) == {}


def nested(depth: int, value: Any) -> Any:
    for _ in range(depth):
        value = {"a": value}
    return value


def test_mappings_that_are_deep_are_compared_as_a_whole() -> None:
    old, new = nested(500, {"x": 1, "y": 2}), nested(500, {"x": 1, "y": 3})
    (item,) = diff(old, new)
    assert item == ("change", ("a",) * MAX_DEPTH, nested(500 - MAX_DEPTH, {"x": 1, "y": 2}), resolve(new, item.field))
    (item,) = diff(nested(MAX_DEPTH - 1, {"x": 1, "y": 2}), nested(MAX_DEPTH - 1, {"x": 1, "y": 3}))
    assert item == ("change", (*("a",) * (MAX_DEPTH - 1), "y"), 2, 3)


@pytest.mark.parametrize("width", [10, 100, 1000, 50_000])
def test_there_are_not_many_more_differences_than_the_limit(width: int) -> None:
    old = {f"k{n}": {f"k{m}": 1 for m in range(width)} for n in range(100_000 // width)}
    new = {key: dict.fromkeys(value, 2) for key, value in old.items()}
    items = diff(old, new)
    assert 0 < len(items) < 2 * MAX_ITEMS
    assert apply(old, items) == new
