"""Deadlines of many connections, which one task keeps: a cancel scope for each wait takes longer than most waits."""

from __future__ import annotations

from typing import Final, Protocol

import trio

from trioperator._concurrency.pulse import Pulse

_NEVER: Final = float("inf")


class Timed(Protocol):
    """Something with a deadline in Trio's time, which may move, and infinite while there is none."""

    deadline: float

    def expire(self) -> None:
        """Look at the deadline again: it is over, or it is no longer kept. Never waits; may be called repeatedly."""


class Timeouts:
    """The deadlines of what is added, while :meth:`serve` runs.

    The task sleeps until the earliest deadline that there was since it looked. Most have moved on by then, so it wakes
    up about once in the time that a connection may take, however many requests there are.
    """

    __slots__ = ("_next", "_sooner", "_timed", "is_served")

    def __init__(self) -> None:
        self.is_served = False
        self._timed: set[Timed] = set()
        self._next = _NEVER
        self._sooner = Pulse()

    def add(self, timed: Timed) -> None:
        """Keep the deadline of *timed*, which is infinite so far."""
        self._timed.add(timed)

    def discard(self, timed: Timed) -> None:
        """Keep its deadline no longer."""
        self._timed.discard(timed)

    def set(self, timed: Timed, deadline: float) -> None:
        """Move the deadline of something that was added."""
        timed.deadline = deadline
        if deadline < self._next:
            self._next = deadline
            self._sooner.set()

    async def serve(self) -> None:
        """Call ``expire()`` of what is late, until cancelled; and then of all, whose deadlines are kept no longer."""
        self.is_served = True
        try:
            while True:
                with trio.move_on_at(self._next):
                    await self._sooner.wait()
                if (now := trio.current_time()) >= self._next:
                    self._expire(now)
        finally:
            self.is_served = False
            self._expire(_NEVER)

    def _expire(self, now: float) -> None:
        self._next = _NEVER
        for timed in list(self._timed):
            if timed.deadline <= now:
                timed.expire()
            elif timed.deadline < self._next:
                self._next = timed.deadline
