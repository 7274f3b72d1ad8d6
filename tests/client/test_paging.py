"""Tests for :mod:`trioperator.client.paging`."""

from __future__ import annotations

import logging

import pytest

from tests.client.conftest import config_map, opened
from tests.kube.conftest import Memory, ok
from trioperator._model.resource import Resource
from trioperator.apiserver import Cluster
from trioperator.client import Client
from trioperator.client.paging import make_selectors
from trioperator.errors import ExpiredError
from trioperator.testing import Fault, FaultPlan


def names(objects: list[dict[str, object]]) -> list[object]:
    return [obj["metadata"]["name"] for obj in objects]  # type: ignore[index]  # of JSON


def queries(cluster: Cluster) -> list[str]:
    return [request.query.get("limit", "") for request in cluster.requests if "configmaps" in request.path]


@pytest.fixture
async def five(cluster: Cluster) -> list[str]:
    """Create five objects, and return their names."""
    made = [f"c{number}" for number in range(5)]
    for name in made:
        await cluster.create(config_map(name))
    return made


async def test_objects_come_page_by_page(client: Client, cluster: Cluster, five: list[str]) -> None:
    found = [obj async for obj in client.iterate("configmaps", page_size=2)]
    assert names(found) == five
    assert queries(cluster) == ["2", "2", "2"]
    assert {(obj["apiVersion"], obj["kind"]) for obj in found} == {("v1", "ConfigMap")}


async def test_an_iteration_can_be_left(client: Client, cluster: Cluster, five: list[str]) -> None:
    async for obj in client.iterate("configmaps", page_size=2):
        assert names([obj]) == ["c0"]
        break
    assert queries(cluster) == ["2"]


async def test_an_iteration_that_takes_too_long_ends_with_an_error(
    client: Client, cluster: Cluster, five: list[str]
) -> None:
    with pytest.raises(ExpiredError):
        async for _ in client.iterate("configmaps", page_size=2):
            await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}})
            cluster.compact()


async def test_a_list_that_the_server_forgets_is_begun_anew(
    client: Client, cluster: Cluster, plan: FaultPlan, five: list[str]
) -> None:
    (await client._connect()).settings.watching.page_size = 2
    plan.add(Fault.status(410), times=1, path="continue=")
    assert names(await client.list("configmaps")) == five
    assert queries(cluster) == ["2", ""]


async def test_selectors_select(client: Client, cluster: Cluster, five: list[str]) -> None:
    await cluster.patch("configmaps", "c3", {"metadata": {"labels": {"app": "x"}}}, "default")
    assert names(await client.list("configmaps", labels={"app": "x"})) == ["c3"]
    assert names(await client.list("configmaps", labels="!app", fields={"metadata.name": "c1"})) == ["c1"]
    assert names(await client.list("configmaps", fields="metadata.name=c1")) == ["c1"]


def test_mappings_are_selectors() -> None:
    assert make_selectors({"a": "1", "b": "2"}, {}) == {"labelSelector": "a=1,b=2"}
    assert make_selectors(None, "a=1") == {"fieldSelector": "a=1"}
    assert make_selectors(None, {"a": "1"}, name="b") == {"fieldSelector": "a=1,metadata.name=b"}


def test_values_of_selectors_cannot_add_a_term() -> None:
    selectors = make_selectors(None, {"spec.nodeName": "a,metadata.name!=b\\"}, name="x,metadata.name=z")
    assert selectors["fieldSelector"] == r"spec.nodeName=a\,metadata.name!\=b\\,metadata.name=x\,metadata.name\=z"
    for labels in ({"app": "a,role!=b"}, {"app=a,role": "b"}, {"app": "in (a)"}):
        with pytest.raises(ValueError, match="No label can contain"):
            make_selectors(labels, None)


async def test_an_object_with_a_strange_name_is_not_another_one(client: Client, five: list[str]) -> None:
    assert names(await client.list("configmaps", fields={"metadata.name": "c1,metadata.name!=c2"})) == []
    with pytest.raises(TimeoutError):
        await client.wait_for("configmaps", "c1,metadata.name!=c2", condition=lambda _: True, timeout=1)


async def test_objects_that_cannot_be_read_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    good = {"metadata": {"name": "good"}}
    listing = {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {}, "items": [{"metadata": {"name": 1}}, good]}
    with caplog.at_level(logging.WARNING):
        async with opened(Memory([ok(listing)])) as client:
            pages = client.iterate(Resource("", "v1", "configmaps"))
            found = [body async for body in pages]
    assert names(found) == ["good"]
    assert pages.left_out == 1
    assert "is left out of the list of /api/v1/namespaces/default/configmaps" in caplog.text
