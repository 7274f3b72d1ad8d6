"""Marks in calls of handlers, to tell whether they may have done I/O since then.

A function that is async waits for that by letting other tasks run; if it uses a library that is not, by blocking the
thread. Both can be counted, where a clock would also measure that the machine is busy.
"""

from __future__ import annotations

import time
from typing import Final

import trio

try:
    from resource import RUSAGE_THREAD, getrusage
except ImportError:  # neither Windows nor macOS counts how often a thread has waited

    def _read_waits() -> float:
        return time.monotonic()

    _LIMIT: float = 0.002
else:

    def _read_waits() -> float:
        return getrusage(RUSAGE_THREAD).ru_nvcsw

    _LIMIT = 0.0


class IoMark:
    """A moment in the current task."""

    __slots__ = ("_steps", "_task", "_waits")

    def __init__(self) -> None:
        self._task: Final = trio.lowlevel.current_task()
        self._steps: Final = self._task._schedule_points  # as trio.testing.assert_checkpoints() does
        self._waits: Final = _read_waits()

    def is_past(self) -> bool:
        """Check whether the task has let others run since, or has blocked them."""
        return self._task._schedule_points != self._steps or _read_waits() - self._waits > _LIMIT
