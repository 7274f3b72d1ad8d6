"""Tests for :mod:`trioperator.apiserver.writing.namespace_termination`: namespaces go with all their objects."""

from __future__ import annotations

from typing import Any

from tests.apiserver.conftest import Target
from trioperator.apiserver import Cluster


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
