"""The embedded server on a real port: its HTTP, its TLS, its clients that misbehave."""

from __future__ import annotations

import base64
import ssl
from functools import partial

import httpx
import msgspec
import pytest
import trio

from trioperator.apiserver import Cluster, serve_cluster
from trioperator.errors import ConfigError

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def address(url: str) -> tuple[str, int]:
    parsed = httpx.URL(url)
    assert parsed.port is not None
    return parsed.host, parsed.port


async def talk(url: str, sent: bytes) -> bytes:
    """Send bytes, and read until the server closes."""
    async with await trio.open_tcp_stream(*address(url)) as stream:
        await stream.send_all(sent)
        received = b""
        with trio.fail_after(5):
            async for chunk in stream:
                received += bytes(chunk)
    return received


async def test_objects_are_written_and_read(cluster: Cluster, cluster_url: str) -> None:
    async with httpx.AsyncClient(base_url=cluster_url) as client:
        response = await client.post(CONFIG_MAPS, json={"metadata": {"name": "a"}, "data": {"x": "ü"}})
        assert response.status_code == 201
        assert (await client.get(f"{CONFIG_MAPS}/a")).json()["data"] == {"x": "ü"}
    assert (await cluster.get("cm", "a"))["data"] == {"x": "ü"}


async def test_a_watch_streams_and_ends_with_its_client(cluster: Cluster, cluster_url: str) -> None:
    async with httpx.AsyncClient(base_url=cluster_url) as client:
        for _ in range(3):
            with trio.CancelScope() as scope:
                async with client.stream("GET", CONFIG_MAPS, params={"watch": "1"}) as response:
                    await cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
                    async for line in response.aiter_lines():
                        assert msgspec.json.decode(line)["type"] == "ADDED"
                        scope.cancel()


async def test_a_watch_that_ends_leaves_the_connection_open(cluster_url: str) -> None:
    request = f"GET {CONFIG_MAPS}?watch=1&timeoutSeconds=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    async with await trio.open_tcp_stream(*address(cluster_url)) as stream:
        for _ in range(2):
            await stream.send_all(request)
            received = b""
            with trio.fail_after(5):
                while not received.endswith(b"0\r\n\r\n"):
                    received += bytes(await stream.receive_some())
            assert received.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_requests_may_come_in_pieces_and_ahead(cluster_url: str) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    async with await trio.open_tcp_stream(*address(cluster_url)) as stream:
        for at in range(0, len(request), 7):
            await stream.send_all(request[at : at + 7])
        await stream.send_all(request + last)
        received = b""
        with trio.fail_after(5):
            async for chunk in stream:
                received += bytes(chunk)
    assert received.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert received.endswith(b"ok")


async def test_what_is_not_http_is_refused(cluster_url: str) -> None:
    assert (await talk(cluster_url, b"\x16\x03\x01 hello\r\n\r\n")).startswith(b"HTTP/1.1 400 Bad Request\r\n")


async def test_a_head_without_an_end_is_refused(cluster_url: str) -> None:
    head = b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: %b\r\n" % (at, b"x" * 1000) for at in range(100)) + b"\r\n"
    assert (await talk(cluster_url, head)).startswith(b"HTTP/1.1 400 Bad Request\r\n")


async def test_a_client_that_expects_a_sign_gets_it(cluster_url: str) -> None:
    body = b'{"metadata":{"name":"a"}}'
    head = f"POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nConnection: close\r\n"
    async with await trio.open_tcp_stream(*address(cluster_url)) as stream:
        await stream.send_all(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
        with trio.fail_after(5):
            assert bytes(await stream.receive_some()) == b"HTTP/1.1 100 Continue\r\n\r\n"
            await stream.send_all(body)
            received = b"".join([bytes(chunk) async for chunk in stream])
    assert received.startswith(b"HTTP/1.1 201 Created\r\n")


async def test_a_body_that_is_too_large_is_refused_and_not_kept(cluster_url: str) -> None:
    async with httpx.AsyncClient(base_url=cluster_url) as client:
        response = await client.post(CONFIG_MAPS, content=b"x" * (5 * 1024 * 1024))
        assert (response.status_code, response.json()["reason"]) == (413, "RequestEntityTooLarge")


async def test_many_clients_are_served_at_once(cluster_url: str) -> None:
    answers = []

    async def ask(number: int) -> None:
        async with httpx.AsyncClient(base_url=cluster_url) as client:
            response = await client.post(CONFIG_MAPS, json={"metadata": {"name": f"n{number}"}})
            answers.append(response.json()["metadata"]["resourceVersion"])

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(ask, number)
    assert len(set(answers)) == 20


async def test_tls_is_served_with_an_authority_of_its_own(cluster: Cluster, nursery: trio.Nursery) -> None:
    url = await nursery.start(partial(serve_cluster, cluster, tls=True))
    config = cluster.kubeconfig(url)
    authority = config["clusters"][0]["cluster"]["certificate-authority-data"]
    context = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
    async with httpx.AsyncClient(base_url=url, verify=context) as client:
        assert (await client.get("/readyz")).text == "ok"
    with pytest.raises(httpx.ConnectError):
        async with httpx.AsyncClient(base_url=url) as stranger:
            await stranger.get("/readyz")
    with trio.fail_after(5):
        async with httpx.AsyncClient(base_url=url, verify=context) as client:
            assert (await client.get("/readyz")).text == "ok"  # the stranger has done no harm


async def test_a_port_that_is_taken_is_told(cluster: Cluster, cluster_url: str) -> None:
    port = address(cluster_url)[1]
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
        await serve_cluster(cluster, port=port)


async def test_all_connections_end_with_the_server(cluster: Cluster) -> None:
    async with trio.open_nursery() as nursery:
        url = await nursery.start(serve_cluster, cluster)
        stream = await trio.open_tcp_stream(*address(url))
        await stream.send_all(f"GET {CONFIG_MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert await stream.receive_some()
        nursery.cancel_scope.cancel()
    with trio.fail_after(5):
        try:
            assert await stream.receive_some() == b""
        except trio.BrokenResourceError:
            pass
    await stream.aclose()
