"""Tests for :mod:`trioperator.testing.autojump`: threads under a mock clock."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from trioperator._concurrency.threads import observe_threads, run_in_joined_thread, run_in_thread, time_passes
from trioperator.testing import deterministic, pause_autojump_for_threads
from trioperator.testing.autojump import serial_threads

WORK = 0.05  # seconds of real time


def hour() -> trio.CancelScope:
    """Return a deadline that the clock would jump to."""
    return trio.move_on_after(3600)


async def call(fn: Callable[[], object], *, threads: int = 5) -> object:
    return await run_in_thread(fn, limiter=trio.CapacityLimiter(threads))


async def test_the_clock_does_not_jump_while_a_thread_works(autojump_clock: MockClock) -> None:
    with hour() as scope:
        await call(lambda: time.sleep(WORK))
    assert not scope.cancelled_caught
    assert trio.current_time() == 0


async def test_the_clock_jumps_again_when_the_last_thread_has_ended(autojump_clock: MockClock) -> None:
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


async def test_the_error_of_a_thread_is_raised_and_ends_the_pause(autojump_clock: MockClock) -> None:
    with pytest.raises(ZeroDivisionError):
        await call(lambda: 1 // 0)
    await trio.sleep(5)
    assert trio.current_time() == 5


async def test_the_clock_jumps_while_a_thread_waits_for_a_task(autojump_clock: MockClock) -> None:
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


async def test_the_clock_stands_still_between_two_waits_of_a_thread(autojump_clock: MockClock) -> None:
    def work() -> None:
        for _ in range(20):
            trio.from_thread.run(trio.sleep, 1)
            time.sleep(WORK / 20)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 3600)
        await call(work)
        assert trio.current_time() == 20


async def test_a_task_that_a_thread_has_started_does_not_end_its_pause(autojump_clock: MockClock) -> None:
    async def leave(nursery: trio.Nursery) -> None:
        nursery.start_soon(trio.sleep, 3600)
        await trio.sleep(1)

    def work(nursery: trio.Nursery) -> float:
        trio.from_thread.run(leave, nursery)
        time.sleep(WORK)
        return trio.from_thread.run_sync(trio.current_time)

    async with trio.open_nursery() as nursery:
        assert await call(lambda: work(nursery)) == 1


async def test_the_clock_jumps_while_a_thread_lets_time_pass(autojump_clock: MockClock) -> None:
    due, back = threading.Event(), threading.Event()

    def work() -> float:
        with time_passes():
            due.wait()
        back.set()
        return trio.from_thread.run_sync(trio.current_time)

    async def ring() -> None:
        await trio.sleep(30)
        due.set()
        await call(back.wait)  # pauses the clock until the other thread does
        await trio.sleep(3600)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ring)
        assert await call(work) == 30


async def test_waiting_for_the_limiter_does_not_pause_the_clock(autojump_clock: MockClock) -> None:
    limiter = trio.CapacityLimiter(1)

    def work() -> None:
        trio.from_thread.run(trio.sleep, 10)

    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(lambda: run_in_thread(work, limiter=limiter))
    assert trio.current_time() == 20


async def test_an_abandoned_thread_does_not_pause_the_clock(autojump_clock: MockClock) -> None:
    release = threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, release.wait)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    await trio.sleep(10)
    assert trio.current_time() == 10
    release.set()


async def test_an_abandoned_thread_may_still_let_time_pass(autojump_clock: MockClock) -> None:
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


async def test_a_threshold_that_is_set_during_a_pause_stays(autojump_clock: MockClock) -> None:
    def work() -> None:
        trio.from_thread.run_sync(setattr, autojump_clock, "autojump_threshold", 0.001)

    await call(work)
    assert autojump_clock.autojump_threshold == 0.001


async def test_a_clock_that_never_jumps_is_left_alone(mock_clock: MockClock) -> None:
    await call(lambda: time.sleep(0.001))
    assert math.isinf(mock_clock.autojump_threshold)
    mock_clock.jump(3)
    assert trio.current_time() == 3


async def work_for_an_hour() -> float:
    with hour():
        await call(lambda: time.sleep(WORK))
    return trio.current_time()


def test_the_plugin_covers_any_run_with_a_mock_clock() -> None:
    assert trio.run(work_for_an_hour, clock=MockClock(autojump_threshold=0)) == 0


def test_the_plugin_covers_runs_in_other_threads() -> None:
    times: list[float] = []
    thread = threading.Thread(
        target=lambda: times.append(trio.run(work_for_an_hour, clock=MockClock(autojump_threshold=0)))
    )
    thread.start()
    thread.join()
    assert times == [0]


def test_without_the_plugin_it_is_switched_on_by_a_call() -> None:
    observe_threads(None)
    try:
        assert trio.run(work_for_an_hour, clock=MockClock(autojump_threshold=0)) == 3600
    finally:
        pause_autojump_for_threads()
    assert trio.run(work_for_an_hour, clock=MockClock(autojump_threshold=0)) == 0


def test_deterministic_runs_switch_it_on() -> None:
    observe_threads(None)
    try:
        with deterministic():
            assert trio.run(work_for_an_hour, clock=MockClock(autojump_threshold=0)) == 0
    finally:
        pause_autojump_for_threads()


async def test_a_run_within_a_thread_has_its_own_clock(autojump_clock: MockClock) -> None:
    async def main() -> float:
        await call(lambda: trio.from_thread.run(trio.sleep, 5))
        return trio.current_time()

    assert await call(lambda: trio.run(main, clock=MockClock(autojump_threshold=0))) == 5
    assert trio.current_time() == 0


async def test_a_cancelled_thread_that_is_waited_for_pauses_the_clock_until_it_ends(autojump_clock: MockClock) -> None:
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
            await run_in_joined_thread(work, limiter=trio.CapacityLimiter(1), scope=scope)
        assert not waiting.cancelled_caught
    assert trio.current_time() == 0


async def count_steps_beside(fn: Callable[[], object]) -> int:
    """Call a function in a thread, and return how many steps another task makes until that returns."""
    steps = 0

    async def step() -> None:
        nonlocal steps
        while True:
            await trio.lowlevel.checkpoint()
            steps += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(step)
        await call(fn)
        nursery.cancel_scope.cancel()
    return steps


def test_threads_and_tasks_run_one_after_another() -> None:
    def work() -> None:
        for _ in range(3):
            time.sleep(WORK)
            trio.from_thread.run(trio.lowlevel.checkpoint)
            trio.from_thread.run_sync(trio.current_time)

    counts = set()
    for _ in range(3):
        with deterministic(), serial_threads():
            counts.add(trio.run(count_steps_beside, work, clock=MockClock(autojump_threshold=0)))
    assert len(counts) == 1


def test_a_thread_that_waits_for_another_one_is_not_waited_for() -> None:
    is_ready = threading.Event()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, is_ready.wait)
            await trio.lowlevel.checkpoint()
            await call(is_ready.set)

    with deterministic(), serial_threads():
        trio.run(main, clock=MockClock(autojump_threshold=0))
