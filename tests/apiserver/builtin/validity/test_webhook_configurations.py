"""Conformance: validation and defaults of webhook configurations."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.conftest import Target
from tests.apiserver.hooks import configuration

Object = dict[str, Any]
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
HOOK = {
    "name": "a.conformance.dev",
    "admissionReviewVersions": ["v1"],
    "sideEffects": "None",
    "clientConfig": {"url": "https://127.0.0.1/x"},
    "rules": [RULE],
    # Nothing has these labels: nobody is disturbed if the configuration gets through.
    "objectSelector": {"matchLabels": {"nobody": "is"}},
}
PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


def client(**config: Any) -> Object:
    """Return a configuration with this client config."""
    return {"clientConfig": config}


def ruled(**rule: Any) -> Object:
    """Return a configuration with another rule."""
    return {"rules": [{**RULE, **rule}]}


INVALID: dict[str, tuple[Object, str]] = {
    "short name": (
        {"name": "a.dev"},
        'name: Invalid value: "a.dev": should be a domain with at least three segments separated by dots',
    ),
    "no versions": (
        {"admissionReviewVersions": []},
        "admissionReviewVersions: Required value: must specify one of v1, v1beta1",
    ),
    "unknown versions": (
        {"admissionReviewVersions": ["v9"]},
        'admissionReviewVersions: Invalid value: ["v9"]: must include at least one of v1, v1beta1',
    ),
    "same version twice": (
        {"admissionReviewVersions": ["v1", "v1"]},
        'admissionReviewVersions[1]: Invalid value: "v1": duplicate version',
    ),
    "no side effects": (
        {"sideEffects": None},
        "sideEffects: Required value: must specify one of None, NoneOnDryRun",
    ),
    "side effects": (
        {"sideEffects": "Some"},
        'sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"',
    ),
    "failure policy": (
        {"failurePolicy": "Never"},
        'failurePolicy: Unsupported value: "Never": supported values: "Fail", "Ignore"',
    ),
    "match policy": (
        {"matchPolicy": "Never"},
        'matchPolicy: Unsupported value: "Never": supported values: "Equivalent", "Exact"',
    ),
    "reinvocation": (
        {"reinvocationPolicy": "Always"},
        'reinvocationPolicy: Unsupported value: "Always": supported values: "IfNeeded", "Never"',
    ),
    "too long": (
        {"timeoutSeconds": 31},
        "timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
    ),
    "too short": (
        {"timeoutSeconds": 0},
        "timeoutSeconds: Invalid value: 0: the timeout value must be between 1 and 30 seconds",
    ),
    "nowhere": (client(), "clientConfig: Required value: exactly one of url or service is required"),
    "both": (
        client(url="https://a/b", service={"name": "a", "namespace": "b"}),
        "clientConfig: Required value: exactly one of url or service is required",
    ),
    "http": (
        client(url="http://a/b"),
        "clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; "
        "desired format: https://host[/path]",
    ),
    "user": (
        client(url="https://me@a/b"),
        'clientConfig.url: Invalid value: "me": user information is not permitted in the URL',
    ),
    "query": (
        client(url="https://a/b?c=d"),
        'clientConfig.url: Invalid value: "c=d": query parameters are not permitted in the URL',
    ),
    "port": (
        client(service={"name": "a", "namespace": "b", "port": 70000}),
        "clientConfig.service.port: Invalid value: 70000: port is not valid: must be between 1 and 65535, inclusive",
    ),
    "no namespace": (
        client(service={"name": "a", "namespace": ""}),
        "clientConfig.service.name: Required value",
    ),
    "path": (
        client(service={"name": "a", "namespace": "b", "path": "xy"}),
        "clientConfig.service.path: Invalid value: \"xy\": must start with a '/'",
    ),
    "operations": (
        ruled(operations=["CREATE", "*"]),
        'rules[0].operations: Invalid value: ["CREATE","*"]: if \'*\' is present, must not specify other operations',
    ),
    "operation": (
        ruled(operations=["READ"]),
        'rules[0].operations[0]: Unsupported value: "READ": supported values: "*", "CONNECT", "CREATE", "DELETE", '
        '"UPDATE"',
    ),
    "no groups": (ruled(apiGroups=[]), "rules[0].apiGroups: Required value"),
    "resources": (
        ruled(resources=["*", "pods"]),
        'rules[0].resources: Invalid value: ["*","pods"]: if \'*\' is present, must not specify other resources '
        "without subresources",
    ),
    "subresources": (
        ruled(resources=["pods/*", "pods/status"]),
        "rules[0].resources[1]: Invalid value: \"pods/status\": if 'pods/*' is present, must not specify pods/status",
    ),
    "everything": (
        ruled(resources=["*/*", "pods"]),
        'rules[0].resources: Invalid value: ["*/*","pods"]: if \'*/*\' is present, must not specify other resources',
    ),
    "scope": (
        ruled(scope="Some"),
        'rules[0].scope: Unsupported value: "Some": supported values: "*", "Cluster", "Namespaced"',
    ),
    "no expression": (
        {"matchConditions": [{"name": "x", "expression": ""}]},
        "matchConditions[0].expression: Required value",
    ),
}


@pytest.mark.parametrize("case", INVALID)
async def test_a_webhook_must_be_valid(target: Target, unique: str, case: str) -> None:
    content, text = INVALID[case]
    answer = await target.request("POST", PATH, configuration("Mutating", unique, {**HOOK, **content}), dryRun="All")
    assert (answer.code, answer.reason) == (422, "Invalid")
    title = f'MutatingWebhookConfiguration.admissionregistration.k8s.io "{unique}" is invalid: '
    assert answer.message == f"{title}webhooks[0].{text}"


async def test_webhook_names_are_unique(target: Target, unique: str) -> None:
    answer = await target.request("POST", PATH, configuration("Mutating", unique, HOOK, HOOK), dryRun="All")
    assert answer.code == 422
    assert answer.message.endswith('webhooks[1].name: Duplicate value: "a.conformance.dev"')


async def test_match_conditions_are_validated(target: Target, unique: str) -> None:
    pytest.importorskip("cel_expr_python")
    hook = {**HOOK, "matchConditions": [{"name": "x", "expression": "unheard == 1"}]}
    answer = await target.request("POST", PATH, configuration("Mutating", unique, hook), dryRun="All")
    assert answer.code == 422
    start = 'webhooks[0].matchConditions[0].expression: Invalid value: "unheard == 1": compilation failed: '
    assert start in answer.message
    assert "undeclared reference to 'unheard'" in answer.message


@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
async def test_configurations_get_their_defaults(target: Target, unique: str, kind: str) -> None:
    hook = {key: value for key, value in HOOK.items() if key != "objectSelector"}
    hook["clientConfig"] = {"service": {"name": "a", "namespace": "b"}}
    path = PATH.replace("mutating", kind.lower())
    answer = await target.request("POST", path, configuration(kind, unique, hook), dryRun="All")
    assert answer.code == 201
    (webhook,) = answer.content["webhooks"]
    assert webhook == {
        **hook,
        "clientConfig": {"service": {"name": "a", "namespace": "b", "port": 443}},
        "rules": [{**RULE, "scope": "*"}],
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "timeoutSeconds": 10,
        **({"reinvocationPolicy": "Never"} if kind == "Mutating" else {}),
    }
