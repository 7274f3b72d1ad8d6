"""The clock that wakes daemons and timers. In virtual time."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator

import hypothesis
import hypothesis.strategies as st
import trio
import trio.testing
from trio.testing import MockClock

from trioperator._runtime.daemons.alarm_clock import AlarmClock


@contextlib.asynccontextmanager
async def serve(clock: AlarmClock) -> AsyncIterator[trio.Nursery]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(clock.serve)
        yield nursery
        nursery.cancel_scope.cancel()


@hypothesis.given(st.lists(st.integers(-10, 1000), max_size=20))  # sums of floats are inexact
def test_alarms_go_off_at_their_times_in_any_order(times: list[int]) -> None:
    woken: list[tuple[float, float]] = []

    async def wait(clock: AlarmClock, time: float) -> None:
        alarm = clock.set(time)
        await alarm.wait()
        assert alarm.has_gone_off
        woken.append((time, trio.current_time()))

    async def main() -> None:
        clock = AlarmClock()
        async with serve(clock):
            async with trio.open_nursery() as waiting:
                for time in times:
                    waiting.start_soon(wait, clock, time)
            assert len(clock) == 0

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert sorted(woken) == [(time, max(0.0, time)) for time in sorted(times)]


async def test_an_alarm_can_ring_early(autojump_clock: MockClock) -> None:
    clock = AlarmClock()
    async with serve(clock):
        alarm = clock.set(1000)
        alarm.ring()
        await alarm.wait()
        assert not alarm.has_gone_off
        clock.drop(alarm)
        await trio.sleep(2000)
        assert not alarm.has_gone_off
        assert len(clock) == 0


async def test_an_earlier_alarm_goes_off_first(autojump_clock: MockClock) -> None:
    clock = AlarmClock()
    async with serve(clock):
        late = clock.set(100)
        await trio.testing.wait_all_tasks_blocked()
        early = clock.set(10)
        await early.wait()
        assert trio.current_time() == 10
        assert not late.has_gone_off


async def test_alarms_that_are_not_waited_for_are_forgotten_long_before_their_time(autojump_clock: MockClock) -> None:
    clock = AlarmClock()
    async with serve(clock):
        kept = clock.set(86_400)
        for _ in range(10_000):
            alarm = clock.set(math.inf)
            clock.drop(alarm)
            clock.drop(alarm)  # once is enough
        assert len(clock) < 1000
        await kept.wait()
        assert trio.current_time() == 86_400
