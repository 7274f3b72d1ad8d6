"""Tests for :mod:`trioperator.apiserver.controllers.events`: the expiry of Kubernetes Events."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from tests.apiserver.controllers.objects import Object
from trioperator.apiserver import Cluster
from trioperator.apiserver.controllers import Pace


def event(name: str) -> Object:
    involved = {"kind": "Pod", "namespace": "default", "name": "p"}
    return {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "involvedObject": involved}


async def names(cluster: Cluster) -> list[str]:
    return [obj["metadata"]["name"] for obj in await cluster.list("events", "default")]


async def test_events_expire_an_hour_after_their_last_change(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("events"):
        await cluster.create(event("a"))
        await cluster.create(event("b"))
        await trio.sleep(3000)
        await cluster.patch("events", "b", {"count": 2})
        await trio.sleep(599)
        assert await names(cluster) == ["a", "b"]
        await trio.sleep(2)
        assert await names(cluster) == ["b"]
        await trio.sleep(3000)
        assert await names(cluster) == []


async def test_the_lifetime_of_events_is_configurable(cluster: Cluster, autojump_clock: MockClock) -> None:
    await cluster.create(event("a"))
    async with cluster.open_controllers("events", pace=Pace(event_ttl=10)):
        await trio.sleep(11)
        assert await names(cluster) == []


async def test_an_event_that_is_created_again_is_new(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("events", pace=Pace(event_ttl=10)):
        await cluster.create(event("a"))
        await trio.sleep(8)
        await cluster.delete("events", "a")
        await cluster.create(event("a"))
        await trio.sleep(9)
        assert await names(cluster) == ["a"]
        await trio.sleep(2)
        assert await names(cluster) == []
