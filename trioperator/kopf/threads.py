"""The threads in which asyncio code calls functions, as HTTP clients do for each request.

They are Trio's, which the process does not wait for when it ends, but no task waits for one: that would cost more than
what such functions do. A thread goes on with the next call without being asked, and results that come at the same time
wake up the loop once.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import outcome
import trio

T = TypeVar("T")


class Threads:
    """A limited number of threads of an asyncio loop. They are started when they are needed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        self._loop, self._free = loop, number
        self._calls: collections.deque[tuple[asyncio.Future[Any], Callable[[], Any]]] = collections.deque()
        self._told: collections.deque[Callable[[], None]] = collections.deque()
        self._is_told = False

    def call(self, fn: Callable[[], T]) -> asyncio.Future[T]:
        """Call a function in a thread, with the current context, as soon as one is free."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._calls.append((future, functools.partial(contextvars.copy_context().run, fn)))
        self._start()
        return future

    def forget(self) -> None:
        """Cancel the calls that wait for a thread."""
        while self._calls:
            self._calls.popleft()[0].cancel()

    def _start(self) -> None:
        if self._free and self._calls:
            self._free -= 1
            trio.lowlevel.start_thread_soon(self._work, lambda _: self._tell(self._end))

    def _work(self) -> None:
        """Call the queued functions, in a thread."""
        with contextlib.suppress(IndexError):  # nothing waits
            while True:
                future, call = self._calls.popleft()
                if not future.cancelled():
                    self._tell(functools.partial(_settle, future, outcome.capture(call)))
                del future, call  # it may be long until the next one

    def _end(self) -> None:
        self._free += 1
        self._start()  # for a call that came after the thread had looked

    def _tell(self, call: Callable[[], None]) -> None:
        """Call a function in the loop, from a thread."""
        self._told.append(call)
        if not self._is_told:
            self._is_told = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._listen)

    def _listen(self) -> None:
        self._is_told = False  # first: what a thread tells from now on is either found below, or called later
        try:
            while self._told:
                self._told.popleft()()
        finally:
            if self._told:  # one has raised: asyncio reports that, and the others are not to wait
                self._loop.call_soon(self._listen)


def _settle(future: asyncio.Future[T], result: outcome.Outcome[T]) -> None:
    """Set a result, unless the future was cancelled meanwhile."""
    if future.done():
        return
    if isinstance(result, outcome.Error):
        future.set_exception(result.error)
    else:
        future.set_result(result.unwrap())
