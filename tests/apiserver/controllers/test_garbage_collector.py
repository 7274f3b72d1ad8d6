"""Tests for :mod:`trioperator.apiserver.controllers.garbage_collector`: garbage stays until it is collected."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from tests.apiserver.controllers.objects import Object
from trioperator.apiserver import Cluster


def config(name: str, *, owner: Object | None = None, namespace: str = "default") -> Object:
    meta: Object = {"name": name, "namespace": namespace}
    if owner is not None:
        own = owner["metadata"]
        meta["ownerReferences"] = [{"apiVersion": "v1", "kind": "ConfigMap", "name": own["name"], "uid": own["uid"]}]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}


async def names(cluster: Cluster, kind: str) -> list[str]:
    return [obj["metadata"]["name"] for obj in await cluster.list(kind, "default")]


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
