"""Tests for :mod:`trioperator.apiserver.bootstrap`."""

from __future__ import annotations

from trioperator.apiserver import Cluster


def names(objects: list[dict[str, object]]) -> list[object]:
    return [obj["metadata"]["name"] for obj in objects]  # type: ignore[index]


async def test_a_new_cluster_has_the_default_namespaces() -> None:
    cluster = Cluster()
    namespaces = await cluster.list("namespaces")
    assert names(namespaces) == ["default", "kube-node-lease", "kube-public", "kube-system"]
    assert {namespace["status"]["phase"] for namespace in namespaces} == {"Active"}
    assert await cluster.list("componentstatuses") == await cluster.list("services") == []


async def test_a_standalone_cluster_has_components_and_the_service_of_its_api_once() -> None:
    cluster = Cluster()
    for _ in range(2):
        await cluster.add_components()
    assert names(await cluster.list("componentstatuses")) == ["controller-manager", "etcd-0", "scheduler"]
    assert names(await cluster.list("services")) == ["kubernetes"]
