"""Operators in asyncio programs: Trio as a guest of the asyncio loop that awaits ``kopf.operator()``.

Their handlers run in that loop itself, and share locks and tasks with the program.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import outcome
import trio

from trioperator._concurrency.clock import make_clock
from trioperator.kopf.bridge import capture_exit, current_loop


class HostLoop:
    """The asyncio loop that Trio is a guest of. Trio functions that asyncio code starts run in *nursery*."""

    def __init__(self, loop: asyncio.AbstractEventLoop, nursery: trio.Nursery) -> None:
        self._loop = loop
        self._nursery = nursery

    async def run(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Await an asyncio function in an asyncio task, which is cancelled with the current Trio task."""
        task, waiting = self._loop.create_task(capture_exit(call)), trio.lowlevel.current_task()
        task.add_done_callback(lambda _: trio.lowlevel.reschedule(waiting))
        cancellations: list[Callable[[], Any]] = []

        def cancel(raise_cancel: Callable[[], Any]) -> trio.lowlevel.Abort:
            cancellations.append(raise_cancel)
            task.cancel()
            return trio.lowlevel.Abort.FAILED

        await trio.lowlevel.wait_task_rescheduled(cancel)
        if task.cancelled() and cancellations:
            cancellations[0]()
        return task.result().unwrap()

    def start(self, call: Callable[[], Awaitable[Any]]) -> Awaitable[Any]:
        """Start a Trio function, and return an asyncio future, which cancels the function if it is cancelled."""
        future: asyncio.Future[Any] = self._loop.create_future()
        scope = trio.CancelScope()
        future.add_done_callback(lambda _: scope.cancel() if future.cancelled() else None)
        self._nursery.start_soon(self._run_trio, call, future, scope)
        return future

    @staticmethod
    async def _run_trio(
        call: Callable[[], Awaitable[Any]], future: asyncio.Future[Any], scope: trio.CancelScope
    ) -> None:
        result: outcome.Outcome[Any] | None = None
        with scope:
            try:
                result = outcome.Value(await call())
            except Exception as error:  # noqa: BLE001 -- it is raised where the future is awaited
                result = outcome.Error(error)
        if future.done():
            return
        if isinstance(result, outcome.Value):
            future.set_result(result.value)
        elif isinstance(result, outcome.Error):
            future.set_exception(result.error)
        else:
            future.cancel()


async def run_as_guest(serve: Callable[[], Awaitable[None]]) -> None:
    """Run a Trio function in the current asyncio loop, and cancel it if the current asyncio task is cancelled."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[outcome.Outcome[None]] = loop.create_future()
    scope, cancelled = trio.CancelScope(), False

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            current_loop.set(HostLoop(loop, nursery))
            with scope:
                await serve()
            nursery.cancel_scope.cancel(reason="the operator has ended")

    trio.lowlevel.start_guest_run(
        main,
        clock=make_clock(),
        run_sync_soon_threadsafe=loop.call_soon_threadsafe,
        done_callback=ended.set_result,
        host_uses_signal_set_wakeup_fd=True,
        restrict_keyboard_interrupt_to_checkpoints=True,
    )
    while not ended.done():
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            cancelled = True
            scope.cancel(reason="the asyncio task is cancelled")
    ended.result().unwrap()
    if cancelled:
        raise asyncio.CancelledError


class _Ready:
    """Flag with the interface of a Trio event, which completes a future."""

    def __init__(self, future: Any) -> None:
        self._future = future

    def set(self) -> None:
        if not self._future.done():
            self._future.set_result(None)


@contextlib.asynccontextmanager
async def adapt_flags(options: dict[str, Any]) -> AsyncIterator[None]:
    """Accept asyncio's events and futures as flags in the options of an operator, as Kopf does."""
    futures = (asyncio.Future, concurrent.futures.Future)
    if isinstance(options.get("ready_flag"), futures):
        options["ready_flag"] = _Ready(options["ready_flag"])
    stop = options.get("stop_flag")
    if not isinstance(stop, (asyncio.Event, *futures)):
        yield
        return
    flag = options["stop_flag"] = trio.Event()
    with _setting(flag, stop):
        yield


@contextlib.contextmanager
def _setting(flag: trio.Event, stop: Any) -> Iterator[None]:
    """Set Trio's flag as soon as asyncio's flag is set."""

    async def wait() -> None:
        await (stop.wait() if isinstance(stop, asyncio.Event) else asyncio.wrap_future(stop))
        flag.set()

    waiter = asyncio.get_running_loop().create_task(wait())
    try:
        yield
    finally:
        waiter.cancel()
