"""The way to the API over TCP: a lean HTTP/1.1 server on Trio streams, parsed by httptools.

It serves one API and nothing else, and was measured before it was written: an ASGI server takes several times the CPU
of each request. One task for each connection; requests on a connection are answered in order; a watch occupies its
connection until it ends. Whoever sends what is not HTTP, is too large, or does not come to its end, is answered with
the Status of that and disconnected; who takes nothing of what is sent is disconnected.
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
from .request_parser import RequestParser

__all__ = ["serve_listeners", "serve_stream"]

_READ_SIZE: Final = 65_536
_PIECE: Final = 262_144  # bytes that are sent at once
# When a client has gone, or behaves as if it had.
_GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, ssl.SSLError)
# All in seconds:
_HANDSHAKE_TIMEOUT: Final = 30.0
_IDLE_TIMEOUT: Final = 600.0  # for which a connection may be open without a request
_REQUEST_TIMEOUT: Final = 60.0  # from the first byte of a request to its last one
_STALL_TIMEOUT: Final = 60.0  # for which a client may take nothing of what is sent
_LINGER: Final = 1.0
_CLOSE_TIMEOUT: Final = 1.0  # for closing the connections to webhooks


async def serve_listeners(
    handler: Handler,
    listeners: list[trio.SocketListener],
    *,
    context: ssl.SSLContext | None = None,
    user: User = ANONYMOUS,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the API on the listeners until cancelled, over TLS if there is a context; closes the listeners.

    ``user`` sends the requests of connections that come without a client certificate.
    """
    serve = partial(_serve_connection, handler, context, user)
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
    handler: Handler, context: ssl.SSLContext | None, user: User, raw: trio.SocketStream
) -> None:
    stream: trio.abc.Stream = raw
    try:
        with contextlib.suppress(*_GONE):
            if context is not None:
                stream = secured = trio.SSLStream(raw, context, server_side=True, https_compatible=True)
                with trio.fail_after(_HANDSHAKE_TIMEOUT):
                    await secured.do_handshake()
                user = user_of_certificate(secured.getpeercert()) or user
            await serve_stream(handler, stream, user=user)
    finally:
        await trio.aclose_forcefully(stream)


async def serve_stream(handler: Handler, stream: trio.abc.Stream, *, user: User = ANONYMOUS) -> None:
    """Answer the requests that come by the stream, until there are no more. It is left to be closed.

    ``user`` is whom the stream itself vouches for.
    """
    with contextlib.suppress(*_GONE):
        await _Connection(handler, stream, user).serve()


class _Connection:
    """One connection: its requests are answered in order, each within the time that its client has to send it."""

    def __init__(self, handler: Handler, stream: trio.abc.Stream, user: User) -> None:
        self._handler = handler
        self._stream = stream
        self._parser = RequestParser(body_limit=handler.body_limit, user=user)
        self._due = trio.current_time() + _IDLE_TIMEOUT
        self._patience = trio.CancelScope()

    async def serve(self) -> None:
        """Answer requests until the client has had enough, cannot be understood, or takes no answers."""
        with self._patience:
            await self._serve()

    async def _serve(self) -> None:
        parser = self._parser
        while True:
            while parser.requests:
                request, keep = parser.requests.popleft()
                if not await self._answer(request, keep and not parser.is_over):
                    return
                self._due = trio.current_time() + (_REQUEST_TIMEOUT if parser.is_midway else _IDLE_TIMEOUT)
            if parser.refusal is not None:
                await self._refuse(parser.refusal)
                return
            if not await self._read():
                return

    async def _read(self) -> bool:
        """Read and parse some bytes; return whether there were any."""
        parser = self._parser
        data: bytes | bytearray = b""
        with trio.move_on_at(self._due) as scope:
            data = await self._stream.receive_some(_READ_SIZE)
        if scope.cancelled_caught and parser.is_midway:
            parser.refusal = request_timeout(_REQUEST_TIMEOUT)
            return True
        if not data:
            return False
        begun = parser.begun
        parser.feed(bytes(data))
        if parser.begun > begun:
            self._due = trio.current_time() + _REQUEST_TIMEOUT
        if parser.expects_sign and parser.refusal is None:
            parser.expects_sign = False
            await self._send(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    async def _send(self, data: bytes) -> None:
        """Send piece by piece. Who takes none of it for too long has gone, as far as the server knows."""
        if len(data) <= _PIECE:
            await self._send_piece(data)
            return
        view = memoryview(data)
        for at in range(0, len(data), _PIECE):
            await self._send_piece(view[at : at + _PIECE])

    async def _send_piece(self, piece: bytes | memoryview) -> None:
        # One scope for the connection, with a deadline that moves, is several times cheaper than one for each piece.
        self._patience.deadline = trio.current_time() + _STALL_TIMEOUT
        await self._stream.send_all(piece)
        self._patience.deadline = math.inf

    async def _refuse(self, refusal: ApiError) -> None:
        """Answer what cannot be served. What still comes is read for a while, lest the answer is lost with a reset."""
        response = Response.of(render_status(refusal), refusal.status)
        assert isinstance(response.body, bytes)
        await self._send(
            _head(response, keep=False) + b"Content-Length: %d\r\n\r\n" % len(response.body) + response.body
        )
        if isinstance(self._stream, trio.SocketStream):
            await self._stream.send_eof()
        with trio.move_on_after(_LINGER):
            while await self._stream.receive_some(_READ_SIZE):
                pass

    async def _answer(self, request: Request, keep: bool) -> bool:
        """Answer the request; return whether there can be another one."""
        response = await self._handler.handle(request)
        if not isinstance(response.body, bytes):
            await self._send(_head(response, keep=keep) + b"Transfer-Encoding: chunked\r\n\r\n")
            return await self._stream_watch(response.body) and keep
        head = _head(response, keep=keep) + b"Content-Length: %d\r\n\r\n" % len(response.body)
        await self._send(head if request.method == "HEAD" else head + response.body)
        return keep

    async def _stream_watch(self, watch: Stream) -> bool:
        """Send the watch until it ends (return True) or the client is gone."""
        is_complete = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._wait_for_end, nursery.cancel_scope, name="end of the client")
            with contextlib.suppress(*_GONE):
                while (chunk := await watch.receive()) is not None:
                    await self._send(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                await self._send(b"0\r\n\r\n")
                is_complete = True
            nursery.cancel_scope.cancel(reason="the watch has ended")
        return is_complete

    async def _wait_for_end(self, scope: trio.CancelScope) -> None:
        """Cancel when the client has gone. A request that it sends ahead is kept, and nothing after that is read."""
        parser = self._parser
        with contextlib.suppress(*_GONE):
            while not (parser.requests or parser.refusal or parser.is_over):
                data = await self._stream.receive_some(_READ_SIZE)
                if not data:
                    break
                parser.feed(bytes(data))
            else:
                await trio.sleep_forever()
        scope.cancel(reason="the client has gone")


_STATUS_LINES: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}


def _head(response: Response, *, keep: bool) -> bytes:
    text = _STATUS_LINES.get(response.status) or f"HTTP/1.1 {response.status:03d} Other\r\n"
    text += f"Content-Type: {response.content_type}\r\n"
    for name, value in response.headers:
        text += f"{name}: {' '.join(value.split())}\r\n"
    if not keep:
        text += "Connection: close\r\n"
    return text.encode()
