"""Tests for :mod:`trioperator.apiserver.custom.correlation`: items of keyed lists are compared by their keys."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.custom.correlation import correlate, in_order_of, is_unchanged, part
from trioperator.apiserver.custom.schema import compile_schema

TEXT = {"type": "string"}
WHOLE = {"type": "integer"}
SET = {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"}
LIST = {"type": "array", "items": WHOLE}


def record(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object."""
    return {"type": "object", "properties": properties}


def keyed(*keys: str, **properties: Any) -> dict[str, Any]:
    """Return the schema of a list with keys."""
    kind = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
    return {"type": "array", "items": record(**dict.fromkeys(keys, TEXT), **properties), **kind}


PAIRS = keyed("key", value=WHOLE)


def test_old_lists_are_in_the_order_of_the_new_ones() -> None:
    node = compile_schema(record(pairs=PAIRS, plain=LIST))
    new = {"pairs": [{"key": "b"}, {"key": "c"}, {"key": "a", "value": 2}], "plain": [1, 2]}
    old = {"pairs": [{"key": "a", "value": 1}, {"key": "x"}, {"key": "b"}], "plain": [2, 1]}
    assert in_order_of(node, new, old) == {
        "pairs": [{"key": "b"}, {"key": "a", "value": 1}, {"key": "x"}],
        "plain": [2, 1],
    }


def test_an_item_is_correlated_by_all_of_its_keys() -> None:
    old = [{"host": "a", "port": "1", "n": 1}, {"host": "a", "port": "2", "n": 2}, {"host": "b"}, "no item"]
    before = correlate(compile_schema(keyed("host", "port")), old)
    assert before({"host": "a", "port": "2", "n": 9}) == old[1]
    assert before({"host": "b", "port": None}) == old[2]
    assert before({"host": "b", "port": "1"}) is None
    assert before("no item") is None


def test_the_first_of_several_items_with_the_same_keys_counts() -> None:
    before = correlate(compile_schema(PAIRS), [{"key": "a", "value": 1}, {"key": "a", "value": 2}])
    assert before({"key": "a"}) == {"key": "a", "value": 1}


@pytest.mark.parametrize(
    ("schema", "old"), [(LIST, [{"key": "a"}]), (SET, [{"key": "a"}]), (PAIRS, None), (PAIRS, "x")]
)
def test_nothing_is_correlated_without_keys_or_an_old_list(schema: dict[str, Any], old: Any) -> None:
    assert correlate(compile_schema(schema), old)({"key": "a"}) is None


@pytest.mark.parametrize(
    ("value", "old", "expected"),
    [
        ({"size": 1}, {"size": 1}, True),
        ({"size": 1}, {"size": 2}, False),
        ({"size": 1}, {}, False),
        ({"unknown": 1}, {"unknown": 1}, False),
        ({"free": {"a": 1}}, {"free": {"a": 1}}, True),
        ({"list": [1, 2]}, {"list": [2, 1]}, False),
        ({"pairs": [{"key": "a"}, {"key": "b"}]}, {"pairs": [{"key": "b"}, {"key": "a"}]}, True),
        ({"pairs": [{"key": "a"}]}, {"pairs": [{"key": "a"}, {"key": "b"}]}, False),
        ({"pairs": [{"key": "a", "value": 1}]}, {"pairs": [{"key": "a", "value": 2}]}, False),
        ({"pairs": [{"key": "a"}]}, {"pairs": [{"key": "b"}]}, False),
    ],
)
def test_keyed_lists_are_unchanged_in_another_order(value: Any, old: Any, expected: bool) -> None:
    free = {"type": "object", "additionalProperties": WHOLE}
    node = compile_schema(record(size=WHOLE, list=LIST, pairs=PAIRS, free=free))
    assert is_unchanged(node, value, old, {}) is expected


def test_properties_come_before_additional_ones() -> None:
    node = compile_schema({"type": "object", "additionalProperties": WHOLE})
    assert part(node, "anything") is node.extra
    declared = compile_schema(record(a=TEXT))
    assert part(declared, "a") is declared.properties["a"]
    assert part(declared, "b") is None
    assert part(compile_schema({"type": "object", "additionalProperties": True}), "b") is None


@given(st.permutations("abcd"), st.permutations("bcde"))
def test_sets_are_in_the_new_order_with_removed_items_last(new: list[str], old: list[str]) -> None:
    expected = [item for item in new if item in old] + ["e"]
    assert in_order_of(compile_schema(SET), new, old) == expected
