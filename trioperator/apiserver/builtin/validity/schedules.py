"""Validation of the schedules of CronJobs, with the error messages of the real server. Pure."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ...model.go_numbers import parse_int64
from ...model.quoting import quote
from ...model.status_causes import StatusCause, invalid_value, required


class _Field(NamedTuple):
    """Limits of one field, and the names of its values."""

    low: int
    high: int
    names: Mapping[str, int] = {}


def _names(text: str, start: int) -> Mapping[str, int]:
    return {name: number for number, name in enumerate(text.split(), start)}


_MONTHS: Final = _names("jan feb mar apr may jun jul aug sep oct nov dec", 1)
_DAYS: Final = _names("sun mon tue wed thu fri sat", 0)
_FIELDS: Final = (_Field(0, 59), _Field(0, 23), _Field(1, 31), _Field(1, 12, _MONTHS), _Field(0, 6, _DAYS))
_DESCRIPTORS: Final = ("@annually", "@daily", "@hourly", "@midnight", "@monthly", "@weekly", "@yearly")
_ZONE: Final = re.compile(r"(?:CRON_)?TZ=(\S*)\s*")
_DURATION: Final = re.compile(r"[-+]?(0|(\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+", re.ASCII)


def check_schedule(schedule: str, path: str) -> Iterable[StatusCause]:
    """Yield the validation errors of the schedule."""
    if not schedule:
        yield required(path)
        return
    try:
        _parse(schedule)
    except ValueError as error:
        yield invalid_value(path, schedule, str(error))
    if "TZ" in schedule:
        yield invalid_value(path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")


def _parse(text: str) -> None:
    """Raise ValueError if the schedule is invalid."""
    if zone := _ZONE.match(text):
        _check_zone(zone[1])
        text = text[zone.end() :]
    if text.startswith("@"):
        _check_descriptor(text)
        return
    parts = text.split()
    if len(parts) != len(_FIELDS):
        raise ValueError(f"expected exactly {len(_FIELDS)} fields, found {len(parts)}: [{' '.join(parts)}]")
    for part, field in zip(parts, _FIELDS, strict=True):
        for item in filter(None, part.split(",")):
            _check_range(item, field)


def _check_zone(name: str) -> None:
    try:
        zoneinfo.ZoneInfo(name or "UTC")
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        raise ValueError(f"provided bad location {name}: unknown time zone {name}") from None


def _check_descriptor(text: str) -> None:
    every = text.removeprefix("@every ")
    if every != text:
        if not _DURATION.fullmatch(every):
            raise ValueError(f"failed to parse duration {text}: time: invalid duration {quote(every)}")
    elif text not in _DESCRIPTORS:
        raise ValueError(f"unrecognized descriptor: {text}")


def _check_range(text: str, field: _Field) -> None:
    """Raise ValueError unless the text is ``*``, a number, or a range, each perhaps with a step."""
    bounds, *steps = text.split("/")
    first, *others = bounds.split("-")
    low, high = field.low, field.high
    if first not in {"*", "?"}:
        low = high = _number(first, field.names)
        if others:
            high = _number(others[0], field.names)
        if len(others) > 1:
            raise ValueError(f"too many hyphens: {text}")
    if len(steps) > 1:
        raise ValueError(f"too many slashes: {text}")
    step = _number(steps[0], {}) if steps else 1
    if steps and not others:
        high = field.high
    _check_bounds((low, high, step), field, text)


def _check_bounds(found: tuple[int, int, int], field: _Field, text: str) -> None:
    low, high, step = found
    if low < field.low:
        raise ValueError(f"beginning of range ({low}) below minimum ({field.low}): {text}")
    if high > field.high:
        raise ValueError(f"end of range ({high}) above maximum ({field.high}): {text}")
    if low > high:
        raise ValueError(f"beginning of range ({low}) beyond end of range ({high}): {text}")
    if step == 0:
        raise ValueError(f"step of range should be a positive number: {text}")


def _number(text: str, names: Mapping[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    try:
        return parse_int64(text)
    except ValueError as error:
        problem = str(error).replace("strconv.ParseInt", "strconv.Atoi")
        raise ValueError(f"failed to parse int from {text}: {problem}") from None
