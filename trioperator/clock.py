"""Wall time that follows Trio's clock, so that virtual time moves it too."""

from __future__ import annotations

import contextlib
import contextvars
import datetime
import time
from collections.abc import Iterator
from typing import Final

import trio
import trio.lowlevel

__all__ = ["wall_now", "wall_starts_at"]

# The wall time at which the run's clock stood at zero: computed once per run, because the clocks of the process and of
# a test have nothing in common.
_epoch: Final[trio.lowlevel.RunVar[float]] = trio.lowlevel.RunVar("trioperator-epoch")

_start: Final[contextvars.ContextVar[float | None]] = contextvars.ContextVar("trioperator-start", default=None)


@contextlib.contextmanager
def wall_starts_at(start: datetime.datetime) -> Iterator[None]:
    """Start the wall time of runs that start in this context at *start*, which is aware, instead of now."""
    token = _start.set(start.timestamp())
    try:
        yield
    finally:
        _start.reset(token)


def wall_now() -> datetime.datetime:
    """Return the wall time, aware, in UTC.

    It is the real time of the first call in this run, plus what has passed on Trio's clock since: monotonic, and
    virtual under a mock clock. Trio must be running.
    """
    now = trio.current_time()
    try:
        epoch = _epoch.get()
    except LookupError:
        start = _start.get()
        epoch = (time.time() if start is None else start) - now
        _epoch.set(epoch)
    return datetime.datetime.fromtimestamp(epoch + now, datetime.UTC)
