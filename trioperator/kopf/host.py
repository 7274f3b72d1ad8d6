"""Operators on Trio: the asyncio loop of their handlers runs in a Trio task.

It is asyncio's own loop, but with a selector that never waits: that stops the loop, and the Trio task waits in its
place, until a file of the selector is ready or a timer is due. Trio's clock is the clock of the loop, so virtual time
is, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import math
import os
import selectors
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, TypeVar, TypeVarTuple

import sniffio
import trio

from trioperator._concurrency.threads import are_threads_observed, run_in_thread
from trioperator._logs import get_logger
from trioperator.kopf.bridge import Loop, current_loop
from trioperator.kopf.threads import Threads

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# As many as asyncio's own executor has.
_THREADS: Final = min(32, (os.cpu_count() or 1) + 4)
# Turns of the loop until Trio's tasks have one. Each change between the two takes some 15 us.
_TURNS: Final = 8
# Seconds until the loop sees what a thread has done to an event or queue of asyncio, which are not thread-safe: at once
# would be while the thread still does it, and asyncio's own loop would see it when it wakes up by chance.
_FORGIVING: Final = 0.01


@contextlib.asynccontextmanager
async def open_loop() -> AsyncIterator[None]:
    """Open the asyncio loop for the handlers of the operators that run in the block.

    Asyncio tasks that are left at the end of the block are cancelled and waited for. An exit that such a task raises
    cancels the block, and is raised after it.
    """
    with contextlib.closing(HostedLoop()) as loop:
        async with trio.open_nursery() as driving:
            driving.start_soon(loop.drive, driving.cancel_scope, name="asyncio loop")
            try:
                async with trio.open_nursery() as nursery:
                    loop.bridge = Loop(loop, nursery)
                    async with _bridging(loop):
                        yield
            finally:
                loop.end()


@contextlib.asynccontextmanager
async def _bridging(loop: HostedLoop) -> AsyncIterator[None]:
    """Let handlers run in the loop in the block. Tasks that are left are ended after it, on Trio as on asyncio."""
    token = current_loop.set(loop.bridge)
    try:
        yield
    finally:
        current_loop.reset(token)
        with trio.CancelScope(shield=True):
            await loop.bridge.run(loop.shut_down)
        loop.bridge.end()


class _Selector(selectors.DefaultSelector):
    """Selector that never waits: it stops the loop that calls it, and notes how long it should have waited.

    It also does so after some turns of a loop that always has something to do, for the sake of Trio's tasks.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stop: Callable[[], None] = lambda: None
        self.timeout: float | None = 0
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        self.timeout = 0 if found else timeout
        self._turns += 1
        if self.timeout != 0 or self._turns >= _TURNS:
            self._turns = 0
            self.stop()
        return found


class HostedLoop(asyncio.SelectorEventLoop):
    """An asyncio loop that a Trio task drives."""

    #: Its connection to Trio: Trio functions that asyncio code starts, and its threads, run in its nursery.
    bridge: Loop

    def __init__(self) -> None:
        self._selecting = _Selector()
        self._is_waiting = self._is_called_by_thread = self._is_between_turns = False
        super().__init__(self._selecting)
        self._selecting.stop = self.stop
        self.set_exception_handler(_report)
        self._clock, self._thread = trio.lowlevel.current_clock(), threading.get_ident()
        self._driving = trio.CancelScope(shield=True)
        self._has_executor = False
        self._threads, self._limiter = Threads(self, _THREADS), trio.CapacityLimiter(_THREADS)

    async def drive(self, scope: trio.CancelScope) -> None:
        """Run the loop until :meth:`end`, whatever is cancelled. An exit in it cancels *scope*, and is raised then."""
        exits: list[BaseException] = []
        with self._driving:
            while True:
                try:
                    self._run_turns()
                except (KeyboardInterrupt, SystemExit) as error:  # handlers need the loop until they have ended
                    exits.append(error)
                    scope.cancel(reason="a task of asyncio exits")
                await self._wait()
        self._is_between_turns = False
        if exits:
            raise exits[0]

    def end(self) -> None:
        """Stop driving the loop."""
        self._driving.cancel(reason="the operator has ended")

    async def shut_down(self) -> None:
        """Cancel the asyncio tasks that are left, and wait for them."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._threads.forget()
        await self.shutdown_asyncgens()
        await self.shutdown_default_executor()

    def _run_turns(self) -> None:
        """Call what is due and ready, and some of what follows. Libraries for both find that they run on asyncio."""
        library, sniffio.thread_local.name = sniffio.thread_local.name, "asyncio"
        self._is_between_turns = False
        try:
            self.run_forever()
        finally:
            self._is_between_turns = True
            sniffio.thread_local.name = library

    async def _wait(self) -> None:
        timeout = self._selecting.timeout
        if timeout == 0:
            await trio.lowlevel.checkpoint()
            return
        self._is_waiting = True
        with trio.move_on_after(math.inf if timeout is None else timeout):
            await trio.lowlevel.wait_readable(self._selecting.fileno())
        self._is_waiting = False
        if self._is_called_by_thread:
            self._is_called_by_thread = False
            await trio.sleep(_FORGIVING)

    def _wake(self) -> None:
        """Let the loop notice what was called between its turns: by a Trio task, or, against its rules, by a thread."""
        if self._is_waiting:
            self._is_waiting = False
            self._is_called_by_thread = threading.get_ident() != self._thread
            self.call_soon_threadsafe(lambda: None)

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """See asyncio."""
        handle = super().call_soon(callback, *args, context=context)
        self._wake()
        return handle

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """See asyncio."""
        handle = super().call_at(when, callback, *args, context=context)
        self._wake()
        return handle

    def is_running(self) -> bool:
        """Return whether the loop runs: it does so between its turns, too."""
        return self._is_between_turns or super().is_running()

    def time(self) -> float:
        """Return the time of Trio's clock."""
        return self._clock.current_time()

    def set_default_executor(self, executor: Any) -> None:
        """See asyncio."""
        super().set_default_executor(executor)
        self._has_executor = True

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """See asyncio. By default, this is a thread of Trio's, which the process does not wait for when it ends."""
        if executor is not None or self._has_executor:
            return super().run_in_executor(executor, func, *args)
        call = functools.partial(func, *args)
        if are_threads_observed():
            return self.bridge.start(functools.partial(run_in_thread, call, limiter=self._limiter))
        return self._threads.call(call)


def _report(_: object, context: Mapping[str, Any]) -> None:
    """Log errors that nobody awaits, such as that of a forgotten task, like other errors of the operator."""
    message = context.get("message") or "Unhandled exception in the asyncio loop"
    get_logger("trioperator.kopf").error("%s", message, exc_info=context.get("exception"))
