"""Tests for :mod:`trioperator.apiserver.writing.namespace_termination`: namespaces go with all their objects."""

from __future__ import annotations

from typing import Any

from tests.apiserver.conftest import Target


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
