"""The limit on threads for sync handlers, shared fairly, and the report on those that take them for long."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Final

import trio

from trioperator._concurrency.fair_queue import FairQueue
from trioperator._handling.handlers.handler import Handler
from trioperator._logs import get_logger

_logger = get_logger("trioperator.handling.calls.thread_limiter")

# Seconds that a call waits for a thread before the log names the handlers that occupy them; and until it does so again.
_PATIENCE: Final = 30.0
_SILENCE: Final = 600.0
# Number of handlers that the log names, those with most threads first.
_MAX_NAMES: Final = 5


class ThreadLimiter:
    """A limit on the threads of sync handlers. When it is reached, calls wait in flows that take turns.

    A thread counts until it has ended, even if it was abandoned. If a call waits for long, a warning names the handlers
    that take the threads.
    """

    def __init__(self, total: float, *, setting: str = "settings.execution.max_workers") -> None:
        self._total = total
        self._setting = setting
        self._taken: dict[ThreadSlot, float] = {}
        self._waiting: FairQueue[ThreadSlot] = FairQueue()
        self._silent_until = -math.inf

    def slot(self, handler: Handler, flow: Hashable = None) -> ThreadSlot:
        """Return the limiter of one call of a handler, for Trio's functions."""
        return ThreadSlot(self, handler, flow)

    async def acquire(self, slot: ThreadSlot) -> None:
        """Wait for a thread. If one is free, this only checks for cancellation: the call of the thread waits anyway."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if len(self._taken) < self._total:
            self._taken[slot] = trio.current_time()
            return
        self._waiting.append(slot, slot.flow)
        try:
            with trio.move_on_after(_PATIENCE):
                await slot.granted.wait()
                return
            self._warn()
            await slot.granted.wait()
        except BaseException:
            if slot in self._taken:
                self.release(slot)
            else:
                self._waiting.remove(slot, slot.flow)
            raise

    def release(self, slot: ThreadSlot) -> None:
        """Pass the thread of a call that has ended on to the next one."""
        del self._taken[slot]
        if self._waiting and len(self._taken) < self._total:
            following = self._waiting.popleft()
            self._taken[following] = trio.current_time()
            following.granted.set()

    def _warn(self) -> None:
        """Report what occupies the threads, unless that was done recently."""
        now = trio.current_time()
        if now < self._silent_until:
            return
        self._silent_until = now + _SILENCE
        times: dict[str, list[float]] = {}
        for slot, since in self._taken.items():
            times.setdefault(str(slot.handler), []).append(now - since)
        names = [
            f"{name} ({len(seconds)}, for up to {max(seconds):.0f} s)"
            for name, seconds in sorted(times.items(), key=lambda item: -len(item[1]))
        ]
        if len(names) > _MAX_NAMES:
            names[_MAX_NAMES:] = [f"{len(names) - _MAX_NAMES} other handlers"]
        _logger.warning(
            "Calls of sync handlers have to wait: all %d threads are taken by %s. A thread is only free again when its"
            " function returns. To have more threads, raise %s, or make handlers async.",
            len(self._taken),
            ", ".join(names),
            self._setting,
        )


class ThreadSlot:
    """The thread of one call of a handler, as a capacity limiter for Trio's functions."""

    __slots__ = ("_limiter", "flow", "granted", "handler")

    def __init__(self, limiter: ThreadLimiter, handler: Handler, flow: Hashable) -> None:
        self.handler = handler
        self.flow = flow
        self.granted = trio.Event()
        self._limiter = limiter

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        """Wait for a thread."""
        await self._limiter.acquire(self)

    def release_on_behalf_of(self, borrower: object) -> None:
        """Note that the thread has ended."""
        self._limiter.release(self)
