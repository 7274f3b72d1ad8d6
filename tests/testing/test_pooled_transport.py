"""The operator's own HTTP transport with the interface of httpx, on real sockets."""

from __future__ import annotations

import ssl

import httpx
import pytest

from tests.kube.conftest import Serve, Talk, answer_all
from tests.soak.pooled_transport import PooledTransport
from trioperator._kube.api_client import open_client
from trioperator._kube.connection_info import ConnectionInfo
from trioperator.settings import OperatorSettings


async def test_an_httpx_client_can_use_it(serve: Serve, server_tls: ssl.SSLContext, ca_pem: str) -> None:
    seen = []

    async def script(talk: Talk) -> None:
        while (request := await talk.request()) is not None:
            seen.append(request)
            await talk.answer({"a": 1}, headers="X-Thing: y\r\n")

    server = await serve(script, tls=server_tls)
    transport = PooledTransport(ConnectionInfo(server=server.url, ca_data=ca_pem))
    async with httpx.AsyncClient(transport=transport, base_url=server.url) as client:
        for _ in range(3):
            response = await client.post("/x?y=z", json={"b": 2})
            assert (response.json(), response.headers["x-thing"]) == ({"a": 1}, "y")
    assert server.connections == 1
    for request in seen:
        assert request.head.lower().count(b"\r\nhost:") == 1
        assert request.head.lower().count(b"\r\ncontent-length:") == 1
    assert (seen[0].method, seen[0].target, seen[0].body) == ("POST", "/x?y=z", b'{"b":2}')


async def test_the_operators_client_can_use_it(serve: Serve) -> None:
    server = await serve(answer_all)
    info = ConnectionInfo(server=server.url)
    async with (
        PooledTransport(info) as transport,
        open_client(lambda: info, settings=OperatorSettings(), transport=transport) as client,
    ):
        assert await client.get("/x") == {}


async def test_its_errors_are_httpx_errors(serve: Serve) -> None:
    async def half(talk: Talk) -> None:
        await talk.request()
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")

    server = await serve(half)
    async with httpx.AsyncClient(transport=PooledTransport(ConnectionInfo(server=server.url))) as client:
        with pytest.raises(httpx.ReadError, match=r"closed in the middle"):
            await client.get(server.url)
    gone = ConnectionInfo(server="http://127.0.0.1:1")
    async with httpx.AsyncClient(transport=PooledTransport(gone)) as client:
        with pytest.raises(httpx.ConnectError, match=r"connection refused"):
            await client.get(gone.server)
