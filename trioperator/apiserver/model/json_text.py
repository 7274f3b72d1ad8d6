"""Decoding of JSON, with the limits of the API: nesting, and numbers that fit into 64 bits. Pure."""

from __future__ import annotations

import math
import re
from typing import Any, Final

import msgspec

from .nesting import BODY_DEPTH_LIMIT, TOO_DEEP, TOO_MANY_VALUES, VALUES_LIMIT, is_too_deep

_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_LONG: Final = re.compile(rb"\d{19}")  # nothing shorter exceeds 64 bits
_DIGITS_LIMIT: Final = 400  # of an integer: more do not fit into a float either


def decode_json(body: bytes, *, is_limited: bool = False) -> Any:
    """Decode JSON; whole numbers become integers, also those like 1.0 and 1e3. Raises ValueError.

    As on the real server, integers that need more than 64 bits become floats. The number of values is limited on
    demand: stored objects, with their managed fields, may have more than what clients send.
    """
    if is_limited and has_too_many_commas(body):
        raise ValueError(TOO_MANY_VALUES)
    try:
        value = _decoder.decode(body)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    except msgspec.ValidationError as error:
        raise ValueError(str(error).partition(" - at `$")[0]) from None
    if body.count(b"{") + body.count(b"[") > BODY_DEPTH_LIMIT and is_too_deep(value, BODY_DEPTH_LIMIT):
        raise ValueError(TOO_DEEP)
    return _with_floats(value) if _LONG.search(body) else value


def has_too_many_commas(body: bytes) -> bool:
    """Return whether JSON has more commas than an object may have values. Decoding it would take a second.

    Those in strings do not count, and are looked for only if it matters.
    """
    return body.count(b",") > VALUES_LIMIT and _STRING.sub(b"", body).count(b",") > VALUES_LIMIT


def parse_float(text: str) -> float | int:
    """Return the number. Raises ValueError if it is not finite."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(_out_of_range(text))
    return int(value) if value.is_integer() and abs(value) < 2**63 else value


def parse_integer(text: str) -> float | int:
    """Return the integer, as a float if it needs more than 64 bits. Raises ValueError if it does not fit there."""
    if len(text) > _DIGITS_LIMIT:
        raise ValueError(_out_of_range(text))
    return _limited(int(text))


def _limited(value: int) -> float | int:
    if -(2**63) <= value < 2**63:
        return value
    try:
        return float(value)
    except OverflowError:
        raise ValueError(_out_of_range(str(value))) from None


def _out_of_range(text: str) -> str:
    return f"json: cannot unmarshal number {text[:_DIGITS_LIMIT]} into Go value of type float64"


def _with_floats(value: Any) -> Any:
    """Return the value with floats in the place of integers that need more than 64 bits."""
    if isinstance(value, dict):
        return {key: _with_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_floats(item) for item in value]
    return _limited(value) if type(value) is int else value


_decoder: Final = msgspec.json.Decoder(float_hook=parse_float)
