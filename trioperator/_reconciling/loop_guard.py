"""Detection of loops with other programs: what is done to a child repeatedly, as others undo it. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable
from typing import Final

from trioperator._concurrency.backoff import Backoff

# Seconds after which a repetition does not count as a loop.
_CALM: Final = 60.0
# Calm keys are forgotten when there are this many, and whenever their number has doubled.
_MANY: Final = 64


class LoopGuard:
    """Counts how often the same is done, by any keys, and says when it may be done again. Times are in seconds.

    *free* repetitions do not wait. After *limit* times, it is no longer done.
    """

    __slots__ = ("_backoff", "_free", "_limit", "_reported", "_times")

    def __init__(self, *, free: int, backoff: Backoff, limit: float = math.inf) -> None:
        self._free = free
        self._backoff = backoff
        self._limit = limit
        self._times: dict[Hashable, tuple[int, float]] | None = None  # most objects never need them
        self._reported: dict[Hashable, int] | None = None

    def count(self, key: Hashable) -> int:
        """Return how often it was done."""
        return self._times[key][0] if self._times and key in self._times else 0

    def next(self, key: Hashable) -> float:
        """Return when it may be done again; never is infinite."""
        if not self._times or key not in self._times:
            return -math.inf
        count, last = self._times[key]
        return math.inf if count >= self._limit else last + self._backoff.delay(count - self._free)

    def done(self, key: Hashable, now: float) -> None:
        """Note that it is done; for the first time, if the last time was long ago."""
        count = 0 if now > self.next(key) + _CALM else self.count(key)
        times = self._times = self._times or {}
        times[key] = count + 1, now
        if len(times) >= _MANY and len(times).bit_count() == 1:  # a power of two
            self.keep({each for each in times if now <= self.next(each) + _CALM})

    def report(self, key: Hashable) -> bool:
        """Check whether nobody has been told since it was done last; note that it is reported now."""
        self._reported = self._reported or {}
        news = self._reported.get(key) != self.count(key)
        self._reported[key] = self.count(key)
        return news

    def forget(self, keys: Collection[Hashable]) -> None:
        """Note that what was done is no longer wanted."""
        if self._times:
            self.keep(self._times.keys() - set(keys))

    def keep(self, keys: Collection[Hashable]) -> None:
        """Forget all others than *keys*."""
        if self._times:
            self._times = {key: times for key, times in self._times.items() if key in keys}
            self._reported = {key: count for key, count in (self._reported or {}).items() if key in keys}
