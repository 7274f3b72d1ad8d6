"""Digests in place of values that are too big."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.model.strategies import Untouched, objects, untimed
from trioperator._model.digest import DIGEST, _known, digest, matches, restore, shrink
from trioperator._model.jsontypes import JsonObject


def shrunk(value: JsonObject, room: int) -> JsonObject:
    encoded = shrink(value, room)
    assert len(encoded) <= max(room, 61)
    result: JsonObject = json.loads(encoded)
    return result


def is_digest(value: Any) -> bool:
    return isinstance(value, dict) and list(value) == [DIGEST]


def test_a_value_that_fits_is_unchanged() -> None:
    assert shrink({"b": 1, "a": [1, 2]}, 20) == b'{"b":1,"a":[1,2]}'


def test_the_largest_values_are_replaced_first_and_only_as_many_as_needed() -> None:
    value = {"spec": {"huge": "x" * 5000, "big": "y" * 3000, "small": 1}}
    result = shrunk(value, 4000)
    assert is_digest(result["spec"]["huge"])
    assert result["spec"]["big"] == "y" * 3000
    assert result["spec"]["small"] == 1
    result = shrunk(value, 1000)
    assert is_digest(result["spec"]["big"])
    assert result["spec"]["small"] == 1


def test_lists_are_replaced_as_a_whole() -> None:
    result = shrunk({"spec": {"items": list(range(1000)), "size": 1}}, 500)
    assert is_digest(result["spec"]["items"])
    assert result["spec"]["size"] == 1


def test_inner_mappings_of_small_values_are_replaced_first() -> None:
    value = {"spec": {"wide": {f"k{number}": "v" * 50 for number in range(500)}, "size": 1}, "data": {"x": "y"}}
    result = shrunk(value, 1000)
    assert is_digest(result["spec"]["wide"])
    assert result["spec"]["size"] == 1
    assert result["data"] == {"x": "y"}


def test_the_whole_value_is_replaced_if_nothing_else_helps() -> None:
    assert is_digest(shrunk({"a": "x" * 20, "b": "y" * 20, "c": "z" * 20}, 65))
    assert is_digest(shrunk({"a": "x" * 100}, -5))


def test_the_order_of_keys_does_not_matter_for_a_digest() -> None:
    one = shrunk({"a": {"b": "x" * 100, "c": "y" * 100, "d": {}}}, 70)
    other = shrunk({"a": {"d": {}, "c": "y" * 100, "b": "x" * 100}}, 70)
    assert one == other


def test_unchanged_values_are_restored_and_changed_ones_stay_digests() -> None:
    value = {"spec": {"huge": "x" * 5000, "big": ["y" * 3000], "small": 1}}
    stored = shrunk(value, 500)
    changed = {"spec": {"huge": "x" * 5000, "big": ["z" * 3000], "small": 2}}
    restored = restore(stored, changed)
    assert restored["spec"]["huge"] is changed["spec"]["huge"]
    assert is_digest(restored["spec"]["big"])
    assert restored["spec"]["small"] == 1


@pytest.mark.parametrize("present", [None, {}, {"spec": None}, {"spec": 5}, {"spec": {"huge": None}}, "text", [1]])
def test_a_digest_of_a_removed_value_stays(present: Any) -> None:
    stored = shrunk({"spec": {"huge": "x" * 5000, "small": 1}}, 100)
    assert restore(stored, present) == stored


@given(objects, st.integers(0, 300))
@untimed
def test_whatever_was_replaced_is_restored_from_an_unchanged_value(value: dict[str, Any], room: int) -> None:
    with Untouched(value):
        stored = shrunk(value, room)
        assert restore(stored, value) == value
        assert matches(stored, msgspec.json.encode(value))


@given(objects, objects, st.integers(0, 300))
@untimed
def test_json_matches_what_is_stored_if_that_is_restored_from_it(
    value: dict[str, Any], other: dict[str, Any], room: int
) -> None:
    stored = shrunk(value, room)
    assert matches(stored, msgspec.json.encode(other)) is (restore(stored, other) == other)


@pytest.mark.parametrize("other", [{}, {"spec": []}, {"spec": {"items": [0] * 900, "size": 2}}, {"spec": {"items": 1}}])
def test_json_that_differs_anywhere_does_not_match(other: Any) -> None:
    stored = shrunk({"spec": {"items": [0] * 900, "size": 1}}, 200)
    assert not matches(stored, msgspec.json.encode(other))


def size(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":")))


@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(260, 400).map(lambda length: "x" * length), min_size=4),
    st.integers(400, 1700),
)
@untimed
def test_no_more_is_replaced_than_necessary(value: dict[str, str], room: int) -> None:
    result = shrunk({"spec": value}, room)["spec"]
    replaced = {key for key in value if is_digest(result[key])}
    if replaced:
        smallest = min(replaced, key=lambda key: len(value[key]))
        assert size({"spec": {**result, smallest: value[smallest]}}) > room
        assert all(len(value[key]) <= len(value[smallest]) for key in value.keys() - replaced)


def test_data_that_looks_like_a_digest_is_just_data() -> None:
    value = {"spec": {DIGEST: "mine"}, "other": {DIGEST: "mine", "x": 1}}
    assert restore(json.loads(shrink(value, 1000)), value) == value
    assert restore(value, {}) == value
    assert matches(value, msgspec.json.encode(value))


def test_mappings_with_very_many_values_are_replaced_as_a_whole() -> None:
    value = {"spec": {f"k{number}": {} for number in range(50_000)}, "data": {"x": "y" * 100}}
    result = shrunk(value, 10_000)
    assert is_digest(result["spec"])
    assert result["data"] == value["data"]
    assert restore(result, value) == value


def test_mappings_that_are_very_deep_are_replaced_as_a_whole() -> None:
    value: JsonObject = {"x": "y" * 5000, "z": 1}
    for _ in range(500):
        value = {"a": value}
    result = shrunk(value, 4000)
    depth = 0
    inner: Any = result
    while not is_digest(inner):
        inner, depth = inner["a"], depth + 1
    assert depth == 16
    assert restore(result, value) == value


# ----------------------------------------------------------------------------- parts of outlines


@pytest.mark.parametrize("raw", [b'[[], {"b": 1, "a": 2}]', b'{"b": [1.0], "a": "\\u003c"}', b"1"])
def test_json_has_the_digest_of_its_value_and_stands_for_it(raw: bytes) -> None:
    value = msgspec.json.decode(raw)
    assert digest(msgspec.Raw(raw)) == digest(value)
    assert digest({"x": msgspec.Raw(raw)}) == digest({"x": value})
    assert restore(digest(value), msgspec.Raw(raw)) == msgspec.Raw(raw)
    assert matches(digest(value), raw)
    assert not matches(digest([value]), raw)


def test_json_is_replaced_by_its_digest_where_it_is_too_big() -> None:
    value = {"items": [{"b": 1, "a": [2]}] * 1000, "n": 1}
    outline = {"items": msgspec.Raw(msgspec.json.encode(value["items"])), "n": 1}
    assert shrink(outline, 1000) == shrink(value, 1000)


def test_a_large_value_is_no_digest_itself() -> None:
    stored = digest([1])
    written = msgspec.json.encode(stored)
    assert matches(stored, written)
    assert not matches(stored, b" " * 10 + msgspec.json.encode({**stored, "x": "y" * 10_000}))


def test_few_digests_are_remembered() -> None:
    for number in range(600):
        digest(msgspec.Raw(b"[%d]" % number))
    assert len(_known) == 256
