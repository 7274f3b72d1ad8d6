"""The schedules of CronJobs: five fields, or a name for five. Pure."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Final

__all__ = ["Schedule"]

_MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LIMITS: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_HORIZON: Final = 5 * 366  # days: what does not come within them never does


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Moments that come again and again, to the minute."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    is_either_day: bool  # the day of the month or the day of the week is enough, as both are restricted

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """Read a schedule; raise ValueError for nonsense."""
        fields = _MACROS.get(text.strip().lower(), text).split()
        if len(fields) != 5:
            raise ValueError(f"{text!r} has not five fields")
        minutes, hours, days, months, weekdays = map(_parse_field, fields, range(5))
        return cls(
            minutes=minutes,
            hours=hours,
            days=days,
            months=months,
            weekdays=frozenset(day % 7 for day in weekdays),
            is_either_day=fields[2][0] not in "*?" and fields[4][0] not in "*?",
        )

    def next_after(self, moment: datetime.datetime) -> datetime.datetime | None:
        """Return the first moment after that one; None if there is none."""
        start = moment.replace(second=0, microsecond=0) + datetime.timedelta(minutes=1)
        for number in range(_HORIZON):
            day = start.date() + datetime.timedelta(days=number)
            if not self._has_day(day):
                continue
            for hour in sorted(self.hours):
                for minute in sorted(self.minutes):
                    time = datetime.time(hour, minute, tzinfo=moment.tzinfo)
                    found = datetime.datetime.combine(day, time)
                    if found >= start:
                        return found
        return None

    def _has_day(self, day: datetime.date) -> bool:
        if day.month not in self.months:
            return False
        by_month, by_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (by_month or by_week) if self.is_either_day else (by_month and by_week)


def _parse_field(text: str, position: int) -> frozenset[int]:
    low, high = _LIMITS[position]
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        if span in {"*", "?"}:
            first, last = low, high
        else:
            begin, _, end = span.partition("-")
            first = _parse_number(begin, position)
            last = _parse_number(end, position) if end else (high if step else first)
        width = int(step) if step else 1
        if width < 1 or not low <= first <= last <= high:
            raise ValueError(f"{part!r} is not between {low} and {high}")
        found.update(range(first, last + 1, width))
    return frozenset(found)


def _parse_number(text: str, position: int) -> int:
    names = {3: _MONTHS, 4: _DAYS}.get(position, ())
    if text.lower() in names:
        return names.index(text.lower()) + (1 if position == 3 else 0)
    return int(text)
