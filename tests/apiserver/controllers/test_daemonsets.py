"""DaemonSets on the simulated node, and on nodes that run nothing."""

from __future__ import annotations

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from tests.apiserver.controllers.objects import Object, pod, template, workload
from trioperator.apiserver import Cluster


def node(name: str, **labels: str) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


async def test_each_node_gets_one_pod(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(node("other"))
        await cluster.create(workload("DaemonSet"))
        await trio.sleep(10)
        pods = await cluster.list("pods")
        status = (await cluster.get("ds", "w"))["status"]
    assert sorted(obj["spec"].get("nodeName", "") for obj in pods) == ["", "embedded"]
    assert status == {
        "observedGeneration": 1,
        "currentNumberScheduled": 2,
        "desiredNumberScheduled": 2,
        "numberMisscheduled": 0,
        "numberReady": 1,
        "numberAvailable": 1,
        "numberUnavailable": 1,
        "updatedNumberScheduled": 2,
    }


async def test_pods_follow_added_and_removed_nodes(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads"):
        await cluster.create(workload("DaemonSet"))
        found = []
        for change in (cluster.create(node("n")), cluster.create(node("m")), cluster.delete("nodes", "n")):
            await change
            await trio.sleep(1)
            found.append(len(await cluster.list("pods")))
    assert found == [1, 2, 1]


async def test_only_selected_nodes_get_pods(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads"):
        await cluster.create(node("fast", disk="ssd"))
        await cluster.create(node("slow", disk="hdd"))
        manifest = workload("DaemonSet")
        manifest["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "ssd"}
        await cluster.create(manifest)
        await trio.sleep(1)
        (obj,) = await cluster.list("pods")
    affinity = obj["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["fast"]


async def test_a_new_template_replaces_the_pods(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(workload("DaemonSet"))
        await trio.sleep(10)
        await cluster.patch("ds", "w", {"spec": {"template": template({"app": "w"}, image="new")}})
        await trio.sleep(10)
        (obj,) = await cluster.list("pods")
        status = (await cluster.get("ds", "w"))["status"]
    assert obj["spec"]["containers"][0]["image"] == "new"
    assert (status["updatedNumberScheduled"], status["numberAvailable"], status["observedGeneration"]) == (1, 1, 2)


@pytest.mark.parametrize(
    ("strategy", "replaced"),
    [
        ({"rollingUpdate": {"maxUnavailable": "50%"}}, 2),  # rounded up
        ({"rollingUpdate": {"maxUnavailable": 1}}, 1),
        ({"type": "OnDelete"}, 0),
    ],
)
async def test_only_some_pods_are_replaced_at_a_time(
    cluster: Cluster, autojump_clock: MockClock, strategy: Object, replaced: int
) -> None:
    async with cluster.open_controllers("workloads"):
        for name in ("a", "b", "c"):
            await cluster.create(node(name))
        manifest = workload("DaemonSet")
        manifest["spec"]["updateStrategy"] = strategy
        await cluster.create(manifest)
        await trio.sleep(1)
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        for obj in await cluster.list("pods"):
            await cluster.patch("pods", obj["metadata"]["name"], {"status": ready}, subresource="status")
        await cluster.patch("ds", "w", {"spec": {"template": template({"app": "w"}, image="new")}})
        await trio.sleep(1)
        images = [obj["spec"]["containers"][0]["image"] for obj in await cluster.list("pods")]
    assert images.count("new") == replaced


async def test_a_deleted_pod_is_recreated(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(workload("DaemonSet"))
        await trio.sleep(10)
        (before,) = await cluster.list("pods")
        await cluster.delete("pods", before["metadata"]["name"])
        await trio.sleep(10)
        (after,) = await cluster.list("pods")
    assert before["metadata"]["uid"] != after["metadata"]["uid"]


async def test_a_pod_of_a_missing_node_stays_pending(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("pods"):
        await cluster.create(pod(nodeSelector={"disk": "ssd"}))
        await trio.sleep(10)
        (condition,) = (await cluster.get("pods", "p"))["status"]["conditions"]
    assert (condition["reason"], condition["status"]) == ("Unschedulable", "False")
