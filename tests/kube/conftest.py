"""Scripted servers on real sockets, and httpx transports in memory."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import httpx
import pytest
import trio
import trustme

from trioperator._kube.api_client import ApiClient, open_client
from trioperator._kube.connection_info import ConnectionInfo
from trioperator.settings import OperatorSettings

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """A request as a server received it."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    head: bytes


class Talk:
    """One connection from the server's side."""

    def __init__(self, stream: trio.abc.Stream, sock: trio.socket.SocketType) -> None:
        self._stream = stream
        self._sock = sock
        self._buffer = b""

    async def request(self) -> Request | None:
        """Read one request; return None at the end of the connection."""
        while b"\r\n\r\n" not in self._buffer:
            if not await self._fill():
                return None
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", "0"))
        while len(self._buffer) < length:
            if not await self._fill():
                return None
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return Request(method, target, headers, body, head)

    async def _fill(self) -> bool:
        data = await self._stream.receive_some()
        self._buffer += data
        return bool(data)

    async def send(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def answer(self, value: Any, *, status: int = 200, headers: str = "") -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        await self.send(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body)

    def reset(self) -> None:
        """Reset the connection, as a crash does."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()


Script: TypeAlias = Callable[[Talk], Awaitable[None]]


@dataclasses.dataclass(slots=True)
class Server:
    """A server that runs a script for each connection."""

    port: int
    tls: bool
    connections: int = 0
    open: int = 0
    _closed: trio.Event = dataclasses.field(default_factory=trio.Event)

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def note_closed(self) -> None:
        self.open -= 1
        self._closed.set()
        self._closed = trio.Event()

    async def all_closed(self) -> None:
        """Wait until no connection is open."""
        with trio.fail_after(60):
            while self.open:
                await self._closed.wait()


Serve: TypeAlias = Callable[..., Awaitable[Server]]


@pytest.fixture
async def serve(nursery: trio.Nursery) -> Serve:
    """Start servers: ``await serve(script, tls=context)``."""

    async def start(script: Script, *, tls: ssl.SSLContext | None = None) -> Server:
        server = Server(port=0, tls=tls is not None)

        async def talk(stream: trio.SocketStream) -> None:
            server.connections += 1
            server.open += 1
            carrier: trio.abc.Stream = stream
            if tls is not None:
                carrier = trio.SSLStream(stream, tls, server_side=True, https_compatible=True)
            try:
                with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await script(Talk(carrier, stream.socket))
            finally:
                with trio.move_on_after(0.5, shield=True):
                    await carrier.aclose()
                server.note_closed()

        listeners = await nursery.start(trio.serve_tcp, talk, 0)
        server.port = listeners[0].socket.getsockname()[1]
        return server

    return start


async def answer_all(talk: Talk) -> None:
    """Respond to each request with an empty object."""
    while await talk.request() is not None:
        await talk.send(ANSWER)


async def tunnel(target: Server, talk: Talk) -> None:
    """Forward one connection to the target, as a proxy does after CONNECT."""
    request = await talk.request()
    if request is None:
        return
    assert request.method == "CONNECT"
    far = await trio.open_tcp_stream("127.0.0.1", target.port)
    await talk.send(b"HTTP/1.1 200 OK\r\n\r\n")

    async def forth() -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            while await talk._fill():
                data, talk._buffer = talk._buffer, b""
                await far.send_all(data)
        pumps.cancel_scope.cancel()

    async with far, trio.open_nursery() as pumps:
        pumps.start_soon(forth)
        async for data in far:
            await talk.send(bytes(data))


@pytest.fixture(scope="session")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def ca_pem(ca: trustme.CA) -> str:
    return ca.cert_pem.bytes().decode()


@pytest.fixture(scope="session")
def server_tls(ca: trustme.CA) -> ssl.SSLContext:
    """TLS of a server whose certificate is for 127.0.0.1, ::1 and kubernetes.default."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert("127.0.0.1", "::1", "kubernetes.default").configure_cert(context)
    return context


@pytest.fixture
def settings() -> OperatorSettings:
    settings = OperatorSettings()
    settings.networking.request_timeout = 60
    return settings


@contextlib.asynccontextmanager
async def client_of(server: Server, settings: OperatorSettings, **fields: Any) -> AsyncIterator[ApiClient]:
    """Open a client of a server."""
    async with open_client(lambda: ConnectionInfo(server=server.url, **fields), settings=settings) as client:
        yield client


Answer: TypeAlias = httpx.Response | Exception
Respond: TypeAlias = Callable[[httpx.Request], Answer | Awaitable[Answer]]


class Memory(httpx.AsyncBaseTransport):
    """A server in memory; responses come from a function, or from a list whose last item repeats."""

    def __init__(self, answers: Respond | list[Answer]) -> None:
        self.requests: list[httpx.Request] = []
        self.times: list[float] = []
        self.closed = False
        self._answers = answers

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.times.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        if isinstance(self._answers, list):
            answer: Any = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        else:
            answer = self._answers(request)
            if isinstance(answer, Awaitable):
                answer = await answer
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, httpx.Response)
        # A response can be read once only, so one that repeats is copied.
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)

    async def aclose(self) -> None:
        self.closed = True


def status(code: int, message: str = "no", *, reason: str = "", details: Any = None, **headers: str) -> httpx.Response:
    """Return an error response as the API server sends it."""
    body = {"kind": "Status", "code": code, "message": message, "reason": reason, "details": details}
    return httpx.Response(code, json=body, headers={key.replace("_", "-"): value for key, value in headers.items()})


def ok(value: Any = None) -> httpx.Response:
    return httpx.Response(200, json={} if value is None else value)


class Chunks(httpx.AsyncByteStream):
    """A body in parts; exceptions among them are raised, ``None`` is silence for ever."""

    def __init__(self, parts: list[bytes | Exception | None]) -> None:
        self._parts = parts
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            if part is None:
                await trio.sleep_forever()
            elif isinstance(part, Exception):
                raise part
            else:
                yield part

    async def aclose(self) -> None:
        self.closed = True


class Streaming(httpx.AsyncBaseTransport):
    """A server in memory that responds to each request with the next of several streams."""

    def __init__(self, *streams: Chunks) -> None:
        self.requests: list[httpx.Request] = []
        self._streams = list(streams)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        await trio.lowlevel.checkpoint()
        return httpx.Response(200, stream=self._streams.pop(0))


@pytest.fixture
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the proxies of the environment."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
