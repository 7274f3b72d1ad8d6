"""The stop flag of daemons and timers."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from trioperator._concurrency.threads import run_in_thread
from trioperator._handling.arguments.stopping import (
    AsyncDaemonStopperChecker,
    DaemonStopped,
    DaemonStoppingReason,
    Stopper,
    SyncDaemonStopperChecker,
)

EXITING, DELETED = DaemonStoppingReason.OPERATOR_EXITING, DaemonStoppingReason.RESOURCE_DELETED


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_flag_is_false_until_there_is_a_reason_and_reasons_are_combined(is_async: bool) -> None:
    stopper = Stopper(is_async=is_async)
    stopped = stopper.stopped
    assert isinstance(stopped, AsyncDaemonStopperChecker if is_async else SyncDaemonStopperChecker)
    assert isinstance(stopped, DaemonStopped)
    assert (bool(stopped), stopped.is_set(), stopped.reason, stopper.is_set) == (False, False, None, False)
    stopper.stop(EXITING)
    assert (bool(stopped), stopped.is_set(), stopped.reason, stopper.is_set) == (True, True, EXITING, True)
    stopper.stop(DELETED)
    assert stopped.reason == EXITING | DELETED
    assert "OPERATOR_EXITING" in repr(stopped)


async def test_an_async_flag_is_awaited_with_or_without_a_timeout(autojump_clock: MockClock) -> None:
    stopper = Stopper(is_async=True)
    stopped = stopper.stopped
    began = trio.current_time()
    assert await stopped.wait(10) is stopped
    assert not stopped
    assert trio.current_time() == began + 10
    assert await stopped.wait(-1) is stopped  # what is left of a time that is over
    assert trio.current_time() == began + 10
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stopped.wait)
        await trio.sleep(5)
        stopper.stop(EXITING)
    assert trio.current_time() == began + 15
    assert await stopped.wait(10) is stopped
    assert trio.current_time() == began + 15


async def test_a_sync_flag_blocks_its_thread_in_virtual_time(autojump_clock: MockClock) -> None:
    stopper = Stopper(is_async=False)
    stopped = stopper.stopped
    seen: list[Any] = []

    def work() -> None:
        seen.append(stopped.wait(3600) is stopped)
        seen.append(bool(stopped))
        while not stopped.wait(60):
            seen.append("beat")
        seen.append(stopped.wait() is stopped)

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: run_in_thread(work, limiter=trio.CapacityLimiter(1)))
        await trio.sleep(3600 + 150)
        stopper.stop(EXITING)
    assert seen == [True, False, "beat", "beat", True]
    assert trio.current_time() == began + 3750


async def test_a_sync_flag_can_be_waited_for_in_any_thread() -> None:
    stopper = Stopper(is_async=False)
    seen: list[Any] = []

    def work() -> None:
        seen.append(stopper.stopped.wait(0.01) is stopper.stopped)
        stopper.stopped.wait()
        seen.append(stopper.stopped.reason)

    thread = threading.Thread(target=work)
    thread.start()
    await trio.sleep(0.05)
    stopper.stop(DELETED)
    await trio.to_thread.run_sync(thread.join)
    assert seen == [True, DELETED]


def test_a_sync_flag_is_set_for_threads_that_outlive_the_operator() -> None:
    seen: list[Any] = []
    begun = threading.Event()

    async def main() -> threading.Thread:
        stopper = Stopper(is_async=False)

        def work() -> None:
            begun.set()
            stopper.stopped.wait()
            seen.append(bool(stopper.stopped))

        thread = threading.Thread(target=work)
        thread.start()
        await trio.to_thread.run_sync(begun.wait)
        return thread

    trio.run(main).join(60)
    assert seen == [True]


def test_a_sync_flag_outlives_its_run() -> None:
    async def main() -> Stopper:
        return Stopper(is_async=False)

    stopper = trio.run(main)
    began = time.monotonic()
    assert stopper.stopped.wait(30)
    assert time.monotonic() - began < 20


def test_a_stopper_has_the_reasons_that_were_added() -> None:
    stopper = Stopper(is_async=True)
    assert not stopper.has(EXITING)
    stopper.stop(EXITING)
    assert stopper.has(EXITING)
    assert not stopper.has(DELETED)


@pytest.mark.parametrize("ask", [bool, DaemonStopped.is_set, lambda stopped: stopped.reason])
def test_a_flag_is_noticed_by_whoever_asks_while_it_is_set(ask: Callable[[DaemonStopped], object]) -> None:
    stopper = Stopper(is_async=True)
    ask(stopper.stopped)
    stopper.stop(EXITING)
    assert not stopper.is_noticed
    ask(stopper.stopped)
    assert stopper.is_noticed


async def test_a_flag_is_noticed_by_whoever_waits_for_it(autojump_clock: MockClock) -> None:
    patient, hasty, blocking = (Stopper(is_async=is_async) for is_async in (True, True, False))
    await hasty.stopped.wait(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(patient.stopped.wait)
        wait = functools.partial(run_in_thread, blocking.stopped.wait, limiter=trio.CapacityLimiter(1))
        nursery.start_soon(wait)
        await trio.sleep(5)
        for stopper in (patient, hasty, blocking):
            stopper.stop(EXITING)
    assert (patient.is_noticed, hasty.is_noticed, blocking.is_noticed) == (True, False, True)
