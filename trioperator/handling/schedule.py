"""Schedules: the moments at which a timer with ``cron=`` is due."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Final

__all__ = ["Schedule", "parse_schedule"]

# The names that Kubernetes' CronJobs know, too.
_NAMED: Final[Mapping[str, str]] = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_HOW = "five fields (minute, hour, day of month, month, day of week) such as '*/5 * * * *', or a name such as '@hourly'"


@dataclasses.dataclass(frozen=True, slots=True)
class Schedule:
    """Be a cron expression in a time zone. When clocks are changed, no run is lost or doubled, as in Debian's cron."""

    expression: str
    timezone: datetime.tzinfo

    def next_after(self, moment: datetime.datetime) -> datetime.datetime | None:
        """Give the first moment of the schedule after an aware one; None if there is none within fifty years."""
        from cronsim import CronSim  # only for those who have such timers

        try:
            return next(CronSim(self.expression, moment.astimezone(self.timezone)), None)
        except OverflowError:  # at the end of the calendar
            return None


def parse_schedule(expression: str, timezone: str | datetime.tzinfo | None = None) -> Schedule:
    """Read a cron expression, in UTC unless a time zone is given: by its name or as such.

    Raises ValueError that says what is wrong with it, TypeError for a time zone that can be none.
    """
    from cronsim import CronSimError

    schedule = Schedule(_NAMED.get(expression.strip().lower(), expression), _parse_timezone(timezone))
    try:
        upcoming = schedule.next_after(datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC))
    except CronSimError as error:
        raise ValueError(f"{expression!r} is no cron expression ({error}): it takes {_HOW}.") from None
    if upcoming is None:
        raise ValueError(f"The cron expression {expression!r} stands for a day that never comes.")
    return schedule


def _parse_timezone(timezone: str | datetime.tzinfo | None) -> datetime.tzinfo:
    if timezone is None:
        return datetime.UTC
    if isinstance(timezone, datetime.tzinfo):
        return timezone
    if not isinstance(timezone, str):
        raise TypeError(f"The time zone of a timer is a name such as 'Europe/Berlin' or a tzinfo, not {timezone!r}.")
    import zoneinfo  # it reads the interpreter's build configuration first

    try:
        return zoneinfo.ZoneInfo(timezone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"There is no time zone {timezone!r} here. It takes a name such as 'Europe/Berlin'; where the system knows"
            " none, install the package tzdata."
        ) from None
