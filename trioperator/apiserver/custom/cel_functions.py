"""The CEL functions of Kubernetes, on plain values. Pure.

Opaque types (quantities, versions, URLs, addresses) are maps with one key, the name of the type, and a normalized
value, so that ``==`` compares them.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
import urllib.parse
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from trioperator._model.quantities import quantity_value

from .patterns import find_all

Opaque = Mapping[str, str]

QUANTITY: Final = "kubernetes.Quantity"
SEMVER: Final = "kubernetes.Semver"
URL: Final = "kubernetes.URL"
IP: Final = "net.IP"
CIDR: Final = "net.CIDR"

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# https://semver.org/#is-there-a-suggested-regular-expression-regex-to-check-a-semver-string
_NUMBER: Final = r"(?:0|[1-9][0-9]*)"
_WORD: Final = rf"(?:{_NUMBER}|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER: Final = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-({_WORD}(?:\.{_WORD})*))?(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?"
)


def is_valid(parse: Callable[..., Any], *arguments: Any) -> bool:
    """Return whether the arguments can be parsed."""
    try:
        parse(*arguments)
    except ValueError:
        return False
    return True


# -- lists and strings -----------------------------------------------------------------------------------------------


def is_sorted(items: list[Any]) -> bool:
    return all(one <= other for one, other in itertools.pairwise(items))


def find(text: str, pattern: str) -> str:
    """Return the first match of the pattern, or an empty string."""
    found = find_all(text, pattern, 1)
    return found[0] if found else ""


# -- quantities and versions -----------------------------------------------------------------------------------------


def parse_quantity(text: str) -> Opaque:
    return _quantity(quantity_value(text))


def _quantity(value: Decimal) -> Opaque:
    return {QUANTITY: format(value.normalize(), "f") if value else "0"}


def _number(opaque: Opaque) -> Decimal:
    if QUANTITY not in opaque:
        raise ValueError("no such overload")
    return Decimal(opaque[QUANTITY])


def sign(opaque: Opaque) -> int:
    value = _number(opaque)
    return (value > 0) - (value < 0)


def as_integer(opaque: Opaque) -> int:
    """Return the quantity as a 64-bit integer. Raises ValueError if it is not one."""
    value = _number(opaque)
    if value != value.to_integral_value() or not -(2**63) <= value < 2**63:
        raise ValueError("cannot convert value to integer")
    return int(value)


def add(opaque: Opaque, other: Opaque | int, *, factor: int = 1) -> Opaque:
    return _quantity(_number(opaque) + factor * (Decimal(other) if isinstance(other, int) else _number(other)))


def parse_semver(text: str, normalize: bool = False) -> Opaque:
    """Return the version; *normalize* fills missing parts with 0, and drops a leading "v" and leading zeros."""
    if normalize:
        core, dash, rest = text.removeprefix("v").partition("-")
        numbers = [part.lstrip("0") or "0" for part in core.split(".")]
        text = ".".join([*numbers, "0", "0"][: max(3, len(numbers))]) + dash + rest
    match = _SEMVER.fullmatch(text)
    if match is None:
        raise ValueError(f"Invalid Semantic Version: {text}")
    release = ".".join(match.groups()[:3])
    return {SEMVER: f"{release}-{match[4]}" if match[4] else release}


def _precedence(opaque: Opaque) -> tuple[Any, ...]:
    release, _, stage = opaque[SEMVER].partition("-")
    words = [(0, int(word), "") if word.isdigit() else (1, 0, word) for word in stage.split(".")] if stage else []
    return (*(int(part) for part in release.split(".")), not stage, words)


def semver_part(opaque: Opaque, at: int) -> int:
    """Return the major (0), minor (1) or patch (2) number."""
    return int(opaque[SEMVER].partition("-")[0].split(".")[at])


def compare(one: Opaque, other: Opaque) -> int:
    """Compare two quantities or two versions: -1, 0 or 1."""
    if SEMVER in one and SEMVER in other:
        left, right = _precedence(one), _precedence(other)
        return (left > right) - (left < right)
    a, b = _number(one), _number(other)
    return (a > b) - (a < b)


# -- URLs ------------------------------------------------------------------------------------------------------------


def parse_url(text: str) -> Opaque:
    """Return the URL, which must be an absolute URI or an absolute path."""
    parts = urllib.parse.urlsplit(text)
    is_bad = " " in parts.netloc or re.search(r"[\x00-\x1f\x7f]|%(?![0-9a-fA-F]{2})", parts.netloc + parts.path)
    if is_bad or not (parts.scheme or text.startswith("/")):
        raise ValueError(f"URL parse error during conversion from string: {text}")
    assert parts.port is None or parts.port >= 0  # raises ValueError for an invalid port
    return {URL: text}


def url_part(opaque: Opaque, name: str) -> Any:
    """Return the result of the URL function with this name."""
    parts = urllib.parse.urlsplit(opaque[URL])
    host = parts.netloc.rpartition("@")[2]
    match name:
        case "getScheme":
            return parts.scheme
        case "getHost":
            return host
        case "getHostname":
            return re.sub(r":[0-9]*$", "", host).strip("[]")
        case "getPort":
            return "" if parts.port is None else str(parts.port)
        case "getEscapedPath":
            return urllib.parse.quote(parts.path, safe="/%:@!$&'()*+,;=~-._")
    return urllib.parse.parse_qs(parts.query, keep_blank_values=True)


# -- addresses -------------------------------------------------------------------------------------------------------


def parse_address(text: str) -> Opaque:
    """Return the address; zones and IPv4-mapped IPv6 addresses are invalid, as everywhere in Kubernetes."""
    return {IP: str(_address(text))}


def _address(text: str) -> _Address:
    address = ipaddress.ip_address(text)
    if "%" in text or (isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped):
        raise ValueError(f"IP Address {text!r} is not supported here")
    return address


def parse_network(text: str) -> Opaque:
    """Return the network; its address may have host bits."""
    address, slash, length = text.partition("/")
    if not slash or not length.isdigit() or (length != "0" and length.startswith("0")):
        raise ValueError(f"network address parse error during conversion from string: {text}")
    return {CIDR: f"{_address(address)}/{_network(text).prefixlen}"}


def _network(text: str) -> _Network:
    return ipaddress.ip_network(text, strict=False)


def contains_address(opaque: Opaque, other: Opaque | str) -> bool:
    return _address(other if isinstance(other, str) else other[IP]) in _network(opaque[CIDR])


def contains_network(opaque: Opaque, other: Opaque | str) -> bool:
    outer, inner = _network(opaque[CIDR]), _network((parse_network(other) if isinstance(other, str) else other)[CIDR])
    return outer.version == inner.version and inner.network_address in outer and inner.prefixlen >= outer.prefixlen


def networks_of(opaque: Opaque, name: str) -> Any:
    """Return the result of the function with this name for an address or a network."""
    if CIDR in opaque:
        address, _, length = opaque[CIDR].partition("/")
        return {
            "ip": {IP: address},
            "masked": {CIDR: str(_network(opaque[CIDR]))},
            "prefixLength": int(length),
        }[name]
    ip = _address(opaque[IP])
    if name == "family":
        return ip.version
    is_link_local = ip in _network("169.254.0.0/16" if ip.version == 4 else "fe80::/10")
    is_local_group = ip in _network("224.0.0.0/24" if ip.version == 4 else "ff02::/16")
    is_broadcast = ip == ipaddress.IPv4Address("255.255.255.255")
    return {
        "isUnspecified": ip.is_unspecified,
        "isLoopback": ip.is_loopback,
        "isLinkLocalMulticast": is_local_group,
        "isLinkLocalUnicast": is_link_local,
        "isGlobalUnicast": not (
            ip.is_unspecified or ip.is_loopback or ip.is_multicast or is_link_local or is_broadcast
        ),
    }[name]
