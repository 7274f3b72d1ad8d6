"""Any httpx transport as a transport of the client."""

from __future__ import annotations

import itertools
import subprocess
import sys
import traceback
from collections.abc import Sequence

import httpx
import pytest
import trio
from trio.testing import MockClock

from tests.kube.conftest import Chunks, Memory, Streaming, ok
from trioperator._http.transport import Request, TransportError
from trioperator._kube.api_client import open_client
from trioperator._kube.connection_info import ConnectionInfo
from trioperator._kube.credential_store import CredentialStore
from trioperator._kube.httpx_adapter import HttpxTransport
from trioperator.errors import ConfigError, ConnectionLostError
from trioperator.settings import OperatorSettings


class TestHttpxTransport:
    async def test_a_request_keeps_its_target_and_headers(self) -> None:
        memory = Memory([ok({"a": 1})])
        transport = HttpxTransport(memory, origin="https://host:6443")
        response = await transport.send(Request("PATCH", "/a%20b?c=d%26", [(b"X-One", b"1")], b"{}"))
        assert (response.status, await response.read(10**9)) == (200, b'{"a":1}')
        (request,) = memory.requests
        assert request.url.raw_path == b"/a%20b?c=d%26"
        assert (request.method, request.content) == ("PATCH", b"{}")
        assert (request.headers["x-one"], request.headers["host"]) == ("1", "host:6443")

    async def test_a_body_comes_in_parts(self) -> None:
        chunks = Chunks([b"a", b"", b"b"])
        response = await HttpxTransport(Streaming(chunks), origin="http://host").send(Request("GET", "/", []))
        assert [await response.receive(), await response.receive(), await response.receive()] == [b"a", b"b", b""]
        assert chunks.closed
        assert await response.receive() == b""

    async def test_a_body_whose_reader_was_cancelled_has_not_ended(self) -> None:
        response = await HttpxTransport(Streaming(Chunks([b"a", None])), origin="http://host").send(
            Request("GET", "/", [])
        )
        assert await response.receive() == b"a"
        with trio.move_on_after(0.01):
            await response.receive()
        with pytest.raises(TransportError, match="a read was cancelled before"):
            await response.receive()

    async def test_a_body_above_the_limit_is_an_error(self) -> None:
        chunks = Chunks([b"abc", b"def"])
        response = await HttpxTransport(Streaming(chunks), origin="http://host").send(Request("GET", "/", []))
        with pytest.raises(TransportError, match=r"larger than 5 bytes") as caught:
            await response.read(5)
        assert caught.value.final
        assert chunks.closed

    @pytest.mark.parametrize(
        ("error", "reached"),
        [
            (httpx.ConnectError("x"), False),
            (httpx.ConnectTimeout("x"), False),
            (httpx.ProxyError("x"), False),
            (httpx.ReadError("x"), True),
            (httpx.RemoteProtocolError("x"), True),
            (OSError("x"), True),
            (trio.BrokenResourceError("x"), True),
        ],
    )
    async def test_errors_show_whether_the_server_was_reached(self, error: Exception, reached: bool) -> None:
        with pytest.raises(TransportError, match=r"host:81: x") as caught:
            await HttpxTransport(Memory([error]), origin="http://host:81").send(Request("GET", "/", []))
        assert caught.value.reached == reached

    async def test_a_cancelled_reader_closes_the_response(self, autojump_clock: MockClock) -> None:
        chunks = Chunks([None])
        response = await HttpxTransport(Streaming(chunks), origin="http://host").send(Request("GET", "/", []))
        with trio.move_on_after(1):
            await response.read(10**9)
        assert chunks.closed


class Closing(httpx.AsyncBaseTransport):
    """A transport that notes when it is closed."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self.transport = transport
        self.closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self.transport.handle_async_request(request)

    async def aclose(self) -> None:
        self.closed = True


@pytest.mark.parametrize("reads", [True, False])
async def test_an_owned_transport_is_closed_when_it_is_retired_and_its_last_response_has_ended(reads: bool) -> None:
    inner = Closing(Streaming(Chunks([b"a", b"b"])))
    transport = HttpxTransport(inner, origin="http://host", owned=True)
    response = await transport.send(Request("GET", "/", []))
    assert not await transport.retire()
    assert not inner.closed
    await (response.read(10**9) if reads else response.aclose())
    await response.aclose()
    assert await transport.retire()
    assert inner.closed


async def test_transports_by_a_proxy_are_closed_as_certificates_are_renewed() -> None:
    infos = [ConnectionInfo(server="https://host", proxy_url="http://127.0.0.1:1", insecure=i % 2 == 0) for i in (0, 1)]
    logins = itertools.cycle(infos)

    async def login() -> Sequence[ConnectionInfo]:
        return [next(logins)]

    store = CredentialStore(login, settings=OperatorSettings())
    await store.open()
    for _ in range(5):
        await store.reload()
    assert store._retired == []
    await store.aclose()


async def test_an_invalid_proxy_is_a_clear_error() -> None:
    info = ConnectionInfo(server="https://host", proxy_url="ftp://proxy")
    with pytest.raises(ConfigError, match=r"The proxy 'ftp://proxy' of https://host cannot be used: Unknown scheme"):
        async with open_client(lambda: info, settings=OperatorSettings()):
            raise AssertionError


@pytest.mark.parametrize("url", ["ftp://me:s3cret@proxy", "http://me:s3cret/@proxy", "http://me:x@s3cret@proxy:port"])
async def test_the_password_of_an_invalid_proxy_is_not_shown(url: str) -> None:
    info = ConnectionInfo(server="https://host", proxy_url=url)
    with pytest.raises(ConfigError, match=r"The proxy '\w+://…@proxy[^@]*' of https://host cannot be used") as caught:
        async with open_client(lambda: info, settings=OperatorSettings()):
            raise AssertionError
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


async def test_an_unreachable_proxy_is_a_lost_connection() -> None:
    settings = OperatorSettings()
    settings.networking.error_backoffs = ()
    info = ConnectionInfo(server="https://host", proxy_url="http://127.0.0.1:1", insecure=True)
    async with open_client(lambda: info, settings=settings) as client:
        with pytest.raises(ConnectionLostError, match=r"^host by the proxy http://127.0.0.1:1: "):
            await client.get("/x")


def test_httpx_is_not_imported_unless_it_is_needed() -> None:
    code = (
        "import sys, types\n"
        "import trioperator._kube.api_client, trioperator._kube.watch, trioperator._kube.discovery\n"
        "assert not {'httpx', 'yaml', 'email.utils'} & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
