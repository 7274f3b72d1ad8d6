"""Tests for :mod:`trioperator.client.watching`."""

from __future__ import annotations

import httpx
import pytest
import trio
from trio.testing import MockClock

from tests.client.conftest import config_map, opened
from tests.kube.conftest import Memory, ok
from trioperator.apiserver import Cluster
from trioperator.client import Client
from trioperator.client.watching import ObjectWatch
from trioperator.errors import ConnectionLostError, ForbiddenError
from trioperator.model.resource import Resource
from trioperator.testing import Fault, FaultPlan, FaultyTransport

WATCH_FAULTS = {
    "dropped": Fault.break_off(lines=1),
    "truncated": Fault.half_line(lines=1),
    "garbage": Fault.garbage(lines=1),
    "error": Fault.error_event(500, lines=1),
    "expired": Fault.error_event(410, lines=1),
    "refused": Fault.refuse(),
    "unavailable": Fault.status(503),
    "too many": Fault.status(429, retry_after=1),
}


async def receive(events: ObjectWatch, count: int) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    with trio.fail_after(60):
        while len(found) < count:
            event = await anext(events)
            found.append((event.type, event.object["metadata"]["name"]))
    return found


async def test_a_watch_begins_with_what_exists(client: Client, cluster: Cluster) -> None:
    await cluster.create(config_map("a"))
    async with client.watch("configmaps") as events:
        assert await receive(events, 1) == [("ADDED", "a")]
        await cluster.create(config_map("b"))
        await cluster.patch("configmaps", "a", {"data": {"x": "1"}}, "default")
        await cluster.delete("configmaps", "a", "default")
        assert await receive(events, 3) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "a")]


async def test_a_watch_is_for_what_was_selected(client: Client, cluster: Cluster) -> None:
    other = config_map("c")
    other["metadata"]["namespace"] = "kube-system"
    for manifest in (config_map("a"), config_map("b"), other):
        await cluster.create(manifest)
    async with client.watch("configmaps", name="b") as events:
        assert await receive(events, 1) == [("ADDED", "b")]
    async with client.watch("configmaps", all_namespaces=True, fields="metadata.name!=a") as events:
        assert await receive(events, 2) == [("ADDED", "b"), ("ADDED", "c")]
    with pytest.raises(TypeError, match="not both"):
        async with client.watch("configmaps", namespace="default", all_namespaces=True):
            pass


@pytest.mark.parametrize("fault", WATCH_FAULTS)
async def test_a_watch_goes_on_after(
    client: Client, cluster: Cluster, plan: FaultPlan, fault: str, autojump_clock: MockClock
) -> None:
    plan.add(WATCH_FAULTS[fault], watch=True, times=3)
    seen: dict[str, str] = {}

    async def change() -> None:
        for number in range(6):
            await trio.sleep(1)
            await cluster.apply(config_map(f"c{number % 2}", number=str(number)))
        await cluster.delete("configmaps", "c0", "default")

    async with client.watch("configmaps") as events, trio.open_nursery() as nursery:
        nursery.start_soon(change)
        with trio.fail_after(60):
            async for event in events:
                name = event.object["metadata"]["name"]
                if event.type == "DELETED":
                    del seen[name]
                    break
                assert (event.type == "MODIFIED") == (name in seen)
                seen[name] = event.object["data"]["number"]
    assert seen == {"c1": "5"}


async def test_what_is_deleted_while_a_watch_is_broken_is_noticed(
    client: Client, cluster: Cluster, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    await cluster.create(config_map("a", x="1"))
    await cluster.create(config_map("b"))
    plan.add(Fault.refuse(), watch=True, until=1)
    async with client.watch("configmaps") as events:
        assert len(await receive(events, 2)) == 2
        await cluster.delete("configmaps", "a", "default")
        await cluster.patch("configmaps", "b", {"data": {"x": "2"}}, "default")
        await cluster.create(config_map("c"))
        cluster.compact()
        found = [await anext(events) for _ in range(3)]
    assert [(event.type, event.object["metadata"]["name"]) for event in found] == [
        ("DELETED", "a"),
        ("MODIFIED", "b"),
        ("ADDED", "c"),
    ]
    assert found[0].object["data"] == {"x": "1"}


async def test_a_watch_that_fails_again_and_again_ends(
    plan: FaultPlan, cluster: Cluster, autojump_clock: MockClock
) -> None:
    plan.add(Fault.refuse(), watch=True)
    transport = FaultyTransport(cluster.transport(), plan)
    async with opened(transport, error_backoffs=[1, 2]) as client, client.watch("configmaps") as events:
        with pytest.raises(ConnectionLostError):
            await anext(events)
    assert trio.current_time() == 3


async def test_a_watch_that_is_not_allowed_ends_at_once(
    client: Client, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    plan.add(Fault.status(403), resource="configmaps")
    async with client.watch("configmaps") as events:
        with pytest.raises(ForbiddenError):
            await anext(events)
    assert trio.current_time() == 0


async def test_a_server_that_ends_each_watch_at_once_is_not_asked_all_the_time(autojump_clock: MockClock) -> None:
    listing = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}
    server = Memory([ok(listing), httpx.Response(200, content=b"")])
    async with opened(server, error_backoffs=[5, 5]) as client, client.watch(Resource("", "v1", "pods")) as events:
        with pytest.raises(ConnectionLostError, match="at once"):
            await anext(events)
    assert server.times == [0, 0, 5, 10]
