"""Tests for :mod:`trioperator.client.deleting`: what is deleted when responses are lost, and objects are replaced."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.client.conftest import config_map, opened
from trioperator._concurrency.clock import wall_now
from trioperator.apiserver import Cluster
from trioperator.client import Client
from trioperator.errors import ConflictError, ConnectionLostError, NotFoundError, ServerError
from trioperator.testing import Fault, FaultPlan, FaultyTransport, eventually


async def exists(cluster: Cluster) -> bool:
    return await cluster.find("configmaps", "one", "default") is not None


async def replace(cluster: Cluster) -> dict[str, Any]:
    """Delete the object, and create another one of the same name."""
    await cluster.delete("configmaps", "one", "default")
    return await cluster.create(config_map("one"))


async def recreate(cluster: Cluster) -> None:
    """Wait until the object is deleted, and create another one of the same name."""
    await eventually(lambda: deletions(cluster))
    await cluster.create(config_map("one", new="yes"))


def deletions(cluster: Cluster) -> list[Any]:
    return [request for request in cluster.requests if request.method == "DELETE"]


@pytest.mark.parametrize("age", [0, 3600])
@pytest.mark.parametrize("by_name", [False, True])
async def test_the_successor_of_an_object_is_not_deleted_if_the_response_is_lost(
    client: Client, cluster: Cluster, plan: FaultPlan, autojump_clock: MockClock, by_name: bool, age: float
) -> None:
    old = await cluster.create(config_map("one"))
    await trio.sleep(age)
    plan.add(Fault.lose_answer(), times=1, verb="delete")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(recreate, cluster)
        if by_name:
            with pytest.raises(ConnectionLostError):
                await client.delete("configmaps", "one")
        else:
            await client.delete(old)
    assert await exists(cluster)


async def test_a_deletion_by_name_is_repeated_with_the_uid_of_an_object_that_is_older_than_it(
    client: Client, cluster: Cluster, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    await cluster.create(config_map("one"))
    await trio.sleep(60)
    plan.add(Fault.status(500), times=2, verb="delete")
    await client.delete("configmaps", "one")
    assert not await exists(cluster)
    assert len(deletions(cluster)) == 1


@pytest.mark.parametrize("age", [5, 60])
@pytest.mark.parametrize("ahead", [-3600, 3600])
async def test_a_local_clock_that_is_wrong_decides_nothing_about_what_is_deleted(
    plan: FaultPlan, autojump_clock: MockClock, age: float, ahead: float
) -> None:
    cluster = Cluster(clock=lambda: wall_now() + datetime.timedelta(seconds=ahead))
    await cluster.create(config_map("one"))
    await trio.sleep(age)
    plan.add(Fault.status(500), times=1, verb="delete")
    async with opened(FaultyTransport(cluster.transport(), plan)) as client:
        if age == 60:
            await client.delete("configmaps", "one")
        else:
            with pytest.raises(ServerError):  # it may be a successor
                await client.delete("configmaps", "one")
    assert await exists(cluster) is (age == 5)


async def test_a_deletion_by_name_whose_object_is_replaced_before_it_is_repeated_has_succeeded(
    client: Client, cluster: Cluster, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    await cluster.create(config_map("one"))
    await trio.sleep(60)
    plan.add(Fault.status(500), times=1, verb="delete")
    plan.add(Fault.delay(before=10), times=1, verb="delete")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.delete, "configmaps", "one")
        await trio.sleep(5)
        await replace(cluster)
    assert await exists(cluster)


async def test_an_object_that_is_being_deleted_counts_as_the_one_that_was_meant(
    client: Client, cluster: Cluster, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    body = config_map("one")
    body["metadata"]["finalizers"] = ["example.com/wait"]
    await cluster.create(body)
    plan.add(Fault.lose_answer(), times=1, verb="delete")
    await client.delete("configmaps", "one")
    assert (await cluster.get("configmaps", "one", "default"))["metadata"]["deletionTimestamp"]


async def test_a_deletion_by_name_is_not_repeated_if_the_object_may_not_be_read(
    client: Client, cluster: Cluster, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    await cluster.create(config_map("one"))
    await trio.sleep(60)
    plan.add(Fault.status(503), times=1, verb="delete")
    plan.add(Fault.status(403), verb="get")
    with pytest.raises(ServerError):
        await client.delete("configmaps", "one")
    assert await exists(cluster)


async def test_no_deletion_needs_another_request_as_long_as_nothing_fails(client: Client, cluster: Cluster) -> None:
    for target in (("configmaps", "one"), (config_map("one"),), None):
        created = await cluster.create(config_map("one"))
        await client.get(created)  # the kind is known by now, by both of its names
        await client.list("configmaps")
        before = len(cluster.requests)
        await client.delete(*(target or (created,)))
        assert [request.method for request in list(cluster.requests)[before:]] == ["DELETE"]


async def test_an_object_that_was_replaced_is_gone(client: Client, cluster: Cluster, autojump_clock: MockClock) -> None:
    old = await cluster.create(config_map("one"))
    new = await replace(cluster)
    with pytest.raises(NotFoundError, match="replaced by another object"):
        await client.delete(old)
    await client.delete(old, missing_ok=True)
    with pytest.raises(ConflictError):
        await client.delete(new, uid=old["metadata"]["uid"], missing_ok=True)
    assert await exists(cluster)
    await client.delete(new)
    assert not await exists(cluster)


async def test_a_conflict_that_is_not_about_the_uid_is_tried_again(
    client: Client, cluster: Cluster, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    old = await cluster.create(config_map("one"))
    plan.add(Fault.status(409, reason="Conflict"), times=2, verb="delete")
    await client.delete(old)
    assert not await exists(cluster)


async def test_a_pod_that_was_replaced_is_not_evicted(
    client: Client, cluster: Cluster, autojump_clock: MockClock
) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web-0", "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "web"}]},
    }
    old = await cluster.create(pod)
    await cluster.delete("pods", "web-0", "default")
    await cluster.create(pod)
    with pytest.raises(NotFoundError, match="replaced by another object"):
        await client.evict(old)
    assert await cluster.find("pods", "web-0", "default") is not None
