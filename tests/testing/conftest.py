"""Fixtures for fault injection, and the servers of the client's tests for transports under test."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest

from tests.kube.conftest import ca, ca_pem, serve, server_tls
from trioperator.apiserver import Cluster
from trioperator.testing import FaultPlan, FaultyTransport

__all__ = ["PATH", "ca", "ca_pem", "client", "plan", "put", "read", "serve", "server_tls", "types"]

PATH = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def plan() -> FaultPlan:
    return FaultPlan()


@pytest.fixture
def client(cluster: Cluster, plan: FaultPlan) -> httpx.AsyncClient:
    transport = FaultyTransport(cluster.transport(), plan)
    return httpx.AsyncClient(transport=transport, base_url="http://cluster", timeout=None)


async def put(cluster: Cluster, *names: str) -> None:
    for name in names:
        await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})


async def read(client: httpx.AsyncClient, **params: Any) -> bytes:
    """Watch to the end, and return all that was received."""
    received = b""
    async with client.stream("GET", PATH, params={"watch": "1", "timeoutSeconds": "100", **params}) as response:
        async for chunk in response.aiter_raw():
            received += chunk
    return received


def types(received: bytes) -> list[str]:
    return [msgspec.json.decode(line)["type"] for line in received.splitlines()]
