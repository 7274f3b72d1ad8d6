"""Coalescing of wake-ups: under load, an event loop handles what arrives within some milliseconds at once.

Network cards and kernels do the same with interrupts. Each wake-up finds the caches of the processor cold, and costs as
much as what there is to do for a watch event.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import trio

__all__ = ["Coalescing"]

# Seconds for which more is waited for: what comes next is handled so much later, at most.
_PAUSE: Final = 0.005
# So many waits within so many seconds are load.
_MANY, _PERIOD = 10, 0.03
# Pauses end when they wake fewer tasks than that, on average: these may wait for one another, as a task that sends
# requests in a loop waits for each response. The average begins at the second number, and takes so much of each pause.
_WORTHWHILE, _EXPECTED, _WEIGHT = 4.0, 8.0, 0.25
# So many waits later pauses are tried again: the second number, if they were in vain again and again.
_PATIENCE, _MAX_PATIENCE = 16, 1024
# A wait that takes so many seconds ends the load.
_QUIET: Final = 0.05


class Coalescing(trio.abc.Instrument):
    """Instrument of a Trio run that pauses before waits under load: a sixth to a quarter less CPU for storms of events.

    It blocks the event loop, for 5 milliseconds at a time, and only when no task can run. So it is for programs that do
    nothing but operate: deadlines and I/O of all tasks may be that late while there is load.

    *now* returns a time in seconds, and *sleep* sleeps for so many.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
        self._now, self._sleep = now, sleep
        self._waits: deque[float] = deque([-math.inf], maxlen=_MANY)
        self._woken = 0
        self._average = 0.0  # tasks that a pause wakes; zero where there are no pauses
        self._pauses = 0  # in a row
        self._patience = self._left = _PATIENCE  # after pauses, and what is left of it

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        """Count a task that can run."""
        self._woken += 1

    def before_io_wait(self, timeout: float) -> None:
        """Pause, if there is load and nothing to do."""
        if timeout <= 0:
            return
        if self._average:
            self._average += _WEIGHT * (self._woken - self._average)
            if self._average < _WORTHWHILE:
                was_in_vain = self._pauses < _MANY
                self._patience = min(2 * self._patience, _MAX_PATIENCE) if was_in_vain else _PATIENCE
                self._average, self._left = 0.0, self._patience
        elif self._left:
            self._left -= 1
        elif self._now() - self._waits[0] < _PERIOD:
            self._average, self._pauses = _EXPECTED, 0
        if self._average:
            self._pauses += 1
            self._sleep(min(_PAUSE, timeout))
        self._woken = 0
        self._waits.append(self._now())

    def after_io_wait(self, timeout: float) -> None:
        """Notice the end of the load."""
        if self._average and self._now() - self._waits[-1] > _QUIET:
            self._average = 0.0
