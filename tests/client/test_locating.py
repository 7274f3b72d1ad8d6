"""Tests for :mod:`trioperator.client.locating`."""

from __future__ import annotations

import pytest
import trio

from tests.client.conftest import config_map, handling
from tests.runtime.conftest import CRD
from trioperator._model.resource import Resource
from trioperator.apiserver import Cluster
from trioperator.client import Client
from trioperator.client.locating import Target, choose_namespace
from trioperator.errors import ConfigError, NotFoundError


def paths(cluster: Cluster) -> list[str]:
    return [request.path for request in cluster.requests]


async def test_a_kind_is_looked_up_once(client: Client, cluster: Cluster) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(client.list, "deployments")
    assert sorted(set(paths(cluster))) == ["/api", "/apis", "/apis/apps/v1/namespaces/default/deployments"]
    assert paths(cluster).count("/apis") == 1


async def test_only_the_group_of_a_kind_is_looked_up(client: Client, cluster: Cluster) -> None:
    await client.list("v1", "Pod")
    assert paths(cluster) == ["/api", "/api/v1/namespaces/default/pods"]


async def test_a_resource_is_not_looked_up(client: Client, cluster: Cluster) -> None:
    await client.list(Resource("apps", "v1", "deployments"))
    assert paths(cluster) == ["/apis/apps/v1/namespaces/default/deployments"]


async def test_a_kind_that_does_not_exist_yet_is_found_when_it_does(client: Client, cluster: Cluster) -> None:
    with pytest.raises(NotFoundError, match=r"does not serve the kind example\.com/widgets"):
        await client.list("widgets.example.com")
    await cluster.apply(CRD)
    assert await client.list("widgets.example.com") == []


async def test_the_kind_that_may_be_meant_is_named(client: Client, cluster: Cluster) -> None:
    await cluster.apply(CRD)
    for kind in ("widgest", "widgest.example.com"):
        with pytest.raises(NotFoundError, match=r"does not serve the kind .*widgest \(did you mean widgets\?\)"):
            await client.list(kind)


async def test_a_kind_is_found_although_only_others_of_its_group_have_the_preferred_version(
    client: Client, cluster: Cluster
) -> None:
    names = {"kind": "Gadget", "plural": "gadgets", "singular": "gadget"}
    newer = [{**version, "name": "v2"} for version in CRD["spec"]["versions"]]
    spec = {**CRD["spec"], "names": names, "versions": newer}
    await cluster.apply(CRD)
    await cluster.apply({**CRD, "metadata": {"name": "gadgets.example.com"}, "spec": spec})
    assert await client.list("widgets.example.com") == []
    assert await client.list("gadgets.example.com") == []


async def test_a_name_of_several_kinds_is_an_error(client: Client, cluster: Cluster) -> None:
    other = {**CRD, "metadata": {"name": "widgets.example.org"}, "spec": {**CRD["spec"], "group": "example.org"}}
    await cluster.apply(CRD)
    await cluster.apply(other)
    with pytest.raises(ConfigError, match=r"widgets\.v1\.example\.com, widgets\.v1\.example\.org"):
        await client.list("widgets")
    assert await client.list("widgets.example.org") == []


async def test_a_name_of_several_kinds_is_that_of_the_core_group(client: Client, cluster: Cluster) -> None:
    await client.list("events")
    assert paths(cluster)[-1] == "/api/v1/namespaces/default/events"


PODS = Resource("", "v1", "pods", kind="Pod", singular="pod")
NODES = Resource("", "v1", "nodes", kind="Node", singular="node", namespaced=False)


async def test_the_namespace_is_the_chosen_one_else_of_the_handled_object_else_of_the_connection(
    client: Client, cluster: Cluster
) -> None:
    kube = await client._connect()
    assert choose_namespace(kube, PODS, "chosen") == "chosen"
    assert choose_namespace(kube, PODS, None) == "default"
    with handling({"metadata": {"namespace": "its"}}):
        assert choose_namespace(kube, PODS, None) == "its"
        assert choose_namespace(kube, PODS, None, everywhere=True) is None
        assert choose_namespace(kube, NODES, None) is None
    with pytest.raises(TypeError, match="not both"):
        choose_namespace(kube, PODS, "chosen", everywhere=True)


async def test_targets_are_named_in_errors_by_kind_and_name(client: Client) -> None:
    kube = await client._connect()
    assert str(Target(kube, PODS, "default", "web")).endswith(" default/web")
    assert str(Target(kube, NODES, None, "one")).endswith(" one")
    with pytest.raises(TimeoutError, match=r"configmaps.* default/one is not deleted after 0 seconds"):
        await client.create(config_map("one"))
        await client.wait_deleted("configmaps", "one", timeout=0)
