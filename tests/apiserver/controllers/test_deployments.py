"""Deployments and their ReplicaSets, with Pods that run on the simulated node."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.apiserver.controllers.objects import conditions, template, workload
from trioperator.apiserver import Cluster
from trioperator.apiserver.controllers.deployments import limits

Object = dict[str, Any]
ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def counts(obj: Object) -> dict[str, int]:
    return {key: value for key, value in obj["status"].items() if key.endswith("eplicas") and value}


def is_rolled_out(obj: Object) -> bool:
    """Return whether `kubectl rollout status` reports success."""
    status, replicas = obj["status"], obj["spec"]["replicas"]
    updated = status.get("updatedReplicas", 0)
    return bool(
        obj["metadata"]["generation"] <= status.get("observedGeneration", 0)
        and updated >= replicas
        and status.get("replicas", 0) <= updated
        and status.get("availableReplicas", 0) >= updated
    )


async def change_image(cluster: Cluster, image: str, **options: Any) -> None:
    await cluster.patch("deploy", "w", {"spec": {"template": template({"app": "w"}, image=image, **options)}})


async def test_a_deployment_creates_a_replica_set_which_creates_pods(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    async with cluster.open_controllers("workloads"):
        await cluster.create(workload("Deployment", replicas=2))
        await trio.sleep(1)
        obj = await cluster.get("deploy", "w")
        (item,) = await cluster.list("rs")
        pods = await cluster.list("pods")
    mark = item["metadata"]["labels"]["pod-template-hash"]
    assert item["metadata"]["name"] == f"w-{mark}"
    assert item["metadata"]["annotations"] == {
        "deployment.kubernetes.io/desired-replicas": "2",
        "deployment.kubernetes.io/max-replicas": "3",
        "deployment.kubernetes.io/revision": "1",
    }
    assert item["spec"]["selector"] == {"matchLabels": {"app": "w", "pod-template-hash": mark}}
    assert item["metadata"]["ownerReferences"][0]["kind"] == "Deployment"
    assert [obj["metadata"]["generateName"] for obj in pods] == [f"w-{mark}-"] * 2
    assert [obj["metadata"]["labels"] for obj in pods] == [{"app": "w", "pod-template-hash": mark}] * 2
    assert {obj["metadata"]["ownerReferences"][0]["uid"] for obj in pods} == {item["metadata"]["uid"]}
    assert counts(obj) == {"replicas": 2, "updatedReplicas": 2, "unavailableReplicas": 2}
    assert counts(item) == {"replicas": 2, "fullyLabeledReplicas": 2}
    assert conditions(obj) == {"Available": "False", "Progressing": "True"}
    assert obj["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"


async def test_a_deployment_becomes_available(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(workload("Deployment", replicas=3))
        await trio.sleep(10)
        obj = await cluster.get("deploy", "w")
    assert is_rolled_out(obj)
    assert counts(obj) == {"replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3}
    assert conditions(obj) == {"Available": "True", "Progressing": "True"}
    assert {item["reason"] for item in obj["status"]["conditions"]} == {
        "MinimumReplicasAvailable",
        "NewReplicaSetAvailable",
    }


async def test_nothing_is_written_in_the_desired_state(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(workload("Deployment", replicas=3))
        await trio.sleep(10)
        revision = cluster.revision
        await trio.sleep(3600)
        assert cluster.revision == revision


async def test_a_new_template_replaces_the_pods_within_the_limits(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(workload("Deployment", replicas=4, strategy=ROLLING))
        await trio.sleep(10)
        await change_image(cluster, "new")
        seen = set()
        for _ in range(100):
            await trio.sleep(0.25)
            pods = await cluster.list("pods")
            ready = sum(conditions(obj).get("Ready") == "True" for obj in pods)
            going = sum("deletionTimestamp" in obj["metadata"] for obj in pods)
            seen.add((len(pods) - going, ready >= 4))
        obj = await cluster.get("deploy", "w")
        old, new = sorted(await cluster.list("rs"), key=lambda obj: int(obj["metadata"]["resourceVersion"]))
        pods = await cluster.list("pods")
    assert is_rolled_out(obj)
    assert seen == {(4, True), (5, True)}
    assert [obj["spec"]["containers"][0]["image"] for obj in pods] == ["new"] * 4
    assert sorted([old["spec"]["replicas"], new["spec"]["replicas"]]) == [0, 4]
    assert obj["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"


async def test_a_rollback_reuses_the_old_replica_set(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(workload("Deployment", replicas=2))
        await trio.sleep(10)
        (first,) = await cluster.list("rs")
        for image in ("new", "i"):
            await change_image(cluster, image)
            await trio.sleep(30)
        assert len(await cluster.list("rs")) == 2
        again = await cluster.get("rs", first["metadata"]["name"])
        obj = await cluster.get("deploy", "w")
    assert again["spec"]["replicas"] == 2
    assert again["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"
    assert is_rolled_out(obj)


async def test_recreate_waits_until_the_old_pods_are_deleted(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(
            workload("Deployment", replicas=2, strategy={"type": "Recreate"}, notes={"stops_after": "9"})
        )
        await trio.sleep(10)
        await change_image(cluster, "new")
        await trio.sleep(8)
        assert {obj["spec"]["containers"][0]["image"] for obj in await cluster.list("pods")} == {"i"}
        await trio.sleep(5)
        assert {obj["spec"]["containers"][0]["image"] for obj in await cluster.list("pods")} == {"new"}
        assert is_rolled_out(await cluster.get("deploy", "w"))


async def test_a_stuck_rollout_is_reported_after_its_progress_deadline(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(workload("Deployment", replicas=4, progressDeadlineSeconds=60))
        await trio.sleep(100)
        assert conditions(await cluster.get("deploy", "w")) == {"Available": "True", "Progressing": "True"}
        await change_image(cluster, "new", notes={"ready_after": "never"})
        await trio.sleep(55)
        obj = await cluster.get("deploy", "w")
        assert conditions(obj) == {"Available": "True", "Progressing": "True"}
        assert obj["status"]["availableReplicas"] == 3  # a quarter may be unavailable
        await trio.sleep(10)
        obj = await cluster.get("deploy", "w")
        assert conditions(obj) == {"Available": "True", "Progressing": "False"}
        assert "ProgressDeadlineExceeded" in {item["reason"] for item in obj["status"]["conditions"]}
        await change_image(cluster, "newer", notes={"ready_after": "0"})
        await trio.sleep(60)
        assert is_rolled_out(await cluster.get("deploy", "w"))


@pytest.mark.parametrize("replicas", [5, 1, 0])
async def test_a_deployment_is_scaled(cluster: Cluster, autojump_clock: MockClock, replicas: int) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(workload("Deployment", replicas=3))
        await trio.sleep(10)
        before = {obj["metadata"]["name"] for obj in await cluster.list("pods")}
        await cluster.patch("deploy", "w", {"spec": {"replicas": replicas}})
        await trio.sleep(10)
        after = {obj["metadata"]["name"] for obj in await cluster.list("pods")}
        obj = await cluster.get("deploy", "w")
    assert len(after) == replicas
    assert after <= before or before <= after
    assert is_rolled_out(obj)
    assert conditions(obj)["Available"] == "True"


async def test_a_paused_deployment_only_scales(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(workload("Deployment", replicas=1))
        await trio.sleep(10)
        await cluster.patch("deploy", "w", {"spec": {"paused": True, "replicas": 2}})
        await change_image(cluster, "new")
        await trio.sleep(10)
        assert [obj["spec"]["containers"][0]["image"] for obj in await cluster.list("pods")] == ["i", "i"]
        await cluster.patch("deploy", "w", {"spec": {"paused": None}})
        await trio.sleep(30)
        assert [obj["spec"]["containers"][0]["image"] for obj in await cluster.list("pods")] == ["new", "new"]


async def test_old_replica_sets_are_kept_up_to_the_history_limit(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(workload("Deployment", replicas=1, revisionHistoryLimit=2))
        for number in range(5):
            await trio.sleep(10)
            await change_image(cluster, f"new{number}")
        await trio.sleep(10)
        kept = await cluster.list("rs")
    assert len(kept) == 3
    revisions = {obj["metadata"]["annotations"]["deployment.kubernetes.io/revision"] for obj in kept}
    assert revisions == {"4", "5", "6"}


async def test_pods_are_available_after_min_ready_seconds(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(workload("Deployment", replicas=1, minReadySeconds=30))
        await trio.sleep(20)
        early = counts(await cluster.get("deploy", "w"))
        await trio.sleep(20)
        late = counts(await cluster.get("deploy", "w"))
    assert early == {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "unavailableReplicas": 1}
    assert late == {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}


async def test_dependents_of_a_deployment_are_deleted_with_it(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(workload("Deployment", replicas=2))
        await trio.sleep(5)
        await cluster.delete("deploy", "w")
        await trio.sleep(5)
        assert await cluster.list("rs") == await cluster.list("pods") == []


@pytest.mark.parametrize(
    ("surge", "unavailable", "replicas", "expected"),
    [
        ("25%", "25%", 4, (1, 1)),
        ("25%", "25%", 1, (1, 0)),
        (0, 0, 3, (0, 1)),
        (2, "50%", 3, (2, 1)),
        ("0%", "10%", 5, (0, 1)),
    ],
)
def test_rollout_limits_are_numbers_or_percentages(
    surge: int | str, unavailable: int | str, replicas: int, expected: tuple[int, int]
) -> None:
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    spec = {"replicas": replicas, "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}
    assert limits(spec) == expected
