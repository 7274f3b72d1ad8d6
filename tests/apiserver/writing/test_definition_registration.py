"""Tests for :mod:`trioperator.apiserver.writing.definition_registration`: definitions take effect with their write."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import trio
import trio.testing

from tests.apiserver.conftest import definition, watch
from trioperator.apiserver import Cluster
from trioperator.errors import ConflictError

GROUP = "things.test"
PATH = f"/apis/{GROUP}/v1/namespaces/default/things"
NAME = f"things.{GROUP}"
DEFINITION = definition("things", "Thing", group=GROUP)


def thing(name: str, **meta: Any) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Thing", "metadata": {"name": name, **meta}}


@pytest.fixture
async def cluster() -> Cluster:
    """Return a cluster with one definition."""
    cluster = Cluster(seed=0)
    await cluster.create(DEFINITION)
    return cluster


async def status_of(cluster: Cluster, name: str = NAME) -> dict[str, str]:
    crd = await cluster.get("customresourcedefinitions", name)
    return {condition["type"]: condition["status"] for condition in crd["status"]["conditions"]}


async def code_of(client: httpx.AsyncClient, path: str = PATH) -> int:
    return (await client.get(path)).status_code


async def test_a_kind_is_served_as_soon_as_its_definition_is_created() -> None:
    cluster = Cluster(seed=0)
    client = cluster.client()
    assert await code_of(client) == 404
    await cluster.create(DEFINITION)
    assert await code_of(client) == 200
    assert await status_of(cluster) == {"NamesAccepted": "True", "Established": "True"}
    await cluster.create(thing("a"))
    assert [obj["metadata"]["name"] for obj in await cluster.list("things")] == ["a"]


async def test_a_definition_whose_names_are_taken_is_not_served(cluster: Cluster) -> None:
    other = definition("others", "Thing", group=GROUP)
    await cluster.create(other)
    assert (await status_of(cluster, f"others.{GROUP}"))["NamesAccepted"] == "False"
    assert await code_of(cluster.client(), f"/apis/{GROUP}/v1/others") == 404
    assert await code_of(cluster.client()) == 200


async def test_versions_are_served_as_the_definition_says(cluster: Cluster) -> None:
    (first,) = DEFINITION["spec"]["versions"]
    path = PATH.replace("/v1/", "/v2/")
    assert await code_of(cluster.client(), path) == 404
    versions = [first, {**first, "name": "v2", "storage": False}]
    await cluster.patch("customresourcedefinitions", NAME, {"spec": {"versions": versions}})
    assert await code_of(cluster.client(), path) == 200
    versions[1]["served"] = False
    await cluster.patch("customresourcedefinitions", NAME, {"spec": {"versions": versions}})
    assert await code_of(cluster.client(), path) == 404


async def test_a_definition_is_deleted_with_its_objects(cluster: Cluster) -> None:
    await cluster.create(thing("plain"))
    await cluster.create(thing("kept", finalizers=["a.b/c"]))
    await cluster.delete("customresourcedefinitions", NAME)
    (left,) = await cluster.list("things")
    assert (left["metadata"]["name"], "deletionTimestamp" in left["metadata"]) == ("kept", True)
    assert (await status_of(cluster))["Terminating"] == "True"
    await cluster.patch("things", "kept", {"metadata": {"finalizers": None}})
    assert await cluster.find("customresourcedefinitions", NAME) is None
    assert await code_of(cluster.client()) == 404


async def test_a_definition_that_comes_back_has_no_objects(cluster: Cluster) -> None:
    await cluster.create(thing("a"))
    await cluster.delete("customresourcedefinitions", NAME)
    await cluster.create(DEFINITION)
    assert await cluster.list("things") == []
    await cluster.create(thing("a"))
    with pytest.raises(ConflictError):
        await cluster.create(thing("a"))


async def test_watches_end_when_the_definition_changes(
    cluster: Cluster, autojump_clock: trio.testing.MockClock
) -> None:
    columns = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]
    versions = [{**DEFINITION["spec"]["versions"][0], "additionalPrinterColumns": columns}]
    ended = trio.Event()

    async def follow() -> None:
        await watch(cluster.client(), PATH)
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await trio.testing.wait_all_tasks_blocked()
        await cluster.patch("customresourcedefinitions", NAME, {"metadata": {"labels": {"a": "b"}}})
        await trio.testing.wait_all_tasks_blocked()
        assert not ended.is_set()
        await cluster.patch("customresourcedefinitions", NAME, {"spec": {"versions": versions}})
        with trio.fail_after(60):
            await ended.wait()
    assert await code_of(cluster.client()) == 200
