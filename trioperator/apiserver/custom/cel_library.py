"""Declarations of the CEL functions of Kubernetes for the CEL library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from . import cel_functions as k8s
from .patterns import find_all

_SEMVER_PARTS: Final = ("major", "minor", "patch")
_URL_PARTS: Final = ("getScheme", "getHost", "getHostname", "getPort", "getEscapedPath")
_ADDRESS_TESTS: Final = (
    "isUnspecified",
    "isLoopback",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isGlobalUnicast",
)

_Overload = tuple[str, Any, Sequence[Any], Callable[..., Any]]  # name, type of the result, types of the parameters


def declarations(cel: Any) -> list[Any]:
    """Return the declarations of all functions.

    See https://kubernetes.io/docs/reference/using-api/cel/#cel-options-language-features-and-libraries.
    """
    overloads: dict[str, list[Any]] = {}
    for is_member, table in ((False, _functions(cel.Type)), (True, _members(cel.Type))):
        for name, result, parameters, function in table:
            known = overloads.setdefault(name, [])
            ident = f"kubernetes_{name}_{len(known)}"
            known.append(cel.Overload(ident, result, parameters, is_member, function))
    return [cel.FunctionDecl(name, known) for name, known in overloads.items()]


def _functions(types: Any) -> Iterator[_Overload]:
    string, boolean, opaque = types.STRING, types.BOOL, types.Map(types.DYN, types.DYN)
    for test, name, parse in (
        ("isURL", "url", k8s.parse_url),
        ("isQuantity", "quantity", k8s.parse_quantity),
        ("isSemver", "semver", k8s.parse_semver),
        ("isIP", "ip", k8s.parse_address),
        ("isCIDR", "cidr", k8s.parse_network),
    ):
        yield test, boolean, [string], partial(k8s.is_valid, parse)
        yield name, opaque, [string], parse
    yield "isSemver", boolean, [string, boolean], partial(k8s.is_valid, k8s.parse_semver)
    yield "semver", opaque, [string, boolean], k8s.parse_semver
    yield "ip.isCanonical", boolean, [string], lambda one: k8s.parse_address(one)[k8s.IP] == one


def _members(types: Any) -> Iterator[_Overload]:
    string, integer, boolean, opaque = types.STRING, types.INT, types.BOOL, types.Map(types.DYN, types.DYN)
    items = types.List(types.DYN)
    yield "find", string, [string, string], k8s.find
    yield "findAll", items, [string, string], find_all
    yield "findAll", items, [string, string, integer], find_all
    yield "isSorted", boolean, [items], k8s.is_sorted
    for name, function in (("sum", sum), ("min", min), ("max", max)):
        yield name, types.DYN, [items], function
    yield "sign", integer, [opaque], k8s.sign
    yield "isInteger", boolean, [opaque], partial(k8s.is_valid, k8s.as_integer)
    yield "asInteger", integer, [opaque], k8s.as_integer
    yield "asApproximateFloat", types.DOUBLE, [opaque], lambda one: float(one[k8s.QUANTITY])
    for other in (opaque, integer):
        yield "add", opaque, [opaque, other], k8s.add
        yield "sub", opaque, [opaque, other], partial(k8s.add, factor=-1)
    yield "compareTo", integer, [opaque, opaque], k8s.compare
    yield "isLessThan", boolean, [opaque, opaque], lambda one, other: k8s.compare(one, other) < 0
    yield "isGreaterThan", boolean, [opaque, opaque], lambda one, other: k8s.compare(one, other) > 0
    for at, name in enumerate(_SEMVER_PARTS):
        yield name, integer, [opaque], partial(k8s.semver_part, at=at)
    for name in _URL_PARTS:
        yield name, string, [opaque], partial(k8s.url_part, name=name)
    yield "getQuery", opaque, [opaque], partial(k8s.url_part, name="getQuery")
    yield from _address_members(string, integer, boolean, opaque)


def _address_members(string: Any, integer: Any, boolean: Any, opaque: Any) -> Iterator[_Overload]:
    results = {**dict.fromkeys(_ADDRESS_TESTS, boolean), "family": integer, "prefixLength": integer, "ip": opaque}
    for name, result in {**results, "masked": opaque}.items():
        yield name, result, [opaque], partial(k8s.networks_of, name=name)
    for other in (opaque, string):
        yield "containsIP", boolean, [opaque, other], k8s.contains_address
        yield "containsCIDR", boolean, [opaque, other], k8s.contains_network
