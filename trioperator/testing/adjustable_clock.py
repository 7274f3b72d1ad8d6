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
        """Do nothing: it runs."""

    def current_time(self) -> float:
        """Return the time, in seconds since the clock was made."""
        return self._reached + (time.monotonic() - self._since) * self.rate

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return how many real seconds to wait for the deadline at the present rate."""
        return (deadline - self.current_time()) / self.rate

    def adjust(self, *, advance: float = 0, rate: float | None = None) -> None:
        """Advance the clock by *advance* seconds, and let it run at the rate from now on. Called in Trio's thread."""
        self._reached, self._since = self.current_time() + advance, time.monotonic()
        self.rate = rate or self.rate
