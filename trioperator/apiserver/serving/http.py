"""A lean HTTP/1.1 server for the API, on Trio streams, with the operator's request parser.

It serves one API and nothing else: an ASGI server was measured to take several times the CPU per request. Each
connection has one task, which answers its requests in order; a watch occupies its connection until it ends. Requests
that are malformed, too large or incomplete get a ``Status`` and are disconnected; so are clients that stop reading.
"""

from __future__ import annotations

import contextlib
import math
import ssl
from collections.abc import AsyncIterator
from functools import partial
from http import HTTPStatus
from typing import Final

import trio

from trioperator.errors import ApiError

from ..model.errors import render_status, request_timeout
from ..model.messages import Handler, Request, Response, Stream
from ..model.user import ANONYMOUS, User
from .certificates import user_of_certificate
from .requests import RequestReader
from .tls_stream import TlsStream

_READ_SIZE: Final = 65_536
_SEND_SIZE: Final = 262_144  # bytes
# The client has disconnected, or behaves as if it had.
_DISCONNECTED: Final = (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, OSError)
# All in seconds:
_HANDSHAKE_TIMEOUT: Final = 30.0
_IDLE_TIMEOUT: Final = 600.0  # of a connection without a request
_REQUEST_TIMEOUT: Final = 60.0  # from the first byte of a request to its last one
_STALL_TIMEOUT: Final = 60.0  # while a client does not read the response
_LINGER: Final = 1.0  # reading after an error response, so that a reset does not discard it
_CLOSE_TIMEOUT: Final = 1.0  # for idle connections to webhooks


async def serve_listeners(
    handler: Handler,
    listeners: list[trio.SocketListener],
    *,
    context: ssl.SSLContext | None = None,
    user: User = ANONYMOUS,
    local_only: bool = False,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the API on the listeners until cancelled, over TLS if there is a context. Closes the listeners.

    ``user`` is the user of connections without a client certificate. With ``local_only``, requests that a web page may
    have sent are refused.
    """
    serve = partial(_serve_connection, handler, context, user, local_only)
    async with _closing_idle_calls(handler), trio.open_nursery() as connections:
        # A connection is served in the inner nursery; cancelling this function ends all of them at once.
        await connections.start(partial(trio.serve_listeners, serve, listeners, handler_nursery=connections))
        task_status.started()


@contextlib.asynccontextmanager
async def _closing_idle_calls(handler: Handler) -> AsyncIterator[None]:
    """Close the connections to webhooks at the end of the block."""
    try:
        yield
    finally:
        with trio.move_on_after(_CLOSE_TIMEOUT, shield=True):
            await handler.aclose()


async def _serve_connection(
    handler: Handler, context: ssl.SSLContext | None, user: User, local_only: bool, raw: trio.SocketStream
) -> None:
    stream: trio.SocketStream | TlsStream = raw
    try:
        with contextlib.suppress(*_DISCONNECTED):
            if context is not None:
                stream = TlsStream(raw, context)
                with trio.fail_after(_HANDSHAKE_TIMEOUT):
                    await stream.connection.handshake()
                user = user_of_certificate(stream.connection.peer) or user
            await serve_stream(handler, stream, user=user, local_only=local_only)
    finally:
        await trio.aclose_forcefully(stream)


async def serve_stream(
    handler: Handler, stream: trio.abc.Stream, *, user: User = ANONYMOUS, local_only: bool = False
) -> None:
    """Answer the requests that arrive on the stream until it ends. Leaves the stream open.

    ``user`` is the user that the connection itself authenticates.
    """
    reader = RequestReader(body_limit=handler.body_limit, user=user, local_only=local_only)
    with contextlib.suppress(*_DISCONNECTED):
        await _Connection(handler, stream, reader).serve()


class _Connection:
    """One connection. Its requests are answered in order, and must arrive within a time limit."""

    def __init__(self, handler: Handler, stream: trio.abc.Stream, reader: RequestReader) -> None:
        self._handler = handler
        self._stream = stream
        self._reader = reader
        self._deadline = trio.current_time() + _IDLE_TIMEOUT
        self._stall_scope = trio.CancelScope()

    async def serve(self) -> None:
        """Answer requests until the client disconnects, sends an invalid request, or stops reading."""
        with self._stall_scope:
            await self._serve()

    async def _serve(self) -> None:
        reader = self._reader
        while True:
            while reader.requests:
                request, keep = reader.requests.popleft()
                if not await self._respond(request, keep):
                    return
                self._deadline = trio.current_time() + (
                    _REQUEST_TIMEOUT if reader.parser.is_mid_request else _IDLE_TIMEOUT
                )
            if reader.error is not None:
                await self._send_error(reader.error)
                return
            if not await self._read():
                return

    async def _read(self) -> bool:
        """Receive and parse data. Returns False at the end of the stream."""
        reader = self._reader
        data: bytes | bytearray = b""
        with trio.move_on_at(self._deadline) as scope:
            data = await self._stream.receive_some(_READ_SIZE)
        if scope.cancelled_caught and reader.parser.is_mid_request:
            reader.error = request_timeout(_REQUEST_TIMEOUT)
            return True
        if not data:
            return False
        started = reader.parser.started
        reader.feed(bytes(data))
        if reader.parser.started > started:
            self._deadline = trio.current_time() + _REQUEST_TIMEOUT
        if reader.take_expectation():
            await self._send(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    async def _send(self, data: bytes) -> None:
        """Send the data in chunks. A client that does not read one in time counts as disconnected."""
        if len(data) <= _SEND_SIZE:
            await self._send_chunk(data)
            return
        view = memoryview(data)
        for start in range(0, len(data), _SEND_SIZE):
            await self._send_chunk(view[start : start + _SEND_SIZE])

    async def _send_chunk(self, chunk: bytes | memoryview) -> None:
        if isinstance(self._stream, TlsStream):
            chunk = self._stream.send_nowait(chunk)
            if not chunk:
                return
        # One scope per connection, whose deadline moves, is several times cheaper than one per chunk.
        self._stall_scope.deadline = trio.current_time() + _STALL_TIMEOUT
        await self._stream.send_all(chunk)
        self._stall_scope.deadline = math.inf

    async def _send_error(self, error: ApiError) -> None:
        """Send an error response, then read for a while, so that a reset does not discard the response."""
        response = Response.of(render_status(error), error.status)
        assert isinstance(response.body, bytes)
        await self._send(
            _head(response, keep=False) + b"Content-Length: %d\r\n\r\n" % len(response.body) + response.body
        )
        if isinstance(self._stream, trio.SocketStream):
            await self._stream.send_eof()
        with trio.move_on_after(_LINGER):
            while await self._stream.receive_some(_READ_SIZE):
                pass

    async def _respond(self, request: Request, keep: bool) -> bool:
        """Answer the request. Returns whether the connection can be reused."""
        response = await self._handler.handle(request)
        if not isinstance(response.body, bytes):
            await self._send(_head(response, keep=keep) + b"Transfer-Encoding: chunked\r\n\r\n")
            return await self._stream_watch(response.body) and keep
        head = _head(response, keep=keep) + b"Content-Length: %d\r\n\r\n" % len(response.body)
        await self._send(head if request.method == "HEAD" else head + response.body)
        return keep

    async def _stream_watch(self, watch: Stream) -> bool:
        """Send the watch until it ends (then return True) or the client disconnects."""
        is_complete = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._wait_for_disconnect, nursery.cancel_scope, name="disconnect of the client")
            with contextlib.suppress(*_DISCONNECTED):
                while (chunk := await watch.receive()) is not None:
                    await self._send(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                await self._send(b"0\r\n\r\n")
                is_complete = True
            nursery.cancel_scope.cancel(reason="the watch has ended")
        return is_complete

    async def _wait_for_disconnect(self, scope: trio.CancelScope) -> None:
        """Cancel the scope when the client disconnects. A pipelined request is kept, and stops the reading."""
        reader = self._reader
        with contextlib.suppress(*_DISCONNECTED):
            while not (reader.requests or reader.error):
                data = await self._stream.receive_some(_READ_SIZE)
                if not data:
                    break
                reader.feed(bytes(data))
            else:
                await trio.sleep_forever()
        scope.cancel(reason="the client disconnected")


_STATUS_LINES: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}


def _head(response: Response, *, keep: bool) -> bytes:
    text = _STATUS_LINES.get(response.status) or f"HTTP/1.1 {response.status:03d} Other\r\n"
    text += f"Content-Type: {response.content_type}\r\n"
    for name, value in response.headers:
        text += f"{name}: {' '.join(value.split())}\r\n"
    if not keep:
        text += "Connection: close\r\n"
    return text.encode()
