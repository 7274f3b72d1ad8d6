"""Integers in texts, with the limits and the error messages of Go. Pure."""

from __future__ import annotations

import re
from typing import Final

from .quoting import quote

_SIGNED: Final = re.compile(r"[-+]?[0-9]+")
_UNSIGNED: Final = re.compile(r"[0-9]+")
_DIGITS_LIMIT: Final = 100  # Python limits the digits of numbers itself, but with another error


def parse_int64(text: str) -> int:
    """Return the integer. Raises ValueError if the text is not one, or does not fit into 64 bits."""
    if not _SIGNED.fullmatch(text):
        raise ValueError(f"strconv.ParseInt: parsing {quote(text)}: invalid syntax")
    return _limited(text, "ParseInt", low=-(2**63), high=2**63)


def parse_uint64(text: str) -> int:
    """Return the integer without a sign. Raises ValueError if the text is not one, or does not fit into 64 bits."""
    if not _UNSIGNED.fullmatch(text):
        raise ValueError(f"strconv.ParseUint: parsing {quote(text)}: invalid syntax")
    return _limited(text, "ParseUint", low=0, high=2**64)


def _limited(text: str, function: str, *, low: int, high: int) -> int:
    value = int(text) if len(text) <= _DIGITS_LIMIT else high
    if not low <= value < high:
        raise ValueError(f"strconv.{function}: parsing {quote(text)}: value out of range")
    return value
