"""Rhythms of timers that follow the wall clock, or functions of the object: when the next call is due."""

from __future__ import annotations

import datetime
import sys
from typing import Any, Final

import msgspec
import trio

from trioperator._concurrency.clock import find_wall_shift, wall_now
from trioperator._handling.guard import call
from trioperator._handling.handlers.filters import call_with
from trioperator._handling.handlers.handler import TimerHandler
from trioperator._handling.handlers.schedule import Schedule, parse_schedule, parse_timezone
from trioperator._runtime.daemons.alarm_clock import TOLERANCE, find_due
from trioperator._runtime.daemons.daemon import Daemon
from trioperator._runtime.daemons.timing import next_on_grid
from trioperator.errors import UserCodeError

# Seconds: a clock that is set back by more than this was wrong, and schedules start again, as in Debian's cron.
_CORRECTION: Final = 3 * 3600.0
# Characters of what a function has returned, in messages: it may be what somebody has written to the object.
_MAX_SHOWN: Final = 200


class RhythmError(Exception):
    """Raised when a function does not say when a timer is due; the message is a sentence without a full stop."""


class Rhythm(msgspec.Struct, frozen=True):
    """Rhythm of a timer for an object by its functions: an interval in seconds, or a schedule; neither for never."""

    interval: float | None = None
    schedule: Schedule | None = None


def resolve(daemon: Daemon, timer: TimerHandler) -> Rhythm:
    """Return the rhythm of a timer; its functions are asked for it. Raises RhythmError."""
    if timer.interval_of is not None:
        return Rhythm(interval=_ask_interval(daemon, timer))
    if not timer.is_variable:
        return Rhythm(schedule=timer.schedule)
    expression = None if timer.schedule is None else timer.schedule.expression
    if timer.cron_of is not None:
        expression = _ask(daemon, timer, "cron", timer.cron_of)
    if expression is None:
        return Rhythm()
    if not isinstance(expression, str):
        where = _describe(timer, "cron", expression)
        raise RhythmError(f"{where}: it must be a string such as '*/5 * * * *', or None")
    timezone = timer.timezone if timer.timezone_of is None else _ask_timezone(daemon, timer)
    try:
        return Rhythm(schedule=parse_schedule(expression, timezone))
    except ValueError as error:
        raise RhythmError(f"{_describe(timer, 'cron', expression)}: {str(error).rstrip('.')}") from None


def _ask_interval(daemon: Daemon, timer: TimerHandler) -> float | None:
    found = _ask(daemon, timer, "interval", timer.interval_of)
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    if found is not None and not (is_number and 0 < found <= sys.float_info.max):
        where = _describe(timer, "interval", found)
        raise RhythmError(f"{where}: it must be a number of seconds, more than 0, or None")
    return None if found is None else float(found)


def _ask_timezone(daemon: Daemon, timer: TimerHandler) -> datetime.tzinfo:
    found = _ask(daemon, timer, "timezone", timer.timezone_of)
    try:
        return parse_timezone(found)
    except (TypeError, ValueError) as error:
        raise RhythmError(f"{_describe(timer, 'timezone', found)}: {str(error).rstrip('.')}") from None


def _ask(daemon: Daemon, timer: TimerHandler, option: str, fn: Any) -> Any:
    try:
        return call(f"The function {option}= of {{}}", timer, call_with, fn, daemon.cause.kwargs)
    except UserCodeError as error:
        raise RhythmError(str(error)) from error.__cause__


def _describe(timer: TimerHandler, option: str, found: object) -> str:
    return f"The function {option}= of {timer} has returned {found!r:.{_MAX_SHOWN}}"


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
        self._shift = find_wall_shift()  # when the next call was computed

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
        correction = find_wall_shift() - self._shift
        if rhythm == self._rhythm and correction > -_CORRECTION:
            return
        if correction <= -_CORRECTION:
            self._since += datetime.timedelta(seconds=correction)
        self._rhythm = rhythm
        self._compute()

    def note_call(self, *, due: float) -> None:
        """Note that a call has just ended which was due at *due*."""
        self._called = (due, trio.current_time())
        self._since = self._moment
        self._compute()

    def _compute(self) -> None:
        assert self._rhythm is not None
        self._shift = find_wall_shift()
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
