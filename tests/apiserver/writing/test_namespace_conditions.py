"""Conformance: namespaces that are being deleted say what is left in them; finalizers of their spec hold them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.conftest import Answer, Target
from trioperator.apiserver.writing.namespace_conditions import with_conditions

NAMESPACES = "/api/v1/namespaces"
KEPT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept", "finalizers": ["a.b/c"]}}


def reasons(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {item["type"]: (item["status"], item["reason"]) for item in status.get("conditions") or ()}


def test_transition_times_change_with_the_status_of_a_condition() -> None:
    first = with_conditions({"phase": "Terminating"}, {"pods.": 2}, {}, now="1")
    second = with_conditions(first, {"pods.": 1}, {"a/b": 1, "c/d": 2}, now="2")
    found = {item["type"]: item for item in second["conditions"]}
    remaining, waiting = found["NamespaceContentRemaining"], found["NamespaceFinalizersRemaining"]
    assert remaining["message"] == "Some resources are remaining: pods. has 1 resource instances"
    assert (remaining["lastTransitionTime"], waiting["lastTransitionTime"]) == ("1", "2")
    assert waiting["message"].endswith("remaining: a/b in 1 resource instances, c/d in 2 resource instances")
    assert second["phase"] == "Terminating"
    assert with_conditions(second, {"pods.": 1}, {"a/b": 1, "c/d": 2}, now="3") == second


async def test_conditions_say_what_is_left(target: Target) -> None:
    path = f"{NAMESPACES}/{target.namespace}"
    await target.request("POST", f"{path}/configmaps", KEPT)
    await target.delete(path)
    answer = await target.eventually(lambda: target.get(path), lambda answer: bool(reasons(answer.content["status"])))
    found = {item["type"]: item for item in answer.content["status"]["conditions"]}
    assert reasons(answer.content["status"]) == {
        "NamespaceDeletionDiscoveryFailure": ("False", "ResourcesDiscovered"),
        "NamespaceDeletionGroupVersionParsingFailure": ("False", "ParsedGroupVersions"),
        "NamespaceDeletionContentFailure": ("False", "ContentDeleted"),
        "NamespaceContentRemaining": ("True", "SomeResourcesRemain"),
        "NamespaceFinalizersRemaining": ("True", "SomeFinalizersRemain"),
    }
    text = "Some content in the namespace has finalizers remaining: a.b/c in 1 resource instances"
    assert found["NamespaceFinalizersRemaining"]["message"] == text
    text = "Some resources are remaining: configmaps. has 1 resource instances"
    assert found["NamespaceContentRemaining"]["message"] == text
    await target.merge(f"{path}/configmaps/kept", {"metadata": {"finalizers": None}})


async def test_other_finalizers_of_the_spec_are_removed_through_finalize(target: Target, unique: str) -> None:
    meta: dict[str, Any] = {"name": unique}
    obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": meta, "spec": {"finalizers": ["x.y/z"]}}
    answer = await target.request("POST", NAMESPACES, obj)
    assert answer.content["spec"] == {"finalizers": ["x.y/z", "kubernetes"]}
    path = f"{NAMESPACES}/{unique}"
    assert (await target.merge(path, {"spec": {"finalizers": None}})).content["spec"] == answer.content["spec"]
    await target.delete(path)

    def is_empty(answer: Answer) -> bool:
        return bool(answer.content["spec"] == {"finalizers": ["x.y/z"]})

    current = (await target.eventually(lambda: target.get(path), is_empty)).content
    assert reasons(current["status"])["NamespaceContentRemaining"] == ("False", "ContentRemoved")
    assert (await target.request("PUT", f"{path}/finalize", {**current, "spec": {}})).code == 200
    await target.until(path, 404)


async def test_finalizers_of_the_spec_must_be_qualified(target: Target, unique: str) -> None:
    obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}, "spec": {"finalizers": ["short"]}}
    text = 'Invalid value: "short": name is neither a standard finalizer name nor is it fully qualified'
    answer = await target.request("POST", NAMESPACES, obj)
    assert [(cause["field"], cause["message"]) for cause in answer.content["details"]["causes"]] == [
        ("spec.finalizers", text)
    ]
    path = f"{NAMESPACES}/{target.namespace}"
    current = (await target.get(path)).content
    answer = await target.request("PUT", f"{path}/finalize", {**current, "spec": obj["spec"]})
    assert [cause["field"] for cause in answer.content["details"]["causes"]] == ["spec.finalizers[0]"]


@pytest.mark.parametrize("method", ["GET", "PATCH"])
async def test_finalize_accepts_only_updates(target: Target, method: str) -> None:
    path = f"{NAMESPACES}/{target.namespace}/finalize"
    answer = await (target.merge(path, {}) if method == "PATCH" else target.get(path))
    assert (answer.code, answer.reason) == (405, "MethodNotAllowed")
