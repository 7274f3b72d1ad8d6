"""Tests for :mod:`trioperator.client.foreign_transport`: libraries with an httpx of their own use the transport."""

from __future__ import annotations

import httpx
import pytest

from tests.client.conftest import config_map
from trioperator.apiserver import Cluster
from trioperator.client.foreign_transport import lend_transport
from trioperator.testing import Fault, FaultPlan, FaultyTransport


class Closable(httpx.AsyncBaseTransport):
    """A transport that notes when it is closed."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.inner = inner
        self.is_closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self.inner.handle_async_request(request)

    async def aclose(self) -> None:
        self.is_closed = True


async def test_requests_and_responses_pass(cluster: Cluster) -> None:
    transport = Closable(cluster.transport())
    async with httpx.AsyncClient(transport=lend_transport(transport, httpx), base_url="http://cluster") as client:
        response = await client.post("/api/v1/namespaces/default/configmaps", json=config_map("one", key="value"))
        assert (response.status_code, response.json()["data"]) == (201, {"key": "value"})
    assert not transport.is_closed, "it is the operator's"


async def test_responses_are_streamed(cluster: Cluster) -> None:
    transport = lend_transport(cluster.transport(), httpx)
    url = "http://cluster/api/v1/namespaces/default/configmaps?watch=true"
    response = await transport.handle_async_request(httpx.Request("GET", url))
    chunks = aiter(response.stream)
    for name in ("one", "two"):
        await cluster.create(config_map(name))
        assert f'"name":"{name}"'.encode() in await anext(chunks)
    await response.aclose()


async def test_errors_are_those_of_the_library(cluster: Cluster) -> None:
    plan = FaultPlan()
    plan.add(Fault.refuse())
    async with httpx.AsyncClient(transport=lend_transport(FaultyTransport(cluster.transport(), plan), httpx)) as client:
        with pytest.raises(httpx.ConnectError):
            await client.get("http://cluster/version")
