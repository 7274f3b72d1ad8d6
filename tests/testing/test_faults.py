"""Tests for fault injection, in virtual time and with the in-memory cluster."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest
import trio

from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport

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


async def test_without_rules_requests_succeed(client: httpx.AsyncClient) -> None:
    assert (await client.get(PATH)).json()["items"] == []


async def test_a_refused_request_does_not_reach_the_server(
    client: httpx.AsyncClient, plan: FaultPlan, cluster: Cluster
) -> None:
    rule = plan.add(Fault.refuse(), times=2)
    for _ in range(2):
        with pytest.raises(httpx.ConnectError):
            await client.get(PATH)
    assert (await client.get(PATH)).status_code == 200
    assert (rule.hits, len(cluster.requests)) == (2, 1)


async def test_a_reset_is_a_read_error(client: httpx.AsyncClient, plan: FaultPlan, cluster: Cluster) -> None:
    plan.add(Fault.reset())
    with pytest.raises(httpx.ReadError):
        await client.get(PATH)
    assert len(cluster.requests) == 0


async def test_a_lost_response_is_to_a_request_that_was_processed(
    client: httpx.AsyncClient, plan: FaultPlan, cluster: Cluster
) -> None:
    plan.add(Fault.lose_answer(), method="POST")
    with pytest.raises(httpx.RemoteProtocolError):
        await client.post(PATH, json={"metadata": {"name": "a"}})
    assert await cluster.find("cm", "a") is not None


async def test_a_stalled_request_ends_by_the_read_timeout(
    autojump_clock: trio.testing.MockClock, client: httpx.AsyncClient, plan: FaultPlan
) -> None:
    plan.add(Fault.stall())
    with trio.move_on_after(50) as scope:
        await client.get(PATH)
    assert scope.cancelled_caught
    with pytest.raises(httpx.ReadTimeout):
        await client.get(PATH, timeout=7)
    assert trio.current_time() == 57


async def test_a_status_has_its_reason_and_its_retry_after(client: httpx.AsyncClient, plan: FaultPlan) -> None:
    plan.add(Fault.status(429, retry_after=3), times=1)
    response = await client.get(PATH)
    assert (response.status_code, response.headers["Retry-After"]) == (429, "3")
    assert response.json()["reason"] == "TooManyRequests"
    assert response.json()["details"] == {"retryAfterSeconds": 3}


async def test_any_response_can_be_injected(client: httpx.AsyncClient, plan: FaultPlan) -> None:
    plan.add(Fault.answer(502, b"<html>"))
    response = await client.get(PATH)
    assert (response.status_code, response.text) == (502, "<html>")


async def test_requests_and_responses_are_delayed(
    autojump_clock: trio.testing.MockClock, client: httpx.AsyncClient, plan: FaultPlan, cluster: Cluster
) -> None:
    plan.add(Fault.delay(before=5, after=7), method="POST")
    await client.post(PATH, json={"metadata": {"name": "a"}})
    assert (cluster.requests[0].time, trio.current_time()) == (5, 12)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault.close(lines=1), ["ADDED"]),
        (Fault.close(), []),
        (Fault.error_event(410, lines=2), ["ADDED", "ADDED", "ERROR"]),
        (Fault.error_event(500), ["ERROR"]),
        (Fault.duplicate(), ["ADDED"] * 6),
    ],
)
async def test_streams_end_err_and_repeat(
    autojump_clock: trio.testing.MockClock,
    client: httpx.AsyncClient,
    plan: FaultPlan,
    cluster: Cluster,
    fault: Fault,
    expected: list[str],
) -> None:
    await put(cluster, "a", "b", "c")
    plan.add(fault, watch=True)
    assert types(await read(client)) == expected


async def test_an_error_event_carries_its_code(client: httpx.AsyncClient, plan: FaultPlan) -> None:
    plan.add(Fault.error_event(410), watch=True)
    status = msgspec.json.decode(await read(client))["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")


async def test_a_line_is_cut_in_half(client: httpx.AsyncClient, plan: FaultPlan, cluster: Cluster) -> None:
    await put(cluster, "a", "b")
    plan.add(Fault.half_line(lines=1), watch=True)
    first, second = (await read(client)).split(b"\n")
    assert types(first) == ["ADDED"]
    assert second.startswith(b'{"type":"ADDED"')
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(second)


async def test_a_line_that_is_not_json_is_sent(client: httpx.AsyncClient, plan: FaultPlan, cluster: Cluster) -> None:
    await put(cluster, "a")
    plan.add(Fault.garbage(lines=1), watch=True)
    assert (await read(client)).endswith(b'\n{"type":\n')


async def test_a_stream_is_reset(client: httpx.AsyncClient, plan: FaultPlan, cluster: Cluster) -> None:
    await put(cluster, "a")
    plan.add(Fault.break_off(lines=1), watch=True)
    with pytest.raises(httpx.ReadError):
        await read(client)


async def test_a_stream_falls_silent(
    autojump_clock: trio.testing.MockClock, client: httpx.AsyncClient, plan: FaultPlan, cluster: Cluster
) -> None:
    await put(cluster, "a", "b")
    plan.add(Fault.silence(lines=1), watch=True)
    with trio.move_on_after(500) as scope:
        await read(client)
    assert scope.cancelled_caught


async def test_a_stale_list_is_the_previous_one(client: httpx.AsyncClient, plan: FaultPlan, cluster: Cluster) -> None:
    await client.get(PATH)
    await put(cluster, "a")
    rule = plan.add(Fault.stale(), method="GET")
    assert (await client.get(PATH)).json()["items"] == []
    plan.remove(rule)
    assert len((await client.get(PATH)).json()["items"]) == 1


async def test_a_hook_is_called_before_the_request(
    client: httpx.AsyncClient, plan: FaultPlan, cluster: Cluster
) -> None:
    version = str(cluster.revision)
    await put(cluster, "a")
    plan.add(Fault.call(cluster.compact), watch=True, times=1)
    assert types(await read(client, resourceVersion=version)) == ["ERROR"]


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


async def test_a_response_body_breaks_off(client: httpx.AsyncClient, plan: FaultPlan, cluster: Cluster) -> None:
    plan.add(Fault.half_body(), times=2)
    with pytest.raises(httpx.RemoteProtocolError):
        await client.get(PATH)
    with pytest.raises(httpx.RemoteProtocolError):
        await client.post(PATH, json={"metadata": {"name": "a"}})
    assert await cluster.find("cm", "a") is not None


async def test_the_lines_of_a_stream_are_delayed(
    autojump_clock: trio.testing.MockClock, client: httpx.AsyncClient, plan: FaultPlan, cluster: Cluster
) -> None:
    await put(cluster, "a")
    plan.add(Fault.lag(7), verb="watch")
    received = await read(client, timeoutSeconds="5")
    assert types(received) == ["ADDED"]
    assert trio.current_time() == 7


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
