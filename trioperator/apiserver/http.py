"""The way to the API over TCP: a lean HTTP/1.1 server on Trio streams, parsed by httptools.

It serves one API and nothing else, and was measured before it was written: an ASGI server takes several times the CPU
of each request. One task for each connection; requests on a connection are answered in order; a watch occupies its
connection until it ends. Whoever sends what is not HTTP is answered 400 and disconnected.
"""

from __future__ import annotations

import base64
import contextlib
import ssl
from collections import deque
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

import httptools
import trio

from trioperator.errors import ConfigError

from .certificates import certified_user
from .messages import IMPERSONATION, Request, Response
from .users import ANONYMOUS, User
from .watching import Watch

if TYPE_CHECKING:
    from .api import Api
    from .cluster import Cluster

__all__ = ["serve_cluster"]

_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # who listens everywhere is reached here
_READ_SIZE: Final = 65_536
_HEAD_LIMIT: Final = 65_536  # bytes of the request line and the headers together
_GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError, ssl.SSLError)  # when a client has gone
_IDLE_TIMEOUT: Final = 600.0  # seconds that a connection may be open without a request
_LINGER: Final = 1.0  # seconds
_PIPELINE: Final = 64  # requests that one connection may send ahead


async def serve_cluster(
    cluster: Cluster,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: bool = False,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the cluster on a port (0: any free one) until cancelled; the status tells the URL.

    With ``tls`` the certificate is made by the cluster's own authority, and clients may show one of it, too.
    Raises ConfigError if the port cannot be had.
    """
    context, ca_data = None, ""
    if tls:
        context = cluster.authority.server_context(host, "localhost", "127.0.0.1", "::1")
        ca_data = base64.b64encode(cluster.authority.certificate).decode("ascii")
    try:
        listeners = await trio.open_tcp_listeners(port, host=host)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"The embedded API server cannot listen on {host}:{port}: {reason}.") from error
    bound = listeners[0].socket.getsockname()[1]
    reached = _WILDCARDS.get(host, host)
    shown = f"[{reached}]" if ":" in reached else reached
    url = f"{'https' if tls else 'http'}://{shown}:{bound}"
    cluster.authorities[url] = ca_data
    async with trio.open_nursery() as connections:
        handler = partial(_serve_connection, cluster.api, context)
        # A connection is served in the inner nursery; cancelling this function ends all of them at once.
        await connections.start(partial(trio.serve_listeners, handler, listeners, handler_nursery=connections))
        task_status.started(url)


async def _serve_connection(api: Api, context: ssl.SSLContext | None, raw: trio.SocketStream) -> None:
    stream: trio.abc.Stream = raw
    user: User | None = None
    try:
        with contextlib.suppress(*_GONE):
            if context is not None:
                stream = secured = trio.SSLStream(raw, context, server_side=True, https_compatible=True)
                await secured.do_handshake()
                user = certified_user(secured.getpeercert())
            await _Connection(api, stream, user).serve()
    finally:
        await trio.aclose_forcefully(stream)


class _Connection:
    """One connection: what was parsed, and what is to be answered. Its methods with ``on_`` are called by httptools."""

    def __init__(self, api: Api, stream: trio.abc.Stream, user: User | None) -> None:
        self._api = api
        self._stream = stream
        self._user = user  # by a certificate, which goes before tokens
        self._parser = httptools.HttpRequestParser(self)
        self._requests: deque[tuple[Request, bool]] = deque()
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._impersonation: list[tuple[str, str]] = []
        self._body: list[bytes] = []
        self._size = 0
        self._head_size = 0
        self._expects = False
        self._begun = False

    # -- parsing --------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._url = b""
        self._headers = {}
        self._impersonation = []
        self._body = []
        self._size = self._head_size = 0
        self._begun = True

    def on_url(self, url: bytes) -> None:
        """Take a piece of the URL."""
        self._url += url
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        name = name.lower()
        if name.startswith(IMPERSONATION):
            self._impersonation.append((name.decode("latin-1"), value.decode("latin-1")))
        self._headers[name] = value
        self._count(len(name) + len(value))

    def _count(self, size: int) -> None:
        self._head_size += size
        if self._head_size > _HEAD_LIMIT:
            raise ValueError("The head of the request is too long.")

    def on_headers_complete(self) -> None:
        """Note whether the client waits for a sign before it sends the body."""
        self._expects = self._headers.get(b"expect", b"").lower() == b"100-continue"

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body; what is beyond the limit is counted, not kept."""
        self._size += len(body)
        if self._size <= self._api.body_limit + _READ_SIZE:
            self._body.append(body)

    def on_message_complete(self) -> None:
        """Queue the request."""
        headers = self._headers
        path, _, query = self._url.partition(b"?")
        request = Request(
            method=self._parser.get_method().decode("ascii"),
            path=path.decode("latin-1"),
            query=dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True)) if query else {},
            accept=headers.get(b"accept", b"").decode("latin-1"),
            content_type=headers.get(b"content-type", b"").decode("latin-1"),
            user_agent=headers.get(b"user-agent", b"").decode("latin-1"),
            authorization="" if self._user else headers.get(b"authorization", b"").decode("latin-1"),
            user=self._user or ANONYMOUS,
            impersonation=tuple(self._impersonation),
            body=b"".join(self._body),
        )
        self._requests.append((request, self._parser.should_keep_alive()))
        self._begun = False

    # -- serving --------------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Answer requests until the client has had enough."""
        while True:
            while self._requests:
                request, keep = self._requests.popleft()
                if not await self._answer(request, keep):
                    return
            if not await self._read():
                return

    async def _read(self) -> bool:
        """Read and parse some bytes; return whether there can be more."""
        data = b""
        with trio.move_on_after(_IDLE_TIMEOUT):
            data = bytes(await self._stream.receive_some(_READ_SIZE))
        if not data:
            return False
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            await self._refuse()
            return False
        if self._expects and self._begun:
            self._expects = False
            await self._stream.send_all(b"HTTP/1.1 100 Continue\r\n\r\n")
        return len(self._requests) <= _PIPELINE

    async def _refuse(self) -> None:
        """Say that this is not HTTP. What still comes is read for a while, lest the answer is lost with a reset."""
        await self._stream.send_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        if isinstance(self._stream, trio.SocketStream):
            await self._stream.send_eof()
        with trio.move_on_after(_LINGER):
            for _ in range(_PIPELINE):
                if not await self._stream.receive_some(_READ_SIZE):
                    break

    async def _answer(self, request: Request, keep: bool) -> bool:
        response = await self._api.handle(request)
        if isinstance(response.body, Watch):
            await self._stream.send_all(_head(response, keep=keep) + b"Transfer-Encoding: chunked\r\n\r\n")
            return await self._stream_watch(response.body) and keep
        head = _head(response, keep=keep) + b"Content-Length: %d\r\n\r\n" % len(response.body)
        await self._stream.send_all(head if request.method == "HEAD" else head + response.body)
        return keep

    async def _stream_watch(self, watch: Watch) -> bool:
        """Send the watch until it ends (return True) or the client is gone."""
        is_complete = False

        async def wait_for_end() -> None:
            # A client that watches sends nothing more: whatever comes is its end, or the beginning of its next request.
            with contextlib.suppress(*_GONE):
                await self._read()
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_end)
            with contextlib.suppress(*_GONE):
                while (chunk := await watch.receive()) is not None:
                    await self._stream.send_all(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                await self._stream.send_all(b"0\r\n\r\n")
                is_complete = True
            nursery.cancel_scope.cancel()
        return is_complete


_STATUS_LINES: Final = {status: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}


def _head(response: Response, *, keep: bool) -> bytes:
    text = f"{_STATUS_LINES[HTTPStatus(response.status)]}Content-Type: {response.content_type}\r\n"
    for name, value in response.headers:
        text += f"{name}: {value}\r\n"
    if not keep:
        text += "Connection: close\r\n"
    return text.encode("latin-1")
