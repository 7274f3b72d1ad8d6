"""Rhythms of timers whose interval or cron expression is a function of the object: when the next call is due."""

from __future__ import annotations

import datetime
import math
from typing import Any

import msgspec
import trio

from trioperator.clock import wall_now
from trioperator.errors import UserCodeError
from trioperator.handling.filters import call_with
from trioperator.handling.guard import call
from trioperator.handling.handler import TimerHandler
from trioperator.handling.schedule import Schedule, parse_schedule
from trioperator.runtime.daemons.alarm_clock import TOLERANCE, find_due
from trioperator.runtime.daemons.daemon import Daemon
from trioperator.runtime.daemons.timing import next_on_grid

__all__ = ["Rhythm", "RhythmError", "Turns", "resolve"]


class RhythmError(Exception):
    """Raised when a function does not say when a timer is due; the message is a sentence without a full stop."""


class Rhythm(msgspec.Struct, frozen=True):
    """What the functions of a timer say for an object now: an interval in seconds, or a schedule; neither for never."""

    interval: float | None = None
    schedule: Schedule | None = None


def resolve(daemon: Daemon, timer: TimerHandler) -> Rhythm:
    """Ask the functions of a timer for its rhythm. Raises RhythmError."""
    fn: Any = timer.interval_of or timer.cron_of
    name = "interval" if timer.interval_of is not None else "cron"
    try:
        found: Any = call(f"The function {name}= of {{}}", timer, call_with, fn, daemon.cause.kwargs)
    except UserCodeError as error:
        raise RhythmError(str(error)) from error.__cause__
    if found is None:
        return Rhythm()
    where = f"The function {name}= of {timer} has returned {found!r}"
    if timer.interval_of is not None:
        is_number = isinstance(found, int | float) and not isinstance(found, bool)
        if not is_number or not 0 < found < math.inf:
            raise RhythmError(f"{where}: it must be a number of seconds, more than 0, or None")
        return Rhythm(interval=float(found))
    if not isinstance(found, str):
        raise RhythmError(f"{where}: it must be a string such as '*/5 * * * *', or None")
    try:
        return Rhythm(schedule=parse_schedule(found, timer.timezone))
    except ValueError as error:
        raise RhythmError(f"{where}: {str(error).rstrip('.')}") from None


class Turns:
    """When the calls of one timer for one object are due, while its rhythm may change between them.

    *first* is when the first call is due with an interval, on Trio's clock; schedules begin at *moment*.
    """

    def __init__(self, first: float, moment: datetime.datetime, *, sharp: bool) -> None:
        self._first = first
        self._sharp = sharp
        self._since = self._moment = moment  # of the last call, and of the one that is due
        self._called: tuple[float, float] | None = None  # when the last call was due, and when it ended
        self._rhythm: Rhythm | None = None
        self._due: float | None = None

    @property
    def is_scheduled(self) -> bool:
        """Whether the next call is due by the wall clock, which may be set meanwhile."""
        return self._rhythm is not None and self._rhythm.schedule is not None

    @property
    def due(self) -> float | None:
        """When the next call is due, on Trio's clock; None if it never is."""
        return find_due(self._moment) if self.is_scheduled and self._due is not None else self._due

    @property
    def is_early(self) -> bool:
        """Whether it is too early for the next call, as the wall clock was set back meanwhile."""
        return self.is_scheduled and self.due is not None and self.due > trio.current_time() + TOLERANCE

    def follow(self, rhythm: Rhythm) -> None:
        """Compute when the next call is due; what was due stays so while the rhythm is the same."""
        if rhythm == self._rhythm:
            return
        self._rhythm = rhythm
        self._compute()

    def note_call(self, *, due: float) -> None:
        """Note that a call has just ended which was due at *due*."""
        self._called = (due, trio.current_time())
        self._since = self._moment
        self._compute()

    def _compute(self) -> None:
        assert self._rhythm is not None
        interval, schedule = self._rhythm.interval, self._rhythm.schedule
        if schedule is not None:
            moment = schedule.next_after(max(self._since, wall_now()))
            self._moment = self._since if moment is None else moment
            self._due = None if moment is None else find_due(moment)
        elif interval is None:
            self._due = None
        elif self._called is None:
            self._due = self._first
        else:
            due, ended = self._called
            self._due = next_on_grid(due, interval, after=ended) if self._sharp else ended + interval
