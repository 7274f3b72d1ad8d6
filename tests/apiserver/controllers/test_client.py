"""Tests for :mod:`trioperator.apiserver.controllers.client`: controllers read from the store and write by the API."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.controllers.objects import Object, pod
from trioperator.apiserver import Cluster
from trioperator.apiserver.controllers import Client
from trioperator.apiserver.controllers.client import Resource
from trioperator.errors import ConflictError, InvalidError

CONFIGS: Resource = ("", "configmaps")
PODS: Resource = ("", "pods")


@pytest.fixture
def client(cluster: Cluster) -> Client:
    api = cluster.api
    return Client(api.state, writer=api.writer, deleter=api.deleter, tidy=cluster.tidy)


def config(name: str, *, owner: Object | None = None, namespace: str = "default", **more: Any) -> Object:
    """Return a ConfigMap; its owner controls it."""
    meta: Object = {"name": name, "namespace": namespace, **more}
    if owner is not None:
        uid = owner["metadata"]["uid"]
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": uid}
        meta["ownerReferences"] = [{**reference, "controller": True}]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}


def names(objs: list[Object]) -> list[str]:
    return [obj["metadata"]["name"] for obj in objs]


async def test_objects_are_read_by_key_and_namespace(cluster: Cluster, client: Client) -> None:
    await cluster.create(config("a"))
    await cluster.create(config("b", namespace="kube-public"))
    assert client.get(CONFIGS, "kube-public/b") == await cluster.get("cm", "b", "kube-public")
    assert client.get(CONFIGS, "default/b") is None
    assert names(client.all(CONFIGS)) == ["a", "b"]
    assert names(client.all(CONFIGS, "default")) == ["a"]


async def test_owned_objects_and_orphans_follow_the_owner_references(cluster: Cluster, client: Client) -> None:
    owner = await cluster.create(config("owner"))
    await cluster.create(config("first", owner=owner))
    with client.following(lambda table, change: None):
        assert names(client.owned(owner, CONFIGS)) == ["first"]  # it existed before
        await cluster.create(config("second", owner=owner))
        assert names(client.owned(owner, CONFIGS)) == ["first", "second"]
        assert names(client.orphans(CONFIGS, "default")) == ["owner"]
        assert client.owned(owner, PODS) == client.orphans(CONFIGS, "kube-public") == []
        await cluster.patch("cm", "first", {"metadata": {"ownerReferences": None}})
        assert names(client.owned(owner, CONFIGS)) == ["second"]
        assert names(client.orphans(CONFIGS, "default")) == ["owner", "first"]
        await cluster.delete("cm", "second")
        assert client.owned(owner, CONFIGS) == []


async def test_an_owner_that_is_not_the_controller_does_not_count(cluster: Cluster, client: Client) -> None:
    owner = await cluster.create(config("owner"))
    child = config("child", owner=owner)
    child["metadata"]["ownerReferences"][0]["controller"] = False
    with client.following(lambda table, change: None):
        await cluster.create(child)
        assert client.owned(owner, CONFIGS) == []
        assert names(client.orphans(CONFIGS, "default")) == ["owner", "child"]


async def test_a_listener_is_called_with_changes_in_its_block_only(cluster: Cluster, client: Client) -> None:
    seen: list[str] = []
    await cluster.create(config("before"))
    with client.following(lambda table, change: seen.append(change.key)):
        await cluster.create(config("within"))
    await cluster.create(config("after"))
    assert seen == ["default/within"]


async def test_creation_is_checked_as_that_of_other_clients(cluster: Cluster, client: Client) -> None:
    made = await client.create(CONFIGS, config("a"))
    assert made == await cluster.get("cm", "a")
    with pytest.raises(ConflictError):
        await client.create(CONFIGS, config("a"))
    with pytest.raises(InvalidError, match=r"metadata\.name: Invalid value"):
        await client.create(CONFIGS, config("Not a name"))


async def test_an_unchanged_status_is_not_written(cluster: Cluster, client: Client) -> None:
    obj = await cluster.create(pod())
    await client.set_status(PODS, obj, {"phase": "Failed"})
    stored = client.get(PODS, "default/p")
    assert stored is not None
    assert stored["status"] == {"phase": "Failed"}  # it is replaced, not merged
    await client.set_status(PODS, obj, obj["status"])
    assert client.get(PODS, "default/p") == stored


async def test_writes_to_an_object_that_is_gone_are_ignored(cluster: Cluster, client: Client) -> None:
    obj = await cluster.create(config("a"))
    await cluster.delete("cm", "a")
    revision = cluster.revision
    await client.merge(CONFIGS, obj, {"data": {"a": "b"}})
    await client.set_status(CONFIGS, obj, {"a": "b"})
    await client.delete(CONFIGS, obj)
    assert cluster.revision == revision


async def test_an_object_that_was_replaced_is_not_deleted(cluster: Cluster, client: Client) -> None:
    old = await cluster.create(config("a"))
    await cluster.delete("cm", "a")
    new = await cluster.create(config("a"))
    with pytest.raises(ConflictError):
        await client.delete(CONFIGS, old)
    assert await cluster.get("cm", "a") == new


async def test_a_bound_pod_has_its_node(cluster: Cluster, client: Client) -> None:
    obj = await cluster.create(pod())
    await client.bind(obj, "n")
    bound = await cluster.get("pods", "p")
    assert bound["spec"] == {**obj["spec"], "nodeName": "n"}
    assert "nodeName" not in obj["spec"]
