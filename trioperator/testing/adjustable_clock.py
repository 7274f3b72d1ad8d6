"""A clock for Trio that can be advanced, and that runs faster or slower than real time."""

from __future__ import annotations

import time

import trio


class AdjustableClock(trio.abc.Clock):
    """Clock for ``trio.run()``. It runs with real time until it is advanced or gets another rate."""

    def __init__(self) -> None:
        self.rate = 1.0
        self._reached = 0.0
        self._since = time.monotonic()

    def start_clock(self) -> None:
        """Do nothing: the clock runs already."""

    def current_time(self) -> float:
        """Return the time, in seconds since the clock was made."""
        return self._reached + (time.monotonic() - self._since) * self.rate

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return the real seconds until the deadline at the current rate."""
        return (deadline - self.current_time()) / self.rate

    def adjust(self, *, advance: float = 0, rate: float | None = None) -> None:
        """Advance the clock by *advance* seconds, and run it at *rate* from now on; None keeps the rate.

        A rate of 1 is real time. Call it in Trio's thread.
        """
        self._reached, self._since = self.current_time() + advance, time.monotonic()
        self.rate = rate or self.rate
