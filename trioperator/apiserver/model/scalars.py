"""Validation and canonical forms of strings with a meaning: quantities, times, bytes. Pure.

Invalid strings raise :class:`ValueError` with the message of the real server.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import functools
import re
from typing import Final

__all__ = ["canonical_bytes", "canonical_micro_time", "canonical_quantity", "canonical_time", "quantity_value"]

# -- quantities ----------------------------------------------------------------------------------------------------

_QUANTITY: Final = re.compile(r"([+-]?[0-9.]++)([eEinumkKMGTP]*[-+]?[0-9]*)")
_FORMAT_TEXT: Final = r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIXES: Final = {power: suffix for suffix, power in _DECIMAL.items()}
_LIMIT: Final = 2**63 - 1
_EXACT: Final = decimal.Context(prec=100)  # exponents have three digits: the real server hangs on nine


def canonical_quantity(text: str) -> str:
    """Return the quantity in canonical form, without fractions: ``0.5`` becomes ``500m``."""
    value, suffix = _parse(text)
    if suffix in _BINARY and abs(value) >= 1024:
        return _binary(value)
    return _decimal(value, is_exponent=suffix not in _DECIMAL and suffix not in _BINARY)


def quantity_value(text: str) -> decimal.Decimal:
    """Return the number of the quantity."""
    return _parse(text)[0]


def _parse(text: str) -> tuple[decimal.Decimal, str]:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"quantities must match the regular expression '{_FORMAT_TEXT}'")
    digits, suffix = match.groups()
    try:
        number = decimal.Decimal(digits)
    except decimal.InvalidOperation:
        raise ValueError("unable to parse numeric part of quantity") from None
    if suffix in _BINARY:
        return _EXACT.multiply(number, decimal.Decimal(1024 ** _BINARY[suffix])), suffix
    if suffix in _DECIMAL:
        return _EXACT.scaleb(number, _DECIMAL[suffix]), suffix
    if re.fullmatch(r"[eE][-+]?[0-9]{1,3}", suffix):
        return _EXACT.scaleb(number, int(suffix[1:])), suffix
    raise ValueError("unable to parse quantity's suffix")


def _limited(value: decimal.Decimal, places: str) -> decimal.Decimal:
    """Round away from zero, and limit the number, as the API does."""
    return max(min(value, decimal.Decimal(_LIMIT)), decimal.Decimal(-_LIMIT)).quantize(
        decimal.Decimal(places), rounding=decimal.ROUND_UP, context=_EXACT
    )


def _binary(value: decimal.Decimal) -> str:
    number, power = int(_limited(value, "1")), 0
    while number and number % 1024 == 0 and power < 6:
        number, power = number // 1024, power + 1
    suffix = next((suffix for suffix, own in _BINARY.items() if own == power), "")
    return f"{number}{suffix}"


def _decimal(value: decimal.Decimal, *, is_exponent: bool = False) -> str:
    number, power = int(_EXACT.scaleb(_limited(value, "1e-9"), 9)), -9
    if number == 0:
        return "0"
    while number % 1000 == 0 and power < 18:
        number, power = number // 1000, power + 3
    if is_exponent:
        return f"{number}e{power}" if power else str(number)
    return f"{number}{_DECIMAL_SUFFIXES[power]}"


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
