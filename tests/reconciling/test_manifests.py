"""Tests for :mod:`trioperator._reconciling.manifests`: when a child counts as ready."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import MockClock

import trioperator
from tests.client.conftest import deployment
from tests.reconciling.conftest import names_of
from tests.runtime.conftest import Bench, settle, widget
from trioperator import on


@pytest.mark.parametrize(("observed", "expected"), [(None, True), (2, True), (1, False)])
async def test_a_child_whose_status_is_older_than_its_spec_is_not_ready(
    bench: Bench, autojump_clock: MockClock, observed: int | None, expected: bool
) -> None:
    owned = trioperator.Owned("deployments", bodies=True)

    @on.reconcile("widgets", owns=[owned, "configmaps"], registry=bench.registry)
    async def reconcile() -> list[Any]:
        first = trioperator.Child(deployment("web"), ready=lambda body: body.get("status", {}).get("replicas"))
        later = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "later"}}
        return [first, trioperator.Child(later, depends_on=[first])]

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(1)
        await bench.cluster.patch("deployments", "web", {"spec": {"paused": True}})  # the second generation
        status = {"replicas": 1} | ({} if observed is None else {"observedGeneration": observed})
        await bench.cluster.patch("deployments", "web", {"status": status}, subresource="status")
        await settle(1)
        assert await names_of(bench.cluster) == (["later"] if expected else [])
