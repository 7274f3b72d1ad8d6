"""What an operator has to bear: crashes, restarts, faults of the API server, and any order of events."""

import random
from collections.abc import Awaitable, Callable

import pytest
import trio
from conftest import MODULES, read_example
from trio.testing import MockClock

import trioperator
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport, OperatorRunner, crash_at_every_write


async def test_nothing_is_written_when_nothing_changes(
    database: None, autojump_clock: MockClock, cluster: Cluster, operator: OperatorRunner
) -> None:
    await cluster.patch("databases", "orders", {"spec": {"backups": None}})
    await operator.assert_converged()
    await operator.assert_idempotent()


async def test_the_generated_role_is_enough(
    database: None, autojump_clock: MockClock, cluster: Cluster, operator: OperatorRunner
) -> None:
    await trio.sleep(3600)
    await cluster.patch("databases", "orders", {"spec": {"storage": "2Gi"}})
    await trio.sleep(60)
    await operator.assert_rights()


async def live(cluster: Cluster, operator: OperatorRunner) -> None:
    """Let a database get ready, grow and be backed up, and another one be deleted."""
    async with cluster.open_controllers():
        await operator.start(*MODULES)
        await insist(
            cluster.apply, read_example(version="18")
        )  # it may crash before there is a webhook that chooses one
        await cluster.wait_for("databases", "orders", "Ready")
        await insist(cluster.patch, "databases", "orders", {"spec": {"storage": "2Gi"}})
        await cluster.wait_for("pvc", "data-orders-1", lambda found: found["status"]["capacity"]["storage"] == "2Gi")
        await trio.sleep(1500)
        await insist(cluster.patch, "databases", "orders", {"spec": {"backups": None}})
        await trio.sleep(60)  # a backup that has begun completes; no other begins after its Job is forgotten
    await forget_names(cluster)


async def insist(write: Callable[..., Awaitable[object]], *args: object) -> None:
    """Write as soon as there is an operator that reviews it: until then, the server denies it."""
    while True:
        try:
            await write(*args)
            return
        except trioperator.ServerError:
            await trio.sleep(1)


async def forget_names(cluster: Cluster) -> None:
    """Delete what has names that differ: backups, one of which a crash prevents, and what simulated nodes make."""
    for obj in cluster.objects():
        kind, metadata = obj["kind"], obj["metadata"]
        if kind in ("Job", "PersistentVolume") or (kind == "Pod" and "job-name" in metadata["labels"]):
            await cluster.patch(kind.lower(), metadata["name"], {"metadata": {"finalizers": None}})
            await cluster.delete(kind.lower(), metadata["name"], policy="Orphan" if kind == "Job" else "")


async def test_a_crash_at_any_write_does_no_harm(autojump_clock: MockClock) -> None:
    assert await crash_at_every_write(live, ignore=["password", "lastBackup", "volumeName", "containerID"]) > 10


@pytest.mark.parametrize("deterministic", range(5), indirect=True)
async def test_all_orders_lead_to_the_same(
    deterministic: int, cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    plan = FaultPlan(seed=deterministic)
    plan.add(Fault.lose_answer(), method="POST|PATCH|DELETE", chance=0.2, until=600)
    plan.add(Fault.status(503), chance=0.1, until=600)
    plan.add(Fault.break_off(lines=3), verb="watch", until=600)
    plan.add(Fault.lag(0.5), verb="watch", chance=0.3)
    async with cluster.open_controllers():
        await operator.start(*MODULES, transport=FaultyTransport(cluster.transport(), plan))
        await insist(cluster.apply, read_example())
        await insist(cluster.patch, "databases", "orders", {"spec": {"replicas": 3}})
        await trio.sleep(random.uniform(0, 5))
        await insist(cluster.patch, "databases", "orders", {"spec": {"storage": "2Gi"}})
        settings = await cluster.get("secrets", "orders-settings")
        await cluster.delete("secrets", "orders-settings")
        await trio.sleep(random.uniform(0, 5))
        del settings["metadata"]["resourceVersion"], settings["metadata"]["uid"]
        await cluster.create(settings)
        await trio.sleep(3900)
        database = await cluster.wait_for("databases", "orders", "Ready")
        assert database["status"]["readyReplicas"] == 3
        [template] = (await cluster.get("statefulsets", "orders"))["spec"]["volumeClaimTemplates"]
        assert template["spec"]["resources"]["requests"]["storage"] == "2Gi"
        assert len(await cluster.list("jobs", "default")) == 3
        await cluster.delete("databases", "orders")
        await cluster.wait_deleted("databases", "orders")
