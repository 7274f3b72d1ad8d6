"""Tests for :mod:`trioperator._model.shard_ranges`: the hashes and the syntax are those of API servers."""

from __future__ import annotations

import collections
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator._model.shard_ranges import SPACE, ShardRanges, find_shard, hash_text, range_of

HALF = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
REST = "shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')"

limits = st.integers(0, SPACE)
ranges = st.lists(st.tuples(limits, limits).map(sorted).filter(lambda pair: pair[0] < pair[1]), max_size=5)
parts = ranges.map(lambda pairs: ShardRanges.of((start, end) for start, end in pairs))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), ("foobar", 0x85944171F73967E8)],
)
def test_the_hash_is_fnv_1a_with_64_bits(text: str, wanted: int) -> None:
    assert hash_text(text) == wanted


@given(parts)
def test_what_is_written_is_read(found: ShardRanges) -> None:
    if found:
        assert ShardRanges.parse(str(found)) == found


@given(parts, parts, st.integers(0, SPACE - 1))
def test_a_difference_has_what_is_in_the_first_and_not_in_the_second(
    one: ShardRanges, other: ShardRanges, number: int
) -> None:
    candidates = [number, *(limit for pair in (*one.ranges, *other.ranges) for limit in pair)]
    for candidate in candidates:
        if candidate < SPACE:
            assert (candidate in one - other) == (candidate in one and candidate not in other)


def test_adjacent_ranges_are_one() -> None:
    assert str(ShardRanges.parse(f"{REST} || {HALF}")) == HALF.replace("'0x8000000000000000'", "'0x10000000000000000'")


def test_a_selector_never_grows_too_long_for_a_url() -> None:
    many = ShardRanges.of(range_of(shard, 1000) for shard in range(0, 1000, 2))
    assert len(str(many)) < 200
    assert ShardRanges.parse(str(many)) - many, "it selects more than is wanted, and nothing less"
    assert not many - ShardRanges.parse(str(many))


@pytest.mark.parametrize("shards", [1, 2, 3, 7, 8, 1000])
def test_the_shards_are_ranges_that_cover_all_hashes(shards: int) -> None:
    assert ShardRanges.of(range_of(shard, shards) for shard in range(shards)).ranges == ((0, SPACE),)
    for number in range(100):
        uid = str(uuid.UUID(int=number * 7919**9 % 2**128))
        start, end = range_of(find_shard(uid, shards), shards)
        assert start <= hash_text(uid) < end


@pytest.mark.parametrize(
    ("uid", "shard"),
    [("5b0f4bb0-7d26-4d57-9a4b-1f1f8ac3f6a1", 3), ("00000000-0000-0000-0000-000000000000", 2), ("default/w", 1)],
)
def test_the_shard_of_an_object_is_the_same_for_ever(uid: str, shard: int) -> None:
    assert find_shard(uid, 5) == shard


def test_objects_are_spread_evenly() -> None:
    counted = collections.Counter(
        find_shard(str(uuid.UUID(int=number * 7919**9 % 2**128)), 8) for number in range(8000)
    )
    assert set(counted) == set(range(8))
    assert max(counted.values()) < 1.2 * min(counted.values())


def test_objects_can_be_selected_by_their_namespaces() -> None:
    text = HALF.replace("uid", "namespace")
    selected = ShardRanges.parse(text)
    for namespace in ("default", "kube-system", "a", "b"):
        assert selected.selects(uid="x", namespace=namespace) == (hash_text(namespace) < SPACE // 2)
    assert str(selected) == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not shardRange"),
        ("app=web", "is not shardRange"),
        (HALF + " && " + REST, "is not shardRange"),
        (HALF.replace("uid", "name"), "unsupported field path 'object.metadata.name'"),
        (HALF.replace("0x0000000000000000", "0x0"), "'0x0' must be a 0x-prefixed 16-digit hex value"),
        (HALF.replace("0x8000000000000000", "0x80000000000000001"), "must be a 0x-prefixed 16-digit"),
        (HALF.replace("0x8000000000000000", "0x0000000000000000"), "start 0x0000000000000000 must be less than end"),
        (f"{HALF} || {REST.replace('uid', 'namespace')}", "all shard ranges must use the same field"),
    ],
)
def test_what_no_api_server_accepts_is_an_error(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        ShardRanges.parse(text)
