"""Streams of server-sent events: the newest state of a page, whenever something has changed.

There is no queue. A stream renders its page when the one before has been sent and something has changed since: a slow
reader gets fewer states, and costs one rendered page.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Final

import msgspec
import trio
from quart.wrappers.response import ResponseBody

from trioperator._concurrency.pulse import Pulse
from trioperator._endpoints.live_view.shown import ShownOperator

#: Streams of one live view at a time.
MAX_STREAMS: Final = 16
# Minimum seconds between two states; this multiple of the time of rendering, if that is longer.
_INTERVAL: Final = 1.0
_SHARE: Final = 20.0
# Seconds after which a state is sent though nothing has been announced: no event says at which line a handler is. It
# also shows whether the reader is still there.
_REFRESH: Final = 15.0
# Milliseconds after which a browser opens a stream again that was interrupted.
_RETRY: Final = 2000


class Streams:
    """The streams that are open."""

    def __init__(self) -> None:
        self.count = 0

    @property
    def are_too_many(self) -> bool:
        """Whether no other stream can be opened."""
        return self.count >= MAX_STREAMS


class Stream(ResponseBody):
    """Body of a response: the states of one page, until the operator ends, or the reader leaves or is not *allowed*."""

    def __init__(
        self, streams: Streams, shown: ShownOperator, render: Callable[[], str], allowed: Callable[[], bool]
    ) -> None:
        self._streams = streams
        self._shown = shown
        self._render = render
        self._allowed = allowed
        self._stack = contextlib.ExitStack()

    async def __aenter__(self) -> AsyncIterator[bytes]:
        changed = self._stack.enter_context(self._shown.changes.watching())
        self._streams.count += 1
        return self._follow(changed)

    async def __aexit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._streams.count -= 1
        self._stack.close()

    def _follow(self, changed: Pulse) -> _States:
        return _States(self._shown, self._render, self._allowed, changed)


class _States:
    """Iterator over the events of a stream. Not a generator: nothing would close it after the reader has left."""

    def __init__(
        self, shown: ShownOperator, render: Callable[[], str], allowed: Callable[[], bool], changed: Pulse
    ) -> None:
        self._shown = shown
        self._render = render
        self._allowed = allowed
        self._changed = changed
        self._next_at: float | None = None
        self._has_ended = False

    def __aiter__(self) -> _States:
        return self

    async def __anext__(self) -> bytes:
        if self._has_ended:
            raise StopAsyncIteration
        if self._next_at is not None:
            await self._wait_for_change(self._next_at)
        if self._shown.ended.is_set() or not self._allowed():
            self._has_ended = True
            return b"event: end\ndata:\n\n"
        began = time.monotonic()
        text = self._render()
        self._next_at = trio.current_time() + max(_INTERVAL, _SHARE * (time.monotonic() - began))
        return b"retry: %d\nevent: state\ndata: %s\n\n" % (_RETRY, msgspec.json.encode(text))

    async def _wait_for_change(self, next_at: float) -> None:
        """Wait until something has changed, and it is time for another state; or until the operator ends."""
        with trio.move_on_after(_REFRESH):
            await self._changed.wait()
        with trio.move_on_at(next_at):
            await self._shown.ended.wait()
