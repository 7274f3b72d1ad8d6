"""Namespace patterns."""

from __future__ import annotations

import re

import pytest

from trioperator._model.namespaces import NamespacePattern, is_exact, match_namespace, may_exist


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("ns", "ns", True),
        ("ns", "ns1", False),
        (" ns ", "ns", True),
        ("*", "anything", True),
        ("*-pr-123-*", "myapp-pr-123-x", True),
        ("*-pr-123-*", "myapp-pr-124-x", False),
        ("ns?", "ns1", True),
        ("ns?", "ns", False),
        ("!*-pr-123-*", "myapp-pr-123-x", False),
        ("!*-pr-123-*", "myapp-live", True),
        ("!a,!b", "a", False),
        ("!a,!b", "b", False),
        ("!a,!b", "c", True),
        # The first one is decisive, what comes then only excludes and includes again.
        ("myapp-*,!*-pr-*,*-pr-123", "myapp-live", True),
        ("myapp-*,!*-pr-*,*-pr-123", "myapp-pr-456", False),
        ("myapp-*,!*-pr-*,*-pr-123", "myapp-pr-123", True),
        ("myapp-*,!*-pr-*,*-pr-123", "otherapp-live", False),
        ("myapp-*,!*-pr-*,*-pr-123", "otherapp-pr-123", False),
        ("a,b", "b", False),
        ("*,!a*,ab", "ab", True),
        ("*,!a*,ab,!*b", "ab", False),
        ("NS", "ns", False),
        (re.compile("my.*"), "myapp", True),
        (re.compile("my"), "myapp", False),
        (re.compile("app"), "myapp", False),
    ],
)
def test_a_namespace_matches_a_pattern(pattern: NamespacePattern, name: str, matches: bool) -> None:
    assert match_namespace(name, pattern) is matches


@pytest.mark.parametrize(
    ("pattern", "exact"),
    [("ns", True), ("my-ns-1", True), ("n*", False), ("n?", False), ("!ns", False), ("a,b", False), ("[ab]", False)],
)
def test_a_plain_name_is_exact(pattern: str, exact: bool) -> None:
    assert is_exact(pattern) is exact


def test_a_regular_expression_is_never_exact() -> None:
    assert not is_exact(re.compile("ns"))


@pytest.mark.parametrize(
    ("pattern", "possible"),
    [
        ("my-ns-1", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("NS", False),
        ("../x", False),
        ("-a", False),
        ("a.b", False),
        (" a", False),
        ("NS*", True),
        ("!a/b", True),
        (re.compile("NS"), True),
    ],
)
def test_a_plain_name_is_possible_if_it_can_be_that_of_a_namespace(pattern: NamespacePattern, possible: bool) -> None:
    assert may_exist(pattern) is possible
