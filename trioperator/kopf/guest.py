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
from trioperator.kopf.bridge import Loop, current_loop


async def run_as_guest(serve: Callable[[], Awaitable[None]]) -> None:
    """Run a Trio function in the current asyncio loop, and cancel it if the current asyncio task is cancelled."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[outcome.Outcome[None]] = loop.create_future()
    scope, cancelled = trio.CancelScope(), False

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            bridge = Loop(loop, nursery)
            current_loop.set(bridge)
            try:
                with scope:
                    await serve()
            finally:
                bridge.end()

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
