"""Validation of CEL rules in custom resource definitions, and warnings for rules that are not evaluated. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from ..model.status_causes import StatusCause, invalid_value, required, unsupported
from ..model.structure import ValidationRule
from .cel import is_installed
from .cel_values import escaped
from .rule_types import RuleTypes
from .validation_rules import compile_message, compile_rule, normal_field_path, rules_of

_REASONS: Final = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_NOT_INSTALLED: Final = "CEL rules are not evaluated (pip install 'trioperator[cel]')"
# Functions that the CEL library lacks: rules that call them must not be rejected as invalid.
_UNSUPPORTED: Final = re.compile(r"undeclared reference to '(?:format|validate)'|overload for '(?:lastI|i)ndexOf'")
_WORD: Final = re.compile(r"\w+")
_TIME_FORMATS: Final = frozenset({"date", "date-time", "duration"})
_GO_ESCAPES: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def check_rule_fields(schema: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
    """Yield the validation errors of the rules of one node, but not of their expressions."""
    for at, item in enumerate(schema.get("x-kubernetes-validations") or ()):
        yield from _check_fields(schema, item, f"{path}.x-kubernetes-validations[{at}]")


def check_expressions(
    schema: Mapping[str, Any], path: str, types: RuleTypes, *, uncorrelatable: str = ""
) -> Iterator[StatusCause]:
    """Yield the errors of the expressions of one node; *uncorrelatable* is an enclosing list without map keys."""
    items = schema.get("x-kubernetes-validations")
    if not items or not is_installed():
        return
    for at, (rule, item) in enumerate(zip(rules_of(schema), items, strict=True)):
        place = f"{path}.x-kubernetes-validations[{at}]"
        problem, message_problem = (
            first or second for first, second in zip(_problems(rule), types.problems_of(schema, rule), strict=True)
        )
        yield from _check_expressions(problem, message_problem, item, place)
        uses_old = rule.uses_old and (not problem or bool(_UNSUPPORTED.search(problem)))
        if uses_old and uncorrelatable:
            text = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelatable}"
            yield invalid_value(f"{place}.rule", item["rule"], text)
        elif not uses_old and item.get("optionalOldSelf") is not None:
            text = "may not be set if oldSelf is not used in rule"
            yield invalid_value(f"{place}.optionalOldSelf", item["optionalOldSelf"], text)


def _check_fields(schema: Mapping[str, Any], item: Mapping[str, Any], place: str) -> Iterator[StatusCause]:
    rule, message = str(item.get("rule") or "").strip(), str(item.get("message") or "")
    if not rule:
        yield required(f"{place}.rule", "rule is not specified")
    elif message and not message.strip():
        yield invalid_value(f"{place}.message", message, "must be non-empty if specified")
    elif "\n" in message.strip():
        yield invalid_value(f"{place}.message", message, "must not contain line breaks")
    elif "\n" in rule and not message:
        yield required(f"{place}.message", "message must be specified if rule contains line breaks")
    expression = str(item.get("messageExpression") or "")
    if expression and not expression.strip():
        yield required(f"{place}.messageExpression", "messageExpression must be non-empty if specified")
    reason = item.get("reason")
    if reason is not None and reason not in _REASONS:
        yield unsupported(f"{place}.reason", reason, _REASONS)
    field = str(item.get("fieldPath") or "")
    if field and not field.strip():
        yield invalid_value(f"{place}.fieldPath", field, "must be non-empty if specified")
    if "\n" in field:
        yield invalid_value(f"{place}.fieldPath", field, "must not contain line breaks")
    if field and normal_field_path(schema, field) is None:
        yield invalid_value(f"{place}.fieldPath", field, "must be a valid path")


def _check_expressions(
    problem: str, message_problem: str, item: Mapping[str, Any], place: str
) -> Iterator[StatusCause]:
    for word, text in (("rule", problem), ("messageExpression", message_problem)):
        if text and not _UNSUPPORTED.search(text):
            yield StatusCause(f"{place}.{word}", f"Invalid value: {_format_as_go(item)}: {text}")


def _problems(rule: ValidationRule) -> tuple[str, str]:
    """Return the errors of the rule and of its message expression; empty strings if they are valid."""
    problem = message_problem = ""
    try:
        if compile_rule(rule).result_type not in {"BOOL", "DYN"}:
            problem = "cel expression must evaluate to a bool"
    except ValueError as error:
        problem = str(error)
    try:
        if rule.message_expression and compile_message(rule).result_type not in {"STRING", "DYN"}:
            message_problem = "messageExpression must evaluate to a string"
    except ValueError as error:
        message_problem = f"messageExpression {error}"
    return problem, message_problem


def _format_as_go(item: Mapping[str, Any]) -> str:
    shown = {
        "Rule": item.get("rule") or "",
        "Message": item.get("message") or "",
        "MessageExpression": item.get("messageExpression") or "",
        "Reason": item.get("reason"),
        "FieldPath": item.get("fieldPath") or "",
        "OptionalOldSelf": item.get("optionalOldSelf"),
    }
    return msgspec.json.encode(shown).decode().translate(_GO_ESCAPES)


def unevaluated_rules(definition: Mapping[str, Any]) -> Iterator[str]:
    """Yield warnings for the rules of a valid definition that are not evaluated, or not correctly."""
    for version in definition["spec"].get("versions") or ():
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        place = f"version {version.get('name')}"
        nodes = [node for node in _nodes(schema) if node.get("x-kubernetes-validations")]
        if nodes and not is_installed():
            yield f"{place}: {_NOT_INSTALLED}"
            continue
        rules = ((rule, times) for node in nodes for times in (_times(node),) for rule in rules_of(node))
        for rule, times in rules:
            for problem in filter(None, (*_problems(rule), _time_problem(rule, times))):
                yield f"{place}: the rule {rule.text!r} is not evaluated correctly: {problem.splitlines()[0]}"


def _time_problem(rule: ValidationRule, times: Mapping[str, str]) -> str:
    """Return the warning for a rule on times or durations, which expressions see as strings, or an empty string."""
    unconverted = r"(?<![\w.])(?<!timestamp\()(?<!duration\()(?:\w+\.)*"
    words = set(_WORD.findall(rule.text))
    for name in times.keys() & words:
        if re.search(rf"{unconverted}{re.escape(name)}\b", rule.text):
            return f"{name} of format {times[name]} is a string here; convert it with timestamp() or duration()"
    return ""


def _times(node: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the times and durations in the schema, as expressions have them, with their formats."""
    fields = (("self", node), *(item for part in _nodes(node) for item in _properties(part)))
    return {name: sub["format"] for name, sub in fields if sub.get("format") in _TIME_FORMATS}


def _nodes(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    pending: list[Any] = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, Mapping):
            yield node
            found = [*(node.get("properties") or {}).values(), node.get("items"), node.get("additionalProperties")]
            pending += reversed(found)


def _properties(schema: Mapping[str, Any]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    return [(escaped(name), sub) for name, sub in (schema.get("properties") or {}).items() if isinstance(sub, Mapping)]
