"""StatefulSets, with Pods that run on the simulated node."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock

from tests.apiserver.controllers.objects import Object, template, workload
from trioperator.apiserver import Cluster
from trioperator.apiserver.controllers import Pace

CLAIM: Object = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


async def names(cluster: Cluster, kind: str = "pods") -> list[str]:
    return [obj["metadata"]["name"] for obj in await cluster.list(kind)]


async def images(cluster: Cluster) -> list[str]:
    return [obj["spec"]["containers"][0]["image"] for obj in await cluster.list("pods")]


async def change_image(cluster: Cluster, image: str, **options: Any) -> None:
    await cluster.patch("sts", "w", {"spec": {"template": template({"app": "w"}, image=image), **options}})


async def test_pods_are_created_one_by_one(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(workload("StatefulSet", replicas=3, serviceName="s"))
        seen = []
        for _ in range(4):
            await trio.sleep(0.9)
            seen.append(await names(cluster))
        await trio.sleep(5)
        obj = await cluster.get("sts", "w")
        pod = await cluster.get("pods", "w-1")
    assert seen == [["w-0"], ["w-0", "w-1"], ["w-0", "w-1", "w-2"], ["w-0", "w-1", "w-2"]]
    status = obj["status"]
    newest = status["updateRevision"]
    assert status == {
        "observedGeneration": 1,
        "replicas": 3,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "currentReplicas": 3,
        "updatedReplicas": 3,
        "currentRevision": newest,
        "updateRevision": newest,
        "collisionCount": 0,
    }
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("w-1", "s")
    assert pod["metadata"]["labels"] == {
        "app": "w",
        "apps.kubernetes.io/pod-index": "1",
        "controller-revision-hash": newest,
        "statefulset.kubernetes.io/pod-name": "w-1",
    }


async def test_pods_can_be_created_in_parallel(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(workload("StatefulSet", replicas=3, podManagementPolicy="Parallel"))
        await trio.sleep(0.5)
        assert await names(cluster) == ["w-0", "w-1", "w-2"]


async def test_pods_are_deleted_in_reverse_order(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(workload("StatefulSet", replicas=3))
        await trio.sleep(10)
        await cluster.patch("sts", "w", {"spec": {"replicas": 1}})
        seen = []
        for _ in range(3):
            await trio.sleep(0.9)
            seen.append(await names(cluster))
    assert seen == [["w-0", "w-1", "w-2"], ["w-0", "w-1"], ["w-0"]]


async def test_a_rollout_starts_with_the_last_pod(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(workload("StatefulSet", replicas=3))
        await trio.sleep(10)
        await change_image(cluster, "new")
        seen = []
        for _ in range(60):
            await trio.sleep(0.2)
            found = await images(cluster)
            if len(found) == 3 and found not in seen:
                seen.append(found)
        status = (await cluster.get("sts", "w"))["status"]
        revisions = await names(cluster, "controllerrevisions")
    assert seen == [["i", "i", "i"], ["i", "i", "new"], ["i", "new", "new"], ["new", "new", "new"]]
    assert status["currentRevision"] == status["updateRevision"]
    assert len(revisions) == 2


async def test_pods_below_the_partition_are_not_updated(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(workload("StatefulSet", replicas=3))
        await trio.sleep(10)
        await change_image(cluster, "new", updateStrategy={"rollingUpdate": {"partition": 2}})
        await trio.sleep(30)
        assert await images(cluster) == ["i", "i", "new"]
        status = (await cluster.get("sts", "w"))["status"]
        assert status["currentRevision"] != status["updateRevision"]
        assert (status["currentReplicas"], status["updatedReplicas"]) == (2, 1)
        await cluster.delete("pods", "w-0")
        await trio.sleep(10)
        assert await images(cluster) == ["i", "i", "new"]


async def test_on_delete_replaces_only_deleted_pods(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(workload("StatefulSet", replicas=2, updateStrategy={"type": "OnDelete"}))
        await trio.sleep(10)
        await change_image(cluster, "new")
        await trio.sleep(10)
        assert await images(cluster) == ["i", "i"]
        await cluster.delete("pods", "w-0")
        await trio.sleep(10)
        assert await images(cluster) == ["new", "i"]


async def test_a_finished_pod_is_recreated(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(workload("StatefulSet", replicas=1))
        await trio.sleep(5)
        before = (await cluster.get("pods", "w-0"))["metadata"]["uid"]
        await cluster.patch("pods", "w-0", {"status": {"phase": "Failed"}}, subresource="status")
        await trio.sleep(5)
        pod = await cluster.get("pods", "w-0")
    assert pod["metadata"]["uid"] != before
    assert pod["status"]["phase"] == "Running"


async def test_each_pod_has_claims_that_are_bound_and_retained(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods", "volumes"):
        await cluster.create(workload("StatefulSet", replicas=2, volumeClaimTemplates=[CLAIM]))
        await trio.sleep(10)
        claims = await cluster.list("pvc")
        volumes = await cluster.list("pv")
        pod = await cluster.get("pods", "w-0")
        await cluster.patch("sts", "w", {"spec": {"replicas": 0}})
        await trio.sleep(10)
        assert await names(cluster, "pvc") == ["data-w-0", "data-w-1"]
    assert [claim["metadata"]["labels"] for claim in claims] == [{"app": "w"}] * 2
    assert [claim["status"]["phase"] for claim in claims] == ["Bound"] * 2
    assert {claim["spec"]["volumeName"] for claim in claims} == {obj["metadata"]["name"] for obj in volumes}
    assert claims[0]["status"]["capacity"] == {"storage": "1Gi"}
    assert pod["spec"]["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-w-0"}}]


async def test_claims_are_deleted_by_the_retention_policy(cluster: Cluster, autojump_clock: MockClock) -> None:
    retention = {"whenDeleted": "Delete", "whenScaled": "Delete"}
    manifest = workload(
        "StatefulSet", replicas=2, volumeClaimTemplates=[CLAIM], persistentVolumeClaimRetentionPolicy=retention
    )
    async with cluster.open_controllers("workloads", "pods", "volumes"):
        await cluster.create(manifest)
        await trio.sleep(10)
        await cluster.patch("sts", "w", {"spec": {"replicas": 1}})
        await trio.sleep(10)
        assert await names(cluster, "pvc") == ["data-w-0"]
        await cluster.delete("sts", "w")
        await trio.sleep(10)
        assert await names(cluster, "pvc") == await names(cluster, "pv") == await names(cluster) == []


async def test_min_ready_seconds_delay_the_next_pod(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods", pace=Pace(start=0)):
        await cluster.create(workload("StatefulSet", replicas=2, minReadySeconds=20))
        await trio.sleep(15)
        assert await names(cluster) == ["w-0"]
        await trio.sleep(10)
        assert await names(cluster) == ["w-0", "w-1"]


async def test_a_new_set_adopts_the_pods_of_one_that_was_deleted_without_them(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(workload("StatefulSet", replicas=2, serviceName="s"))
        await trio.sleep(10)
        before = [pod["metadata"]["uid"] for pod in await cluster.list("pods")]
        await cluster.delete("sts", "w", policy="Orphan")
        await cluster.create(workload("StatefulSet", replicas=2, serviceName="s"))
        await trio.sleep(10)
        pods = await cluster.list("pods")
        obj = await cluster.get("sts", "w")
    assert [pod["metadata"]["uid"] for pod in pods] == before
    assert {pod["metadata"]["ownerReferences"][0]["uid"] for pod in pods} == {obj["metadata"]["uid"]}
    assert obj["status"]["readyReplicas"] == 2
