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


async def test_pods_come_one_after_the_other(cluster: Cluster, autojump_clock: MockClock) -> None:
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


async def test_pods_may_come_all_at_once(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(workload("StatefulSet", replicas=3, podManagementPolicy="Parallel"))
        await trio.sleep(0.5)
        assert await names(cluster) == ["w-0", "w-1", "w-2"]


async def test_pods_go_in_the_opposite_order(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(workload("StatefulSet", replicas=3))
        await trio.sleep(10)
        await cluster.patch("sts", "w", {"spec": {"replicas": 1}})
        seen = []
        for _ in range(3):
            await trio.sleep(0.9)
            seen.append(await names(cluster))
    assert seen == [["w-0", "w-1", "w-2"], ["w-0", "w-1"], ["w-0"]]


async def test_a_new_template_renews_the_last_pod_first(cluster: Cluster, autojump_clock: MockClock) -> None:
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


async def test_pods_below_the_partition_stay_as_they_are(cluster: Cluster, autojump_clock: MockClock) -> None:
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


async def test_nobody_renews_pods_that_are_renewed_by_their_deletion(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(workload("StatefulSet", replicas=2, updateStrategy={"type": "OnDelete"}))
        await trio.sleep(10)
        await change_image(cluster, "new")
        await trio.sleep(10)
        assert await images(cluster) == ["i", "i"]
        await cluster.delete("pods", "w-0")
        await trio.sleep(10)
        assert await images(cluster) == ["new", "i"]


async def test_a_pod_that_has_ended_comes_again(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(workload("StatefulSet", replicas=1))
        await trio.sleep(5)
        before = (await cluster.get("pods", "w-0"))["metadata"]["uid"]
        await cluster.patch("pods", "w-0", {"status": {"phase": "Failed"}}, subresource="status")
        await trio.sleep(5)
        pod = await cluster.get("pods", "w-0")
    assert pod["metadata"]["uid"] != before
    assert pod["status"]["phase"] == "Running"


async def test_each_pod_has_claims_which_are_bound_and_stay(cluster: Cluster, autojump_clock: MockClock) -> None:
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


async def test_claims_go_with_their_pods_where_it_is_wanted(cluster: Cluster, autojump_clock: MockClock) -> None:
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


async def test_a_claim_waits_for_the_volume_that_it_names(cluster: Cluster, autojump_clock: MockClock) -> None:
    claim: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c"},
        "spec": {**CLAIM["spec"], "volumeName": "mine"},
    }
    volume: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "mine"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "5Gi"},
            "hostPath": {"path": "/mine"},
            "claimRef": {"namespace": "default", "name": "c"},
        },
    }
    async with cluster.open_controllers("volumes"):
        await cluster.create(claim)
        await trio.sleep(60)
        assert (await cluster.get("pvc", "c"))["status"]["phase"] == "Pending"
        await cluster.create(volume)
        await trio.sleep(1)
        assert (await cluster.get("pvc", "c"))["status"]["capacity"] == {"storage": "5Gi"}
        await cluster.delete("pvc", "c")
        await trio.sleep(1)
        assert await names(cluster, "pv") == ["mine"]


async def test_minimal_readiness_holds_the_next_pod_back(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods", pace=Pace(start=0)):
        await cluster.create(workload("StatefulSet", replicas=2, minReadySeconds=20))
        await trio.sleep(15)
        assert await names(cluster) == ["w-0"]
        await trio.sleep(10)
        assert await names(cluster) == ["w-0", "w-1"]
