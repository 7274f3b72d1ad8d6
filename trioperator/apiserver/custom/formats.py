"""String formats that schemas of custom resources validate; other formats are not checked."""

from __future__ import annotations

import base64
import binascii
import datetime
import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Final

from ..model.metadata import label_problem, subdomain_problem
from .cel_functions import parse_url

_DATE_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_DURATION: Final = re.compile(r"\s*((\d+)\s*[A-Za-zµ]+\s*)+|0|([-+]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))+", re.ASCII)
# The top-level domain of a name with dots has at least two letters; a name without dots has at most one dash.
_HOST: Final = re.compile(r"[^\W_](-?[^\W_]{0,62})?|([^\W_]((-|[^\W_]){0,61}[^\W_])?\.)+[^\W\d_]{2,63}")
_EMAIL: Final = re.compile(r"[^@<>]*<[^@\s<>]+@[^@\s<>]+>|[^@\s<>]+@[^@\s<>]+")
_MAC: Final = re.compile(r"([0-9a-f]{2}([:-])[0-9a-f]{2}(\2[0-9a-f]{2}){4,18})|([0-9a-f]{4}(\.[0-9a-f]{4}){2,9})", re.I)
_UUID: Final = "[0-9a-f]{8}-?[0-9a-f]{4}-?%s[0-9a-f]{3}-?%s[0-9a-f]{3}-?[0-9a-f]{12}"
_ANY: Final = "[0-9a-f]"


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except (ValueError, binascii.Error):
        return False
    return True


def _is_date_time(text: str) -> bool:
    return _DATE_TIME.fullmatch(text) is not None and _parses(datetime.datetime.fromisoformat, text[:19])


def _is_ipv4(text: str) -> bool:
    return _parses(ipaddress.IPv4Address, re.sub(r"\b0+(?=\d)", "", text))  # as in Go, zeros may lead


def _uuid(version: str, variant: str = _ANY) -> Callable[[str], bool]:
    pattern = re.compile(_UUID % (version, variant), re.IGNORECASE | re.ASCII)
    return lambda text: pattern.fullmatch(text) is not None


FORMATS: Final[Mapping[str, Callable[[str], bool]]] = {
    "byte": lambda text: bool(text) and _parses(lambda value: base64.b64decode(value, validate=True), text),
    "cidr": lambda text: "/" in text and _parses(lambda value: ipaddress.ip_network(value, strict=False), text),
    "date": lambda text: len(text) == 10 and _parses(datetime.date.fromisoformat, text),
    "date-time": _is_date_time,
    "datetime": _is_date_time,
    "duration": lambda text: _DURATION.fullmatch(text) is not None,
    "email": lambda text: _EMAIL.fullmatch(text) is not None,
    "hostname": lambda text: len(text) <= 255 and _HOST.fullmatch(text) is not None,
    "ipv4": _is_ipv4,
    "ipv6": lambda text: "%" not in text and _parses(ipaddress.IPv6Address, text),
    "k8s-long-name": lambda text: len(text) <= 253 and not subdomain_problem(text),
    "k8s-short-name": lambda text: not label_problem(text),
    "mac": lambda text: _MAC.fullmatch(text) is not None,
    "uri": lambda text: _parses(parse_url, text),
    "uuid": _uuid(_ANY),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4", "[89ab]"),
    "uuid5": _uuid("5", "[89ab]"),
}
