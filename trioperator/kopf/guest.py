"""Operators in asyncio programs: Trio as a guest of the asyncio loop that awaits ``kopf.operator()``.

Their handlers run in that loop itself, and share locks and tasks with the program.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import functools
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final

import outcome
import trio

from trioperator._concurrency.clock import make_clock
from trioperator.kopf.bridge import Loop, current_loop


async def run_as_guest(serve: Callable[[], Awaitable[None]]) -> None:
    """Run a Trio function in the current asyncio loop, and cancel it if the current asyncio task is cancelled.

    Several tasks of the loop may do so at the same time.
    """
    loop = asyncio.get_running_loop()
    while (guest := _find_guest()) is not None and guest.is_ending:
        await asyncio.wait([guest.ended])
    if guest is None or guest.loop is not loop:
        guest = _Guest(loop)  # which fails if Trio is a guest of another loop already
    await guest.run(serve)


class _Guest:
    """Trio in an asyncio loop, from the first of the functions that run there at the same time to the last one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.ended: asyncio.Future[outcome.Outcome[None]] = loop.create_future()
        self._running = 0
        self._start, self._starts = trio.open_memory_channel[Callable[[trio.Nursery], None]](math.inf)
        trio.lowlevel.start_guest_run(
            self._main,
            clock=make_clock(),
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            done_callback=self.ended.set_result,
            host_uses_signal_set_wakeup_fd=True,
            restrict_keyboard_interrupt_to_checkpoints=True,
        )
        _current_guest.set(self)

    @property
    def is_ending(self) -> bool:
        """Whether all functions have ended."""
        return not self._running

    async def run(self, serve: Callable[[], Awaitable[None]]) -> None:
        """Run a Trio function, beside others. The last one to end waits for the end of Trio itself."""
        scope, done = trio.CancelScope(), self.loop.create_future()
        operate = functools.partial(self._operate, serve, scope, done)
        context = contextvars.copy_context()
        self._running += 1
        self._start.send_nowait(lambda nursery: context.run(nursery.start_soon, operate))
        cancelled = False
        while not self.ended.done() and (not done.done() or self.is_ending):
            try:
                await asyncio.wait([self.ended, *([] if done.done() else [done])], return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                cancelled = True
                scope.cancel(reason="the asyncio task is cancelled")
        if self.ended.done() and isinstance(failed := self.ended.result(), outcome.Error):
            raise failed.error  # not unwrap(), which only one of the functions could call
        done.result().unwrap()
        if cancelled:
            raise asyncio.CancelledError

    async def _main(self) -> None:
        async with trio.open_nursery() as nursery:
            async for start in self._starts:
                start(nursery)

    async def _operate(
        self,
        serve: Callable[[], Awaitable[None]],
        scope: trio.CancelScope,
        done: asyncio.Future[outcome.Outcome[None]],
    ) -> None:
        try:
            async with trio.open_nursery() as nursery:
                bridge = Loop(self.loop, nursery)
                current_loop.set(bridge)
                try:
                    with scope:
                        await serve()
                finally:
                    bridge.end()
        except trio.Cancelled:
            raise  # Trio itself ends, by an exit
        except BaseException as error:  # noqa: BLE001 -- it is raised where the function is awaited
            done.set_result(outcome.Error(error))
        else:
            done.set_result(outcome.Value(None))
        finally:
            self._running -= 1
            if not self._running:
                self._start.close()


_current_guest: Final[trio.lowlevel.RunVar[_Guest | None]] = trio.lowlevel.RunVar("trioperator-guest", default=None)


def _find_guest() -> _Guest | None:
    return _current_guest.get() if trio.lowlevel.in_trio_run() else None


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
