"""Policy rules: examples from the documentation of Kubernetes, and properties of all rules."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.access.attributes import Attributes
from trioperator.apiserver.access.policy_rules import (
    EVERYTHING,
    PolicyRule,
    allows,
    describe_missing,
    find_missing,
    parse_rules,
)

PODS = PolicyRule(verbs=("get", "list"), groups=("",), resources=("pods",))


def words(alphabet: Sequence[str], least: int = 0) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(alphabet), min_size=least, max_size=3).map(tuple)


VERBS, GROUPS, NAMES = ("get", "list", "create"), ("", "apps", "a.dev"), ("x", "y")
RESOURCES, SUBRESOURCES = ("pods", "things"), ("", "status", "scale")
URLS = ("/api", "/api/v1", "/healthz", "/metrics/slis")
resource_rules = st.builds(
    PolicyRule,
    verbs=words((*VERBS, "*"), 1),
    groups=words((*GROUPS, "*"), 1),
    resources=words((*RESOURCES, "pods/status", "things/scale", "*/status", "*/scale", "*"), 1),
    names=words(NAMES),
)
url_rules = st.builds(PolicyRule, verbs=words((*VERBS, "*"), 1), urls=words((*URLS, "/api/*", "/metrics*", "*"), 1))
rules = resource_rules | url_rules
resource_requests = st.builds(
    Attributes,
    verb=st.sampled_from(VERBS),
    group=st.sampled_from(GROUPS),
    resource=st.sampled_from(RESOURCES),
    subresource=st.sampled_from(SUBRESOURCES),
    name=st.sampled_from(("", *NAMES)),
)
url_requests = st.builds(
    Attributes, verb=st.sampled_from(VERBS), path=st.sampled_from((*URLS, "/api/x")), is_resource=st.just(False)
)
requests = resource_requests | url_requests


@pytest.mark.parametrize(
    ("resources", "resource", "subresource", "allowed"),
    [
        ("pods", "pods", "", True),
        ("pods", "pods", "log", False),
        ("pods/log", "pods", "log", True),
        ("pods/log", "pods", "", False),
        ("*", "pods", "log", True),
        ("*/scale", "deployments", "scale", True),
        ("*/scale", "deployments", "status", False),
        ("*/scale", "scale", "", False),
        ("pods/*", "pods", "log", False),
    ],
)
def test_a_subresource_is_a_separate_resource(resources: str, resource: str, subresource: str, allowed: bool) -> None:
    rule = PolicyRule(verbs=("*",), groups=("",), resources=(resources,))
    assert allows(rule, Attributes(verb="get", resource=resource, subresource=subresource)) is allowed


@pytest.mark.parametrize(
    ("url", "path", "allowed"),
    [
        ("/healthz", "/healthz", True),
        ("/healthz", "/healthz/etcd", False),
        ("/healthz/*", "/healthz/etcd", True),
        ("/healthz/*", "/healthz", False),
        ("*", "/anything", True),
        ("/api*", "/apis", True),
    ],
)
def test_a_path_may_end_with_a_wildcard(url: str, path: str, allowed: bool) -> None:
    rule = PolicyRule(verbs=("get",), urls=(url,))
    assert allows(rule, Attributes(verb="get", path=path, is_resource=False)) is allowed


def test_resource_names_do_not_allow_requests_without_a_name() -> None:
    rule = PolicyRule(verbs=("*",), groups=("",), resources=("pods",), names=("a",))
    assert allows(rule, Attributes(verb="get", resource="pods", name="a"))
    assert not allows(rule, Attributes(verb="get", resource="pods", name="b"))
    assert not allows(rule, Attributes(verb="create", resource="pods"))


def test_missing_permissions_are_listed_by_resource() -> None:
    wanted = PolicyRule(verbs=("get", "list"), groups=("a.dev",), resources=("x", "pods"), names=("n",))
    missing = find_missing([PODS], [PODS, wanted, PolicyRule(verbs=("get",), urls=("/x",))])
    assert describe_missing(missing).splitlines() == [
        '{APIGroups:["a.dev"], Resources:["pods"], ResourceNames:["n"], Verbs:["get" "list"]}',
        '{APIGroups:["a.dev"], Resources:["x"], ResourceNames:["n"], Verbs:["get" "list"]}',
        '{NonResourceURLs:["/x"], Verbs:["get"]}',
    ]


def test_empty_rules_allow_nothing() -> None:
    parsed = parse_rules([{}, {"verbs": ["get"], "apiGroups": None}])
    assert parsed == (PolicyRule(), PolicyRule(verbs=("get",)))
    assert not any(allows(rule, Attributes(verb="get", resource="pods")) for rule in parsed)
    assert parse_rules(None) == ()


@given(requests)
def test_the_wildcard_rule_allows_everything(request: Attributes) -> None:
    assert any(allows(rule, request) for rule in EVERYTHING)


@given(rules, requests, st.data())
def test_the_order_of_entries_does_not_matter(rule: PolicyRule, request: Attributes, data: st.DataObject) -> None:
    shuffled = PolicyRule(
        verbs=tuple(data.draw(st.permutations(rule.verbs))),
        groups=tuple(data.draw(st.permutations(rule.groups))),
        resources=tuple(data.draw(st.permutations(rule.resources))),
        names=tuple(data.draw(st.permutations(rule.names))),
        urls=tuple(data.draw(st.permutations(rule.urls))),
    )
    assert allows(rule, request) == allows(shuffled, request)


@given(rules, requests)
def test_more_entries_never_allow_less(rule: PolicyRule, request: Attributes) -> None:
    larger = PolicyRule(
        verbs=(*rule.verbs, "create"),
        groups=(*rule.groups, "apps"),
        resources=(*rule.resources, "things") if rule.resources else (),
        names=(*rule.names, "y") if rule.names else (),
        urls=(*rule.urls, "/api/*") if rule.urls else (),
    )
    assert not allows(rule, request) or allows(larger, request)


@given(st.lists(rules, max_size=3), st.lists(rules, max_size=3), requests)
def test_covered_rules_allow_no_more(held: list[PolicyRule], given: list[PolicyRule], request: Attributes) -> None:
    if not find_missing(held, given) and any(allows(rule, request) for rule in given):
        assert any(allows(rule, request) for rule in held)


@given(st.lists(rules, max_size=3))
def test_rules_cover_themselves(held: list[PolicyRule]) -> None:
    assert find_missing(held, held) == []
    assert find_missing(EVERYTHING, held) == []


@given(st.lists(rules, max_size=3), st.lists(rules, max_size=3))
def test_missing_rules_are_all_that_is_missing(held: list[PolicyRule], given: list[PolicyRule]) -> None:
    missing = find_missing(held, given)
    assert find_missing([*held, *missing], given) == []
    assert all(find_missing(held, [part]) for part in missing)
