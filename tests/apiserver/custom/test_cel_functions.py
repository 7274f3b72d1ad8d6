"""Tests for :mod:`trioperator.apiserver.custom.cel_functions`: values are parsed and compared as in Kubernetes."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.custom import cel_functions as k8s
from trioperator.apiserver.custom.patterns import find_all

NUMBERS = st.integers(-(10**12), 10**12)
PARTS = st.integers(0, 10**6)
VERSIONS = st.tuples(PARTS, PARTS, PARTS)
NETWORKS = st.builds(
    lambda address, length: ipaddress.ip_network((address, length), strict=False),
    st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address),
    st.integers(0, 32),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1500m", "1.5"), ("1k", "1000"), ("1Ki", "1024"), ("0m", "0"), ("-2e3", "-2000"), ("100n", "0.0000001")],
)
def test_quantities_are_normalized(text: str, expected: str) -> None:
    assert k8s.parse_quantity(text) == {k8s.QUANTITY: expected}


@given(NUMBERS, NUMBERS)
def test_quantities_of_thousandths_are_calculated_exactly(one: int, other: int) -> None:
    left, right = k8s.parse_quantity(f"{one}m"), k8s.parse_quantity(f"{other}m")
    assert k8s.compare(left, right) == (one > other) - (one < other)
    assert k8s.sign(left) == (one > 0) - (one < 0)
    assert Decimal(k8s.add(left, right)[k8s.QUANTITY]) * 1000 == one + other
    assert k8s.add(k8s.add(left, right), right, factor=-1) == left
    assert k8s.add(left, other) == k8s.add(left, k8s.parse_quantity(str(other)))


@pytest.mark.parametrize(("text", "expected"), [("5", 5), ("1k", 1000), ("-1", -1), (f"{2**63 - 1}", 2**63 - 1)])
def test_whole_quantities_are_integers(text: str, expected: int) -> None:
    assert k8s.as_integer(k8s.parse_quantity(text)) == expected


@pytest.mark.parametrize("text", ["1.5", "1m", f"{2**63}", f"-{2**63 + 1}"])
def test_fractions_and_large_quantities_are_no_integers(text: str) -> None:
    with pytest.raises(ValueError, match="cannot convert value to integer"):
        k8s.as_integer(k8s.parse_quantity(text))


def test_arithmetic_is_for_quantities_only() -> None:
    with pytest.raises(ValueError, match="no such overload"):
        k8s.sign(k8s.parse_url("/a"))


@given(VERSIONS, VERSIONS)
def test_versions_are_ordered_by_their_numbers(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    left, right = (k8s.parse_semver(".".join(map(str, version))) for version in (one, other))
    assert k8s.compare(left, right) == (one > other) - (one < other)
    assert tuple(k8s.semver_part(left, at) for at in range(3)) == one


def test_prereleases_are_ordered_as_the_specification_of_semver_orders_them() -> None:
    stages = ["alpha", "alpha.1", "alpha.beta", "beta", "beta.2", "beta.11", "rc.1"]
    ordered = [k8s.parse_semver(text) for text in (*(f"1.0.0-{stage}" for stage in stages), "1.0.0+build", "1.0.1")]
    for at, version in enumerate(ordered):
        assert [k8s.compare(version, other) for other in ordered] == [
            (at > place) - (at < place) for place in range(len(ordered))
        ]


@pytest.mark.parametrize(
    "text", ["", "1", "1.2", "v1.2.3", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "1.2.3.4", "1.x.3"]
)
def test_versions_must_be_complete(text: str) -> None:
    assert not k8s.is_valid(k8s.parse_semver, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("v1", "1.0.0"), ("1.2", "1.2.0"), ("01.02.03", "1.2.3"), ("v1.2.3-rc.1", "1.2.3-rc.1"), ("1-a", "1.0.0-a")],
)
def test_normalization_completes_versions(text: str, expected: str) -> None:
    assert k8s.parse_semver(text, True) == k8s.parse_semver(expected)
    assert not k8s.is_valid(k8s.parse_semver, "1.2.3.4", True)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("getScheme", "https"),
        ("getHost", "[::1]:80"),
        ("getHostname", "::1"),
        ("getPort", "80"),
        ("getEscapedPath", "/p%20q%2Fr"),
        ("getQuery", {"x": ["1", "2"], "y": [""]}),
    ],
)
def test_urls_are_split_into_parts(name: str, expected: Any) -> None:
    assert k8s.url_part(k8s.parse_url("https://u@[::1]:80/p q%2Fr?x=1&y=&x=2"), name) == expected


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        *((k8s.parse_url, text) for text in ("", "x", "../x", "http://a b", "http://a:x", "http://a:70000", "/%zz")),
        *(
            (k8s.parse_address, text)
            for text in ("", "1.2.3", "01.2.3.4", "::ffff:1.2.3.4", "fe80::1%eth0", "1.2.3.4/8")
        ),
        *(
            (k8s.parse_network, text)
            for text in ("", "1.2.3.4", "1.2.3.4/", "1.2.3.4/33", "1.2.3.4/08", "1.2.3.4/255.0.0.0")
        ),
        *((k8s.parse_quantity, text) for text in ("", "1x", "Ki", "1 k")),
    ],
)
def test_invalid_values_are_rejected(parse: Callable[[str], Any], text: str) -> None:
    assert not k8s.is_valid(parse, text)


@given(NETWORKS, NETWORKS)
def test_networks_contain_their_subnets(outer: ipaddress.IPv4Network, inner: ipaddress.IPv4Network) -> None:
    network = k8s.parse_network(str(outer))
    assert k8s.contains_network(network, str(inner)) is inner.subnet_of(outer)
    assert k8s.contains_address(network, str(inner.network_address)) is (inner.network_address in outer)
    assert k8s.contains_network(network, network)


def test_networks_contain_nothing_of_the_other_family() -> None:
    assert not k8s.contains_network(k8s.parse_network("0.0.0.0/0"), "::/0")
    assert not k8s.contains_address(k8s.parse_network("0.0.0.0/0"), k8s.parse_address("::1"))


def test_networks_keep_their_host_bits_until_they_are_masked() -> None:
    network = k8s.parse_network("10.0.0.5/8")
    assert k8s.networks_of(network, "ip") == k8s.parse_address("10.0.0.5")
    assert k8s.networks_of(network, "masked") == k8s.parse_network("10.0.0.0/8") != network
    assert k8s.networks_of(network, "prefixLength") == 8


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.0.0.0", {"isUnspecified"}),
        ("::1", {"isLoopback"}),
        ("169.254.0.1", {"isLinkLocalUnicast"}),
        ("ff02::1", {"isLinkLocalMulticast"}),
        ("239.0.0.1", set()),
        ("255.255.255.255", set()),
        ("10.0.0.1", {"isGlobalUnicast"}),
        ("2001:db8::1", {"isGlobalUnicast"}),
    ],
)
def test_addresses_are_classified(text: str, expected: set[str]) -> None:
    tests = {"isUnspecified", "isLoopback", "isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast"}
    address = k8s.parse_address(text)
    assert {name for name in tests if k8s.networks_of(address, name)} == expected


@pytest.mark.parametrize(
    ("limit", "expected"), [(-1, ["1", "22", "3"]), (0, []), (2, ["1", "22"]), (9, ["1", "22", "3"])]
)
def test_matches_are_found_up_to_the_limit(limit: int, expected: list[str]) -> None:
    assert find_all("a1b22c3", "[0-9]+", limit) == expected
    assert k8s.find("a1b22c3", "[0-9]{2}") == "22"
    assert k8s.find("abc", "[0-9]") == ""


@given(st.lists(NUMBERS, max_size=5))
def test_a_list_is_sorted_if_sorting_does_not_change_it(items: list[int]) -> None:
    assert k8s.is_sorted(items) is (items == sorted(items))
