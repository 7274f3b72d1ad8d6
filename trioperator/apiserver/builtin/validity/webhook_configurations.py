"""Validation of webhook configurations, with the messages of the real server. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ...custom.cel import problem_of
from ...model.client_config_validation import check_client_config, check_review_versions
from ...model.status_causes import StatusCause, forbidden, invalid_value

MUTATING: Final = ("admissionregistration.k8s.io", "mutatingwebhookconfigurations")
VALIDATING: Final = ("admissionregistration.k8s.io", "validatingwebhookconfigurations")
CONFIGURATIONS: Final = frozenset({MUTATING, VALIDATING})


_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES: Final = ("*", "Cluster", "Namespaced")
_SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")
_CONDITIONS_LIMIT: Final = 64
_EXPRESSIONS_LIMIT: Final = 100_000  # characters, which take 3 µs each
_BASE_LENGTH: Final = 20  # of an expression, besides its characters


def check_configuration(obj: Mapping[str, Any]) -> Iterable[StatusCause]:
    """Yield the validation errors of the configuration, whose defaults are set."""
    hooks = obj.get("webhooks") or ()
    conditions = (condition for hook in hooks for condition in hook.get("matchConditions") or ())
    if sum(_BASE_LENGTH + len(str(item.get("expression") or "")) for item in conditions) > _EXPRESSIONS_LIMIT:
        yield forbidden("webhooks", "the match conditions take too long to compile")
        return
    names = set[str]()
    for at, hook in enumerate(hooks):
        path, name = f"webhooks[{at}]", str(hook.get("name") or "")
        yield from _check_webhook(hook, path)
        versions = hook.get("admissionReviewVersions") or ()
        required = ": must specify one of v1, v1beta1"
        yield from check_review_versions(versions, f"{path}.admissionReviewVersions", required=required)
        if name in names:
            yield StatusCause(f"{path}.name", f'Duplicate value: "{name}"', "FieldValueDuplicate")
        if name:
            names.add(name)


def _check_webhook(hook: Mapping[str, Any], path: str) -> Iterable[StatusCause]:
    yield from _check_name(str(hook.get("name") or ""), f"{path}.name")
    for at, rule in enumerate(hook.get("rules") or ()):
        yield from _check_rule(rule, f"{path}.rules[{at}]")
    yield from _one_of(hook.get("failurePolicy"), ("Fail", "Ignore"), f"{path}.failurePolicy")
    yield from _one_of(hook.get("matchPolicy"), ("Equivalent", "Exact"), f"{path}.matchPolicy")
    effects = hook.get("sideEffects")
    if effects is None:
        text = "Required value: must specify one of None, NoneOnDryRun"
        yield StatusCause(f"{path}.sideEffects", text, "FieldValueRequired")
    yield from _one_of(effects, _SIDE_EFFECTS, f"{path}.sideEffects")
    timeout = hook.get("timeoutSeconds")
    if timeout is not None and not 1 <= timeout <= 30:
        yield invalid_value(f"{path}.timeoutSeconds", timeout, "the timeout value must be between 1 and 30 seconds")
    yield from _one_of(hook.get("reinvocationPolicy"), ("IfNeeded", "Never"), f"{path}.reinvocationPolicy")
    yield from check_client_config(hook.get("clientConfig"), f"{path}.clientConfig")
    yield from _check_conditions(hook.get("matchConditions") or (), f"{path}.matchConditions")


def _one_of(value: Any, supported: Sequence[str], path: str) -> Iterable[StatusCause]:
    if value is not None and value not in supported:
        shown = ", ".join(f'"{each}"' for each in supported)
        yield StatusCause(path, f'Unsupported value: "{value}": supported values: {shown}', "FieldValueNotSupported")


def _check_name(name: str, path: str) -> Iterable[StatusCause]:
    if not name:
        yield StatusCause(path, "Required value", "FieldValueRequired")
    elif not _NAME.fullmatch(name):
        text = (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
            "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
            r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        )
        yield invalid_value(path, name, text)
    elif name.count(".") < 2:
        yield invalid_value(path, name, "should be a domain with at least three segments separated by dots")


def _check_rule(rule: Mapping[str, Any], path: str) -> Iterable[StatusCause]:
    operations = rule.get("operations") or ()
    yield from _check_list(operations, f"{path}.operations", "operations")
    for at, operation in enumerate(operations):
        yield from _one_of(operation, _OPERATIONS, f"{path}.operations[{at}]")
    yield from _check_list(rule.get("apiGroups") or (), f"{path}.apiGroups", "API groups")
    versions = rule.get("apiVersions") or ()
    yield from _check_list(versions, f"{path}.apiVersions", "API versions")
    for at, version in enumerate(versions):
        if not version:
            yield StatusCause(f"{path}.apiVersions[{at}]", "Required value", "FieldValueRequired")
    yield from _check_resources(rule.get("resources") or (), f"{path}.resources")
    yield from _one_of(rule.get("scope"), _SCOPES, f"{path}.scope")


def _check_list(items: Sequence[str], path: str, called: str) -> Iterable[StatusCause]:
    if not items:
        yield StatusCause(path, "Required value", "FieldValueRequired")
    elif "*" in items and len(items) > 1:
        yield invalid_value(path, list(items), f"if '*' is present, must not specify other {called}")


def _check_resources(resources: Sequence[str], path: str) -> Iterable[StatusCause]:
    if not resources:
        yield StatusCause(path, "Required value", "FieldValueRequired")
    all_below = set[str]()  # resources with all their subresources: pods/*
    of_all = set[str]()  # subresources of all resources: */status
    is_bare = False
    for at, resource in enumerate(resources):
        if not resource:
            yield StatusCause(f"{path}[{at}]", "Required value", "FieldValueRequired")
            continue
        name, slash, below = resource.partition("/")
        if not slash:
            is_bare = resource != "*"
            continue
        if name in all_below:
            yield invalid_value(f"{path}[{at}]", resource, f"if '{name}/*' is present, must not specify {resource}")
        if below in of_all:
            yield invalid_value(f"{path}[{at}]", resource, f"if '*/{below}' is present, must not specify {resource}")
        if below == "*":
            all_below.add(name)
        if name == "*":
            of_all.add(below)
    if "*/*" in resources and len(resources) > 1:
        yield invalid_value(path, list(resources), "if '*/*' is present, must not specify other resources")
    if "*" in resources and is_bare:
        text = "if '*' is present, must not specify other resources without subresources"
        yield invalid_value(path, list(resources), text)


def _check_conditions(conditions: Sequence[Mapping[str, Any]], path: str) -> Iterable[StatusCause]:
    if len(conditions) > _CONDITIONS_LIMIT:
        text = f"Too many: {len(conditions)}: must have at most {_CONDITIONS_LIMIT} items"
        yield StatusCause(path, text, "FieldValueTooMany")
    names = set[str]()
    for at, condition in enumerate(conditions[: _CONDITIONS_LIMIT + 1]):
        name, expression = condition.get("name") or "", str(condition.get("expression") or "").strip()
        if not expression:
            yield StatusCause(f"{path}[{at}].expression", "Required value", "FieldValueRequired")
        elif (problem := problem_of(expression)) is not None:
            yield invalid_value(f"{path}[{at}].expression", expression, problem)
        if not name:
            yield StatusCause(f"{path}[{at}].name", "Required value", "FieldValueRequired")
        elif name in names:
            yield StatusCause(f"{path}[{at}].name", f'Duplicate value: "{name}"', "FieldValueDuplicate")
        names.add(name)
