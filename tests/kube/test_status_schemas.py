"""Tests for :mod:`trioperator._kube.status_schemas`."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD
from tests.runtime.pausing import crd_with_conditions
from trioperator._kube.api_client import open_client
from trioperator._kube.status_schemas import StatusSchemas, is_custom
from trioperator._model.resource import Resource
from trioperator.apiserver import Cluster
from trioperator.errors import ApiError
from trioperator.testing import Fault, FaultPlan, FaultyTransport

STATUS = frozenset({"status"})
WIDGETS = Resource("example.com", "v1", "widgets", kind="Widget", subresources=STATUS)


@contextlib.asynccontextmanager
async def open_schemas(cluster: Cluster, plan: FaultPlan | None = None) -> AsyncIterator[StatusSchemas]:
    settings = trioperator.OperatorSettings()
    settings.networking.error_backoffs = ()
    info = trioperator.ConnectionInfo(server="http://embedded")
    transport = FaultyTransport(cluster.transport(), plan or FaultPlan())
    async with open_client(lambda: info, settings=settings, transport=transport) as client:
        yield StatusSchemas(client)


def count(cluster: Cluster) -> int:
    return sum("/openapi/" in request.path for request in cluster.requests)


async def test_a_kind_with_conditions_is_asked_for_once(cluster: Cluster, autojump_clock: MockClock) -> None:
    await cluster.apply(crd_with_conditions())
    async with open_schemas(cluster) as schemas:
        assert await schemas.has_conditions(WIDGETS)
        await trio.sleep(3600)
        assert await schemas.has_conditions(WIDGETS)
    assert count(cluster) == 1


async def test_a_kind_that_gets_conditions_later_is_noticed(cluster: Cluster, autojump_clock: MockClock) -> None:
    await cluster.apply(CRD)
    async with open_schemas(cluster) as schemas:
        assert [await schemas.has_conditions(WIDGETS) for _ in range(5)] == [False] * 5
        assert count(cluster) == 1
        await cluster.apply(crd_with_conditions())
        await trio.sleep(600)
        assert await schemas.has_conditions(WIDGETS)


@pytest.mark.parametrize("conditions", [{"type": "object"}, {}])
async def test_conditions_that_are_no_list_are_none(
    conditions: dict[str, Any], cluster: Cluster, autojump_clock: MockClock
) -> None:
    crd = copy.deepcopy(crd_with_conditions())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["status"]["properties"]["conditions"] = {
        **conditions,
        "x-kubernetes-preserve-unknown-fields": True,
    }
    await cluster.apply(crd)
    async with open_schemas(cluster) as schemas:
        assert not await schemas.has_conditions(WIDGETS)


@pytest.mark.parametrize(
    ("group", "subresources", "custom"),
    [
        ("example.com", STATUS, True),
        ("cluster.x-k8s.io", STATUS, True),
        ("example.com", frozenset(), False),
        ("", STATUS, False),
        ("apps", STATUS, False),
        ("networking.k8s.io", STATUS, False),
    ],
)
def test_kinds_of_kubernetes_itself_are_not_custom(group: str, subresources: frozenset[str], custom: bool) -> None:
    assert is_custom(Resource(group, "v1", "things", subresources=subresources)) is custom


async def test_built_in_kinds_are_not_asked_for(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with open_schemas(cluster) as schemas:
        assert not await schemas.has_conditions(Resource("apps", "v1", "deployments", subresources=STATUS))
    assert count(cluster) == 0


@pytest.mark.parametrize("fault", [Fault.status(403), Fault.status(404), Fault.answer(200, b"no JSON")])
async def test_a_schema_that_cannot_be_read_has_none(fault: Fault, cluster: Cluster, autojump_clock: MockClock) -> None:
    plan = FaultPlan()
    plan.add(fault, path="/openapi/")
    async with open_schemas(cluster, plan) as schemas:
        assert not await schemas.has_conditions(WIDGETS)


async def test_a_kind_that_is_not_described_yet_is_asked_for_again(cluster: Cluster, autojump_clock: MockClock) -> None:
    await cluster.apply(crd_with_conditions())
    plan = FaultPlan()
    plan.add(Fault.status(404), path="/openapi/", times=2)
    async with open_schemas(cluster, plan) as schemas:
        for delay in (1, 2):
            assert not await schemas.has_conditions(WIDGETS)
            assert not await schemas.has_conditions(WIDGETS)
            assert schemas.find_retry(WIDGETS) == trio.current_time() + delay
            await trio.sleep(delay)
        assert await schemas.has_conditions(WIDGETS)
        assert schemas.find_retry(WIDGETS) is None
    assert count(cluster) == 1  # and two that have failed


async def test_a_kind_that_is_never_described_counts_as_one_without_conditions(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    plan = FaultPlan()
    missing = plan.add(Fault.status(404), path="/openapi/")
    async with open_schemas(cluster, plan) as schemas:
        for delay in (1, 2, 4, 8, 16, 30):
            assert not await schemas.has_conditions(WIDGETS)
            await trio.sleep(delay)
        assert not await schemas.has_conditions(WIDGETS)
        assert schemas.find_retry(WIDGETS) is None
        assert missing.hits == 7
        await trio.sleep(599)
        assert not await schemas.has_conditions(WIDGETS)
    assert missing.hits == 7


@pytest.mark.parametrize("document", [b"[]", b"{}", b'{"components": {"schemas": {"a": 5, "b": {}}}}', b"[" * 5000])
async def test_a_strange_document_has_none(document: bytes, cluster: Cluster, autojump_clock: MockClock) -> None:
    plan = FaultPlan()
    plan.add(Fault.answer(200, document), path="/openapi/")
    async with open_schemas(cluster, plan) as schemas:
        assert not await schemas.has_conditions(WIDGETS)


async def test_a_server_that_fails_is_asked_again(cluster: Cluster, autojump_clock: MockClock) -> None:
    await cluster.apply(crd_with_conditions())
    plan = FaultPlan()
    plan.add(Fault.status(503), path="/openapi/")
    async with open_schemas(cluster, plan) as schemas:
        with pytest.raises(ApiError):
            await schemas.has_conditions(WIDGETS)
        plan.clear()
        assert await schemas.has_conditions(WIDGETS)


async def test_a_kind_whose_conditions_are_forbidden_has_none_for_a_while(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    await cluster.apply(crd_with_conditions())
    async with open_schemas(cluster) as schemas:
        assert await schemas.has_conditions(WIDGETS)
        assert schemas.deny(WIDGETS)
        assert not await schemas.has_conditions(WIDGETS)
        assert not schemas.is_known(WIDGETS)
        assert schemas.find_retry(WIDGETS) == trio.current_time() + 60
        await trio.sleep(60)
        assert schemas.is_known(WIDGETS)  # though nobody has anything to write
        assert await schemas.has_conditions(WIDGETS)
        assert await schemas.has_conditions(WIDGETS)  # the one before had nothing to write
        schemas.claim(WIDGETS)  # one object tries it
        assert not await schemas.has_conditions(WIDGETS)
        assert schemas.find_retry(WIDGETS) == trio.current_time() + 5
        assert not schemas.deny(WIDGETS)
        assert schemas.find_retry(WIDGETS) == trio.current_time() + 60
        schemas.permit(WIDGETS)
        schemas.claim(WIDGETS)
        assert await schemas.has_conditions(WIDGETS)
        assert schemas.find_retry(WIDGETS) is None
