"""Wall time that follows Trio's clock, so that virtual time moves it too."""

from __future__ import annotations

import datetime
import time
from typing import Final

import trio
import trio.lowlevel

__all__ = ["wall_now"]

# The wall time at which the run's clock stood at zero: taken once per run, for the process' clock and a test's
# clock have nothing in common.
_epoch: Final[trio.lowlevel.RunVar[float]] = trio.lowlevel.RunVar("trioperator-epoch")


def wall_now() -> datetime.datetime:
    """Tell the wall time, aware, in UTC.

    It is the real time when the run asked for the first time, plus what has passed on Trio's clock since:
    monotonic, and virtual where the clock is. It needs a running Trio.
    """
    now = trio.current_time()
    try:
        epoch = _epoch.get()
    except LookupError:
        epoch = time.time() - now
        _epoch.set(epoch)
    return datetime.datetime.fromtimestamp(epoch + now, datetime.UTC)
