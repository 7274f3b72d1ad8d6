"""String formats that schemas of custom resources validate; other formats are not checked."""

from __future__ import annotations

import base64
import binascii
import datetime
import ipaddress
import re
import urllib.parse
import uuid
from collections.abc import Callable, Mapping
from typing import Final

__all__ = ["FORMATS"]

_DATE_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_DURATION: Final = re.compile(r"\s*((\d+)\s*[A-Za-zµ]+\s*)+|0|([-+]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))+", re.ASCII)
_HOST: Final = re.compile(
    r"[a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?(\.[a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?)*"
)
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+")


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except (ValueError, binascii.Error):
        return False
    return True


def _is_date_time(text: str) -> bool:
    return _DATE_TIME.fullmatch(text) is not None and _parses(datetime.datetime.fromisoformat, text[:19])


FORMATS: Final[Mapping[str, Callable[[str], bool]]] = {
    "byte": lambda text: _parses(lambda value: base64.b64decode(value, validate=True), text),
    "cidr": lambda text: "/" in text and _parses(lambda value: ipaddress.ip_network(value, strict=False), text),
    "date": lambda text: len(text) == 10 and _parses(datetime.date.fromisoformat, text),
    "date-time": _is_date_time,
    "datetime": _is_date_time,
    "duration": lambda text: _DURATION.fullmatch(text) is not None,
    "email": lambda text: _EMAIL.fullmatch(text) is not None,
    "hostname": lambda text: len(text) <= 255 and _HOST.fullmatch(text) is not None,
    "ipv4": lambda text: _parses(ipaddress.IPv4Address, text),
    "ipv6": lambda text: _parses(ipaddress.IPv6Address, text),
    "uri": lambda text: bool(text) and _parses(urllib.parse.urlsplit, text),
    "uuid": lambda text: _parses(uuid.UUID, text),
}
