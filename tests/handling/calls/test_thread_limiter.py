"""The limit on threads: its turns, and its report on handlers whose threads do not end."""

from __future__ import annotations

import logging
import threading

import pytest
import trio
from trio.testing import MockClock

from tests.handling.factory import handler
from trioperator._concurrency.threads import run_in_thread
from trioperator._handling.calls.thread_limiter import ThreadLimiter


class Calls:
    """Calls of handlers that take threads of a limiter for some seconds each."""

    def __init__(self, nursery: trio.Nursery, limiter: ThreadLimiter) -> None:
        self.order: list[str] = []
        self.running = 0
        self.most = 0
        self._nursery = nursery
        self._limiter = limiter

    async def start(self, name: str, *, flow: str = "", seconds: float = 10) -> trio.CancelScope:
        scope = trio.CancelScope()
        self._nursery.start_soon(self._run, name, flow, seconds, scope)
        await trio.testing.wait_all_tasks_blocked()
        return scope

    async def _run(self, name: str, flow: str, seconds: float, scope: trio.CancelScope) -> None:
        slot = self._limiter.slot(handler(lambda: None, id=name), flow)
        with scope:
            await slot.acquire_on_behalf_of(self)
            self.order.append(name)
            self.running += 1
            self.most = max(self.most, self.running)
            with trio.CancelScope(shield=True, deadline=trio.current_time() + seconds):  # as a thread
                await trio.sleep_forever()
            self.running -= 1
            slot.release_on_behalf_of(self)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_there_are_as_many_threads_at_once_as_the_limit(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    calls = Calls(nursery, ThreadLimiter(3))
    for number in range(10):
        await calls.start(f"{number}")
    await trio.sleep(100)
    assert calls.most == 3
    assert len(calls.order) == 10


async def test_flows_take_turns_when_the_limit_is_reached(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    calls = Calls(nursery, ThreadLimiter(1))
    for name in ("a1", "a2", "a3", "b1", "c1", "c2"):
        await calls.start(name, flow=name[0])
    await trio.sleep(100)
    assert calls.order == ["a1", "a2", "b1", "c1", "a3", "c2"]


async def test_a_call_that_is_cancelled_while_it_waits_takes_no_thread(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    calls = Calls(nursery, ThreadLimiter(1))
    await calls.start("a")
    waiting = await calls.start("b")
    await calls.start("c")
    waiting.cancel(reason="test")
    await trio.sleep(15)
    assert calls.order == ["a", "c"]


async def test_a_call_that_is_cancelled_as_it_gets_its_thread_passes_it_on(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    limiter = ThreadLimiter(1)
    first = limiter.slot(handler(lambda: None, id="first"))
    await limiter.acquire(first)
    calls = Calls(nursery, limiter)
    waiting = await calls.start("b")
    await calls.start("c")
    waiting.cancel(reason="test")
    limiter.release(first)  # it has its thread, and has not run since it was cancelled
    await trio.sleep(1)
    assert calls.order == ["c"]


async def test_handlers_that_keep_all_threads_are_counted_and_named_in_one_warning(
    nursery: trio.Nursery, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls(nursery, ThreadLimiter(3))
    await calls.start("hangs", seconds=10_000)
    await trio.sleep(100)
    await calls.start("slow", seconds=10_000)
    await calls.start("hangs", seconds=10_000)
    await trio.sleep(1000)
    assert warnings(caplog) == []  # nobody waits for a thread
    for number in range(5):
        await calls.start(f"waits {number}", seconds=1)
    await trio.sleep(60)
    (warning,) = warnings(caplog)
    assert warning.startswith(
        "Calls of sync handlers have to wait: all 3 threads are taken by Handler 'hangs' (2, for up to 1130 s), Handler"
        " 'slow' (1, for up to 1030 s)."
    )
    assert "settings.execution.max_workers" in warning
    await trio.sleep(600)
    await calls.start("waits as well", seconds=1)
    await trio.sleep(60)
    assert len(warnings(caplog)) == 2  # it lasts


async def test_only_the_handlers_with_most_threads_are_named(
    nursery: trio.Nursery, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls(nursery, ThreadLimiter(9))
    for number in range(8):
        await calls.start(f"h{number}", seconds=100)
    await calls.start("h7", seconds=100)
    await calls.start("waits")
    await trio.sleep(60)
    (warning,) = warnings(caplog)
    assert "taken by Handler 'h7' (2, for up to 30 s)" in warning
    assert "3 other handlers" in warning


async def test_an_abandoned_thread_counts_until_it_ends() -> None:
    limiter = ThreadLimiter(1)
    release = threading.Event()
    with trio.move_on_after(0.01):
        await run_in_thread(release.wait, limiter=limiter.slot(handler(lambda: None)))
    with trio.move_on_after(0.05) as scope:
        await run_in_thread(lambda: None, limiter=limiter.slot(handler(lambda: None)))
    assert scope.cancelled_caught
    release.set()
    with trio.fail_after(10):
        await run_in_thread(lambda: None, limiter=limiter.slot(handler(lambda: None)))
