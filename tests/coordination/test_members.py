"""Tests for :mod:`trioperator._coordination.members`: members agree on their shares without talking to each other."""

from __future__ import annotations

import math
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator._coordination.members import (
    NOTHING,
    Member,
    Share,
    choose_free,
    choose_surplus,
    compute_share,
    is_dead,
    list_alive,
    list_stale,
    make_key,
    observe,
    parse_members,
)


def member(identity: str = "a", **options: object) -> Member:
    return Member(**{"identity": identity, "shards": 4, "duration": 15.0, "renewal": "1", "order": 1, **options})  # type: ignore[arg-type]  # any of its fields


MEMBERS = st.builds(
    Member,
    identity=st.text(alphabet="abcdef", min_size=1, max_size=3),
    shards=st.just(7),
    duration=st.just(15.0),
    order=st.integers(0, 5),
)
GROUPS = st.lists(MEMBERS, min_size=1, max_size=9, unique_by=lambda member: member.identity)


@given(GROUPS)
def test_all_shares_are_fair_and_add_up_to_all_shards(members: list[Member]) -> None:
    shares = [compute_share(members, own) for own in members]
    sizes = [share.size for share in shares]
    assert sum(sizes) == 7
    assert max(sizes) <= math.ceil(7 / len(members))
    assert max(sizes) - min(sizes) <= 1
    taken = [shard for share in shares for shard in range(share.offset, share.offset + share.size)]
    assert sorted(taken) == list(range(7))


@given(GROUPS, MEMBERS)
def test_who_joins_last_takes_shards_away_and_gives_none(members: list[Member], last: Member) -> None:
    last = msgspec.structs.replace(last, identity="zzzz", order=9)
    for own in members:
        assert compute_share([*members, last], own).size <= compute_share(members, own).size


@given(st.lists(MEMBERS, min_size=2, max_size=6, unique_by=lambda member: member.identity), st.randoms())
def test_who_leaves_gives_shards_and_takes_none_away(members: list[Member], rng: random.Random) -> None:
    gone = rng.choice(members)
    left = [member for member in members if member is not gone]
    for own in left:
        assert compute_share(left, own).size >= compute_share(members, own).size


COUNTED = st.lists(
    st.builds(
        Member,
        identity=st.text(alphabet="abcdef", min_size=1, max_size=3),
        shards=st.sampled_from([4, 8]),
        duration=st.just(15.0),
        order=st.none() | st.integers(0, 5),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda member: member.identity,
)


@given(COUNTED)
def test_members_that_divide_the_objects_differently_never_own_shards_at_the_same_time(members: list[Member]) -> None:
    assert len({own.shards for own in members if compute_share(members, own).size}) <= 1


@given(COUNTED)
def test_somebody_owns_shards_as_soon_as_all_have_joined(members: list[Member]) -> None:
    joined = [m for m in members if m.order is not None]
    assert not joined or any(compute_share(joined, own).size for own in joined)


def test_who_does_not_know_yet_when_it_has_joined_owns_nothing() -> None:
    assert compute_share([], member(order=None)) == NOTHING
    assert compute_share([member("b", order=None)], member()) == Share(4, 0)


@given(st.sets(st.integers(0, 9)), st.integers(0, 9))
def test_as_many_are_released_as_are_too_many(owned: set[int], share: int) -> None:
    released = choose_surplus(owned, share)
    assert set(released) <= owned
    assert len(released) == max(0, len(owned) - share)


@given(
    st.dictionaries(st.integers(0, 9), st.sampled_from(["", "dead", "alive"])), st.integers(-2, 9), st.integers(0, 9)
)
def test_only_free_shards_are_acquired_and_as_many_as_are_missing(
    holders: dict[int, str], missing: int, offset: int
) -> None:
    free = {shard for shard, holder in holders.items() if holder != "alive"}
    chosen = choose_free(holders, missing=missing, is_free=lambda holder: holder != "alive", offset=offset)
    assert set(chosen) <= free
    assert len(chosen) == len(set(chosen)) == max(0, min(missing, len(free)))


def test_members_that_start_together_want_different_shards() -> None:
    holders = dict.fromkeys(range(5), "")
    members = [member(name, order=order, shards=5) for order, name in enumerate("abc")]
    wanted = []
    for own in members:
        share = compute_share(members, own)
        wanted += choose_free(holders, missing=share.size, is_free=lambda _: True, offset=share.offset)
    assert sorted(wanted) == [0, 1, 2, 3, 4]


def test_a_member_is_dead_when_its_record_has_not_changed_for_its_duration() -> None:
    seen = observe({}, [member(duration=10.0)], now=100)
    seen = observe(seen, [member(duration=10.0)], now=105)  # as before
    assert not is_dead(seen, "a", now=109.9)
    assert list_alive(seen, now=109.9) == [member(duration=10.0)]
    assert is_dead(seen, "a", now=110)
    assert list_alive(seen, now=110) == []
    seen = observe(seen, [member(duration=10.0, renewal="2")], now=110)
    assert not is_dead(seen, "a", now=119.9)


def test_who_has_removed_its_record_counts_no_more_but_is_not_taken_for_dead_before_its_time() -> None:
    seen = observe(observe({}, [member()], now=100), [], now=101)
    assert list_alive(seen, now=101) == []
    assert not is_dead(seen, "a", now=114.9)
    assert is_dead(seen, "a", now=115)
    assert not is_dead(seen, "nobody", now=1000)


def test_records_of_the_dead_are_removed_when_all_have_noticed() -> None:
    seen = observe({}, [member()], now=0)
    assert list_stale(seen, now=59.9) == []
    assert list_stale(seen, now=60) == ["a"]
    seen = observe(seen, [], now=60)
    assert list_stale(seen, now=61) == []
    assert observe(seen, [], now=75) == {}


def test_records_are_read_from_annotations_and_nonsense_is_passed_over() -> None:
    own = member("root@host/é_1a2b")
    annotations = {
        make_key(own.identity): msgspec.json.encode(own).decode(),
        make_key("x"): "{",
        make_key("y"): '{"identity": 5}',
        make_key("z"): '{"x": ' + "[" * 5000,
        "team": "x",
    }
    assert parse_members(annotations) == [own]


@pytest.mark.parametrize("identity", ["a", "root@host/2026_1a", "x" * 1000, "\ud800"])
def test_keys_are_qualified_names(identity: str) -> None:
    prefix, _, name = make_key(identity).partition("/")
    assert prefix == "members.trioperator.dev"
    assert name.isalnum()
    assert len(name) <= 63


@pytest.mark.parametrize("joined_first", ["old", "new"])
def test_members_that_divide_by_the_hash_of_earlier_versions_never_own_shards_at_the_same_time(
    joined_first: str,
) -> None:
    old = member("old", shards=8, order=1 if joined_first == "old" else 2)
    new = member("new", shards=-8, order=3 - (old.order or 0))
    first, second = (old, new) if joined_first == "old" else (new, old)
    assert compute_share([first, second], first) == Share(8, 0)
    assert compute_share([first, second], second) == NOTHING
    assert compute_share([second], second) == Share(8, 0), "when the other one is gone"
    record = {make_key("new"): msgspec.json.encode(new).decode()}
    assert parse_members(record) == [new], "earlier versions read it, too: the fields are the same"
