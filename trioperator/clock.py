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

__all__ = ["wall_begins", "wall_now"]

# The wall time at which the run's clock stood at zero: taken once per run, for the process' clock and a test's
# clock have nothing in common.
_epoch: Final[trio.lowlevel.RunVar[float]] = trio.lowlevel.RunVar("trioperator-epoch")

_begin: Final[contextvars.ContextVar[float | None]] = contextvars.ContextVar("trioperator-begin", default=None)


@contextlib.contextmanager
def wall_begins(moment: datetime.datetime) -> Iterator[None]:
    """Let the wall time of runs that begin in the block begin at that moment, which is aware, instead of now."""
    token = _begin.set(moment.timestamp())
    try:
        yield
    finally:
        _begin.reset(token)


def wall_now() -> datetime.datetime:
    """Tell the wall time, aware, in UTC.

    It is the real time when the run asked for the first time, plus what has passed on Trio's clock since:
    monotonic, and virtual where the clock is. It needs a running Trio.
    """
    now = trio.current_time()
    try:
        epoch = _epoch.get()
    except LookupError:
        begin = _begin.get()
        epoch = (time.time() if begin is None else begin) - now
        _epoch.set(epoch)
    return datetime.datetime.fromtimestamp(epoch + now, datetime.UTC)
