"""Validation of the schedules of CronJobs. Pure."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from typing import Final

from ...model.quoting import quote
from ...model.status_causes import StatusCause, invalid_value, required

_FIELDS: Final = 5
_DESCRIPTORS: Final = ("@annually", "@daily", "@hourly", "@midnight", "@monthly", "@weekly", "@yearly")
_DURATION: Final = re.compile(r"[-+]?(0|(\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+", re.ASCII)


def check_schedule(schedule: str, path: str) -> Iterable[StatusCause]:
    """Yield the validation errors of the schedule."""
    if not schedule:
        yield required(path)
        return
    if "TZ" in schedule:
        yield invalid_value(path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
        return
    try:
        _parse(schedule)
    except ValueError as error:
        yield invalid_value(path, schedule, str(error))


def check_time_zone(name: str, path: str) -> Iterable[StatusCause]:
    """Yield the validation errors of the time zone. Where the system has none, all names are valid."""
    if not name:
        yield invalid_value(path, name, "timeZone must be nil or non-empty string")
        return
    if name.lower() == "local":
        text = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        yield invalid_value(path, name, text)
    if name != "Local" and not _is_zone(name) and _is_zone("UTC"):
        yield invalid_value(path, name, f"unknown time zone {name}")


def _is_zone(name: str) -> bool:
    import zoneinfo

    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _parse(text: str) -> None:
    from cronsim import CronSim, CronSimError

    if text.startswith("@"):
        _check_descriptor(text)
        return
    parts = text.split()
    if len(parts) != _FIELDS:
        raise ValueError(f"expected exactly {_FIELDS} fields, found {len(parts)}: [{' '.join(parts)}]")
    for at, part in enumerate(parts):
        alone = ["*"] * _FIELDS  # days that never come, such as February 31, are valid
        alone[at] = part.replace("?", "*")
        try:
            CronSim(" ".join(alone), datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC))
        except CronSimError as error:
            raise ValueError(f"{error}: {part}") from None


def _check_descriptor(text: str) -> None:
    every = text.removeprefix("@every ")
    if every != text:
        if not _DURATION.fullmatch(every):
            raise ValueError(f"failed to parse duration {text}: time: invalid duration {quote(every)}")
    elif text not in _DESCRIPTORS:
        raise ValueError(f"unrecognized descriptor: {text}")
