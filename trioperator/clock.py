"""Wall time: real, or virtual where Trio's clock is."""

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

# The wall time at which a mock clock stood at zero, computed once per run; None where the clock is real.
_epoch: Final[trio.lowlevel.RunVar[float | None]] = trio.lowlevel.RunVar("trioperator-epoch")

_start: Final[contextvars.ContextVar[float | None]] = contextvars.ContextVar("trioperator-start", default=None)


@contextlib.contextmanager
def wall_starts_at(start: datetime.datetime) -> Iterator[None]:
    """Start the wall time of runs with a mock clock in this context at *start*, which is aware, instead of now."""
    token = _start.set(start.timestamp())
    try:
        yield
    finally:
        _start.reset(token)


def wall_now() -> datetime.datetime:
    """Return the wall time, aware, in UTC. Trio must be running.

    It is the time of the system, which may be set while the operator runs, or jump when a suspended machine is resumed.
    Under a mock clock it is the real time of the first call in this run, plus what has passed on that clock since.
    """
    try:
        epoch = _epoch.get()
    except LookupError:
        epoch = _find_epoch()
        _epoch.set(epoch)
    return datetime.datetime.fromtimestamp(time.time() if epoch is None else epoch + trio.current_time(), datetime.UTC)


def _find_epoch() -> float | None:
    if not hasattr(trio.lowlevel.current_clock(), "autojump_threshold"):  # trio.testing is slow to import
        return None
    start = _start.get()
    return (time.time() if start is None else start) - trio.current_time()
