"""An API server with workload controllers, embedded or real, but without a kubelet."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest

from tests.apiserver.conftest import Target, real_client
from trioperator.apiserver import Cluster


@pytest.fixture
async def plane(kubeconfig: str) -> AsyncIterator[Target]:
    """Yield a target with an empty namespace."""
    is_real = bool(kubeconfig)
    cluster = Cluster(seed=0)
    client = real_client(kubeconfig) if is_real else cluster.client()
    async with client, cluster.open_controllers("workloads", "quotas", "service-accounts"):
        target = Target(client, f"case-{uuid.uuid4().hex[:10]}", is_real=is_real)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": target.namespace}}
        assert (await target.request("POST", "/api/v1/namespaces", namespace)).code == 201
        await target.until(f"/api/v1/namespaces/{target.namespace}/serviceaccounts/default", 200)
        yield target
        if is_real:
            await target.delete(f"/api/v1/namespaces/{target.namespace}")
