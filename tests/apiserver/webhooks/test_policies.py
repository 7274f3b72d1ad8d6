"""Conformance: admission policies deny, warn and change, by expressions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.apiserver.conftest import Answer, Target

Object = dict[str, Any]
BASE = "/apis/admissionregistration.k8s.io/v1"


class Policies:
    """Policies for the ConfigMaps in the namespace of a test."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.name = target.namespace
        self._created: list[str] = []

    async def create(self, sort: str, spec: Object, binding: Object) -> None:
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
        only = {"matchLabels": {"kubernetes.io/metadata.name": self.name}}
        constraints = {"resourceRules": [rule], "namespaceSelector": only}
        kind = f"{sort.capitalize()}AdmissionPolicy"
        for suffix, content in (
            ("", {"matchConstraints": constraints, **spec}),
            ("Binding", {"policyName": self.name, **binding}),
        ):
            manifest = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": f"{kind}{suffix}"}
            plural = "policybindings" if suffix else "policies"
            path = f"{BASE}/{sort}admission{plural}"
            answer = await self.target.request(
                "POST", path, {**manifest, "metadata": {"name": self.name}, "spec": content}
            )
            assert answer.code == 201, answer.content
            self._created.append(f"{path}/{self.name}")

    async def validating(self, *validations: Object, actions: tuple[str, ...] = ("Deny",), **spec: Any) -> None:
        binding = {"validationActions": list(actions), **spec.pop("binding", {})}
        await self.create("validating", {"validations": list(validations), **spec}, binding)

    async def mutating(self, *mutations: Object) -> None:
        spec = {"mutations": list(mutations), "reinvocationPolicy": "Never"}
        await self.create("mutating", spec, {})

    async def post(self, name: str, **data: str) -> Answer:
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        path = f"/api/v1/namespaces/{self.name}/configmaps"
        return await self.target.request("POST", path, manifest, dryRun="All")

    async def clear(self) -> None:
        for path in reversed(self._created):
            await self.target.delete(path)


@pytest.fixture
async def policies(target: Target) -> AsyncIterator[Policies]:
    made = Policies(target)
    yield made
    await made.clear()


async def denied(policies: Policies, **data: str) -> Object:
    """Wait until a ConfigMap is denied; return the status."""
    answer = await policies.target.eventually(lambda: policies.post("a", **data), lambda answer: answer.code != 201)
    status: Object = answer.content
    return status


async def test_a_validation_denies_what_it_is_false_for(policies: Policies) -> None:
    await policies.validating({"expression": "object.data.n != '1'"})
    status = await denied(policies, n="1")
    assert (await policies.post("b", n="2")).code == 201
    described = f"ValidatingAdmissionPolicy '{policies.name}' with binding '{policies.name}'"
    text = f"{described} denied request: failed expression: object.data.n != '1'"
    assert status["message"] == f'configmaps "a" is forbidden: {text}'
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["details"] == {"name": "a", "kind": "configmaps", "causes": [{"message": text}]}


async def test_messages_and_reasons_are_the_policys(policies: Policies) -> None:
    validation = {
        "expression": "variables.n < 5",
        "message": "too much",
        "messageExpression": "'got ' + string(variables.n)",
        "reason": "Forbidden",
    }
    await policies.validating(validation, variables=[{"name": "n", "expression": "int(object.data.n)"}])
    status = await denied(policies, n="7")
    assert status["message"].endswith(" denied request: got 7")
    assert (status["code"], status["reason"]) == (403, "Forbidden")


async def test_a_message_that_fails_is_replaced(policies: Policies) -> None:
    validation = {"expression": "false", "message": "no", "messageExpression": "'got ' + object.data.n + object.data.m"}
    await policies.validating(validation)
    assert (await denied(policies, n="7"))["message"].endswith(" denied request: no")


async def test_parameters_come_from_an_object(policies: Policies) -> None:
    path = f"/api/v1/namespaces/{policies.name}/configmaps"
    limits = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "limits"}, "data": {"max": "3"}}
    assert (await policies.target.request("POST", path, limits)).code == 201
    reference = {"name": "limits", "namespace": policies.name, "parameterNotFoundAction": "Deny"}
    await policies.validating(
        {"expression": "int(object.data.n) <= int(params.data.max)"},
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        binding={"paramRef": reference},
    )
    await denied(policies, n="4")
    await policies.target.eventually(lambda: policies.post("b", n="3"), lambda answer: answer.code == 201)


async def test_an_error_is_a_denial_unless_failures_are_ignored(policies: Policies) -> None:
    await policies.validating({"expression": "object.data.missing == '1'"})
    text = "expression 'object.data.missing == '1'' resulted in error: no such key: missing"
    assert (await denied(policies, n="1"))["message"].endswith(f" denied request: {text}")


async def test_failures_can_be_ignored_and_conditions_limit_a_policy(policies: Policies) -> None:
    await policies.validating(
        {"expression": "object.data.missing == '1'"},
        {"expression": "object.data.n == '1'"},
        failurePolicy="Ignore",
        matchConditions=[{"name": "c", "expression": "object.metadata.name == 'a'"}],
    )
    await denied(policies, n="2")
    assert (await policies.post("a", n="1")).code == 201
    assert (await policies.post("b", n="2")).code == 201


async def test_a_binding_may_only_warn(policies: Policies) -> None:
    await policies.validating({"expression": "object.data.n != '1'", "message": "odd"}, actions=("Warn",))
    answer = await policies.target.eventually(
        lambda: policies.post("a", n="1"), lambda answer: "warning" in answer.headers
    )
    assert answer.code == 201
    described = f"ValidatingAdmissionPolicy '{policies.name}' with binding '{policies.name}'"
    assert f"Validation failed for {described}: odd" in answer.headers["warning"]


async def test_a_mutation_is_applied(policies: Policies) -> None:
    expression = "Object{metadata: Object.metadata{labels: {'of': object.metadata.name}}, data: {'n': '2'}}"
    await policies.mutating({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
    answer = await policies.target.eventually(
        lambda: policies.post("a", n="1", m="3"), lambda answer: answer.content["data"]["n"] == "2"
    )
    assert answer.content["data"] == {"n": "2", "m": "3"}
    assert answer.content["metadata"]["labels"] == {"of": "a"}


async def test_a_mutation_can_be_a_json_patch(policies: Policies) -> None:
    tested = "JSONPatch{op: 'test', path: '/data/n', value: '1'}"
    expression = f"[{tested}, JSONPatch{{op: 'add', path: '/data/m', value: object.data.n + '0'}}]"
    await policies.mutating({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
    answer = await policies.target.eventually(
        lambda: policies.post("a", n="1"), lambda answer: "m" in answer.content.get("data", {})
    )
    assert answer.content["data"] == {"n": "1", "m": "10"}
