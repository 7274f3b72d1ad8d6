"""Conformance: what the API refuses of built-in kinds, with its words.

``invalid_objects.json`` holds what is sent, and what a real server answers.
"""

from __future__ import annotations

import copy
import json
import pathlib
from typing import Any, Final

import pytest

from .conftest import Target

CASES: Final = json.loads(pathlib.Path(__file__).with_name("invalid_objects.json").read_text())
POD: Final = {"containers": [{"name": "main", "image": "one"}]}
LABELS: Final = {"a": "b"}
DEPLOYMENT: Final = {
    "metadata": {"name": "a"},
    "spec": {"selector": {"matchLabels": LABELS}, "template": {"metadata": {"labels": LABELS}, "spec": POD}},
}


def title(case: dict[str, Any]) -> str:
    return f"{case['path'].rpartition('/')[2]}-{case['message'].partition('invalid: ')[2][:60]}"


@pytest.mark.parametrize("case", CASES, ids=title)
async def test_invalid_objects_are_refused(target: Target, case: dict[str, Any]) -> None:
    answer = await target.request("POST", case["path"].format(target.namespace), case["sent"], dryRun="All")
    assert (answer.code, answer.message) == (case["code"], case["message"])


@pytest.mark.parametrize("case", CASES[:6], ids=title)
async def test_each_problem_is_a_cause_of_its_own(target: Target, case: dict[str, Any]) -> None:
    answer = await target.request("POST", case["path"].format(target.namespace), case["sent"], dryRun="All")
    for cause in answer.content["details"]["causes"]:
        assert f"{cause['field']}: {cause['message']}" in case["message"]


@pytest.mark.parametrize(
    ("finalizers", "text"),
    [
        (
            ["a.b/c", "plain"],
            'metadata.finalizers[1]: Invalid value: "plain": name is neither a standard finalizer name nor is it '
            "fully qualified",
        ),
        (
            ["orphan", "foregroundDeletion"],
            'metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and '
            "foregroundDeletion cannot be both set",
        ),
    ],
)
async def test_finalizers_of_builtin_kinds_are_qualified(target: Target, finalizers: list[str], text: str) -> None:
    answer = await target.create("configmaps", "a", meta={"finalizers": finalizers})
    assert (answer.code, answer.message) == (422, f'ConfigMap "a" is invalid: {text}')


async def test_data_has_a_mebibyte_at_most(target: Target) -> None:
    text = "Too long: may not be more than 1048576 bytes"
    answer = await target.create("configmaps", "a", data={"a": "x" * 1_048_577})
    assert (answer.code, answer.message) == (422, f'ConfigMap "a" is invalid: []: {text}')
    data: dict[str, Any] = {"data": {"a": "x" * 1_048_574}, "binaryData": {"b": "YWI="}}
    assert (await target.create("configmaps", "b", **data)).code == 201
    secret = {"metadata": {"name": "a"}, "data": {"a": "YWFh" * 349_526}}
    answer = await target.request("POST", target.path("secrets"), secret)
    assert (answer.code, answer.message) == (422, f'Secret "a" is invalid: data: {text}')


class TestChanges:
    async def test_the_selector_of_a_deployment_stays(self, target: Target) -> None:
        assert (await target.request("POST", target.path("deployments"), DEPLOYMENT)).code == 201
        changed: dict[str, Any] = copy.deepcopy(DEPLOYMENT)
        changed["spec"]["template"]["metadata"]["labels"]["c"] = "d"
        changed["spec"]["selector"]["matchLabels"]["c"] = "d"
        answer = await target.request("PUT", target.path("deployments", "a"), changed)
        shown = '{"matchLabels":{"a":"b","c":"d"}}'
        expected = f'Deployment.apps "a" is invalid: spec.selector: Invalid value: {shown}: field is immutable'
        assert (answer.code, answer.message) == (422, expected)

    async def test_immutable_data_stays(self, target: Target) -> None:
        await target.create("configmaps", "a", data={"a": "1"}, immutable=True)
        path = target.path("configmaps", "a")
        answer = await target.merge(path, {"data": {"a": "2"}})
        expected = 'ConfigMap "a" is invalid: data: Forbidden: field is immutable when `immutable` is set'
        assert (answer.code, answer.message) == (422, expected)
        answer = await target.merge(path, {"immutable": False})
        expected = 'ConfigMap "a" is invalid: immutable: Forbidden: field is immutable when `immutable` is set'
        assert (answer.code, answer.message) == (422, expected)
        assert (await target.merge(path, {"metadata": {"labels": {"a": "b"}}})).code == 200

    async def test_the_type_of_a_secret_stays(self, target: Target) -> None:
        path = target.path("secrets")
        await target.request("POST", path, {"metadata": {"name": "a"}, "type": "example.com/one"})
        answer = await target.merge(f"{path}/a", {"type": "example.com/two"})
        expected = 'Secret "a" is invalid: type: Invalid value: "example.com/two": field is immutable'
        assert (answer.code, answer.message) == (422, expected)

    async def test_an_invalid_patch_is_refused(self, target: Target) -> None:
        assert (await target.request("POST", target.path("deployments"), DEPLOYMENT)).code == 201
        answer = await target.merge(target.path("deployments", "a"), {"spec": {"replicas": -1}})
        expected = (
            'Deployment.apps "a" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0'
        )
        assert (answer.code, answer.message) == (422, expected)
