"""Tests for :mod:`trioperator.testing.plans`."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import trio

from tests.testing.conftest import PATH
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport


async def test_rules_select_by_method_path_count_and_time(
    autojump_clock: trio.testing.MockClock, client: httpx.AsyncClient, plan: FaultPlan
) -> None:
    plan.add(Fault.status(500), method="DELETE")
    plan.add(Fault.status(501), path=r"/secrets\?limit=5$")
    plan.add(Fault.status(502), path="/pods", skip=1, times=1)
    plan.add(Fault.status(503), path="/nodes", since=10, until=20)
    plan.add(Fault.status(504), watch=False, path="/events")

    async def code(method: str, path: str) -> int:
        return (await client.request(method, f"/api/v1/{path}")).status_code

    assert await code("DELETE", "namespaces/default/configmaps/a") == 500
    assert [await code("GET", path) for path in ("secrets", "secrets?limit=5")] == [200, 501]
    assert [await code("GET", "pods") for _ in range(3)] == [200, 502, 200]
    codes = []
    for _ in range(3):
        codes.append(await code("GET", "nodes"))
        await trio.sleep(10)
    assert codes == [200, 503, 200]
    assert await code("GET", "events") == 504
    assert await code("GET", "events?watch=1&timeoutSeconds=1") == 200
    plan.clear()
    assert await code("GET", "events") == 200


@pytest.mark.parametrize(
    ("selection", "hit"),
    [
        ({"verb": "list"}, ["list"]),
        ({"verb": ("get", "watch")}, ["get", "watch", "namespace"]),
        ({"verb": "create"}, ["create"]),
        ({"verb": "update"}, ["update"]),
        ({"verb": "patch"}, ["patch", "status"]),
        ({"verb": "delete"}, ["delete"]),
        ({"verb": "deletecollection"}, ["deletecollection"]),
        ({"resource": "deployments"}, ["status"]),
        ({"resource": "deployments.apps"}, ["status"]),
        ({"resource": "deployments.example.com"}, []),
        ({"subresource": "status"}, ["status"]),
        ({"resource": "configmaps", "name": "a"}, ["get", "update", "patch", "delete"]),
        ({"namespace": "other"}, ["get"]),
        ({"resource": "namespaces"}, ["namespace"]),
        ({"verb": "patch", "subresource": ""}, ["patch"]),
    ],
)
async def test_rules_select_by_the_attributes_of_requests(
    autojump_clock: trio.testing.MockClock,
    client: httpx.AsyncClient,
    plan: FaultPlan,
    selection: dict[str, Any],
    hit: list[str],
) -> None:
    requests = {
        "list": ("GET", PATH),
        "get": ("GET", "/api/v1/namespaces/other/configmaps/a"),
        "watch": ("GET", f"{PATH}?watch=true&timeoutSeconds=1"),
        "create": ("POST", PATH),
        "update": ("PUT", f"{PATH}/a"),
        "patch": ("PATCH", f"{PATH}/a"),
        "status": ("PATCH", "/apis/apps/v1/namespaces/default/deployments/d/status"),
        "delete": ("DELETE", f"{PATH}/a"),
        "deletecollection": ("DELETE", PATH),
        "namespace": ("HEAD", "/api/v1/namespaces/default"),
        "document": ("GET", "/version"),
    }
    plan.add(Fault.status(418), **selection)
    found = [
        name for name, (method, path) in requests.items() if (await client.request(method, path)).status_code == 418
    ]
    assert found == hit


async def test_chance_is_repeatable_by_its_seed(cluster: Cluster) -> None:
    async def codes(seed: int) -> list[int]:
        plan = FaultPlan(seed=seed)
        rule = plan.add(Fault.status(503), chance=0.5)
        transport = FaultyTransport(cluster.transport(), plan)
        async with httpx.AsyncClient(transport=transport, base_url="http://cluster") as client:
            found = [(await client.get(PATH)).status_code for _ in range(100)]
        assert (rule.seen, rule.hits) == (100, found.count(503))
        return found

    first = await codes(1)
    assert 20 < first.count(503) < 80
    assert await codes(1) == first
    assert await codes(2) != first


def test_a_criterion_that_does_not_exist_is_an_error(plan: FaultPlan) -> None:
    options: dict[str, Any] = {"verb": "get", "probability": 0.5}
    with pytest.raises(TypeError, match="no criteria probability"):
        plan.add(Fault.reset(), **options)
