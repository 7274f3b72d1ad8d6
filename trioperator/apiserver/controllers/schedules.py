"""The schedules of CronJobs: five fields, or a name for five. Pure."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Final

from cronsim import CronSim, CronSimError

_MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Schedule:
    """A cron expression: times that come again and again, to the minute, in the time zone of the times asked about."""

    expression: str

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """Parse a schedule. Raises ValueError if it is invalid, or names a day that never comes."""
        expression = _MACROS.get(text.strip().lower(), text).replace("?", "*")
        if len(expression.split()) != 5:  # six would have seconds
            raise ValueError(f"{text!r} has not five fields")
        try:
            CronSim(expression, datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC))
        except CronSimError as error:
            raise ValueError(f"{text!r}: {error}") from None
        return cls(expression)

    def next_after(self, moment: datetime.datetime) -> datetime.datetime | None:
        """Return the first time after that one; None if there is none."""
        times = CronSim(self.expression, moment)  # when clocks are set back, it may begin before the moment
        return next((time for time in times if time.timestamp() > moment.timestamp()), None)

    def last_until(self, moment: datetime.datetime) -> datetime.datetime | None:
        """Return the last time not after that one; None if there is none."""
        end = moment.astimezone(datetime.UTC).replace(microsecond=0) + datetime.timedelta(seconds=1)
        return next(CronSim(self.expression, end.astimezone(moment.tzinfo), reverse=True), None)
