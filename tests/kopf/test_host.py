"""The asyncio loop in a Trio task: what it owes to asyncio code, to Trio, and to the process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import math
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import outcome
import pytest
import sniffio
import trio
from trio.testing import MockClock

from tests.processes.conftest import ROOT
from trioperator.kopf.bridge import current_loop
from trioperator.kopf.host import _THREADS, open_loop
from trioperator.testing import eventually


async def run(call: Callable[[], Awaitable[Any]]) -> Any:
    return await current_loop.get().run(call)


async def test_asyncio_sleeps_in_virtual_time(autojump_clock: MockClock) -> None:
    async def sleep() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(7200.1)
        async with asyncio.timeout(3600):
            await asyncio.sleep(600)
        return loop.time() - began

    async with open_loop():
        assert await run(sleep) == pytest.approx(7800.1)
        assert trio.current_time() == pytest.approx(7800.1)


class Wakeups(trio.abc.Instrument):
    """Counts how often Trio's loop has waited."""

    def __init__(self) -> None:
        self.count = 0

    def after_io_wait(self, timeout: float) -> None:
        self.count += 1


async def test_an_idle_loop_wakes_up_only_when_something_is_due(autojump_clock: MockClock) -> None:
    wakeups = Wakeups()

    async def sleep() -> None:
        for _ in range(3):
            await asyncio.sleep(3600)

    async with open_loop():
        trio.lowlevel.add_instrument(wakeups)
        await run(sleep)
        trio.lowlevel.remove_instrument(wakeups)
    assert trio.current_time() == pytest.approx(3 * 3600)
    assert wakeups.count <= 12  # for each sleep, its start and its end, and what the clock jumps to


async def test_asyncio_and_trio_take_turns(autojump_clock: MockClock) -> None:
    async def spin() -> None:
        loop = asyncio.get_running_loop()

        def again() -> None:
            loop.call_soon(again)

        again()
        await asyncio.sleep(math.inf)

    async with open_loop(), trio.open_nursery() as nursery:
        nursery.start_soon(run, spin)
        for _ in range(50):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


async def test_trio_tasks_may_use_what_asyncio_waits_for(autojump_clock: MockClock) -> None:
    event, started = asyncio.Event(), trio.Event()

    async def wait() -> bool:
        started.set()
        return await event.wait()

    async with open_loop(), trio.open_nursery() as nursery:
        nursery.start_soon(run, wait)
        await started.wait()
        await trio.sleep(10)
        event.set()
    assert trio.current_time() == pytest.approx(10)


async def test_threads_that_forget_that_asyncio_is_not_thread_safe_are_forgiven() -> None:
    event, started = asyncio.Event(), trio.Event()

    async def wait() -> bool:
        started.set()
        return await event.wait()

    with trio.fail_after(30):
        async with open_loop(), trio.open_nursery() as nursery:
            nursery.start_soon(run, wait)
            await started.wait()
            await trio.testing.wait_all_tasks_blocked()
            await trio.to_thread.run_sync(event.set)


async def test_libraries_find_the_one_that_they_run_on() -> None:
    async def name() -> tuple[str, bool]:
        await asyncio.sleep(0)
        return sniffio.current_async_library(), asyncio.get_running_loop().is_running()

    async with open_loop():
        assert await run(name) == ("asyncio", True)
        assert sniffio.current_async_library() == "trio"
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()


async def test_threads_can_call_the_loop_and_see_that_it_runs() -> None:
    async def use() -> Any:
        loop = asyncio.get_running_loop()

        def call() -> tuple[bool, str]:
            assert loop.is_running()
            future = asyncio.run_coroutine_threadsafe(asyncio.sleep(0, "done"), loop)
            return threading.current_thread() is threading.main_thread(), future.result(30)

        return await asyncio.to_thread(call)

    async with open_loop():
        assert await run(use) == (False, "done")


async def test_the_default_executor_may_be_replaced() -> None:
    async def use() -> str:
        asyncio.get_running_loop().set_default_executor(concurrent.futures.ThreadPoolExecutor(1, "mine"))
        return await asyncio.to_thread(lambda: threading.current_thread().name)

    async with open_loop():
        assert (await run(use)).startswith("mine")


class _Spawned(trio.abc.Instrument):
    """Counts tasks."""

    count = 0

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


async def test_threads_of_asyncio_take_no_tasks_of_trio() -> None:
    async def use() -> None:
        numbers = range(3 * _THREADS)  # most wait for a thread
        assert await asyncio.gather(*(asyncio.to_thread(str, each) for each in numbers)) == [*map(str, numbers)]

    async with open_loop():
        trio.lowlevel.add_instrument(spawned := _Spawned())
        await run(use)
        trio.lowlevel.remove_instrument(spawned)
    assert spawned.count == 0


async def test_functions_wait_for_a_free_thread() -> None:
    async def use() -> int:
        loop, busy, release = asyncio.get_running_loop(), asyncio.Semaphore(0), threading.Event()

        def work() -> bool:
            loop.call_soon_threadsafe(busy.release)
            return release.wait(30)

        calls = [asyncio.create_task(asyncio.to_thread(work)) for _ in range(_THREADS + 2)]
        for _ in range(_THREADS):
            await busy.acquire()
        assert busy.locked()
        release.set()
        return sum(await asyncio.gather(*calls))

    async with open_loop():
        assert await run(use) == _THREADS + 2


async def raise_in_threads() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        await asyncio.to_thread(int, "x")
    with pytest.raises(SystemExit):
        await asyncio.to_thread(sys.exit, 3)


async def test_threads_raise_what_their_functions_raise() -> None:
    async with open_loop():
        await run(raise_in_threads)


async def test_threads_raise_what_their_functions_raise_in_virtual_time(autojump_clock: MockClock) -> None:
    async with open_loop():
        await run(raise_in_threads)


async def test_a_thread_may_end_after_its_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[Callable[[outcome.Outcome[int]], object]] = []

    async def leave() -> None:
        asyncio.get_running_loop().run_in_executor(None, int)

    with monkeypatch.context() as patch:
        patch.setattr(trio.lowlevel, "start_thread_soon", lambda _, end: ends.append(end))
        async with open_loop():
            await run(leave)
    ends[0](outcome.Value(0))


async def test_virtual_time_stands_still_while_a_thread_of_asyncio_works(autojump_clock: MockClock) -> None:
    async def work() -> float:
        await asyncio.to_thread(time.sleep, 0.05)
        return asyncio.get_running_loop().time()

    async with open_loop(), trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 1000)
        assert await run(work) < 1
        nursery.cancel_scope.cancel()


async def test_what_asyncio_code_awaits_on_trio_goes_on_when_the_operator_is_cancelled(
    autojump_clock: MockClock,
) -> None:
    seen: list[str] = []

    async def clean() -> None:
        await current_loop.get().start(functools.partial(trio.sleep, 1))
        seen.append("cleaned")

    async def work() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await run(clean)

    with trio.move_on_after(5):
        async with open_loop():
            await work()
    assert seen == ["cleaned"]


async def test_tasks_that_are_left_are_cancelled_and_waited_for(autojump_clock: MockClock) -> None:
    seen: list[str] = []

    async def linger() -> None:
        try:
            await asyncio.sleep(math.inf)
        finally:
            await asyncio.sleep(1)
            seen.append("ended")

    async def leave() -> None:
        seen.append(str(asyncio.create_task(linger())))
        await asyncio.sleep(0)

    async with open_loop():
        await run(leave)
    assert seen[1:] == ["ended"]


async def test_the_exit_of_a_task_that_nobody_awaits_ends_the_block(autojump_clock: MockClock) -> None:
    async def leave() -> None:
        asyncio.get_running_loop().call_later(1, sys.exit, 3)

    with pytest.RaisesGroup(pytest.RaisesExc(SystemExit, check=lambda error: error.code == 3)):
        async with open_loop():
            await run(leave)
            await trio.sleep_forever()
    assert trio.current_time() == pytest.approx(1)


async def test_errors_that_nobody_awaits_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def leave() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)

    async with open_loop():
        await run(leave)
        await eventually(lambda: "ZeroDivisionError" in caplog.text)


def test_signal_handlers_of_asyncio_work() -> None:
    async def wait() -> None:
        loop, received = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, received.set)
        loop.call_later(0.01, signal.raise_signal, signal.SIGUSR1)
        await received.wait()
        loop.remove_signal_handler(signal.SIGUSR1)

    async def main() -> None:
        with trio.fail_after(30):
            async with open_loop():
                await run(wait)

    trio.run(main)


_STUCK = """
import asyncio, threading, trio
from trioperator.kopf.bridge import current_loop
from trioperator.kopf.host import open_loop

async def leave():
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)

async def main():
    async with open_loop():
        await current_loop.get().run(leave)

trio.run(main)
print("ended")
"""


def test_a_thread_that_never_ends_does_not_keep_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", _STUCK], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout == "ended\n", done.stderr
