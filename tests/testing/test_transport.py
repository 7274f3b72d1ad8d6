"""Tests for :mod:`trioperator.testing.transport`: each fault, in virtual time and with the in-memory cluster."""

from __future__ import annotations

import gzip

import httpx
import msgspec
import pytest
import trio

from tests.testing.conftest import PATH, put, read, types
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport


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


async def test_compressed_responses_can_be_read_and_repeated() -> None:
    plan, requests = FaultPlan(), list[httpx.Request]()

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        compressed = gzip.compress(b"object %d" % len(requests))
        return httpx.Response(200, headers={"Content-Encoding": "gzip"}, content=compressed)

    transport = FaultyTransport(httpx.MockTransport(answer), plan)
    async with httpx.AsyncClient(transport=transport, base_url="http://embedded") as client:
        assert (await client.get(PATH)).text == "object 1"
        plan.add(Fault.stale(), method="GET")
        assert (await client.get(PATH)).text == "object 1"
    assert len(requests) == 1


async def test_a_hook_is_called_before_the_request(
    client: httpx.AsyncClient, plan: FaultPlan, cluster: Cluster
) -> None:
    version = str(cluster.revision)
    await put(cluster, "a")
    plan.add(Fault.call(cluster.compact), watch=True, times=1)
    assert types(await read(client, resourceVersion=version)) == ["ERROR"]


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


async def test_a_delayed_line_is_not_lost_to_a_reader_that_gives_up_waiting(
    autojump_clock: trio.testing.MockClock, plan: FaultPlan, cluster: Cluster
) -> None:
    await put(cluster, "a")
    plan.add(Fault.lag(7), verb="watch")
    transport, received = FaultyTransport(cluster.transport(), plan), list[bytes]()
    request = httpx.Request("GET", f"http://embedded{PATH}", params={"watch": "true"})
    response = await transport.handle_async_request(request)
    assert isinstance(response.stream, httpx.AsyncByteStream)
    lines = aiter(response.stream)
    while not received:
        with trio.move_on_after(2):
            received.append(await anext(lines))
    await response.aclose()
    assert b'"name":"a"' in received[0]
    assert trio.current_time() == 7
