"""Tests for :mod:`trioperator.apiserver.controllers.housekeeping`: expiry, default accounts, garbage."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from tests.apiserver.controllers.objects import Object
from trioperator.apiserver import Cluster
from trioperator.apiserver.controllers import Pace


def event(name: str) -> Object:
    involved = {"kind": "Pod", "namespace": "default", "name": "p"}
    return {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "involvedObject": involved}


async def names(cluster: Cluster, kind: str) -> list[str]:
    return [obj["metadata"]["name"] for obj in await cluster.list(kind, "default")]


async def test_events_expire_an_hour_after_their_last_change(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("events"):
        await cluster.create(event("a"))
        await cluster.create(event("b"))
        await trio.sleep(3000)
        await cluster.patch("events", "b", {"count": 2})
        await trio.sleep(599)
        assert await names(cluster, "events") == ["a", "b"]
        await trio.sleep(2)
        assert await names(cluster, "events") == ["b"]
        await trio.sleep(3000)
        assert await names(cluster, "events") == []


async def test_the_lifetime_of_events_is_configurable(cluster: Cluster, autojump_clock: MockClock) -> None:
    await cluster.create(event("a"))
    async with cluster.open_controllers("events", pace=Pace(event_ttl=10)):
        await trio.sleep(11)
        assert await names(cluster, "events") == []


async def test_an_event_that_is_created_again_is_new(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("events", pace=Pace(event_ttl=10)):
        await cluster.create(event("a"))
        await trio.sleep(8)
        await cluster.delete("events", "a")
        await cluster.create(event("a"))
        await trio.sleep(9)
        assert await names(cluster, "events") == ["a"]
        await trio.sleep(2)
        assert await names(cluster, "events") == []


async def test_each_namespace_has_a_service_account(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("service-accounts"):
        await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}})
        await trio.sleep(1)
        accounts = await cluster.list("serviceaccounts")
        places = {obj["metadata"]["namespace"] for obj in accounts if obj["metadata"]["name"] == "default"}
        assert places == {"default", "kube-node-lease", "kube-public", "kube-system", "new"}
        await cluster.delete("sa", "default")
        await trio.sleep(1)
        assert await names(cluster, "sa") == ["default"]
        await cluster.delete("ns", "new")
        await trio.sleep(1)
        assert await cluster.find("ns", "new") is None


async def test_an_account_that_exists_is_left_alone(cluster: Cluster, autojump_clock: MockClock) -> None:
    meta = {"name": "default", "namespace": "default", "labels": {"mine": "yes"}}
    made = await cluster.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    async with cluster.open_controllers("service-accounts"):
        await trio.sleep(1)
        assert await cluster.get("sa", "default") == made


async def test_a_terminating_namespace_gets_no_new_account(
    cluster: Cluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}}
    keeper = {"apiVersion": "v1", "kind": "ConfigMap"}
    async with cluster.open_controllers("service-accounts"):
        await cluster.create(manifest)
        await cluster.create({**keeper, "metadata": {"name": "a", "namespace": "new", "finalizers": ["a.b/c"]}})
        await trio.sleep(1)
        await cluster.delete("ns", "new")
        await trio.sleep(1)
        assert (await cluster.get("ns", "new"))["status"]["phase"] == "Terminating"
        assert await cluster.list("sa", "new") == []
    assert caplog.messages == []  # nothing was tried and rejected


async def test_other_accounts_are_not_recreated(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("service-accounts"):
        await cluster.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "other"}})
        await trio.sleep(1)
        assert await names(cluster, "sa") == ["default", "other"]
        await cluster.delete("sa", "other")
        await trio.sleep(1)
        assert await names(cluster, "sa") == ["default"]


def config(name: str, *, owner: Object | None = None, namespace: str = "default") -> Object:
    meta: Object = {"name": name, "namespace": namespace}
    if owner is not None:
        own = owner["metadata"]
        meta["ownerReferences"] = [{"apiVersion": "v1", "kind": "ConfigMap", "name": own["name"], "uid": own["uid"]}]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}


async def test_garbage_is_collected_immediately_by_default(cluster: Cluster) -> None:
    owner = await cluster.create(config("owner"))
    await cluster.create(config("child", owner=owner))
    assert cluster.is_prompt
    await cluster.delete("cm", "owner")
    assert await names(cluster, "cm") == []


async def test_garbage_stays_visible_until_it_is_collected(cluster: Cluster) -> None:
    cluster.is_prompt = False
    owner = await cluster.create(config("owner"))
    child = await cluster.create(config("child", owner=owner))
    await cluster.create(config("grandchild", owner=child))
    await cluster.delete("cm", "owner")
    assert await names(cluster, "cm") == ["child", "grandchild"]
    cluster.tidy()
    assert await names(cluster, "cm") == []


async def test_a_terminating_namespace_stays_visible(cluster: Cluster) -> None:
    cluster.is_prompt = False
    await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}})
    await cluster.create(config("inside", namespace="new"))
    await cluster.delete("ns", "new")
    assert (await cluster.get("ns", "new"))["status"]["phase"] == "Terminating"
    assert await cluster.find("cm", "inside", "new") is not None
    cluster.tidy()
    assert await cluster.find("ns", "new") is None
    assert await cluster.list("cm", "new") == []


async def test_the_garbage_collector_runs_with_a_delay(cluster: Cluster, autojump_clock: MockClock) -> None:
    cluster.is_prompt = False
    async with cluster.open_controllers("garbage-collector"):
        owner = await cluster.create(config("owner"))
        await cluster.create(config("child", owner=owner))
        await cluster.delete("cm", "owner")
        assert await cluster.find("cm", "child") is not None
        await trio.sleep(1)
        assert await names(cluster, "cm") == []
