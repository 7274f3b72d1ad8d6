"""Cron schedules of timers (``cron=``)."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Final

import msgspec

# The same macros as in Kubernetes' CronJobs.
_NAMED: Final[Mapping[str, str]] = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
# Characters of an expression: it may come from whoever may write an object, and is parsed whenever a call is due.
_MAX_LENGTH: Final = 1000
# Characters of a time zone in messages.
_MAX_SHOWN: Final = 100
_HOW = "five fields (minute, hour, day of month, month, day of week) such as '*/5 * * * *', or a name such as '@hourly'"


class Schedule(msgspec.Struct, frozen=True):
    """Cron expression in a time zone. Daylight saving changes skip and repeat no runs, as in Debian's cron."""

    expression: str
    timezone: datetime.tzinfo

    def next_after(self, moment: datetime.datetime) -> datetime.datetime | None:
        """Return the first scheduled time after an aware one, None if there is none within fifty years."""
        from cronsim import CronSim  # imported only if there are cron timers

        try:
            times = CronSim(self.expression, moment.astimezone(self.timezone))
            # In the hour that is repeated when clocks go back, cronsim may begin with a time in its first occurrence.
            return next((time for time in times if time.timestamp() > moment.timestamp()), None)
        except OverflowError:  # at the end of the calendar
            return None


def parse_schedule(expression: str, timezone: str | datetime.tzinfo | None = None) -> Schedule:
    """Parse a cron expression. *timezone* is a name or a tzinfo; the default is UTC.

    Raises ValueError for an invalid expression or an unknown time zone, TypeError for a time zone of another type.
    """
    from cronsim import CronSimError

    if len(expression) > _MAX_LENGTH:
        raise ValueError(f"A cron expression has at most {_MAX_LENGTH} characters, not {len(expression)}.")
    schedule = Schedule(_NAMED.get(expression.strip().lower(), expression), parse_timezone(timezone))
    try:
        upcoming = schedule.next_after(datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC))
    except CronSimError as error:
        raise ValueError(f"{expression!r} is not a cron expression ({error}): it takes {_HOW}.") from None
    if upcoming is None:
        raise ValueError(f"The cron expression {expression!r} matches no date.")
    return schedule


def parse_timezone(timezone: str | datetime.tzinfo | None) -> datetime.tzinfo:
    """Return a time zone by its name; UTC for None. Raises ValueError for an unknown one, TypeError for other types."""
    if timezone is None:
        return datetime.UTC
    if isinstance(timezone, datetime.tzinfo):
        return timezone
    if not isinstance(timezone, str):
        raise TypeError(
            f"A time zone must be a name such as 'Europe/Berlin' or a tzinfo, not {timezone!r:.{_MAX_SHOWN}}."
        )
    import zoneinfo  # slow to import

    try:
        return zoneinfo.ZoneInfo(timezone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"Unknown time zone {timezone!r:.{_MAX_SHOWN}}: use a name such as 'Europe/Berlin'. If the system"
            " has no time zones, install the package tzdata."
        ) from None
