"""Tests for :mod:`trioperator._coordination.pauses`: an operator is active while there is no reason for a pause."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from trioperator._coordination.pauses import Pauses, Period
from trioperator.errors import PausedError


async def is_active(pauses: Pauses) -> bool:
    with trio.move_on_after(1):
        await pauses.wait_active()
        return True
    return False


def begin(pauses: Pauses) -> Period:
    period = Period()
    pauses.begin(period)
    return period


async def test_an_operator_is_active_at_first(autojump_clock: MockClock) -> None:
    pauses = Pauses()
    assert await is_active(pauses)
    assert pauses.reasons == ()
    pauses.check_write()


async def test_it_is_active_again_when_every_owner_has_resumed(autojump_clock: MockClock) -> None:
    pauses = Pauses()
    pauses.pause("peering a", "in favour of x")
    pauses.pause("peering b", "in favour of y")
    pauses.resume("peering a")
    assert not await is_active(pauses)
    assert pauses.reasons == ("in favour of y",)
    pauses.resume("peering b")
    assert await is_active(pauses)


async def test_a_pause_in_order_lets_handlers_write_and_one_at_once_does_not() -> None:
    pauses = Pauses()
    pauses.pause("peering", "in favour of x")
    pauses.check_write()
    pauses.pause("leadership", "as the lease is lost", at_once=True)
    with pytest.raises(PausedError, match=r"paused in favour of x and as the lease is lost"):
        pauses.check_write()
    pauses.resume("leadership")
    pauses.resume("peering")
    pauses.check_write()


async def test_writes_are_refused_after_the_deadline_though_nobody_has_noticed_it_yet(
    autojump_clock: MockClock,
) -> None:
    pauses = Pauses()
    pauses.resume("leadership", until=trio.current_time() + 10)
    await trio.sleep(9)
    pauses.check_write()
    await trio.sleep(1)
    with pytest.raises(PausedError, match="not renewed its lease in time"):
        pauses.check_write()
    pauses.resume("leadership", until=trio.current_time() + 10)
    pauses.check_write()


async def test_what_is_drained_in_order_may_write_until_its_deadline_only(autojump_clock: MockClock) -> None:
    pauses = Pauses()
    pauses.resume("peering", until=trio.current_time() + 10)
    pauses.pause("peering", "in favour of x", until=trio.current_time() + 10)
    await trio.sleep(9)
    pauses.check_write()
    pauses.pause("peering", "in favour of x", until=trio.current_time() + 10)  # the record is renewed meanwhile
    await trio.sleep(9)
    pauses.check_write()
    await trio.sleep(1)
    with pytest.raises(PausedError, match="paused in favour of x"):
        pauses.check_write()


async def test_tasks_that_wait_are_woken(autojump_clock: MockClock) -> None:
    pauses = Pauses()
    pauses.pause("a", "x")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pauses.wait_active)
        await trio.sleep(1)
        pauses.resume("a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(begin(pauses).paused.wait)
        await trio.sleep(1)
        pauses.pause("b", "y")


def test_a_pause_is_reported_once_for_the_same_reasons(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    pauses = Pauses()
    begin(pauses)
    pauses.pause("a", "for a reason")
    pauses.report()
    pauses.report()
    pauses.pause("b", "for another one")
    pauses.report()
    pauses.resume("a")
    pauses.resume("b")
    begin(pauses)
    begin(pauses)
    assert [record.getMessage() for record in caplog.records] == [
        "Pausing operations for a reason.",
        "Pausing operations for a reason and for another one.",
        "Resuming operations.",
    ]


async def test_an_operator_that_is_paused_again_while_it_wakes_up_stays_paused(autojump_clock: MockClock) -> None:
    pauses = Pauses()
    pauses.pause("a", "x")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pauses.wait_active)
        await trio.sleep(1)
        pauses.resume("a")
        pauses.pause("b", "y")
        with trio.move_on_after(1) as scope:
            await trio.sleep_forever()
        assert scope.cancelled_caught
        assert nursery.child_tasks
        pauses.resume("b")


def test_who_has_begun_before_a_pause_at_once_knows_of_it_also_after_it() -> None:
    pauses = Pauses()
    before = begin(pauses)
    pauses.pause("peering", "in favour of x")
    pauses.resume("peering")
    assert before.paused.is_set()
    assert not before.lost.is_set()
    pauses.pause("leadership", "as the lease is lost", at_once=True)
    pauses.resume("leadership")
    assert before.lost.is_set()  # though it has begun a pause earlier
    after = begin(pauses)
    assert not after.paused.is_set()
    assert not after.lost.is_set()
