"""Tests for :mod:`trioperator.apiserver.controllers.replicasets`: Pods are created, adopted, replaced and deleted."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.apiserver.controllers.objects import Object, pod, workload
from trioperator.apiserver import Cluster
from trioperator.apiserver.controllers.replicasets import pods_to_delete


def counts(obj: Object) -> dict[str, int]:
    return {key: value for key, value in obj["status"].items() if key.endswith("eplicas") and value}


async def test_a_deleted_or_failed_pod_is_replaced(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(workload("ReplicaSet", replicas=2))
        await trio.sleep(5)
        first, second = await cluster.list("pods")
        await cluster.delete("pods", first["metadata"]["name"])
        await cluster.patch("pods", second["metadata"]["name"], {"status": {"phase": "Failed"}}, subresource="status")
        await trio.sleep(5)
        pods = await cluster.list("pods")
        item = await cluster.get("rs", "w")
    assert [obj["status"]["phase"] for obj in pods].count("Running") == 2
    assert counts(item) == {
        "replicas": 2,
        "fullyLabeledReplicas": 2,
        "readyReplicas": 2,
        "availableReplicas": 2,
    }


async def test_matching_orphaned_pods_are_adopted(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads"):
        for name in ("a", "b", "c"):
            await cluster.create(pod(name, meta={"labels": {"app": "w"}}))
        await cluster.create(pod("other", meta={"labels": {"app": "v"}}))
        await cluster.create(workload("ReplicaSet", replicas=2))
        await trio.sleep(1)
        pods = await cluster.list("pods")
    assert len(pods) == 3
    assert [obj["metadata"]["name"] for obj in pods if "ownerReferences" not in obj["metadata"]] == ["other"]


def replica(name: str, *, version: int = 1, phase: str = "Running", ready: bool = True, **more: Any) -> Object:
    """Return a Pod of a ReplicaSet; by default it runs and is ready."""
    meta = {
        "name": name,
        "resourceVersion": str(version),
        "creationTimestamp": more.get("created", "2024-01-01T00:00:00Z"),
    }
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": str(ready)}]}
    return {"metadata": meta, "spec": {"nodeName": "n"} if more.get("scheduled", True) else {}, "status": status}


@pytest.mark.parametrize(
    "pods",
    [
        [replica("keep", phase="Pending"), replica("delete", phase="Pending", scheduled=False)],
        [replica("keep"), replica("delete", phase="Pending")],
        [replica("keep"), replica("delete", ready=False)],
        [replica("keep"), replica("delete", created="2024-01-02T00:00:00Z")],
        [replica("keep", version=9), replica("delete", version=10)],
        [replica("keep", ready=False, version=2), replica("delete", phase="Pending", version=1)],
    ],
)
def test_the_pods_of_least_use_are_deleted_first(pods: list[Object]) -> None:
    for order in (pods, pods[::-1]):
        assert [obj["metadata"]["name"] for obj in pods_to_delete(order, 1)] == ["delete"]


@pytest.mark.parametrize(("count", "expected"), [(-2, 0), (0, 0), (2, 2), (5, 3)])
def test_as_many_pods_are_deleted_as_there_are_too_many(count: int, expected: int) -> None:
    assert len(pods_to_delete([replica(name) for name in "abc"], count)) == expected
