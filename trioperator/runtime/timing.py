"""When timers are due. Pure: of times on Trio's clock, in seconds."""

from __future__ import annotations

import math
import zlib

from trioperator.handling.handler import TimerHandler

__all__ = ["after_idling", "next_on_grid", "next_tick", "spread"]


def spread(handler: TimerHandler, uid: str, *, limit: float) -> float:
    """Tell how much later than others the first call for an object is: always the same for the same object.

    The calls for many objects are spread over *limit* seconds, or over the interval if that is shorter.
    """
    width = min(limit, limit if handler.interval is None else handler.interval)
    return width * zlib.crc32(f"{handler.id}/{uid}".encode()) / 2**32


def after_idling(handler: TimerHandler, due: float, *, changed: float) -> float:
    """Put a call off until the object was left unchanged for long enough; *changed* is when it has changed last."""
    return due if handler.idle is None else max(due, changed + handler.idle)


def next_tick(handler: TimerHandler, *, due: float, ended: float) -> float | None:
    """Tell when the next call is due after one that was due at *due* and has *ended* well; None: not by an interval."""
    if handler.interval is None:
        return None
    return next_on_grid(due, handler.interval, after=ended) if handler.sharp else ended + handler.interval


def next_on_grid(anchor: float, width: float, *, after: float) -> float:
    """Give the first point of a grid that is later than *after*; *anchor* is one of its points."""
    steps = max(1, math.floor((after - anchor) / width))
    if anchor + steps * width <= after:  # floats: what was cut off may have been a whole one
        steps += 1
    return max(anchor + steps * width, math.nextafter(after, math.inf))  # a grid may be finer than floats are
