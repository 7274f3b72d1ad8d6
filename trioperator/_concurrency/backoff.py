"""Exponential backoff with jitter: how long to wait after failures in a row."""

from __future__ import annotations

import random as _random
from collections.abc import Callable

import msgspec


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Delays that grow by *factor* from *initial* to *maximum* seconds, spread by *jitter*, a fraction of the delay.

    Jitter is applied last: with ``jitter=0.25``, a delay is within 25 % of its nominal value, ``maximum`` included.
    """

    initial: float
    maximum: float
    factor: float = 2.0
    jitter: float = 0.0

    def delay(self, failures: int, *, random: Callable[[], float] = _random.random) -> float:
        """Return the seconds to wait after this number of failures in a row: none after no failure."""
        if failures < 1:
            return 0.0
        try:
            seconds = min(self.maximum, self.initial * self.factor ** (failures - 1))
        except OverflowError:
            seconds = self.maximum
        return seconds * (1 + self.jitter * (2 * random() - 1)) if self.jitter else seconds
