"""Clients of a cluster in memory, and of servers that say what a test wants."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

import trioperator
from trioperator._handling.arguments.context import current_cause
from trioperator._kube.connection_info import ConnectionInfo
from trioperator._model.body import Body
from trioperator.apiserver import Cluster
from trioperator.client import Client, open_client
from trioperator.testing import FaultPlan, FaultyTransport

CONNECTION = ConnectionInfo(server="http://cluster", default_namespace="default")


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def deployment(name: str, replicas: int = 1) -> dict[str, Any]:
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod},
    }


@contextlib.asynccontextmanager
async def opened(transport: httpx.AsyncBaseTransport, **networking: Any) -> AsyncIterator[Client]:
    """Open a client on a transport."""
    settings = trioperator.OperatorSettings()
    for name, value in networking.items():
        setattr(settings.networking, name, value)
    async with open_client(connection=CONNECTION, transport=transport, settings=settings) as client:
        yield client


@pytest.fixture
def plan() -> FaultPlan:
    """Return the faults of the cluster's transport."""
    return FaultPlan()


@pytest.fixture
async def client(cluster: Cluster, plan: FaultPlan) -> AsyncIterator[Client]:
    """Open a client of the cluster."""
    async with opened(FaultyTransport(cluster.transport(), plan)) as client:
        yield client


class Cause:
    """A cause of handlers, with nothing but its object."""

    def __init__(self, body: Body) -> None:
        self.body = body


@contextlib.contextmanager
def handling(owner: dict[str, Any]) -> Any:
    """Handle an object in the block."""
    token = current_cause.set(Cause(Body(owner)))
    try:
        yield
    finally:
        current_cause.reset(token)


@pytest.fixture
async def owner(cluster: Cluster) -> dict[str, Any]:
    """Return an object that is to own others."""
    made = config_map("owner")
    made["metadata"]["labels"] = {"team": "a"}
    return await cluster.create(made)
