"""Tests for :mod:`trioperator.apiserver.custom.cel_library`: expressions can call the CEL functions of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from trioperator.apiserver.custom.cel import compile_expression


def evaluate(text: str) -> Any:
    return compile_expression(text, ()).evaluate({})


@pytest.mark.parametrize(
    "text",
    [
        "quantity('1500m').isLessThan(quantity('2')) && quantity('1k') == quantity('1000')",
        "quantity('5k').sub(20) == quantity('4980') && quantity('1').add(quantity('1m')).isGreaterThan(quantity('1'))",
        "quantity('5').asInteger() == 5 && !quantity('1.5').isInteger() && quantity('1.5').asApproximateFloat() == 1.5",
        "quantity('-1').sign() == -1 && quantity('1').compareTo(quantity('1000m')) == 0 && !isQuantity('1x')",
        "isURL('https://a.b') && isURL('/x') && !isURL('../x') && !isURL('x') && !isURL('http://a b')",
        "url('https://u@a.b:80/p q?x=1&x=2').getHost() == 'a.b:80' && url('https://[::1]:80').getHostname() == '::1'",
        "url('https://a.b:80/p q?x=1&x=2').getQuery()['x'] == ['1', '2'] && url('https://a.b:80').getPort() == '80'",
        "url('https://a.b/p q').getEscapedPath() == '/p%20q' && url('https://a.b').getScheme() == 'https'",
        "isIP('1.2.3.4') && !isIP('01.2.3.4') && !isIP('::ffff:1.2.3.4') && ip('1.2.3.4').family() == 4",
        "ip('127.0.0.1').isLoopback() && ip('8.8.8.8').isGlobalUnicast() && ip('::').isUnspecified()",
        "ip('fe80::1').isLinkLocalUnicast() && ip('224.0.0.1').isLinkLocalMulticast() && ip.isCanonical('::1')",
        "cidr('10.0.0.5/8').masked() == cidr('10.0.0.0/8') && cidr('10.0.0.5/8').ip() == ip('10.0.0.5')",
        "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))",
        "cidr('10.0.0.0/8').prefixLength() == 8 && !isCIDR('10.0.0.0') && !isCIDR('10.0.0.0/33')",
        "semver('1.2.3').isLessThan(semver('1.10.0')) && semver('1.0.0-alpha').isLessThan(semver('1.0.0'))",
        "semver('1.0.0-alpha.9').compareTo(semver('1.0.0-alpha.10')) == -1 && semver('v01.2', true) == semver('1.2.0')",
        "semver('1.2.3').major() == 1 && semver('1.2.3').patch() == 3 && !isSemver('v1.2') && isSemver('v1.2', true)",
        "'abc 12'.find('[0-9]+') == '12' && 'abc'.find('[0-9]') == '' && 'a1b2'.findAll('[0-9]') == ['1', '2']",
        "'a1b2'.findAll('[0-9]', 1) == ['1'] && [1, 2].isSorted() && ![2, 1].isSorted() && [1.5, 2.5].sum() == 4.0",
        "['b', 'a'].min() == 'a' && [1, 3].max() == 3 && sets.contains([1, 2], [1]) && [1].all(i, v, i == 0 && v == 1)",
        "{'a': 1}.?b.orValue(2) == 2 && 'A'.lowerAscii() == 'a' && [3, 1].sort() == [1, 3]",
    ],
)
def test_the_functions_of_kubernetes_are_available(text: str) -> None:
    assert evaluate(text) is True


@pytest.mark.parametrize(
    "text",
    ["quantity('x')", "url('x')", "semver('1')", "ip('1.2.3')", "cidr('1.2.3.4')", "'a'.find('(')", "url('/a').sign()"],
)
def test_functions_fail_for_what_they_cannot_parse(text: str) -> None:
    expression = compile_expression(text, ())
    with pytest.raises(ValueError, match=r"."):
        expression.evaluate({})


@pytest.mark.parametrize("text", ["quantity(1)", "isIP()", "'a'.find(1)", "quantity('1').unknown()"])
def test_calls_with_parameters_of_other_types_do_not_compile(text: str) -> None:
    with pytest.raises(ValueError, match="compilation failed"):
        compile_expression(text, ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [("isURL('x')", "BOOL"), ("ip('::').family()", "INT"), ("url('/x').getHost()", "STRING")],
)
def test_results_have_static_types(text: str, expected: str) -> None:
    assert compile_expression(text, ()).result_type == expected
