"""CEL rules in schemas of custom resources (``x-kubernetes-validations``): parsing, compilation, evaluation. Pure."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..model.status_causes import StatusCause
from ..model.structure import Structure, ValidationRule
from .cel import Expression, compile_expression, is_installed
from .cel_values import shown
from .correlation import correlate, in_order_of, is_unchanged, part
from .value_validation import text_of

_VARIABLES: Final = ("self", "oldSelf")
_FIELD: Final = re.compile(r"\.([^.\[\]]+)|\['((?:[^'\\]|\\.)*)'\]")
_SECONDS: Final = 0.3  # of CPU time for all rules of an object; the real server estimates the cost
_EXPENSIVE: Final = (
    "Invalid value: null: validation failed due to running out of cost budget, no further validation rules will be run"
)
_MESSAGE_LIMIT: Final = 5 * 1024


def compile_rule(rule: ValidationRule) -> Expression:
    """Compile the rule. Raises ValueError."""
    return compile_expression(rule.expression, _VARIABLES)


def compile_message(rule: ValidationRule) -> Expression:
    """Compile the expression of the rule's message. Raises ValueError."""
    return compile_expression(rule.message_expression, _VARIABLES)


def rules_of(schema: Mapping[str, Any]) -> tuple[ValidationRule, ...]:
    """Return the rules of one node of a schema."""
    return tuple(
        ValidationRule(
            text=str(item.get("rule") or "").strip(),
            message=str(item.get("message") or "").strip(),
            message_expression=str(item.get("messageExpression") or "").strip(),
            reason=str(item.get("reason") or "FieldValueInvalid"),
            field_path=normal_field_path(schema, str(item.get("fieldPath") or "").strip()) or "",
            has_optional_old=bool(item.get("optionalOldSelf")),
        )
        for item in schema.get("x-kubernetes-validations") or ()
    )


def normal_field_path(schema: Mapping[str, Any], text: str) -> str | None:
    """Return the normalized path of a field; None if the schema does not declare it."""
    shown, at = "", 0
    for match in _FIELD.finditer(text):
        name = match[1] if match[1] is not None else re.sub(r"\\(.)", r"\1", match[2])
        properties, extra = schema.get("properties"), schema.get("additionalProperties")
        if match.start() != at or not (properties or isinstance(extra, Mapping)):
            return None
        at = match.end()
        shown += f".{name}" if properties else f"[{name}]"
        found = properties.get(name) if properties else extra
        if found is None:
            return None
        schema = found
    return shown.removeprefix(".") if at == len(text) else None


def check_rules(
    node: Structure, obj: Mapping[str, Any], old: Mapping[str, Any] | None, warnings: list[str]
) -> Iterator[StatusCause]:
    """Yield the violated rules of the object, new or as an update of *old*."""
    if is_installed():
        try:
            yield from _Visitor(warnings).visit(node, obj, old, path="", correlated=(node, obj, old))
        except _TooExpensiveError:
            yield StatusCause("<nil>", _EXPENSIVE)


class _TooExpensiveError(Exception):
    """Raised when the rules of an object take too long."""


class _Visitor:
    """Visitor that evaluates the rules of one object."""

    def __init__(self, warnings: list[str]) -> None:
        self._warnings = warnings
        self._unchanged: dict[tuple[int, int], bool] = {}
        self._end = time.thread_time() + _SECONDS

    def visit(
        self, node: Structure, value: Any, old: Any, *, path: str, correlated: tuple[Structure, Any, Any]
    ) -> Iterator[StatusCause]:
        """Yield the violated rules of the value and of its parts.

        *correlated* is the nearest enclosing part with an old value: if that part is correlated, violations in it are
        only warnings.
        """
        if value is None or not node.rules_below:
            return
        for rule in node.rules:
            if time.thread_time() > self._end:
                raise _TooExpensiveError
            cause = _violation(rule, node, value, old, path)
            if cause is None:
                continue
            if rule.uses_old or correlated[2] is None or not is_unchanged(*correlated, self._unchanged):
                yield cause
            else:
                self._warnings.append(f"{cause.field}: {cause.message}")
        if isinstance(value, dict):
            before = old if isinstance(old, dict) else {}
            for key, item in value.items():
                sub, was = part(node, key), before.get(key)
                if sub is not None:
                    place = f"{path}[{key}]" if key not in node.properties else f"{path}.{key}" if path else key
                    known = (sub, item, was) if key in before else correlated
                    yield from self.visit(sub, item, was, path=place, correlated=known)
        elif isinstance(value, list) and node.items is not None:
            before_of = correlate(node, old)
            for at, item in enumerate(value):
                was = before_of(item)
                known = correlated if was is None else (node.items, item, was)
                yield from self.visit(node.items, item, was, path=f"{path}[{at}]", correlated=known)


def _violation(rule: ValidationRule, node: Structure, value: Any, old: Any, path: str) -> StatusCause | None:
    if rule.uses_old and old is None and not rule.has_optional_old:
        return None
    try:
        expression = compile_rule(rule)
    except ValueError:
        return None  # a warning was logged when the definition was created
    before = None if old is None else shown(node, in_order_of(node, value, old))
    data = {"self": shown(node, value), "oldSelf": before}
    try:
        olds = {"oldSelf": [] if old is None else [before]} if rule.has_optional_old else {}
        if expression.evaluate({**data, **olds}) is True:
            return None
    except ValueError as error:
        return StatusCause(path or "<nil>", f'Invalid value: "{_type_of(node)}": {_failure(rule, str(error))}')
    return _violation_cause(rule, node, value, _message(rule, data), path)


def _type_of(node: Structure) -> str:
    return node.types[0] if len(node.types) == 1 else ""


def _failure(rule: ValidationRule, problem: str) -> str:
    about = rule.message or rule.text
    if problem == "no such overload":
        text = "call arguments did not match a supported operator, function or macro signature for rule"
        return f"'{problem}': {text}: {about}"
    if problem == "operation cancelled: actual cost limit exceeded":
        text = "no further validation rules will be run due to call cost exceeds limit for rule"
        return f"'{problem}': {text}: {about}"
    return f"{problem} evaluating rule: {about}"


def _message(rule: ValidationRule, data: Mapping[str, Any]) -> str:
    if rule.message_expression:
        try:
            found = compile_message(rule).evaluate(data)
        except ValueError:
            found = None
        if isinstance(found, str) and 0 < len(found.strip().encode()) <= _MESSAGE_LIMIT and "\n" not in found.strip():
            return found.strip()
    return rule.message or f"failed rule: {rule.text}"


def _violation_cause(rule: ValidationRule, node: Structure, value: Any, message: str, path: str) -> StatusCause:
    field = ".".join(filter(None, (path, rule.field_path)))
    is_simple = _type_of(node) not in {"object", "array"}
    match rule.reason:
        case "FieldValueForbidden":
            text = f"Forbidden: {message}"
        case "FieldValueRequired":
            text = f"Required value: {message}"
        case "FieldValueDuplicate":
            text = f"Duplicate value: {text_of(value)}" if is_simple else "Duplicate value"
        case _:
            text = f"Invalid value: {text_of(value)}: {message}" if is_simple else f"Invalid value: {message}"
    return StatusCause(field or "<nil>", text, rule.reason)
