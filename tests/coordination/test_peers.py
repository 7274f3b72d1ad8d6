"""Tests for :mod:`trioperator._coordination.peers`: what the records of other operators mean for this one."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator._coordination.peers import Candidate, Peer, Sightings, find_unlisted, parse_peers

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
ME = Candidate("me", 0)


def peer(identity: str, priority: int = 0, *, age: float = 0, lifetime: float = 60) -> Peer:
    return Peer(identity, priority, lifetime, NOW - datetime.timedelta(seconds=age))


def reason(*peers: Peer, priority: int = 0, **options: Any) -> str | None:
    return Candidate("me", priority, **options).judge(peers, now=NOW, read_at=NOW).reason


def test_an_operator_alone_goes_on() -> None:
    assert reason() is None
    assert reason(peer("me", 500)) is None


def test_an_operator_pauses_in_favour_of_a_higher_priority_and_not_of_a_lower_one() -> None:
    assert reason(peer("dev", 666), peer("low", -1)) == "in favour of dev (priority 666)"
    assert reason(peer("low", 9), priority=10) is None


def test_operators_with_the_same_priority_all_pause_unless_a_tie_break_is_on() -> None:
    assert "same priority" in str(reason(peer("other")))
    assert "same priority" in str(reason(peer("another"), tie_break=True))
    assert reason(peer("zzz"), tie_break=True) is None


def test_operators_that_divide_the_objects_pause_for_higher_priorities_only() -> None:
    assert reason(peer("other"), is_divided=True) is None
    assert "in favour of" in str(reason(peer("other", 1), is_divided=True))


def test_peers_that_are_not_listed_and_may_be_alive_are_found() -> None:
    before = [peer("listed"), peer("alive", age=59), peer("dead", age=60)]
    assert find_unlisted(before, [peer("listed"), peer("new")], now=NOW) == [before[1]]


def test_dead_operators_are_ignored_and_named() -> None:
    verdict = ME.judge([peer("dead", 9, age=60), peer("alive", -1)], now=NOW, read_at=NOW)
    assert (verdict.reason, verdict.dead, verdict.until) == (None, ("dead",), None)


def test_a_pause_is_judged_anew_when_the_first_of_the_blocking_peers_may_be_dead() -> None:
    peers = [peer("a", 9, age=50), peer("b", 9, age=10), peer("lower", -1, age=59)]
    verdict = ME.judge(peers, now=NOW, read_at=NOW)
    assert verdict.until == NOW + datetime.timedelta(seconds=10)


def test_a_peer_that_is_paused_for_is_not_dead_before_its_record_was_read_after_its_deadline() -> None:
    peers = [peer("a", 9, age=60), peer("b", 0, age=70), peer("lower", -1, age=60)]
    before = NOW - datetime.timedelta(seconds=5)
    verdict = ME.judge(peers, now=NOW, read_at=before)
    assert verdict.is_doubtful
    assert verdict.dead == ("b", "lower")
    assert verdict.reason == "in favour of a (priority 9)"
    assert ME.judge(peers, now=NOW, read_at=NOW).dead == ("a", "b", "lower")


def test_the_own_record_is_never_dead() -> None:
    assert ME.judge([peer("me", age=1000)], now=NOW, read_at=NOW).dead == ()


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"priority": 5, "lifetime": 30, "lastseen": "2026-01-02T03:04:05+00:00"}, Peer("x", 5, 30, NOW)),
        ({"priority": 5, "lifetime": 30, "lastseen": "2026-01-02T03:04:05"}, Peer("x", 5, 30, NOW)),
        ({"lastseen": "2026-01-02T03:04:05", "lease": "default/mine"}, Peer("x", 0, 60, NOW, "default/mine")),
        ({"lease": ["default/mine"]}, Peer("x", 0, 60, NOW)),
        ({}, Peer("x", 0, 60, NOW)),
        ({"priority": "high", "lifetime": None, "lastseen": "yesterday"}, Peer("x", 0, 60, NOW)),
        ({"priority": None, "lifetime": True, "lastseen": 5}, Peer("x", 0, 60, NOW)),
    ],
)
def test_records_are_parsed_with_defaults_for_what_is_missing_or_invalid(record: Any, expected: Peer) -> None:
    assert parse_peers({"x": record}, now=NOW) == [expected]


@given(st.one_of(st.none(), st.text(), st.dictionaries(st.text(), st.one_of(st.none(), st.integers(), st.text()))))
def test_nonsense_is_no_peer(status: Any) -> None:
    assert parse_peers(status, now=NOW) == []


@given(
    st.builds(
        Peer,
        identity=st.text(min_size=1),
        priority=st.integers(-1000, 1000),
        lifetime=st.integers(1, 10**6).map(float),
        lastseen=st.datetimes(timezones=st.just(datetime.UTC)),
    )
)
def test_records_survive_a_round_trip(one: Peer) -> None:
    assert parse_peers({one.identity: one.make_record()}, now=NOW) == [one]


def test_a_lifetime_beyond_all_dates_never_ends() -> None:
    assert reason(peer("eternal", 1, lifetime=1e18)) is not None


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 3)), min_size=1, unique_by=lambda each: each[0]))
def test_with_a_tie_break_exactly_one_operator_goes_on(operators: list[tuple[str, int]]) -> None:
    peers = [peer(identity, priority) for identity, priority in operators]
    active = [
        identity
        for identity, priority in operators
        if Candidate(identity, priority, tie_break=True).judge(peers, now=NOW, read_at=NOW).reason is None
    ]
    assert len(active) == 1


STEADY = NOW + datetime.timedelta(days=3)


def sight(sightings: Sightings, one: Peer, *, after: float = 0) -> float:
    """Return the seconds until a peer is dead that is read some seconds *after* the beginning."""
    passed = datetime.timedelta(seconds=after)
    (seen,) = sightings.take([one], now=NOW + passed, steady=STEADY + passed)
    return (seen.deadline - STEADY - passed).total_seconds()


def test_a_peer_lives_as_long_as_its_record_says_on_the_steady_clock() -> None:
    assert sight(Sightings(), peer("a", age=20)) == 40
    assert sight(Sightings(), peer("a", age=70)) == -10


def test_a_record_from_the_future_was_written_when_it_is_read_first() -> None:
    sightings = Sightings()
    assert sight(sightings, peer("a", age=-3600)) == 60
    assert sight(sightings, peer("a", age=-3600), after=50) == 10


def test_a_record_that_was_renewed_is_of_one_who_is_alive_whatever_its_clock_says() -> None:
    sightings = Sightings()
    assert sight(sightings, peer("a", age=600)) == -540
    sightings.take([], now=NOW, steady=STEADY)  # it was removed
    assert sight(sightings, peer("a", age=590), after=10) == 60
    assert sight(sightings, peer("a", age=590), after=30) == 40
    assert sight(sightings, peer("a", age=0), after=30) == 30


def test_records_of_all_times_can_be_dated() -> None:
    first = datetime.datetime.min.replace(tzinfo=datetime.UTC)
    one = Peer("a", 0, 60, first)
    assert Sightings().take([one], now=NOW, steady=first + datetime.timedelta(days=40000))


def test_no_more_peers_are_remembered_than_anybody_has_at_once() -> None:
    sightings = Sightings()
    for number in range(5000):
        sightings.take([peer(f"p{number}")], now=NOW, steady=STEADY)
    assert len(sightings._known) <= 1000
