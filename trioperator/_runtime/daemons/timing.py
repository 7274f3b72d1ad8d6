"""When timers are due. Pure: of times on Trio's clock, in seconds."""

from __future__ import annotations

import math
import zlib

from trioperator._handling.handlers.handler import TimerHandler


def spread(handler: TimerHandler, uid: str, *, limit: float) -> float:
    """Return the delay of the first call for an object, in seconds: always the same for the same object.

    The calls for many objects are spread over *limit* seconds, or over the interval if that is shorter.
    """
    width = min(limit, limit if handler.interval is None else handler.interval)
    return width * zlib.crc32(f"{handler.id}/{uid}".encode()) / 2**32


def after_idling(handler: TimerHandler, due: float, *, changed: float) -> float:
    """Return when a call is due that also waits for the object to be idle; *changed* is when it has changed last."""
    return due if handler.idle is None else max(due, changed + handler.idle)


def next_tick(handler: TimerHandler, *, due: float, ended: float) -> float | None:
    """Return when the call after one that was due at *due* and has *ended* is due; None without an interval."""
    if handler.interval is None:
        return None
    return next_on_grid(due, handler.interval, after=ended) if handler.sharp else ended + handler.interval


def next_on_grid(anchor: float, width: float, *, after: float) -> float:
    """Return the first point of a grid that is later than *after*; *anchor* is one of its points."""
    steps = max(1, math.floor((after - anchor) / width))
    if anchor + steps * width <= after:  # floats: what was cut off may have been a whole one
        steps += 1
    return max(anchor + steps * width, math.nextafter(after, math.inf))  # a grid may be finer than floats are
