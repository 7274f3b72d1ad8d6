"""The threads of the asyncio loop: every call is answered, once, and wakes up the loop as rarely as possible."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from trioperator.kopf.threads import Threads


class _Held:
    """Threads that run when the test says so, in the thread of the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started: list[tuple[Callable[[], None], Callable[[None], object]]] = []
        monkeypatch.setattr("trio.lowlevel.start_thread_soon", lambda fn, end: self.started.append((fn, end)))

    def work(self) -> None:
        """Let a thread call what waits."""
        self.started[0][0]()

    def end(self) -> None:
        """Let it end."""
        self.started.pop(0)[1](None)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> _Held:
    return _Held(monkeypatch)


def test_a_thread_goes_on_with_what_waits_and_wakes_up_the_loop_once(held: _Held) -> None:
    async def use() -> list[int]:
        threads, wakeups = Threads(loop := asyncio.get_running_loop(), 1), []
        wake = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *args, **_: wakeups.append(wake(*args))  # type: ignore[method-assign, assignment]
        calls = [threads.call(functools.partial(int, number)) for number in range(5)]
        assert len(held.started) == 1
        held.work()
        held.end()
        results = await asyncio.gather(*calls)
        assert len(wakeups) == 1
        return results

    assert asyncio.run(use()) == [0, 1, 2, 3, 4]


def test_a_call_that_comes_when_all_threads_have_looked_is_called(held: _Held) -> None:
    async def use() -> str:
        threads = Threads(asyncio.get_running_loop(), 1)
        first = threads.call(str)
        held.work()
        late = threads.call(lambda: "late")
        assert len(held.started) == 1
        held.end()
        await first
        held.work()
        return await late

    assert asyncio.run(use()) == "late"


def test_a_result_that_no_future_takes_does_not_hold_up_the_others(held: _Held) -> None:
    def stop() -> None:
        raise StopIteration

    async def use() -> str:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        threads = Threads(loop, 1)
        stopped = threads.call(stop)
        later = threads.call(lambda: "later")
        held.work()
        found = await asyncio.wait_for(later, 60)
        stopped.cancel()
        return found

    assert asyncio.run(use()) == "later"


def test_no_more_threads_are_started_than_there_may_be(held: _Held) -> None:
    async def use() -> None:
        threads = Threads(asyncio.get_running_loop(), 2)
        for _ in range(3):
            threads.call(str)
        assert len(held.started) == 2

    asyncio.run(use())


def test_calls_that_are_cancelled_before_a_thread_is_free_are_not_called(held: _Held) -> None:
    called: list[int] = []

    async def use() -> None:
        threads = Threads(asyncio.get_running_loop(), 1)
        cancelled, other = (threads.call(functools.partial(called.append, number)) for number in range(2))
        cancelled.cancel()
        held.work()
        await other

    asyncio.run(use())
    assert called == [1]


def test_calls_that_are_forgotten_are_cancelled(held: _Held) -> None:
    async def use() -> None:
        threads = Threads(asyncio.get_running_loop(), 1)
        future = threads.call(str)
        threads.forget()
        held.work()
        with pytest.raises(asyncio.CancelledError):
            await future

    asyncio.run(use())


def test_a_result_that_comes_after_the_cancellation_is_dropped(held: _Held) -> None:
    async def use() -> None:
        threads = Threads(asyncio.get_running_loop(), 1)
        future: asyncio.Future[Any] = threads.call(str)
        held.work()
        future.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert future.cancelled()

    asyncio.run(use())


def test_functions_are_called_in_the_context_of_their_caller() -> None:
    name = contextvars.ContextVar("name", default="")

    async def ask(value: str) -> tuple[str, bool]:
        name.set(value)
        ask = Threads(asyncio.get_running_loop(), 1).call
        return await ask(name.get), await ask(threading.current_thread) is threading.current_thread()

    async def use() -> list[tuple[str, bool]]:
        return await asyncio.gather(*map(ask, "ab"))

    assert asyncio.run(use()) == [("a", False), ("b", False)]
