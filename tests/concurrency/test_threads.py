"""Tests for :mod:`trioperator._concurrency.threads`."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import trio
import trio.testing

from trioperator._concurrency.threads import (
    call_trio,
    initialize_thread,
    observe_threads,
    run_in_joined_thread,
    run_in_nursery_thread,
    run_in_thread,
    time_passes,
)
from trioperator.testing import pause_autojump_for_threads


async def test_a_thread_returns_the_result_of_the_function() -> None:
    def work() -> str:
        with time_passes():
            return "result"

    assert await run_in_thread(work, limiter=trio.CapacityLimiter(1)) == "result"
    with time_passes():
        pass


class Observer:
    """Observer of one thread that records its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def started(self) -> None:
        self.calls.append("started")

    def ended(self) -> None:
        self.calls.append("ended")

    def finished(self) -> None:
        self.calls.append("finished")

    @contextlib.contextmanager
    def time_passes(self) -> Iterator[None]:
        self.calls.append("time passes")
        yield
        self.calls.append("time has passed")


@pytest.fixture
def observers() -> Iterator[list[Observer]]:
    """Yield the observers of the threads of the test."""
    made: list[Observer] = []

    def make() -> Observer:
        made.append(Observer())
        return made[-1]

    observe_threads(make)
    yield made
    pause_autojump_for_threads()


def wait_for_time() -> None:
    with time_passes():
        pass


async def test_an_observer_sees_when_a_thread_starts_waits_and_ends(observers: list[Observer]) -> None:
    limiter = trio.CapacityLimiter(1)
    scope = trio.CancelScope
    async with trio.open_nursery() as nursery:
        await run_in_thread(wait_for_time, limiter=limiter)
        await run_in_joined_thread(wait_for_time, limiter=limiter, scope=scope())
        await run_in_nursery_thread(wait_for_time, limiter=limiter, scope=scope(), nursery=nursery)
    expected = ["started", "time passes", "time has passed", "ended", "finished"]
    assert [observer.calls for observer in observers] == [expected] * 3


async def test_an_observer_sees_that_a_thread_is_abandoned(observers: list[Observer]) -> None:
    release = threading.Event()
    with trio.move_on_after(0.01):
        await run_in_thread(release.wait, limiter=trio.CapacityLimiter(1))
    assert [observer.calls for observer in observers] == [["started", "finished"]]
    release.set()


async def test_a_thread_that_may_not_be_abandoned_ends_before_its_cancelled_caller(observers: list[Observer]) -> None:
    scope, release = trio.CancelScope(), threading.Event()

    async def cancel() -> None:
        await trio.testing.wait_all_tasks_blocked(0.01)
        scope.cancel()
        release.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel)
        with scope:
            assert await run_in_thread(
                lambda: release.wait(60), limiter=trio.CapacityLimiter(1), abandon_on_cancel=False
            )
    assert [observer.calls for observer in observers] == [["started", "ended", "finished"]]


async def test_an_observer_sees_that_a_thread_was_never_started(observers: list[Observer]) -> None:
    scope = trio.CancelScope()
    scope.cancel(reason="test")
    await run_in_joined_thread(lambda: None, limiter=trio.CapacityLimiter(1), scope=scope)
    assert [observer.calls for observer in observers] == [["finished"]]


async def test_a_joined_thread_sees_the_cancellation_and_is_waited_for() -> None:
    scope = trio.CancelScope()
    cancelled = threading.Event()

    def ignore_cancellation() -> str:
        scope_cancelled.wait(10)
        try:
            trio.from_thread.check_cancelled()
        except trio.Cancelled:
            cancelled.set()
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
        assert await run_in_joined_thread(ignore_cancellation, limiter=limiter, scope=scope) == "done"
    assert cancelled.is_set()
    assert limiter.borrowed_tokens == 0


async def test_a_joined_thread_that_ends_by_the_cancellation_returns_none() -> None:
    scope = trio.CancelScope()

    def check_cancelled() -> str:
        while True:
            trio.from_thread.check_cancelled()
            time.sleep(0.001)

    async with trio.open_nursery() as nursery:

        async def cancel() -> None:
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel(reason="test")

        nursery.start_soon(cancel)
        assert await run_in_joined_thread(check_cancelled, limiter=trio.CapacityLimiter(1), scope=scope) is None


async def test_a_joined_thread_that_was_never_started_is_not_waited_for() -> None:
    scope = trio.CancelScope()
    scope.cancel(reason="test")
    assert await run_in_joined_thread(lambda: "never", limiter=trio.CapacityLimiter(1), scope=scope) is None
    limiter = trio.CapacityLimiter(1)
    waiting = trio.CancelScope()
    async with limiter, trio.open_nursery() as nursery:

        async def cancel() -> None:
            await trio.testing.wait_all_tasks_blocked()
            waiting.cancel(reason="test")

        nursery.start_soon(cancel)
        assert await run_in_joined_thread(lambda: "never", limiter=limiter, scope=waiting) is None


async def test_any_other_cancellation_abandons_a_joined_thread() -> None:
    release = threading.Event()
    with trio.move_on_after(0.01) as outer:
        await run_in_joined_thread(lambda: release.wait(10), limiter=trio.CapacityLimiter(1), scope=trio.CancelScope())
    assert outer.cancelled_caught
    release.set()


class Caller:
    """Caller of a function in a thread of a nursery, which can be cancelled alone."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.scope = trio.CancelScope()
        self.own_scope = trio.CancelScope()
        self.started = trio.Event()
        self.cancelled = threading.Event()

    async def run(self, fn: Callable[[], object]) -> object:
        def work() -> object:
            trio.from_thread.run_sync(self.started.set)
            self.cancelled.wait(30)
            return fn()

        limiter = trio.CapacityLimiter(1)
        with self.own_scope:
            return await run_in_nursery_thread(
                lambda: (work(),), limiter=limiter, scope=self.scope, nursery=self.nursery
            )
        return "cancelled"

    async def cancel(self) -> None:
        await self.started.wait()
        self.own_scope.cancel(reason="test")
        await trio.testing.wait_all_tasks_blocked()
        self.cancelled.set()


async def test_a_nursery_thread_sees_the_cancellation_of_its_caller_and_its_result_counts() -> None:
    cancelled = threading.Event()

    def ignore_cancellation() -> str:
        try:
            trio.from_thread.check_cancelled()
        except trio.Cancelled:
            cancelled.set()
        return "done"

    async with trio.open_nursery() as nursery:
        caller = Caller(nursery)
        nursery.start_soon(caller.cancel)
        assert await caller.run(ignore_cancellation) == ("done",)
    assert cancelled.is_set()


async def test_a_nursery_thread_that_ends_by_the_cancellation_lets_it_go_on() -> None:
    async with trio.open_nursery() as nursery:
        caller = Caller(nursery)
        nursery.start_soon(caller.cancel)
        assert await caller.run(trio.from_thread.check_cancelled) == "cancelled"


async def test_a_nursery_thread_raises_its_error() -> None:
    async with trio.open_nursery() as nursery:
        caller = Caller(nursery)
        nursery.start_soon(caller.cancel)
        with pytest.raises(ZeroDivisionError):
            await caller.run(lambda: 1 // 0)


async def test_a_nursery_thread_of_a_cancelled_caller_is_not_started() -> None:
    async with trio.open_nursery() as nursery:
        caller = Caller(nursery)
        caller.own_scope.cancel(reason="test")
        assert await caller.run(lambda: "never") == "cancelled"
        assert not caller.started.is_set()


async def test_a_nursery_thread_is_abandoned_with_its_nursery() -> None:
    release = threading.Event()
    async with trio.open_nursery() as nursery:
        caller = Caller(nursery)
        nursery.start_soon(caller.cancel)

        async def end() -> None:
            await trio.to_thread.run_sync(caller.cancelled.wait)
            nursery.cancel_scope.cancel(reason="test")

        nursery.start_soon(end)
        assert await caller.run(lambda: release.wait(30)) == "cancelled"
    assert nursery.cancel_scope.cancelled_caught
    release.set()


async def test_what_a_thread_awaits_is_cancelled_with_its_caller() -> None:
    begun, cancelled, raised = trio.Event(), trio.Event(), threading.Event()

    async def wait() -> None:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    def work() -> None:
        try:
            call_trio(wait)
        except trio.Cancelled:
            raised.set()
            with pytest.raises(trio.Cancelled):
                call_trio(wait)
            ended.set()

    ended = threading.Event()
    limiter = trio.CapacityLimiter(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: run_in_thread(work, limiter=limiter))
        await begun.wait()
        nursery.cancel_scope.cancel()
    with trio.fail_after(10):
        await cancelled.wait()
        assert await trio.to_thread.run_sync(ended.wait, 10)
    assert raised.is_set()


async def test_a_joined_thread_that_awaits_something_ends_at_once_when_it_is_cancelled() -> None:
    scope, limiter = trio.CancelScope(), trio.CapacityLimiter(1)

    async def wait() -> str:
        await trio.sleep_forever()
        return "never"

    async with trio.open_nursery() as nursery:

        async def cancel() -> None:
            await trio.testing.wait_all_tasks_blocked(0.05)
            scope.cancel(reason="test")

        nursery.start_soon(cancel)
        with trio.fail_after(10):
            assert await run_in_joined_thread(lambda: call_trio(wait), limiter=limiter, scope=scope) is None


async def test_what_a_thread_awaits_returns_and_raises() -> None:
    async def double(number: int) -> int:
        await trio.lowlevel.checkpoint()
        return 2 * number if number else number // number

    limiter = trio.CapacityLimiter(1)
    assert await run_in_thread(lambda: call_trio(lambda: double(2)), limiter=limiter) == 4
    with pytest.raises(ZeroDivisionError):
        await run_in_thread(lambda: call_trio(lambda: double(0)), limiter=limiter)
    assert await trio.to_thread.run_sync(call_trio, lambda: double(3)) == 6


async def test_threads_that_trio_has_not_started_need_a_token() -> None:
    results: list[object] = []
    token = trio.lowlevel.current_trio_token()

    async def answer() -> str:
        return "yes"

    def work() -> None:
        results.append(call_trio(answer, token=token))
        with pytest.raises(RuntimeError, match="trio_token"):
            call_trio(answer)
        results.append("done")

    thread = threading.Thread(target=work)
    thread.start()
    await trio.to_thread.run_sync(thread.join)
    assert results == ["yes", "done"]


async def test_a_thread_is_initialized_once_for_each_pool() -> None:
    calls: list[tuple[str, int]] = []
    limiter = trio.CapacityLimiter(1)  # so that the same thread is taken each time

    def initialize(name: str) -> None:
        calls.append((name, threading.get_ident()))
        if len(calls) == 1:
            raise OSError("not yet")

    def make_pool(name: str) -> concurrent.futures.ThreadPoolExecutor:
        return concurrent.futures.ThreadPoolExecutor(1, initializer=initialize, initargs=(name,))

    one, other, plain = make_pool("one"), make_pool("other"), concurrent.futures.ThreadPoolExecutor(1)

    def work() -> None:
        for pool in (one, other, plain, one):
            initialize_thread(pool)

    with pytest.raises(OSError, match="not yet"):
        await run_in_thread(work, limiter=limiter)
    await run_in_thread(work, limiter=limiter)
    await run_in_thread(work, limiter=limiter)
    assert [name for name, _ in calls] == ["one", "one", "other"]
    assert {ident for _, ident in calls} == {calls[0][1]} != {threading.get_ident()}
