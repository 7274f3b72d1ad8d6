"""Tests for :mod:`trioperator.apiserver.custom.rule_validation`: CEL rules of definitions are validated.

For the definitions of a whole API see test_validation_rules.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

from trioperator.apiserver.custom.rule_types import RuleTypes
from trioperator.apiserver.custom.rule_validation import check_expressions, check_rule_fields, unevaluated_rules
from trioperator.apiserver.model.status_causes import StatusCause

RULES = "x-kubernetes-validations"
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "text": {"type": "string"}, "when": {"type": "string", "format": "date"}},
}


def causes(*rules: dict[str, Any], uncorrelatable: str = "") -> list[StatusCause]:
    """Return the validation errors of the rules of an object."""
    schema = {**SCHEMA, RULES: list(rules)}
    fields = list(check_rule_fields(schema, "s"))
    return fields or list(check_expressions(schema, "s", RuleTypes(schema), uncorrelatable=uncorrelatable))


def warnings(*rules: str) -> list[str]:
    """Return the warnings for a definition with these rules in an item of a list."""
    item = {**SCHEMA, RULES: [{"rule": rule} for rule in rules]}
    schema = {"type": "object", "properties": {"spec": {"type": "array", "items": item}}}
    return list(unevaluated_rules({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}}))


@pytest.fixture
def without_cel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the CEL library."""
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)


@pytest.mark.parametrize(
    "rule",
    [
        {"rule": "self.a > 1"},
        {"rule": "self.a > 1 &&\nself.a < 3", "message": "1 < a < 3"},
        {"rule": "self.a > oldSelf.a", "reason": "FieldValueForbidden", "fieldPath": ".a"},
        {"rule": "oldSelf.hasValue()", "optionalOldSelf": True},
        {"rule": "self.a > 1", "messageExpression": "'not ' + string(self.a)"},
    ],
)
def test_valid_rules_have_no_errors(rule: dict[str, Any]) -> None:
    assert causes(rule) == []


@pytest.mark.parametrize("schema", [{}, {RULES: None}, {RULES: []}])
def test_schemas_need_no_rules(schema: dict[str, Any]) -> None:
    assert list(check_rule_fields(schema, "s")) == []


@pytest.mark.parametrize(
    ("rule", "field", "message"),
    [
        ({}, "rule", "Required value: rule is not specified"),
        ({"message": " "}, "message", 'Invalid value: " ": must be non-empty if specified'),
        ({"message": "a\nb"}, "message", r'Invalid value: "a\nb": must not contain line breaks'),
        (
            {"messageExpression": " "},
            "messageExpression",
            "Required value: messageExpression must be non-empty if specified",
        ),
        ({"fieldPath": ".cows"}, "fieldPath", 'Invalid value: ".cows": must be a valid path'),
        (
            {"optionalOldSelf": False},
            "optionalOldSelf",
            "Invalid value: false: may not be set if oldSelf is not used in rule",
        ),
    ],
)
def test_each_field_of_a_rule_is_validated(rule: dict[str, Any], field: str, message: str) -> None:
    rest = {"rule": "true"} if field != "rule" else {}
    found = causes({"rule": "self.a > 1"}, {**rest, **rule})
    assert [(cause.field, cause.message) for cause in found] == [(f"s.{RULES}[1].{field}", message)]


@pytest.mark.parametrize(
    ("rule", "field", "problem"),
    [
        ({"rule": "1 + 1"}, "rule", "cel expression must evaluate to a bool"),
        ({"rule": "self.cows > 1 && nobody"}, "rule", "compilation failed: ERROR: <input>:1:18: undeclared reference"),
        (
            {"rule": "true", "messageExpression": "1"},
            "messageExpression",
            "messageExpression must evaluate to a string",
        ),
        (
            {"rule": "true", "messageExpression": "nobody"},
            "messageExpression",
            "messageExpression compilation failed: ERROR: <input>:1:1: undeclared reference",
        ),
    ],
)
def test_expressions_must_compile_to_their_types(rule: dict[str, Any], field: str, problem: str) -> None:
    (cause,) = causes(rule)
    assert cause.field == f"s.{RULES}[0].{field}"
    assert f"}}: {problem}" in cause.message


def test_a_rule_in_a_list_without_keys_cannot_use_the_old_value() -> None:
    text = "oldSelf cannot be used on the uncorrelatable portion of the schema within s.list"
    assert causes({"rule": "self == oldSelf"}, {"rule": "true"}, uncorrelatable="s.list") == [
        StatusCause(f"s.{RULES}[0].rule", f'Invalid value: "self == oldSelf": {text}')
    ]


@pytest.mark.usefixtures("without_cel")
def test_without_the_library_only_the_form_of_rules_is_validated() -> None:
    assert causes({"rule": "no rule"}) == []
    assert [cause.field for cause in causes({"rule": "no rule", "reason": "Bad"})] == [f"s.{RULES}[0].reason"]


@pytest.mark.usefixtures("without_cel")
def test_one_warning_per_version_tells_that_rules_are_not_evaluated() -> None:
    text = "version v1: CEL rules are not evaluated (pip install 'trioperator[cel]')"
    assert warnings("self.a > 1", "self.a > 2") == [text]
    assert warnings() == []


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("self.when < timestamp('2020-01-01T00:00:00Z')", "when of format date is a string here"),
        ("!format.uuid().validate(self.text).hasValue()", "compilation failed"),
    ],
)
def test_rules_that_the_library_does_not_evaluate_correctly_cause_warnings(rule: str, problem: str) -> None:
    assert causes({"rule": rule}) == []
    (found,) = warnings("self.a > 1", rule)
    assert found.startswith(f"version v1: the rule {rule!r} is not evaluated correctly: ")
    assert problem in found
    assert "\n" not in found


@pytest.mark.parametrize("rule", ["timestamp(self.when) < timestamp('2020-01-01T00:00:00Z')", "self.whenever > 1"])
def test_converted_times_and_other_fields_cause_no_warning(rule: str) -> None:
    assert not any("is a string here" in text for text in warnings(rule))
