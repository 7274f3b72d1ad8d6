"""Conformance: validation errors of built-in kinds.

``invalid_objects.json`` holds what is sent, and what a real server answers.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any, Final

import pytest

from tests.apiserver.conftest import Target

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
async def test_invalid_objects_are_rejected(target: Target, case: dict[str, Any]) -> None:
    answer = await target.request("POST", case["path"].format(target.namespace), case["sent"], dryRun="All")
    assert (answer.code, answer.message) == (case["code"], case["message"])


@pytest.mark.parametrize("case", CASES[:6], ids=title)
async def test_each_error_is_a_separate_cause(target: Target, case: dict[str, Any]) -> None:
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


async def test_conditions_show_missing_times_as_null(target: Target) -> None:
    assert (await target.request("POST", target.path("deployments"), DEPLOYMENT)).code == 201
    status = {"conditions": [{"type": "A", "status": "True"}]}
    answer = await target.merge(target.path("deployments", "a", "status"), {"status": status})
    (found,) = (item for item in answer.content["status"]["conditions"] if item["type"] == "A")
    assert found == {"type": "A", "status": "True", "lastTransitionTime": None, "lastUpdateTime": None}


async def test_an_invalid_patch_is_rejected(target: Target) -> None:
    assert (await target.request("POST", target.path("deployments"), DEPLOYMENT)).code == 201
    answer = await target.merge(target.path("deployments", "a"), {"spec": {"replicas": -1}})
    expected = 'Deployment.apps "a" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0'
    assert (answer.code, answer.message) == (422, expected)
