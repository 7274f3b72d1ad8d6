"""An outage of the API server, which many watches and requests notice at once, and one of them reports.

One of them also checks, for each server of an API group, whether it is the same as before.
"""

from __future__ import annotations

import math
from typing import Final

import trio

# Seconds between two warnings of requests that do not reach the server, which hundreds of objects may have. It is less
# than the shortest delay of one request between two attempts.
_WARNING_INTERVAL: Final = 0.9


class Outage:
    """The one watch that reports that the API server cannot be reached, so that the log is not flooded."""

    __slots__ = ("_checks", "_over", "_reporter", "_warned_at")

    def __init__(self) -> None:
        self._reporter: object = None
        self._warned_at = -math.inf
        self._over = trio.Event()
        self._checks: dict[str, float] = {}

    def claim(self, reporter: object) -> bool:
        """Return whether the reporter is the one: the first to claim an outage."""
        if self._reporter is None:
            self._reporter = reporter
        return self._reporter is reporter

    def end(self) -> None:
        """End the outage, as a watch was opened."""
        self._reporter = None

    async def wait(self, seconds: float) -> None:
        """Wait before another request that is to reach the server: not after :meth:`end_waits`."""
        with trio.move_on_after(seconds):
            await self._over.wait()

    def end_waits(self) -> None:
        """Let requests be sent at once that wait for another attempt to reach the server, as it responds again.

        That uses up their attempts: call it when something has begun that was impossible meanwhile.
        """
        self._over.set()
        self._over = trio.Event()

    def claim_warning(self) -> bool:
        """Return whether to warn that a request does not reach the server: another one has not done so just now."""
        now = trio.current_time()
        if now < self._warned_at + _WARNING_INTERVAL:
            return False
        self._warned_at = now
        return True

    def claim_check(self, path: str, *, since: float) -> bool:
        """Return whether to check the server of a path: nobody has *since* it was doubted, a time on Trio's clock."""
        group = path.split("/")[2]
        if self._checks.get(group, -math.inf) >= since:
            return False
        self._checks[group] = trio.current_time()
        return True
