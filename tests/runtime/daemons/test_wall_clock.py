"""Timers with a schedule, while the clock of the system is set."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator._concurrency import clock


def set_clock(seconds: float) -> None:
    """Set the clock of the system forward, or back."""
    clocks = clock.find_clocks()
    assert clocks.virtual is not None
    clocks.virtual += seconds


def seconds_to_noon() -> float:
    now = clock.wall_now()
    return (now.replace(hour=12, minute=0, second=0, microsecond=0) - now).total_seconds()


SCHEDULES = ["0 0 * * *", lambda **_: "0 0 * * *"]


@pytest.mark.parametrize("hours", [-3, 2])
@pytest.mark.parametrize("cron", SCHEDULES)
async def test_a_schedule_follows_the_wall_clock_when_that_is_set(
    hours: int, cron: Any, bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[datetime.datetime] = []

    @trioperator.timer("widgets", cron=cron, registry=bench.registry)
    async def at_midnight(**_: object) -> None:
        calls.append(clock.wall_now())

    set_clock(seconds_to_noon())
    async with bench.running():
        await bench.cluster.create(widget())
        await settle(60)
        set_clock(hours * 3600)
        await trio.sleep(3 * 24 * 3600)

    assert len(calls) >= 2
    assert {(call.hour, call.minute) for call in calls} == {(0, 0)}
    assert len({call.date() for call in calls}) == len(calls)


@pytest.mark.parametrize("cron", SCHEDULES)
async def test_a_schedule_begins_anew_when_a_clock_that_was_years_ahead_is_set_right(
    cron: Any, bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[datetime.datetime] = []

    @trioperator.timer("widgets", cron=cron, registry=bench.registry)
    async def at_midnight(**_: object) -> None:
        calls.append(clock.wall_now())

    set_clock(seconds_to_noon() + 4000 * 24 * 3600)
    async with bench.running():
        await bench.cluster.create(widget())
        await settle(24 * 3600)
        assert len(calls) == 1
        set_clock(-4000 * 24 * 3600)
        await trio.sleep(24 * 3600)

    assert len(calls) == 2
    assert {(call.hour, call.minute) for call in calls} == {(0, 0)}


@pytest.mark.parametrize("cron", SCHEDULES)
async def test_a_call_whose_moment_was_passed_over_by_the_wall_clock_is_made_within_a_minute(
    cron: Any, bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[float] = []

    @trioperator.timer("widgets", cron=cron, registry=bench.registry)
    async def at_midnight(**_: object) -> None:
        calls.append(trio.current_time())

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        set_clock(24 * 3600)
        began = trio.current_time()
        await settle(100)
        (called,) = calls
        assert called - began <= 60


async def test_a_retry_of_a_timer_with_a_schedule_is_not_moved_when_the_wall_clock_is_set(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[float] = []

    @trioperator.timer("widgets", cron="* * * * *", registry=bench.registry)
    async def every_minute(retry: int, **_: object) -> None:
        calls.append(trio.current_time())
        if not retry:
            raise trioperator.TemporaryError("not yet", delay=1000)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(70)
        set_clock(3600)
        await settle(900)
        set_clock(-3600)
        await settle(200)
    assert round(calls[1] - calls[0]) == 1000
