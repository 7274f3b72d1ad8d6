"""Tests for :mod:`trioperator.apiserver.writing.namespace_termination`: namespaces go with all their objects."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.conftest import Answer, Target
from trioperator.apiserver import Cluster
from trioperator.apiserver.writing.namespace_termination import with_conditions

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


async def make(target: Target, name: str) -> str:
    obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    answer = await target.request("POST", "/api/v1/namespaces", obj)
    assert answer.code == 201
    assert answer.content["status"] == {"phase": "Active"}
    assert answer.content["spec"] == {"finalizers": ["kubernetes"]}
    assert answer.content["metadata"]["labels"] == {"kubernetes.io/metadata.name": name}
    return f"/api/v1/namespaces/{name}"


async def test_an_empty_namespace_is_deleted(target: Target, unique: str) -> None:
    path = await make(target, unique)
    answer = await target.delete(path)
    assert (answer.code, answer.content["status"]["phase"]) == (200, "Terminating")
    await target.until(path, 404)


async def test_a_namespace_is_deleted_with_its_objects(target: Target, unique: str) -> None:
    path = await make(target, unique)
    obj: dict[str, Any] = {"metadata": {"name": "plain"}}
    await target.request("POST", f"{path}/configmaps", obj)
    obj = {"metadata": {"name": "kept", "finalizers": ["a.b/c"]}}
    await target.request("POST", f"{path}/configmaps", obj)
    await target.delete(path)
    await target.until(f"{path}/configmaps/plain", 404)
    kept = f"{path}/configmaps/kept"
    await target.marked(kept)
    assert (await target.get(path)).content["status"]["phase"] == "Terminating"
    answer = await target.request("POST", f"{path}/configmaps", {"metadata": {"name": "late"}})
    assert (answer.code, answer.reason) == (403, "Forbidden")
    text = f"unable to create new content in namespace {unique} because it is being terminated"
    assert answer.message == f'configmaps "late" is forbidden: {text}'
    assert answer.content["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    await target.merge(kept, {"metadata": {"finalizers": None}})
    await target.until(path, 404)


async def test_pods_are_deleted_before_anything_else(target: Target, unique: str) -> None:
    path = await make(target, unique)
    await target.request("POST", f"{path}/configmaps", {"metadata": {"name": "needed"}})
    spec = {"containers": [{"name": "main", "image": "x"}]}
    pod = {"metadata": {"name": "first", "finalizers": ["a.b/c"]}, "spec": spec}
    assert (await target.request("POST", f"{path}/pods", pod)).code == 201
    await target.delete(path)
    await target.marked(f"{path}/pods/first")
    assert (await target.get(f"{path}/configmaps/needed")).code == 200
    await target.merge(f"{path}/pods/first", {"metadata": {"finalizers": None}})
    await target.until(path, 404)


async def test_a_finalizer_of_the_namespace_itself_is_waited_for(target: Target, unique: str) -> None:
    path = await make(target, unique)
    await target.merge(path, {"metadata": {"finalizers": ["a.b/c"]}})
    await target.request("POST", f"{path}/configmaps", {"metadata": {"name": "plain"}})
    await target.delete(path)
    await target.until(f"{path}/configmaps/plain", 404)
    assert (await target.get(path)).content["status"]["phase"] == "Terminating"
    await target.merge(path, {"metadata": {"finalizers": None}})
    await target.until(path, 404)


async def test_objects_of_other_namespaces_and_of_none_stay() -> None:
    cluster = Cluster(seed=0)
    for name in ("one", "one-more"):
        await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}, name)
    await cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "one"}})
    await cluster.delete("namespaces", "one")
    assert await cluster.find("namespaces", "one") is None
    assert await cluster.find("nodes", "one") is not None
    assert [obj["metadata"]["namespace"] for obj in await cluster.list("configmaps")] == ["one-more"]


async def test_an_unprompt_cluster_terminates_namespaces_when_it_is_tidied() -> None:
    cluster = Cluster(seed=0)
    cluster.is_prompt = False
    await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one"}})
    await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}, "one")
    await cluster.delete("namespaces", "one")
    assert (await cluster.get("namespaces", "one"))["status"]["phase"] == "Terminating"
    assert await cluster.find("configmaps", "a", "one") is not None
    cluster.tidy()
    assert await cluster.find("namespaces", "one") is None
    assert await cluster.find("configmaps", "a", "one") is None
