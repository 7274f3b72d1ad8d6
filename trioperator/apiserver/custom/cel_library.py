"""What Kubernetes adds to CEL, declared to the library that evaluates it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from . import cel_functions as k8s

__all__ = ["declarations"]

_SEMVER_PARTS: Final = ("major", "minor", "patch")
_URL_PARTS: Final = ("getScheme", "getHost", "getHostname", "getPort", "getEscapedPath")
_ADDRESS_TESTS: Final = (
    "isUnspecified",
    "isLoopback",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isGlobalUnicast",
)

_Overload = tuple[str, Any, Sequence[Any], Callable[..., Any]]  # name, type of the result, types of what it takes


def declarations(cel: Any) -> list[Any]:
    """Return https://kubernetes.io/docs/reference/using-api/cel/#cel-options-language-features-and-libraries."""
    overloads: dict[str, list[Any]] = {}
    for is_member, table in ((False, _functions(cel.Type)), (True, _members(cel.Type))):
        for name, result, parameters, function in table:
            known = overloads.setdefault(name, [])
            ident = f"kubernetes_{name}_{len(known)}"
            known.append(cel.Overload(ident, result, parameters, is_member, function))
    return [cel.FunctionDecl(name, known) for name, known in overloads.items()]


def _functions(types: Any) -> Iterator[_Overload]:
    text, truth, thing = types.STRING, types.BOOL, types.Map(types.DYN, types.DYN)
    for test, name, parse in (
        ("isURL", "url", k8s.parsed_url),
        ("isQuantity", "quantity", k8s.parsed_quantity),
        ("isSemver", "semver", k8s.parsed_semver),
        ("isIP", "ip", k8s.parsed_address),
        ("isCIDR", "cidr", k8s.parsed_network),
    ):
        yield test, truth, [text], partial(k8s.holds, parse)
        yield name, thing, [text], parse
    yield "isSemver", truth, [text, truth], partial(k8s.holds, k8s.parsed_semver)
    yield "semver", thing, [text, truth], k8s.parsed_semver
    yield "ip.isCanonical", truth, [text], lambda one: k8s.parsed_address(one)[k8s.IP] == one


def _members(types: Any) -> Iterator[_Overload]:
    text, whole, truth, thing = types.STRING, types.INT, types.BOOL, types.Map(types.DYN, types.DYN)
    items = types.List(types.DYN)
    yield "find", text, [text, text], k8s.find
    yield "findAll", items, [text, text], k8s.find_all
    yield "findAll", items, [text, text, whole], k8s.find_all
    yield "isSorted", truth, [items], k8s.is_sorted
    for name, function in (("sum", sum), ("min", min), ("max", max)):
        yield name, types.DYN, [items], function
    yield "sign", whole, [thing], k8s.sign
    yield "isInteger", truth, [thing], partial(k8s.holds, k8s.as_integer)
    yield "asInteger", whole, [thing], k8s.as_integer
    yield "asApproximateFloat", types.DOUBLE, [thing], lambda one: float(one[k8s.QUANTITY])
    for other in (thing, whole):
        yield "add", thing, [thing, other], k8s.added
        yield "sub", thing, [thing, other], partial(k8s.added, factor=-1)
    yield "compareTo", whole, [thing, thing], k8s.compared
    yield "isLessThan", truth, [thing, thing], lambda one, other: k8s.compared(one, other) < 0
    yield "isGreaterThan", truth, [thing, thing], lambda one, other: k8s.compared(one, other) > 0
    for at, name in enumerate(_SEMVER_PARTS):
        yield name, whole, [thing], partial(k8s.semver_part, at=at)
    for name in _URL_PARTS:
        yield name, text, [thing], partial(k8s.url_part, name=name)
    yield "getQuery", thing, [thing], partial(k8s.url_part, name="getQuery")
    yield from _address_members(text, whole, truth, thing)


def _address_members(text: Any, whole: Any, truth: Any, thing: Any) -> Iterator[_Overload]:
    results = {**dict.fromkeys(_ADDRESS_TESTS, truth), "family": whole, "prefixLength": whole, "ip": thing}
    for name, result in {**results, "masked": thing}.items():
        yield name, result, [thing], partial(k8s.networks_of, name=name)
    for other in (thing, text):
        yield "containsIP", truth, [thing, other], k8s.contains_address
        yield "containsCIDR", truth, [thing, other], k8s.contains_network
