"""Tests for :mod:`trioperator._model.rights`."""

from __future__ import annotations

import pytest

from trioperator._model.resource import Resource
from trioperator._model.rights import Rule, describe_unknown_kind, find_kind, parse_rule

JOBS = Resource("batch", "v1", "jobs", kind="Job")
PODS = Resource("", "v1", "pods", kind="Pod")


def test_rules_are_parsed() -> None:
    assert parse_rule("get,*:pods/log,scales.x.org/status") == [
        Rule("", "pods/log", frozenset({"get", "*"})),
        Rule("x.org", "scales/status", frozenset({"get", "*"})),
    ]
    assert parse_rule("impersonate: users") == [Rule("", "users", frozenset({"impersonate"}))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("jobs.batch", "'jobs.batch': it must be VERBS:KINDS"),
        ("create,pacth:jobs.batch", "'pacth' is no verb: did you mean patch?"),
        ("get:Pod", "'Pod': a kind is PLURAL"),
        ("get:pods/", "'pods/': a kind is PLURAL"),
        ("get:", "'': a kind is PLURAL"),
    ],
)
def test_what_is_no_rule_is_explained(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="^" + message.replace("?", r"\?")):
        parse_rule(text)


def test_rules_are_shown_as_they_are_written() -> None:
    [rule] = parse_rule("patch,create:jobs.batch/status")
    assert str(rule) == "create,patch:jobs.batch/status"
    assert str(parse_rule("get:pods/log")[0]) == "get:pods/log"


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("get:pods/log", None),
        ("get:jobs.batch", None),
        ("get:*", None),
        ("get:*.batch", None),
        ("get:jobs", "jobs (did you mean jobs.batch?)"),
        ("get:job.batch", "job.batch (did you mean jobs.batch?)"),
        ("get:things.example.com", "things.example.com"),
    ],
)
def test_kinds_that_do_not_exist_are_described(text: str, unknown: str | None) -> None:
    [rule] = parse_rule(text)
    assert describe_unknown_kind(rule, [JOBS, PODS]) == unknown


def test_the_kind_of_a_rule_is_found() -> None:
    assert find_kind(parse_rule("get:jobs.batch/status")[0], [JOBS, PODS]) is JOBS
    assert find_kind(parse_rule("get:jobs")[0], [JOBS, PODS]) is None
