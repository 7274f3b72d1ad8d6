"""The HTTP server on a real port, and misbehaving clients."""

from __future__ import annotations

import contextlib
from functools import partial

import httpx
import msgspec
import pytest
import trio

from tests.apiserver.conftest import definition
from trioperator.apiserver import Cluster, serve_cluster
from trioperator.apiserver.serving.http import serve_stream

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def address(url: str) -> tuple[str, int]:
    parsed = httpx.URL(url)
    assert parsed.port is not None
    return parsed.host, parsed.port


async def talk(url: str, sent: bytes) -> bytes:
    """Send bytes, and read until the server closes the connection."""
    async with await trio.open_tcp_stream(*address(url)) as stream:
        await stream.send_all(sent)
        received = b""
        with trio.fail_after(60):
            async for chunk in stream:
                received += bytes(chunk)
    return received


async def test_objects_are_written_and_read(cluster: Cluster, cluster_url: str) -> None:
    async with httpx.AsyncClient(base_url=cluster_url, timeout=60) as client:
        response = await client.post(CONFIG_MAPS, json={"metadata": {"name": "a"}, "data": {"x": "ü"}})
        assert response.status_code == 201
        assert (await client.get(f"{CONFIG_MAPS}/a")).json()["data"] == {"x": "ü"}
    assert (await cluster.get("cm", "a"))["data"] == {"x": "ü"}


async def test_a_watch_streams_until_its_client_disconnects(cluster: Cluster, cluster_url: str) -> None:
    async with httpx.AsyncClient(base_url=cluster_url, timeout=60) as client:
        for _ in range(3):
            with trio.CancelScope() as scope:
                async with client.stream("GET", CONFIG_MAPS, params={"watch": "1"}) as response:
                    await cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
                    async for line in response.aiter_lines():
                        assert msgspec.json.decode(line)["type"] == "ADDED"
                        scope.cancel()


async def test_a_connection_survives_the_end_of_a_watch(cluster_url: str) -> None:
    request = f"GET {CONFIG_MAPS}?watch=1&timeoutSeconds=1 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    async with await trio.open_tcp_stream(*address(cluster_url)) as stream:
        for _ in range(2):
            await stream.send_all(request)
            received = b""
            with trio.fail_after(60):
                while not received.endswith(b"0\r\n\r\n"):
                    received += bytes(await stream.receive_some())
            assert received.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_requests_may_be_fragmented_and_pipelined(cluster_url: str) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    async with await trio.open_tcp_stream(*address(cluster_url)) as stream:
        for at in range(0, len(request), 7):
            await stream.send_all(request[at : at + 7])
        await stream.send_all(request + last)
        received = b""
        with trio.fail_after(60):
            async for chunk in stream:
                received += bytes(chunk)
    assert received.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert received.endswith(b"ok")


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"\x16\x03\x01 hello\r\n\r\n", 400),
        (
            b"GET / HTTP/1.1\r\nHost: x\r\n"
            + b"".join(b"X-%d: %b\r\n" % (at, b"x" * 1000) for at in range(100))
            + b"\r\n",
            431,
        ),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n" + b"x" * 1_000_000, 413),
    ],
)
async def test_invalid_requests_get_a_status(cluster_url: str, sent: bytes, code: int) -> None:
    head, _, body = (await talk(cluster_url, sent)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % code)
    assert b"Connection: close" in head
    status = msgspec.json.decode(body)
    assert (status["kind"], status["status"], status["code"]) == ("Status", "Failure", code)


@pytest.mark.parametrize(
    "sent", [b"{", b"[]", b"5", b"\xff", b'{"metadata":5}', b'{"metadata":{"name":[]}}', b"\0", b"null"]
)
@pytest.mark.parametrize("content_type", ["application/json", "application/yaml"])
async def test_a_malformed_body_gets_a_status(cluster_url: str, sent: bytes, content_type: str) -> None:
    async with httpx.AsyncClient(base_url=cluster_url, timeout=60) as client:
        response = await client.post(CONFIG_MAPS, content=sent, headers={"Content-Type": content_type})
    assert response.status_code in {400, 422}
    assert response.json()["kind"] == "Status"


async def test_a_warning_may_contain_any_characters(cluster: Cluster, cluster_url: str) -> None:
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}
    await cluster.apply(definition("frees", "Free", schema=schema))
    body = {"apiVersion": "conformance.dev/v1", "kind": "Free", "metadata": {"name": "a"}, "日本\n\r\nX-Evil: 1": 1}
    path = "/apis/conformance.dev/v1/namespaces/default/frees"
    for client in (httpx.AsyncClient(base_url=cluster_url, timeout=60), cluster.client()):
        async with client:
            response = await client.post(path, json=body, params={"fieldValidation": "Warn", "dryRun": "All"})
            assert response.status_code == 201
            assert "日本" in dict(response.headers.raw)[b"Warning"].decode()
            assert "x-evil" not in response.headers


async def test_a_protocol_upgrade_is_ignored(cluster_url: str) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
    received = await talk(cluster_url, request)
    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert received.endswith(b"ok")


async def test_who_asks_for_a_watch_by_websocket_can_ask_without_at_once(cluster_url: str) -> None:
    wanted = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: a2V5\r\n"
    request = f"GET {CONFIG_MAPS}?watch=1 HTTP/1.1\r\nHost: localhost\r\n".encode()
    received = await talk(cluster_url, request + wanted + b"\r\n")
    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 0\r\n" in received


async def test_a_client_that_expects_100_continue_gets_it(cluster_url: str) -> None:
    body = b'{"metadata":{"name":"a"}}'
    head = f"POST {CONFIG_MAPS} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nConnection: close\r\n"
    async with await trio.open_tcp_stream(*address(cluster_url)) as stream:
        await stream.send_all(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
        with trio.fail_after(60):
            assert bytes(await stream.receive_some()) == b"HTTP/1.1 100 Continue\r\n\r\n"
            await stream.send_all(body)
            received = b"".join([bytes(chunk) async for chunk in stream])
    assert received.startswith(b"HTTP/1.1 201 Created\r\n")


async def test_a_body_that_is_too_large_is_rejected_and_not_buffered(cluster_url: str) -> None:
    async with httpx.AsyncClient(base_url=cluster_url, timeout=60) as client:
        response = await client.post(CONFIG_MAPS, content=b"x" * (5 * 1024 * 1024))
        assert (response.status_code, response.json()["reason"]) == (413, "RequestEntityTooLarge")


async def test_many_clients_are_served_at_once(cluster_url: str) -> None:
    answers = []

    async def ask(number: int) -> None:
        async with httpx.AsyncClient(base_url=cluster_url, timeout=60) as client:
            response = await client.post(CONFIG_MAPS, json={"metadata": {"name": f"n{number}"}})
            answers.append(response.json()["metadata"]["resourceVersion"])

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(ask, number)
    assert len(set(answers)) == 20


async def test_all_connections_are_closed_with_the_server(cluster: Cluster) -> None:
    async with trio.open_nursery() as nursery:
        url = await nursery.start(serve_cluster, cluster)
        stream = await trio.open_tcp_stream(*address(url))
        await stream.send_all(f"GET {CONFIG_MAPS}?watch=1 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert await stream.receive_some()
        nursery.cancel_scope.cancel()
    with trio.fail_after(60):
        try:
            assert await stream.receive_some() == b""
        except trio.BrokenResourceError:
            pass
    await stream.aclose()


class Client:
    """The other end of an in-memory connection, in virtual time."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.received = b""

    async def read_until(self, end: bytes) -> bytes:
        """Read up to and including these bytes."""
        while end not in self.received:
            data = bytes(await self.stream.receive_some(65_536))
            assert data, self.received
            self.received += data
        found, _, self.received = self.received.partition(end)
        return found + end

    async def read_to_the_end(self) -> bytes:
        """Read until the connection is closed."""
        while data := bytes(await self.stream.receive_some(65_536)):
            self.received += data
        return self.received


@pytest.fixture
async def client(cluster: Cluster, nursery: trio.Nursery) -> Client:
    ours, theirs = trio.testing.lockstep_stream_pair()

    async def serve() -> None:
        async with theirs:
            await serve_stream(cluster.api, theirs)

    nursery.start_soon(serve)
    return Client(ours)


class TestTime:
    @pytest.mark.parametrize(
        "sent",
        [b"G", b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"],
    )
    async def test_an_incomplete_request_times_out_after_a_minute(
        self, autojump_clock: object, client: Client, sent: bytes
    ) -> None:
        await client.stream.send_all(sent)
        received = await client.read_to_the_end()
        assert 60 <= trio.current_time() <= 61  # with a moment for what still comes
        assert received.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert b'"reason":"Timeout"' in received

    async def test_a_slow_request_gets_no_more_time(
        self, autojump_clock: object, client: Client, nursery: trio.Nursery
    ) -> None:
        async def drip() -> None:
            with contextlib.suppress(trio.BrokenResourceError):
                while True:
                    await client.stream.send_all(b"x")
                    await trio.sleep(7)

        await client.stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\nA: ")
        nursery.start_soon(drip)
        assert (await client.read_to_the_end()).startswith(b"HTTP/1.1 408 ")
        assert trio.current_time() < 62

    async def test_the_timeout_restarts_with_each_request(self, autojump_clock: object, client: Client) -> None:
        for _ in range(5):
            await trio.sleep(50)
            await client.stream.send_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
            await trio.sleep(50)
            await client.stream.send_all(b"\r\n")
            assert (await client.read_until(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200 OK")

    async def test_an_idle_connection_is_closed_after_ten_minutes(self, autojump_clock: object, client: Client) -> None:
        assert await client.read_to_the_end() == b""
        assert trio.current_time() == 600

    async def test_a_silent_watch_is_not_idle(self, autojump_clock: object, client: Client, cluster: Cluster) -> None:
        await client.stream.send_all(
            f"GET {CONFIG_MAPS}?watch=1&timeoutSeconds=3000 HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        )
        await client.read_until(b"\r\n\r\n")
        await trio.sleep(2000)
        await cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}})
        assert b'"late"' in await client.read_until(b"}}\n\r\n")
        await client.read_until(b"0\r\n\r\n")
        assert trio.current_time() == 3000

    async def test_a_request_pipelined_after_a_watch_is_answered_after_it(
        self, autojump_clock: object, client: Client
    ) -> None:
        await client.stream.send_all(
            f"GET {CONFIG_MAPS}?watch=1&timeoutSeconds=100 HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        )
        await client.read_until(b"\r\n\r\n")
        await client.stream.send_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await client.read_until(b"ok")).startswith(b"0\r\n\r\nHTTP/1.1 200 OK")
        assert trio.current_time() == 100

    async def test_a_client_that_reads_nothing_is_disconnected(self, autojump_clock: object, client: Client) -> None:
        await client.stream.send_all(b"GET /openapi/v2 HTTP/1.1\r\nHost: x\r\n\r\n")
        await trio.sleep(61)
        with pytest.raises((trio.BrokenResourceError, trio.ClosedResourceError)):
            await client.stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")

    async def test_a_client_that_reads_slowly_is_not_disconnected(
        self, autojump_clock: object, client: Client, cluster: Cluster
    ) -> None:
        for number in range(4):
            content = {"x": str(number) * 400_000}
            await cluster.apply(
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"n{number}"}, "data": content}
            )
        await client.stream.send_all(f"GET {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        while data := bytes(await client.stream.receive_some(65_536)):
            client.received += data
            await trio.sleep(10)
        assert trio.current_time() > 120
        assert len(msgspec.json.decode(client.received.partition(b"\r\n\r\n")[2])["items"]) == 4


async def test_a_slow_watcher_gets_410_and_blocks_nobody(autojump_clock: object, nursery: trio.Nursery) -> None:
    cluster = Cluster(seed=0, history=50)
    ours, theirs = trio.testing.lockstep_stream_pair()
    nursery.start_soon(partial(serve_stream, cluster.api, theirs))
    client = Client(ours)
    await ours.send_all(f"GET {CONFIG_MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    await client.read_until(b"\r\n\r\n")
    await cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    for number in range(200):
        await cluster.patch("cm", "a", {"data": {"x": f"{number:50000}"}})
    last = await client.read_until(b'"code":410}}\n')
    assert last.count(b"MODIFIED") < 10
    await client.read_until(b"0\r\n\r\n")
    await ours.aclose()
