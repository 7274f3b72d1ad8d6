"""Pods on the simulated node."""

from __future__ import annotations

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from tests.apiserver.controllers.objects import conditions, pod, tell
from trioperator.apiserver import Cluster
from trioperator.apiserver.controllers import Pace


async def phases(cluster: Cluster, name: str, *times: float) -> list[str]:
    """Return the phases of the Pod after these delays in seconds."""
    began = trio.current_time()
    found = []
    for time in times:
        await trio.sleep_until(began + time)
        obj = await cluster.find("pods", name)
        found.append(obj["status"]["phase"] if obj else "gone")
    return found


async def test_a_pod_starts_and_is_ready(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("pods"):
        await cluster.create(pod(initContainers=[{"name": "first", "image": "j"}]))
        assert await phases(cluster, "p", 0.5, 1.5) == ["Pending", "Running"]
        obj = await cluster.get("pods", "p")
    status = obj["status"]
    assert obj["spec"]["nodeName"] == "embedded"
    assert set(conditions(obj)) == {
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    }
    assert set(conditions(obj).values()) == {"True"}
    assert status["podIP"] == status["podIPs"][0]["ip"]
    (container,) = status["containerStatuses"]
    assert (container["name"], container["ready"], container["restartCount"]) == ("c", True, 0)
    assert "startedAt" in container["state"]["running"]
    (first,) = status["initContainerStatuses"]
    assert first["state"]["terminated"]["exitCode"] == 0


async def test_each_pod_has_its_own_address(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("pods"):
        for number in range(260):
            await cluster.create(pod(f"p{number}"))
        await trio.sleep(5)
    pods = await cluster.list("pods")
    assert len({obj["status"]["podIP"] for obj in pods}) == 260


@pytest.mark.parametrize(
    ("policy", "codes", "expected"),
    [
        ("Never", "0", "Succeeded"),
        ("Never", "3", "Failed"),
        ("OnFailure", "0", "Succeeded"),
        ("OnFailure", "1,1,0", "Succeeded"),
        ("OnFailure", "1", "Running"),
        ("Always", "0", "Running"),
    ],
)
async def test_a_pod_ends_as_annotated(
    cluster: Cluster, autojump_clock: MockClock, policy: str, codes: str, expected: str
) -> None:
    async with cluster.open_controllers("pods"):
        await cluster.create(pod(restartPolicy=policy, notes={"runs_for": "5", "exit_codes": codes}))
        assert await phases(cluster, "p", 5.9) == ["Running"]
        assert await phases(cluster, "p", 300) == [expected]
        (container,) = (await cluster.get("pods", "p"))["status"]["containerStatuses"]
    if expected == "Running":
        assert container["restartCount"] > 1
    else:
        assert container["state"]["terminated"]["exitCode"] == int(codes.split(",")[-1])
        assert container["restartCount"] == codes.count(",")


async def test_restarts_back_off(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("pods"):
        await cluster.create(pod(notes={"runs_for": "0", "exit_codes": "1"}))
        found = []
        for seconds in (2, 10, 20, 40):
            await trio.sleep(seconds)
            (container,) = (await cluster.get("pods", "p"))["status"]["containerStatuses"]
            found.append((container["restartCount"], container["state"]["waiting"]["reason"]))
    assert found == [(0, "CrashLoopBackOff"), (1, "CrashLoopBackOff"), (2, "CrashLoopBackOff"), (3, "CrashLoopBackOff")]


async def test_readiness_is_delayed_as_annotated(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("pods"):
        await cluster.create(pod("late", notes={"ready_after": "10"}))
        await cluster.create(pod("never", notes={"ready_after": "never"}))
        found = []
        for _ in range(2):
            await trio.sleep(8)
            found += [conditions(await cluster.get("pods", name))["Ready"] for name in ("late", "never")]
    assert found == ["False", "False", "True", "False"]


async def test_a_pod_waits_for_its_readiness_gates(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("pods"):
        await cluster.create(pod(readinessGates=[{"conditionType": "example.com/balanced"}]))
        await trio.sleep(5)
        obj = await cluster.get("pods", "p")
        assert conditions(obj)["Ready"] == "False"
        gate = {"type": "example.com/balanced", "status": "True"}
        patch = {"status": {"conditions": [*obj["status"]["conditions"], gate]}}
        await cluster.patch("pods", "p", patch, subresource="status")
        await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        assert conditions(await cluster.get("pods", "p"))["Ready"] == "True"


async def test_a_pod_waits_as_annotated(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("pods"):
        await cluster.create(pod("image", notes={"waits_for": "ImagePullBackOff"}))
        await cluster.create(pod("place", notes={"unschedulable": "0/1 nodes are available: 1 Insufficient cpu."}))
        await cluster.create(pod("gate", schedulingGates=[{"name": "example.com/gate"}]))
        await trio.sleep(100)
        image = await cluster.get("pods", "image")
        assert image["status"]["phase"] == "Pending"
        assert image["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"
        reasons = []
        for name in ("place", "gate"):
            (condition,) = (await cluster.get("pods", name))["status"]["conditions"]
            reasons.append((condition["type"], condition["status"], condition["reason"]))
        await cluster.patch("pods", "image", {"metadata": {"annotations": dict.fromkeys(tell(waits_for=""))}})
        assert await phases(cluster, "image", 1) == ["Running"]
    assert reasons == [("PodScheduled", "False", "Unschedulable"), ("PodScheduled", "False", "SchedulingGated")]


async def test_invalid_annotations_are_ignored(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("pods"):
        notes = {"runs_for": "soon", "ready_after": "-5", "exit_codes": ",x", "stops_after": "[]"}
        await cluster.create(pod(notes=notes))
        await cluster.create(pod("q", notes={"runs_for": "1", "exit_codes": "x"}, restartPolicy="Never"))
        await trio.sleep(60)
        assert conditions(await cluster.get("pods", "p"))["Ready"] == "True"
        assert (await cluster.get("pods", "q"))["status"]["phase"] == "Failed"


@pytest.mark.parametrize(
    ("stops_after", "grace", "expected"),
    [("", 30, 1), ("20", 30, 20), ("100", 30, 30), ("never", 7, 7), ("100", 0, 0)],
)
async def test_a_pod_has_its_grace_period(
    cluster: Cluster, autojump_clock: MockClock, stops_after: str, grace: int, expected: int
) -> None:
    async with cluster.open_controllers("pods"):
        await cluster.create(pod(terminationGracePeriodSeconds=grace, notes={"stops_after": stops_after}))
        await trio.sleep(5)
        left = await cluster.delete("pods", "p")
        if grace:
            assert left is not None
            assert left["metadata"]["deletionGracePeriodSeconds"] == grace
            assert await phases(cluster, "p", expected - 0.5) == ["Running"]
            await trio.sleep(1)
        assert await cluster.find("pods", "p") is None


async def test_a_pod_with_a_finalizer_stays_after_its_termination(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("pods"):
        await cluster.create(pod(meta={"finalizers": ["example.com/wait"]}))
        await trio.sleep(5)
        await cluster.delete("pods", "p")
        await trio.sleep(60)
        assert (await cluster.get("pods", "p"))["metadata"]["deletionGracePeriodSeconds"] == 0
        await cluster.patch("pods", "p", {"metadata": {"finalizers": None}})
        assert await cluster.find("pods", "p") is None


async def test_a_pod_that_stops_is_not_ready_before_it_goes(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("pods"):
        await cluster.create(pod(meta={"finalizers": ["example.com/wait"]}))
        await trio.sleep(5)
        await cluster.delete("pods", "p")
        await trio.sleep(60)
        status = (await cluster.get("pods", "p"))["status"]
        assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "False"
        assert "terminated" in status["containerStatuses"][0]["state"]


async def test_a_reused_name_is_another_pod(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("pods"):
        for _ in range(2):
            await cluster.create(pod(notes={"runs_for": "5"}, restartPolicy="Never", terminationGracePeriodSeconds=0))
            assert await phases(cluster, "p", 5.5) == ["Running"]
            await cluster.delete("pods", "p")


async def test_pods_of_other_nodes_are_left_alone(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("pods"):
        await cluster.create(pod(nodeName="other"))
        assert await phases(cluster, "p", 60) == ["Pending"]


async def test_the_pace_is_configurable(cluster: Cluster, autojump_clock: MockClock) -> None:
    pace = Pace(schedule=10, start=20, ready=5, stop=3)
    async with cluster.open_controllers("pods", pace=pace):
        await cluster.create(pod())
        await trio.sleep(9)
        assert "nodeName" not in (await cluster.get("pods", "p"))["spec"]
        assert await phases(cluster, "p", 20, 22) == ["Pending", "Running"]
        await trio.sleep(5)
        assert conditions(await cluster.get("pods", "p"))["Ready"] == "True"
        await cluster.delete("pods", "p")
        assert await phases(cluster, "p", 2, 4) == ["Running", "gone"]


async def test_existing_pods_are_started(cluster: Cluster, autojump_clock: MockClock) -> None:
    await cluster.create(pod())
    async with cluster.open_controllers("pods"):
        assert await phases(cluster, "p", 2) == ["Running"]
