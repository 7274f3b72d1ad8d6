"""Tests for :mod:`trioperator.apiserver.custom.rule_types`: rules use what schemas declare."""

from __future__ import annotations

import sys
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from trioperator.apiserver.custom import rule_types
from trioperator.apiserver.custom.rule_types import RuleTypes
from trioperator.apiserver.custom.validation_rules import rules_of

RULE = {"rule": "self.b > 1"}
NODE = {"type": "object", "properties": {"a": {"type": "integer"}}, "x-kubernetes-validations": [RULE]}

SCALARS = strategies.sampled_from(["string", "integer", "number", "boolean"]).map(lambda kind: {"type": kind})
NAMES = strategies.text("ab_-A1.", min_size=1, max_size=4)


def _nested(inner: strategies.SearchStrategy[Any]) -> strategies.SearchStrategy[Any]:
    return strategies.one_of(
        inner.map(lambda items: {"type": "array", "items": items}),
        inner.map(lambda values: {"type": "object", "additionalProperties": values}),
        strategies.dictionaries(NAMES, inner, max_size=4).map(lambda found: {"type": "object", "properties": found}),
    )


SCHEMAS = strategies.recursive(SCALARS, _nested, max_leaves=8)


def problems(schema: dict[str, Any], node: dict[str, Any]) -> tuple[str, str]:
    (rule,) = rules_of(node)
    return RuleTypes(schema).problems_of(node, rule)


def test_what_the_schema_does_not_declare_is_a_problem() -> None:
    assert problems(NODE, NODE)[0] == (
        "compilation failed: ERROR: <input>:1:5: undefined field 'b'\n | self.b > 1\n | ....^"
    )


def test_parts_without_access_have_no_problems() -> None:
    hidden = {"type": "array", "x-kubernetes-validations": [RULE]}
    assert problems({"type": "object", "properties": {"a": hidden}}, hidden) == ("", "")


def test_types_are_not_checked_without_protobuf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    assert problems(NODE, NODE) == ("", "")


def test_the_time_for_all_types_of_a_schema_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_types, "_SECONDS", -1)
    assert problems(NODE, NODE) == ("", "")


@hypothesis.given(SCHEMAS)
@hypothesis.example(
    {"type": "object", "properties": {"_1": {"type": "object", "additionalProperties": {"type": "string"}}}}
)
def test_every_schema_has_a_type(schema: dict[str, Any]) -> None:
    node = {**schema, "x-kubernetes-validations": [{"rule": "self != self", "messageExpression": "'a'"}]}
    whole = {"type": "object", "properties": {"a": node}}
    assert problems(whole, node) == ("", "")
    node["x-kubernetes-validations"] = [{"rule": "self"}]
    expected = "" if schema == {"type": "boolean"} else "cel expression must evaluate to a bool"
    assert problems(whole, node) == (expected, "")
