"""Connections over TLS: late readers, clients that send while they receive, and those that speak no TLS."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from functools import partial
from urllib.parse import urlsplit

import pytest
import trio

from trioperator.apiserver import Cluster, serve_cluster

SIZE = 1_000_000  # more than the buffers of sockets on loopback take at once, together
COUNT = 12


def config_map(name: str, size: int = SIZE) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": "x" * size}}


@pytest.fixture
async def stream(cluster: Cluster, nursery: trio.Nursery) -> AsyncIterator[trio.SSLStream[trio.SocketStream]]:
    """Yield a connection to the cluster, over TLS."""
    url = str(await nursery.start(partial(serve_cluster, cluster, tls=True)))
    context = ssl.create_default_context(cadata=cluster.ca.certificate.decode())
    port = urlsplit(url).port
    assert port is not None
    opened = await trio.open_ssl_over_tcp_stream("127.0.0.1", port, ssl_context=context)
    yield opened
    await trio.aclose_forcefully(opened)


async def receive_until(stream: trio.abc.ReceiveStream, end: bytes, count: int = 1) -> bytes:
    received = bytearray()
    with trio.fail_after(60):
        while received.count(end) < count:
            data = await stream.receive_some()
            assert data, bytes(received[-200:])
            received += data
    return bytes(received)


async def test_a_client_that_reads_late_gets_all_of_a_list(
    cluster: Cluster, stream: trio.SSLStream[trio.SocketStream]
) -> None:
    await cluster.apply([config_map(f"a-{number}") for number in range(COUNT)])
    await stream.send_all(b"GET /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: localhost\r\n\r\n")
    received = await receive_until(stream, b"]}")
    _, _, body = received.partition(b"\r\n\r\n")
    assert [len(item["data"]["text"]) for item in json.loads(body)["items"]] == [SIZE] * COUNT


async def test_a_client_may_send_while_events_wait_for_it(
    cluster: Cluster, stream: trio.SSLStream[trio.SocketStream]
) -> None:
    path = b"/api/v1/namespaces/default/configmaps?watch=1"
    await stream.send_all(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)
    await receive_until(stream, b"\r\n\r\n")
    for number in range(COUNT):
        await cluster.apply([config_map(f"a-{number}")])
        await stream.send_all(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n" if number == COUNT // 2 else b"")
    received = await receive_until(stream, b'"type":"ADDED"', COUNT)
    received += await receive_until(stream, b"}\n\r\n")
    names = [f'"name":"a-{number}"'.encode() for number in range(COUNT)]
    assert sorted(names, key=received.index) == names


async def test_a_client_that_speaks_no_tls_is_disconnected(
    cluster: Cluster, stream: trio.SSLStream[trio.SocketStream]
) -> None:
    host, port = stream.transport_stream.socket.getpeername()[:2]
    async with await trio.open_tcp_stream(host, port) as plain:
        with trio.fail_after(60):
            await plain.send_all(b"GET / HTTP/1.1\r\n\r\n")
            while await plain.receive_some():
                pass
    await stream.send_all(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"200 OK" in await receive_until(stream, b"}")
