"""Tests for :mod:`trioperator.testing.fault_handler`: each fault as a client on a socket meets it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import httpx
import pytest
import trio

from tests.testing.conftest import PATH, put, types
from trioperator.apiserver import Cluster, serve_cluster
from trioperator.testing import Fault, FaultPlan
from trioperator.testing.fault_handler import FaultHandler


@pytest.fixture
async def served(cluster: Cluster, plan: FaultPlan) -> AsyncIterator[httpx.AsyncClient]:
    async with trio.open_nursery() as nursery:
        url = await nursery.start(partial(serve_cluster, cluster, handler=FaultHandler(cluster.api, plan)))
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            yield client
        nursery.cancel_scope.cancel()


async def watch(client: httpx.AsyncClient) -> bytes:
    received = b""
    params = {"watch": "1", "timeoutSeconds": "30"}
    async with client.stream("GET", PATH, params=params) as response:
        async for chunk in response.aiter_raw():
            received += chunk
    return received


async def test_without_rules_requests_succeed(served: httpx.AsyncClient) -> None:
    assert (await served.get(PATH)).json()["items"] == []


async def test_requests_that_no_rule_is_for_are_answered_as_always(
    served: httpx.AsyncClient, plan: FaultPlan, cluster: Cluster
) -> None:
    plan.add(Fault.refuse(), verb="create")
    params = {"labelSelector": "a in (b,c)", "limit": "1"}
    response = await served.get(PATH, params=params)
    assert response.json()["items"] == []
    assert "date" in response.headers
    assert cluster.requests[0].query == params
    assert (await served.get("/api/v1/namespaces/%00/x%2fy")).status_code == 404


@pytest.mark.parametrize(
    ("fault", "is_done"),
    [(Fault.refuse(), False), (Fault.reset(), False), (Fault.lose_answer(), True), (Fault.half_body(), True)],
)
async def test_the_connection_is_dropped(
    served: httpx.AsyncClient, plan: FaultPlan, cluster: Cluster, fault: Fault, is_done: bool
) -> None:
    plan.add(fault, verb="create")
    with pytest.raises(httpx.RemoteProtocolError):
        await served.post(PATH, json={"metadata": {"name": "a"}})
    assert (await cluster.find("cm", "a") is not None) is is_done
    assert (await served.get(PATH)).status_code == 200


async def test_a_status_takes_the_place_of_the_response(served: httpx.AsyncClient, plan: FaultPlan) -> None:
    plan.add(Fault.status(503, retry_after=2))
    response = await served.get(PATH)
    assert (response.status_code, response.headers["Retry-After"]) == (503, "2")
    assert response.json()["reason"] == "ServiceUnavailable"


async def test_a_stale_response_is_an_earlier_one(served: httpx.AsyncClient, plan: FaultPlan, cluster: Cluster) -> None:
    plan.add(Fault.stale(), skip=1)
    assert (await served.get(PATH)).json()["items"] == []
    await put(cluster, "a")
    assert (await served.get(PATH)).json()["items"] == []
    plan.clear()
    assert len((await served.get(PATH)).json()["items"]) == 1


@pytest.mark.parametrize(
    ("fault", "last"),
    [
        (Fault.close(lines=1), b""),
        (Fault.error_event(410, lines=1), b'{"type":"ERROR","object":{"kind":"Status"'),
        (Fault.garbage(lines=1), b'{"type":'),
        (Fault.half_line(lines=1), b'{"type":"ADDED"'),
    ],
)
async def test_a_watch_ends_after_some_lines(
    served: httpx.AsyncClient, plan: FaultPlan, cluster: Cluster, fault: Fault, last: bytes
) -> None:
    await put(cluster, "a", "b")
    plan.add(fault, watch=True)
    first, second, *others = (await watch(served)).split(b"\n")
    assert types(first) == ["ADDED"]
    assert second.startswith(last)
    assert others in ([], [b""])


async def test_a_watch_breaks_off(served: httpx.AsyncClient, plan: FaultPlan, cluster: Cluster) -> None:
    await put(cluster, "a", "b")
    plan.add(Fault.break_off(lines=1), watch=True)
    with pytest.raises(httpx.RemoteProtocolError):
        await watch(served)
