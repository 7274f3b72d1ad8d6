"""Validation and canonical forms of strings with a meaning: times, bytes, quantities. Pure.

Invalid strings raise :class:`ValueError` with the message of the real server.
"""

from __future__ import annotations

import base64
import datetime
import functools
import re
from typing import Final

# -- times ---------------------------------------------------------------------------------------------------------

_DATE: Final = (("2006", r"\d{4}"), ("-", "-"), ("01", r"\d\d"), ("-", "-"), ("02", r"\d\d"), ("T", "T"))
_CLOCK: Final = (("15", r"\d\d"), (":", ":"), ("04", r"\d\d"), (":", ":"))
_ZONE: Final = ("Z07:00", r"Z|[-+]\d\d:\d\d")
_TIME: Final = (*_DATE, *_CLOCK, ("05", r"\d\d(?:[.,]\d+)?"), _ZONE)
_MICRO_TIME: Final = (*_DATE, *_CLOCK, ("05", r"\d\d"), (".000000", r"\.\d{6}"), _ZONE)
_RANGES: Final = {"01": ("month", 1, 12), "02": ("day", 1, 31), "15": ("hour", 0, 23), "04": ("minute", 0, 59)}


@functools.lru_cache(maxsize=1024)  # the times of an object are parsed with each change
def canonical_time(text: str) -> str:
    """Return the time in UTC, in seconds."""
    return f"{_moment(text, _TIME):%Y-%m-%dT%H:%M:%SZ}"


@functools.lru_cache(maxsize=1024)
def canonical_micro_time(text: str) -> str:
    """Return the time in UTC, in microseconds."""
    return f"{_moment(text, _MICRO_TIME):%Y-%m-%dT%H:%M:%S.%fZ}"


def _moment(text: str, layout: tuple[tuple[str, str], ...]) -> datetime.datetime:
    shown = "".join(name for name, _ in layout)
    at = 0
    for name, pattern in layout:
        match = re.compile(pattern).match(text, at)
        if match is None:
            raise ValueError(f'parsing time "{text}" as "{shown}": cannot parse "{text[at:]}" as "{name}"')
        unit, low, high = _RANGES.get(name, ("second", 0, 59) if name == "05" else ("", 0, 0))
        if unit and not low <= int(match.group()[:2]) <= high:
            raise ValueError(f'parsing time "{text}": {unit} out of range')
        at = match.end()
    if at < len(text):
        raise ValueError(f'parsing time "{text}": extra text: "{text[at:]}"')
    try:
        return datetime.datetime.fromisoformat(text.replace(",", ".")).astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        raise ValueError(f'parsing time "{text}": day out of range') from None


# -- bytes ---------------------------------------------------------------------------------------------------------

_FOREIGN: Final = re.compile(r"[^A-Za-z0-9+/=\r\n]")


def canonical_bytes(text: str) -> str:
    """Return the base64 without line breaks."""
    foreign = _FOREIGN.search(text)
    plain = text.replace("\r", "").replace("\n", "")
    try:
        if foreign is None:
            return base64.b64encode(base64.b64decode(plain, validate=True)).decode()
    except ValueError:
        pass
    at = foreign.start() if foreign else len(plain.rstrip("=")) // 4 * 4
    raise ValueError(f"illegal base64 data at input byte {at}")
