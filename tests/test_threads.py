"""Threads and virtual time."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from trioperator.threads import run_beside, run_in_thread, run_to_the_end, time_passes

WORK = 0.05  # seconds of real time


def hour() -> trio.CancelScope:
    """Return a deadline that time would jump to."""
    return trio.move_on_after(3600)


async def call(fn: Callable[[], object], *, threads: int = 5) -> object:
    return await run_in_thread(fn, limiter=trio.CapacityLimiter(threads))


async def test_time_does_not_jump_while_a_thread_works(autojump_clock: MockClock) -> None:
    with hour() as scope:
        await call(lambda: time.sleep(WORK))
    assert not scope.cancelled_caught
    assert trio.current_time() == 0


async def test_time_jumps_again_when_the_last_thread_has_ended(autojump_clock: MockClock) -> None:
    quick, slow = threading.Event(), threading.Event()

    async def outlast() -> None:
        await call(slow.wait)
        assert trio.current_time() == 0

    async def finish() -> None:
        await call(quick.wait)
        await call(lambda: time.sleep(WORK))
        slow.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(outlast)
        nursery.start_soon(finish)
        await trio.testing.wait_all_tasks_blocked()
        quick.set()
        with hour():
            await trio.sleep(7)
    assert trio.current_time() == 7
    assert autojump_clock.autojump_threshold == 0


async def test_the_error_of_a_thread_is_raised_and_lets_time_go(autojump_clock: MockClock) -> None:
    with pytest.raises(ZeroDivisionError):
        await call(lambda: 1 // 0)
    await trio.sleep(5)
    assert trio.current_time() == 5


async def test_a_thread_that_waits_for_a_task_lets_time_go(autojump_clock: MockClock) -> None:
    times = []

    def work() -> None:
        time.sleep(WORK)
        times.append(trio.from_thread.run_sync(trio.current_time))
        trio.from_thread.run(trio.sleep, 10)
        time.sleep(WORK)
        times.append(trio.from_thread.run_sync(trio.current_time))

    with hour():
        await call(work)
    assert times == [0, 10]
    assert trio.current_time() == 10


async def test_time_stands_still_between_two_waits_of_a_thread(autojump_clock: MockClock) -> None:
    def work() -> None:
        for _ in range(20):
            trio.from_thread.run(trio.sleep, 1)
            time.sleep(WORK / 20)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 3600)
        await call(work)
        assert trio.current_time() == 20


async def test_a_thread_may_leave_a_task_behind(autojump_clock: MockClock) -> None:
    async def leave(nursery: trio.Nursery) -> None:
        nursery.start_soon(trio.sleep, 3600)
        await trio.sleep(1)

    def work(nursery: trio.Nursery) -> float:
        trio.from_thread.run(leave, nursery)
        time.sleep(WORK)
        return trio.from_thread.run_sync(trio.current_time)

    async with trio.open_nursery() as nursery:
        assert await call(lambda: work(nursery)) == 1


async def test_a_thread_says_that_time_passes(autojump_clock: MockClock) -> None:
    due, back = threading.Event(), threading.Event()

    def work() -> float:
        with time_passes():
            due.wait()
        back.set()
        return trio.from_thread.run_sync(trio.current_time)

    async def ring() -> None:
        await trio.sleep(30)
        due.set()
        await call(back.wait)  # which holds the time until the other one does
        await trio.sleep(3600)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ring)
        assert await call(work) == 30


async def test_waiting_for_the_limiter_lets_time_go(autojump_clock: MockClock) -> None:
    limiter = trio.CapacityLimiter(1)

    def work() -> None:
        trio.from_thread.run(trio.sleep, 10)

    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(lambda: run_in_thread(work, limiter=limiter))
    assert trio.current_time() == 20


async def test_an_abandoned_thread_holds_nothing(autojump_clock: MockClock) -> None:
    release = threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, release.wait)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    await trio.sleep(10)
    assert trio.current_time() == 10
    release.set()


async def test_an_abandoned_thread_may_still_wait(autojump_clock: MockClock) -> None:
    begun, release, ended = trio.Event(), threading.Event(), trio.Event()

    def work() -> None:
        trio.from_thread.run_sync(begun.set)
        release.wait()
        with time_passes():
            trio.from_thread.run(trio.sleep, 5)
        trio.from_thread.run_sync(ended.set)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, work)
        await begun.wait()
        nursery.cancel_scope.cancel()
    release.set()
    await ended.wait()
    assert autojump_clock.autojump_threshold == 0


async def test_a_threshold_that_is_set_meanwhile_stays(autojump_clock: MockClock) -> None:
    def work() -> None:
        trio.from_thread.run_sync(setattr, autojump_clock, "autojump_threshold", 0.001)

    await call(work)
    assert autojump_clock.autojump_threshold == 0.001


async def test_a_clock_that_never_jumps_is_left_alone(mock_clock: MockClock) -> None:
    await call(lambda: time.sleep(0.001))
    assert math.isinf(mock_clock.autojump_threshold)
    mock_clock.jump(3)
    assert trio.current_time() == 3


async def test_in_real_time_a_thread_is_only_a_thread() -> None:
    def work() -> str:
        with time_passes():
            return "result"

    assert await call(work) == "result"
    with time_passes():
        pass


def test_it_works_in_any_run_with_a_mock_clock() -> None:
    async def main() -> float:
        with hour():
            await call(lambda: time.sleep(WORK))
        return trio.current_time()

    assert trio.run(main, clock=MockClock(autojump_threshold=0)) == 0


async def test_a_run_within_a_thread_has_a_time_of_its_own(autojump_clock: MockClock) -> None:
    async def main() -> float:
        await call(lambda: trio.from_thread.run(trio.sleep, 5))
        return trio.current_time()

    assert await call(lambda: trio.run(main, clock=MockClock(autojump_threshold=0))) == 5
    assert trio.current_time() == 0


async def test_a_thread_that_is_told_of_a_cancellation_is_waited_for() -> None:
    scope = trio.CancelScope()
    told = threading.Event()

    def heedless() -> str:
        scope_cancelled.wait(10)
        try:
            trio.from_thread.check_cancelled()
        except trio.Cancelled:
            told.set()
        return "done"

    scope_cancelled = threading.Event()
    limiter = trio.CapacityLimiter(1)
    async with trio.open_nursery() as nursery:

        async def cancel() -> None:
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel(reason="test")
            await trio.testing.wait_all_tasks_blocked()
            assert limiter.borrowed_tokens == 1
            scope_cancelled.set()

        nursery.start_soon(cancel)
        assert await run_to_the_end(heedless, limiter=limiter, scope=scope) == "done"
    assert told.is_set()
    assert limiter.borrowed_tokens == 0


async def test_a_thread_that_heeds_a_cancellation_gives_nothing() -> None:
    scope = trio.CancelScope()

    def heeding() -> str:
        while True:
            trio.from_thread.check_cancelled()
            time.sleep(0.001)

    async with trio.open_nursery() as nursery:

        async def cancel() -> None:
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel(reason="test")

        nursery.start_soon(cancel)
        assert await run_to_the_end(heeding, limiter=trio.CapacityLimiter(1), scope=scope) is None


async def test_a_thread_that_was_not_begun_is_not_waited_for() -> None:
    scope = trio.CancelScope()
    scope.cancel(reason="test")
    assert await run_to_the_end(lambda: "never", limiter=trio.CapacityLimiter(1), scope=scope) is None
    limiter = trio.CapacityLimiter(1)
    waiting = trio.CancelScope()
    async with limiter, trio.open_nursery() as nursery:

        async def cancel() -> None:
            await trio.testing.wait_all_tasks_blocked()
            waiting.cancel(reason="test")

        nursery.start_soon(cancel)
        assert await run_to_the_end(lambda: "never", limiter=limiter, scope=waiting) is None


async def test_another_cancellation_abandons_the_thread() -> None:
    release = threading.Event()
    with trio.move_on_after(0.01) as outer:
        await run_to_the_end(lambda: release.wait(10), limiter=trio.CapacityLimiter(1), scope=trio.CancelScope())
    assert outer.cancelled_caught
    release.set()


async def test_a_told_thread_holds_the_time_until_it_has_ended(autojump_clock: MockClock) -> None:
    scope = trio.CancelScope()
    scope_cancelled = threading.Event()
    async with trio.open_nursery() as nursery:

        async def cancel() -> None:
            scope.cancel(reason="test")
            scope_cancelled.set()

        def work() -> None:
            scope_cancelled.wait(10)
            time.sleep(WORK)

        nursery.start_soon(cancel)
        with hour() as waiting:
            await run_to_the_end(work, limiter=trio.CapacityLimiter(1), scope=scope)
        assert not waiting.cancelled_caught
    assert trio.current_time() == 0


class Beside:
    """Run a function beside a caller that can be cancelled alone."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.scope = trio.CancelScope()
        self.caller = trio.CancelScope()
        self.begun = trio.Event()
        self.cancelled = threading.Event()

    async def run(self, fn: Callable[[], object]) -> object:
        def work() -> object:
            trio.from_thread.run_sync(self.begun.set)
            self.cancelled.wait(30)
            return fn()

        limiter = trio.CapacityLimiter(1)
        with self.caller:
            return await run_beside(lambda: (work(),), limiter=limiter, scope=self.scope, nursery=self.nursery)
        return "cancelled"

    async def cancel(self) -> None:
        await self.begun.wait()
        self.caller.cancel(reason="test")
        await trio.testing.wait_all_tasks_blocked()
        self.cancelled.set()


async def test_a_thread_beside_its_caller_is_told_waited_for_and_has_its_result() -> None:
    told = threading.Event()

    def heedless() -> str:
        try:
            trio.from_thread.check_cancelled()
        except trio.Cancelled:
            told.set()
        return "done"

    async with trio.open_nursery() as nursery:
        beside = Beside(nursery)
        nursery.start_soon(beside.cancel)
        assert await beside.run(heedless) == ("done",)
    assert told.is_set()


async def test_a_thread_beside_its_caller_that_heeds_the_cancellation_lets_it_go_on() -> None:
    async with trio.open_nursery() as nursery:
        beside = Beside(nursery)
        nursery.start_soon(beside.cancel)
        assert await beside.run(trio.from_thread.check_cancelled) == "cancelled"


async def test_a_thread_beside_its_caller_raises_its_error() -> None:
    async with trio.open_nursery() as nursery:
        beside = Beside(nursery)
        nursery.start_soon(beside.cancel)
        with pytest.raises(ZeroDivisionError):
            await beside.run(lambda: 1 // 0)


async def test_a_thread_beside_a_cancelled_caller_is_not_begun() -> None:
    async with trio.open_nursery() as nursery:
        beside = Beside(nursery)
        beside.caller.cancel(reason="test")
        assert await beside.run(lambda: "never") == "cancelled"
        assert not beside.begun.is_set()


async def test_a_thread_is_abandoned_with_the_nursery_that_it_is_in() -> None:
    release = threading.Event()
    async with trio.open_nursery() as nursery:
        beside = Beside(nursery)
        nursery.start_soon(beside.cancel)

        async def end() -> None:
            await trio.to_thread.run_sync(beside.cancelled.wait)
            nursery.cancel_scope.cancel(reason="test")

        nursery.start_soon(end)
        assert await beside.run(lambda: release.wait(30)) == "cancelled"
    assert nursery.cancel_scope.cancelled_caught
    release.set()
