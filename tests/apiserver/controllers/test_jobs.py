"""Jobs, with Pods that run on the simulated node."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.apiserver.controllers.objects import Object, conditions, workload
from trioperator.apiserver import Cluster

Z = datetime.UTC


def job(name: str = "w", **options: Any) -> Object:
    return workload("Job", name, group="batch", **{"restartPolicy": "Never", **options})


def reasons(obj: Object) -> dict[str, str]:
    return {item["type"]: item["reason"] for item in obj["status"].get("conditions", ())}


async def run(cluster: Cluster, manifest: Object, seconds: float = 300) -> Object:
    """Create the Job, wait, and return its new state."""
    await cluster.create(manifest)
    await trio.sleep(seconds)
    return await cluster.get("jobs", manifest["metadata"]["name"])


async def test_a_job_completes(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        obj = await run(cluster, job(), 1.5)
        status = obj["status"]
        assert (status["active"], status["ready"], "startTime" in status) == (1, 1, True)
        await trio.sleep(2)
        status = (await cluster.get("jobs", "w"))["status"]
        (pod,) = await cluster.list("pods")
    assert (status["succeeded"], status["ready"], status["terminating"]) == (1, 0, 0)
    assert "active" not in status
    assert "completionTime" in status
    assert reasons({"status": status}) == {"SuccessCriteriaMet": "CompletionsReached", "Complete": "CompletionsReached"}
    assert pod["status"]["phase"] == "Succeeded"
    assert "finalizers" not in pod["metadata"]
    assert pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "w"


async def test_parallelism_and_completions_limit_the_pods(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(job(completions=5, parallelism=2))
        most = 0
        for _ in range(100):
            await trio.sleep(0.2)
            phases = [obj["status"]["phase"] for obj in await cluster.list("pods")]
            most = max(most, phases.count("Pending") + phases.count("Running"))
        obj = await cluster.get("jobs", "w")
    assert (most, len(phases), obj["status"]["succeeded"]) == (2, 5, 5)
    assert conditions(obj)["Complete"] == "True"


async def test_a_work_queue_job_completes_when_one_pod_has_succeeded_and_all_have_finished(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        obj = await run(cluster, job(parallelism=3))
    assert (obj["status"]["succeeded"], conditions(obj)["Complete"]) == (3, "True")


async def test_each_pod_of_an_indexed_job_has_its_own_index(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        obj = await run(cluster, job(completions=4, parallelism=2, completionMode="Indexed"))
        pods = await cluster.list("pods")
    assert obj["status"]["completedIndexes"] == "0-3"
    label = "batch.kubernetes.io/job-completion-index"
    assert sorted(pod["metadata"]["labels"][label] for pod in pods) == ["0", "1", "2", "3"]
    assert sorted(pod["spec"]["hostname"] for pod in pods) == ["w-0", "w-1", "w-2", "w-3"]
    assert pods[0]["spec"]["containers"][0]["env"] == [{"name": "JOB_COMPLETION_INDEX", "value": "0"}]


async def test_a_job_retries_failed_pods(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(job(notes={"exit_codes": "1,1,0"}))
        counts: dict[int, float] = {}
        began = trio.current_time()
        while trio.current_time() < began + 60:
            await trio.sleep(1)
            counts.setdefault(len(await cluster.list("pods")), trio.current_time() - began)
        obj = await cluster.get("jobs", "w")
    assert (obj["status"]["failed"], obj["status"]["succeeded"]) == (2, 1)
    assert [counts[2] - counts[1] >= 10, counts[3] - counts[2] >= 20] == [True, True]


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
async def test_a_job_fails_after_its_backoff_limit(cluster: Cluster, autojump_clock: MockClock, policy: str) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        manifest = job(notes={"exit_codes": "1"}, backoffLimit=2, restartPolicy=policy)
        obj = await run(cluster, manifest)
        pods = await cluster.list("pods")
    assert reasons(obj) == {"FailureTarget": "BackoffLimitExceeded", "Failed": "BackoffLimitExceeded"}
    assert "active" not in obj["status"]
    assert len(pods) == (3 if policy == "Never" else 0)


async def test_a_job_fails_at_its_active_deadline(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        obj = await run(cluster, job(notes={"runs_for": "never"}, activeDeadlineSeconds=30), 25)
        assert obj["status"]["active"] == 1
        await trio.sleep(10)
        obj = await cluster.get("jobs", "w")
        assert reasons(obj) == {"FailureTarget": "DeadlineExceeded", "Failed": "DeadlineExceeded"}
        assert await cluster.list("pods") == []


async def test_a_job_is_suspended_and_resumed(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        obj = await run(cluster, job(notes={"runs_for": "50"}), 10)
        await cluster.patch("jobs", "w", {"spec": {"suspend": True}})
        await trio.sleep(10)
        obj = await cluster.get("jobs", "w")
        assert conditions(obj) == {"Suspended": "True"}
        assert "startTime" not in obj["status"]
        assert await cluster.list("pods") == []
        await cluster.patch("jobs", "w", {"spec": {"suspend": False}})
        await trio.sleep(100)
        obj = await cluster.get("jobs", "w")
    assert conditions(obj) == {"Suspended": "False", "SuccessCriteriaMet": "True", "Complete": "True"}
    assert (obj["status"]["succeeded"], obj["status"].get("failed", 0)) == (1, 0)


async def test_finished_pods_count_after_their_deletion(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(job(completions=2, parallelism=1, notes={"runs_for": "10"}))
        await trio.sleep(15)
        for obj in await cluster.list("pods"):
            if obj["status"]["phase"] == "Succeeded":
                await cluster.delete("pods", obj["metadata"]["name"])
        await trio.sleep(30)
        status = (await cluster.get("jobs", "w"))["status"]
    assert (status["succeeded"], status.get("failed", 0)) == (2, 0)


async def test_a_finished_job_is_deleted_after_its_ttl(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await run(cluster, job(ttlSecondsAfterFinished=100), 90)
        await trio.sleep(30)
        assert await cluster.list("jobs") == await cluster.list("pods") == []


@pytest.mark.parametrize("policy", ["", "Background", "Foreground", "Orphan"])
async def test_a_job_can_be_deleted_while_it_runs(cluster: Cluster, autojump_clock: MockClock, policy: str) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await run(cluster, job(notes={"runs_for": "never"}), 10)
        await cluster.delete("jobs", "w", policy=policy)
        await trio.sleep(10)
        assert await cluster.list("jobs") == []
        pods = await cluster.list("pods")
    if policy in {"", "Orphan"}:
        assert [obj["metadata"].get("finalizers") for obj in pods] == [None]
    else:
        assert pods == []
