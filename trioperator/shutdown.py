"""Stopping an operator: the request to stop with its deadline, and reports of what the operator waits for meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import msgspec
import trio

from trioperator.logs import get_logger

__all__ = ["Awaited", "Shutdown", "describe_awaited", "report_awaited"]

# Seconds from the begin of waiting to the first report, and between reports.
_FIRST_REPORT, _NEXT_REPORTS = 1.0, 5.0
# So many are named in a report.
_MAX_NAMED = 10


class Shutdown:
    """Request to stop the operator, and its deadline."""

    def __init__(self, grace: Callable[[], float]) -> None:
        self.requested = trio.Event()
        self.everything = trio.CancelScope()
        self.cleaning = trio.CancelScope(shield=True)  # gets its deadline when it is entered
        self.deadline: float | None = None
        self._grace = grace
        self._starting: trio.CancelScope | None = None

    def request(self, reason: str) -> None:
        """Request a stop in order; when requested again, cancel everything."""
        if self.requested.is_set():
            self.everything.cancel(reason=f"{reason}, again")
            self.cleaning.cancel(reason=f"{reason}, again")
            return
        self.deadline = trio.current_time() + self._grace()
        self.requested.set()
        if self._starting is not None:
            self._starting.cancel(reason=reason)

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Run the block until a stop is requested, then cancel it."""
        with trio.CancelScope() as self._starting:
            if self.requested.is_set():
                self._starting.cancel(reason="a stop was requested")
            yield
        self._starting = None

    @property
    def remaining(self) -> float:
        """Seconds that are left for stopping in order."""
        if self.deadline is None:
            return self._grace()
        return max(0.0, self.deadline - trio.current_time())


class Awaited(msgspec.Struct, frozen=True, order=True):
    """What a stopping operator waits for, such as a handler with its object, and until when on Trio's clock."""

    name: str
    until: float


async def report_awaited(list_awaited: Callable[[], Sequence[Awaited]], *, hint: str) -> None:
    """Log what the operator waits for, every few seconds until cancelled. *hint* is how to end it at once."""
    logger = get_logger("trioperator.supervisor")
    await trio.sleep(_FIRST_REPORT)
    while True:
        awaited = list_awaited()
        if awaited:
            logger.info("Waiting for %s.%s", describe_awaited(awaited, now=trio.current_time()), hint)
        await trio.sleep(_NEXT_REPORTS)


def describe_awaited(awaited: Sequence[Awaited], *, now: float) -> str:
    """Return the names with the seconds left, the first few of them."""
    described = [f"{one.name} ({_describe_time(one.until - now)})" for one in sorted(awaited)]
    named, more = described[:_MAX_NAMED], len(described) - _MAX_NAMED
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def _describe_time(seconds: float) -> str:
    return f"{seconds:.0f} s left" if seconds > 0 else "cancelled, but has not ended"
