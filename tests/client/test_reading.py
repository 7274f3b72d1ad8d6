"""Tests for :mod:`trioperator.client.reading`."""

from __future__ import annotations

import pytest

from tests.client.conftest import config_map, deployment, handling
from trioperator._model.body import Body
from trioperator.apiserver import Cluster
from trioperator.client import Client
from trioperator.errors import NotFoundError


async def test_an_object_is_as_the_cluster_has_it(client: Client, cluster: Cluster) -> None:
    await cluster.create(config_map("one", a="1"))
    found = await cluster.get("configmaps", "one", "default")
    for name in ("configmaps", "cm", "ConfigMap"):
        assert await client.get(name, "one") == found
    assert await client.get("v1", "ConfigMap", "one") == found
    assert await client.get(found) == found


async def test_an_object_that_does_not_exist_is_an_error(client: Client) -> None:
    with pytest.raises(NotFoundError, match='"one" not found'):
        await client.get("configmaps", "one")


async def test_a_subresource_can_be_read(client: Client, cluster: Cluster) -> None:
    await cluster.create(deployment("web", replicas=3))
    assert (await client.get("deployments", "web", subresource="scale"))["spec"] == {"replicas": 3}


async def test_cluster_scoped_objects_have_no_namespace(client: Client) -> None:
    assert (await client.get("namespaces", "default"))["metadata"]["name"] == "default"
    assert len(await client.list("namespaces")) >= 2


async def test_the_namespace_is_that_of_the_handled_object(client: Client, cluster: Cluster) -> None:
    there = config_map("one", there="yes")
    there["metadata"]["namespace"] = "kube-system"
    await cluster.create(there)
    await cluster.create(config_map("one", here="yes"))
    with handling(await cluster.get("configmaps", "one", "kube-system")):
        assert (await client.get("configmaps", "one"))["data"] == {"there": "yes"}
        assert (await client.get("configmaps", "one", namespace="default"))["data"] == {"here": "yes"}
        assert [found["data"] for found in await client.list("configmaps")] == [{"there": "yes"}]
        assert len(await client.list("configmaps", all_namespaces=True)) == 2
    with handling(await cluster.get("namespaces", "kube-system")):
        assert (await client.get("configmaps", "one"))["data"] == {"here": "yes"}
    assert (await client.get("configmaps", "one"))["data"] == {"here": "yes"}
    assert (await client.get(there))["data"] == {"there": "yes"}


async def test_an_object_is_refreshed(client: Client, cluster: Cluster) -> None:
    created = await cluster.create(config_map("one", a="1"))
    body, copied = Body(dict(created)), dict(created)
    await cluster.patch("configmaps", "one", {"data": {"a": "2"}, "metadata": {"labels": {"x": "y"}}}, "default")
    labels = body.meta.labels
    assert await client.refresh(body) == await client.refresh(copied) == copied == body
    assert body["data"] == {"a": "2"}
    assert labels == {"x": "y"}


async def test_an_object_that_was_replaced_is_not_refreshed(client: Client, cluster: Cluster) -> None:
    created = await cluster.create(config_map("one"))
    await cluster.delete("configmaps", "one", "default")
    with pytest.raises(NotFoundError):
        await client.refresh(created)
    await cluster.create(config_map("one"))
    with pytest.raises(NotFoundError, match="was replaced"):
        await client.refresh(created)
