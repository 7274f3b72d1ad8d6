"""Tests for :mod:`trioperator.client.waiting`, and of what clients wait for."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.client.conftest import config_map, deployment
from trioperator.apiserver import Cluster
from trioperator.client import Client
from trioperator.testing import Fault, FaultPlan


async def after(seconds: float, fn: Any, *args: Any) -> None:
    await trio.sleep(seconds)
    await fn(*args)


async def test_what_meets_the_condition_is_returned_at_once(
    client: Client, cluster: Cluster, autojump_clock: MockClock
) -> None:
    await cluster.create(config_map("one", ready="yes"))
    found = await client.wait_for("configmaps", "one", condition=lambda obj: obj["data"].get("ready"))
    assert found["data"] == {"ready": "yes"}
    assert trio.current_time() == 0


async def test_an_object_that_does_not_exist_yet_is_waited_for(
    client: Client, cluster: Cluster, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(after, 10, cluster.create, config_map("one"))
        nursery.start_soon(after, 20, cluster.apply, config_map("one", ready="yes"))
        found = await client.wait_for("configmaps", "one", condition=lambda obj: (obj.get("data") or {}).get("ready"))
    assert found["data"] == {"ready": "yes"}
    assert trio.current_time() == 20


async def test_a_condition_of_the_status_is_waited_for(
    client: Client, cluster: Cluster, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    plan.add(Fault.break_off(lines=1), watch=True, times=2)
    async with cluster.open_controllers():
        await cluster.create(deployment("web", replicas=2))
        found = await client.wait_for("deployments", "web", condition="Available", timeout=60)
    assert found["status"]["availableReplicas"] == 2


@pytest.mark.parametrize("wait", ["wait_for", "wait_deleted"])
async def test_waiting_ends_after_its_timeout(
    client: Client, cluster: Cluster, wait: str, autojump_clock: MockClock
) -> None:
    await cluster.create(deployment("web"))
    options = {"condition": "Available"} if wait == "wait_for" else {}
    with pytest.raises(TimeoutError) as caught:
        await getattr(client, wait)("deployments", "web", timeout=7, **options)
    what = "does not meet Available" if options else "is not deleted"
    assert str(caught.value) == f"deployments.v1.apps default/web {what} after 7 seconds."
    assert trio.current_time() == 7


@pytest.mark.parametrize("wait", ["wait_for", "wait_deleted"])
async def test_what_a_silent_watch_has_missed_is_seen_before_waiting_ends(
    client: Client, cluster: Cluster, plan: FaultPlan, wait: str, autojump_clock: MockClock
) -> None:
    await cluster.create(config_map("one"))
    plan.add(Fault.silence(), watch=True)
    options: Any = {"condition": lambda obj: (obj.get("data") or {}).get("ready")} if wait == "wait_for" else {}
    change: Any = (cluster.apply, config_map("one", ready="yes")) if options else (cluster.delete, "configmaps", "one")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(after, 5, *change)
        await getattr(client, wait)("configmaps", "one", timeout=60, **options)
    assert 5 < trio.current_time() < 60


async def test_a_list_that_takes_nearly_all_of_the_time_is_not_begun_anew(
    client: Client, cluster: Cluster, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    await cluster.create(config_map("one", ready="yes"))
    plan.add(Fault.delay(before=9.9), verb="list")
    assert await client.wait_for("configmaps", "one", condition=lambda obj: obj["data"].get("ready"), timeout=10)


async def test_what_a_condition_raises_is_raised(client: Client, cluster: Cluster) -> None:
    await cluster.create(config_map("one"))
    with pytest.raises(KeyError, match="nothing"):
        await client.wait_for("configmaps", "one", condition=lambda obj: obj["nothing"])


async def test_a_deletion_is_waited_for(client: Client, cluster: Cluster, autojump_clock: MockClock) -> None:
    manifest = config_map("one")
    manifest["metadata"]["finalizers"] = ["example.com/x"]
    await cluster.create(manifest)
    await client.delete("configmaps", "one")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(after, 10, cluster.patch, "configmaps", "one", {"metadata": {"finalizers": None}}, "default")
        await client.wait_deleted("configmaps", "one")
        assert trio.current_time() == 10


async def test_what_does_not_exist_is_deleted(client: Client, autojump_clock: MockClock) -> None:
    await client.wait_deleted("configmaps", "one")
    assert trio.current_time() == 0


async def test_an_object_that_is_replaced_by_another_is_deleted(
    client: Client, cluster: Cluster, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    async def replace() -> None:
        await trio.sleep(10)
        await cluster.delete("configmaps", "one", "default")
        await cluster.create(config_map("one"))
        cluster.compact()

    await cluster.create(config_map("one"))
    plan.add(Fault.refuse(), watch=True, since=0, until=11)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(replace)
        await client.wait_deleted("configmaps", "one", timeout=60)


async def test_an_object_that_was_replaced_before_anybody_waited_is_deleted(
    client: Client, cluster: Cluster, autojump_clock: MockClock
) -> None:
    old = await cluster.create(config_map("one"))
    await cluster.delete("configmaps", "one", "default")
    new = await cluster.create(config_map("one"))
    with trio.fail_after(60):
        await client.wait_deleted(old)
    assert trio.current_time() == 0
    with pytest.raises(TimeoutError):
        await client.wait_deleted(new, timeout=60)
