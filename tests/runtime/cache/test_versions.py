"""Versions as numbers: those that are none, and those of own writes."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from tests.runtime.objects import raw
from trioperator._runtime.cache.versions import Versions
from trioperator._runtime.cache.watch_event import WatchEvent


class State:
    def __init__(self) -> None:
        self.uid = "u"
        self.version = 7
        self.events: list[WatchEvent] = []


def test_versions_are_numbers_as_a_rule() -> None:
    versions, state = Versions(consistency_timeout=5), State()
    assert versions.number(state, "ADDED", "12") == 12
    assert versions.number_written(state, "13") == 13
    assert versions.number_list("14") == 14
    assert not versions.are_opaque


def test_opaque_versions_are_numbered_by_their_arrival() -> None:
    versions, state = Versions(consistency_timeout=5), State()
    assert [versions.number(state, "MODIFIED", text) for text in ("x", "a", "x")] == [1, 2, 3]
    assert versions.number_list("b") == 3
    assert versions.are_opaque


async def test_until_an_own_write_is_seen_all_is_older(autojump_clock: MockClock) -> None:
    versions, state = Versions(consistency_timeout=5), State()
    state.version = versions.number_written(state, "mine")
    assert versions.number(state, "MODIFIED", "others") == state.version
    assert versions.number(state, "MODIFIED", "mine") == state.version
    assert versions.number(state, "MODIFIED", "others") > state.version
    state.version = versions.number_written(state, "lost")
    await trio.sleep(5)
    assert versions.number(state, "MODIFIED", "others") > state.version


def test_an_own_write_that_was_seen_before_its_response_has_that_number() -> None:
    versions, state = Versions(consistency_timeout=5), State()
    state.events = [WatchEvent("MODIFIED", 9, raw("mine"))]
    assert versions.number_written(state, "mine") == 9


async def test_an_own_write_that_changes_nothing_is_not_expected(autojump_clock: MockClock) -> None:
    versions, state = Versions(consistency_timeout=5), State()
    state.version = versions.number(state, "MODIFIED", "x")
    assert versions.number_written(state, "x") == state.version
    assert versions.number(state, "MODIFIED", "y") > state.version
    state.version = versions.number_written(state, "mine")
    await trio.sleep(4)
    assert versions.number_written(state, "mine") == state.version
    assert versions.number(state, "MODIFIED", "others") == state.version  # the first one is still expected
    await trio.sleep(1)
    assert versions.number(state, "MODIFIED", "others") > state.version


async def test_an_own_write_is_expected_until_it_is_seen_or_forgotten() -> None:
    versions, state = Versions(consistency_timeout=5), State()
    versions.number_written(state, "8")
    assert not versions.is_expected("u")  # numbers can be compared
    for text, end in (
        ("mine", lambda: versions.number(state, "MODIFIED", "mine")),
        ("other", lambda: versions.forget("u")),
    ):
        versions.number_written(state, text)
        assert versions.is_expected("u")
        end()
        assert not versions.is_expected("u")
