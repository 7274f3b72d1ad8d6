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
from trioperator._reconciling.manifests import _is_behind


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
        status = {"replicas": 1, "updatedReplicas": 1} | ({} if observed is None else {"observedGeneration": observed})
        await bench.cluster.patch("deployments", "web", {"status": status}, subresource="status")
        await settle(1)
        assert await names_of(bench.cluster) == (["later"] if expected else [])


STATEFULSET = ("StatefulSet", {"replicas": 3})
PARTITIONED = ("StatefulSet", {"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 2}}})
BY_HAND = {"updateStrategy": {"type": "OnDelete"}}


@pytest.mark.parametrize(
    ("workload", "status", "expected"),
    [
        (("Deployment", {"replicas": 2}), {"replicas": 2, "updatedReplicas": 2}, True),
        (("Deployment", {"replicas": 2}), {"replicas": 2}, False),
        (("Deployment", {"replicas": 2}), {"replicas": 3, "updatedReplicas": 2}, False),
        (("Deployment", {"replicas": 0}), {}, True),
        (STATEFULSET, {"replicas": 3, "updatedReplicas": 3}, True),
        (STATEFULSET, {"replicas": 3, "updatedReplicas": 2}, False),
        (PARTITIONED, {"replicas": 3, "updatedReplicas": 1}, True),
        (PARTITIONED, {"replicas": 3}, False),
        (("StatefulSet", {"replicas": 3, **BY_HAND}), {"replicas": 3}, True),
        (("DaemonSet", {}), {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2}, True),
        (("DaemonSet", {}), {"desiredNumberScheduled": 2}, False),
        (("DaemonSet", BY_HAND), {"desiredNumberScheduled": 2}, True),
        (("ReplicaSet", {"replicas": 2}), {"replicas": 2}, True),
    ],
)
def test_a_workload_with_pods_of_an_older_template_is_not_ready(
    workload: tuple[str, dict[str, Any]], status: dict[str, Any], expected: bool
) -> None:
    kind, spec = workload
    body = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"generation": 2}, "spec": spec}
    assert _is_behind({**body, "status": {**status, "observedGeneration": 2}}) is not expected
    assert _is_behind({**body, "status": {**status, "observedGeneration": 1}})
    assert not _is_behind({**body, "status": status}), "nobody says what the controller has seen"
    other = {**body, "apiVersion": "example.com/v1", "status": {**status, "observedGeneration": 2}}
    assert not _is_behind(other), "another kind of that name has other fields"
