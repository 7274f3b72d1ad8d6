"""Timers with a schedule, while the clock of the system is set."""

from __future__ import annotations

import datetime

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator import clock


@pytest.mark.parametrize("hours", [-3, 2])
async def test_a_schedule_follows_the_wall_clock_when_that_is_set(
    hours: int, bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[datetime.datetime] = []

    @trioperator.timer("widgets", cron="0 0 * * *", registry=bench.registry)
    async def at_midnight(**_: object) -> None:
        calls.append(clock.wall_now())

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(60)
        epoch = clock._epoch.get()
        assert epoch is not None
        clock._epoch.set(epoch + hours * 3600)
        await trio.sleep(5 * 24 * 3600)

    # The call that was waited for when the clock was set forward is late by that, as nothing wakes its task.
    on_time = calls if hours < 0 else calls[1:]
    assert len(on_time) >= 3
    assert {(call.hour, call.minute) for call in on_time} == {(0, 0)}
    assert len({call.date() for call in calls}) == len(calls)
