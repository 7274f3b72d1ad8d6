"""HTTP/1 for ASGI applications: one connection, which its task alone serves, with one deadline.

The application is called in that task, and reads the connection itself when it asks for the body of a request, or
whether the client is gone: so nothing is read that nobody wants. The deadline moves on with what the connection is at:

=========  ==================================================  ====================================  ================
phase      waits for                                           at most                               ends with
=========  ==================================================  ====================================  ================
IDLE       the first byte of a request                         ``Limits.idle``                       its end
RECEIVING  the rest of a request                               10 seconds from its first byte on     HTTP 408
SENDING    the client, to read a part of the response          10 seconds for each part              its end
ANSWERING  the application                                     ``Limits.answering`` without a word,  HTTP 500,
                                                               or less if it says so                 what it says
CLOSING    the client, to read the last response               1 second                              its end
=========  ==================================================  ====================================  ================

A server that needs room for others gives up whoever it waits for in this order; what the application is at stays.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import http
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import trio

from trioperator._concurrency.clock import find_clock
from trioperator._concurrency.timeouts import Timeouts
from trioperator._http.asgi import Message, TimeLimit
from trioperator._http.hypercorn_stream import Caller, Peers
from trioperator._http.request_parser import Message as Request
from trioperator._http.request_parser import RequestParser
from trioperator._http.tls_connection import TlsConnection

# Seconds for receiving a request from its first byte on, and for sending a part of a response.
_RECEIVING: Final = 10.0
_SENDING: Final = 10.0
# Seconds between the last byte to a client and the end of its connection. Its remaining bytes are read: otherwise
# the kernel would reset the connection, and the client might never see the response.
_LINGER: Final = 1.0
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_WITHOUT_BODY: Final = frozenset({204, 304})


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a server for its clients and its application; times are in seconds.

    - *connections*: how many there may be, but no more than a *share* of the files that the process may open
    - *idle*: time between two requests
    - *answering*: time that the application may take before it sends something, or something more
    - *drain*: time in which the requests in progress are answered when the server ends; the others get HTTP 500 then
    """

    connections: int = 200
    share: float = 0.1
    idle: float = 5.0
    answering: float = 60.0
    drain: float = 0.0


class Serving(msgspec.Struct, frozen=True):
    """What the connections of a server have in common. A task must serve the *timeouts*.

    While the server *is_draining*, a response is the last one of its connection, and says so: clients then send the
    next request elsewhere. Closing an idle connection at once could cross a request that is on its way.
    """

    call: Caller
    limits: Limits
    timeouts: Timeouts
    is_draining: Callable[[], bool] = lambda: False


class Phase(enum.IntEnum):
    """State of a connection, in the order in which a server gives connections up to make room."""

    CLOSING = 0
    IDLE = 1
    RECEIVING = 2
    SENDING = 3
    ANSWERING = 4


class Connection:
    """One connection, after the TLS handshake. It ends with :meth:`serve`, which does not close the transport."""

    def __init__(self, transport: TlsConnection, serving: Serving) -> None:
        self._transport = transport
        self._serving = serving
        self._parser = RequestParser()
        self._scope, self._linger_scope = trio.CancelScope(), trio.CancelScope()
        self.deadline = float("inf")
        self.phase = Phase.IDLE
        self._now = find_clock()
        self.since = self._now()  # when the phase has begun
        self._exchange: _Exchange | None = None
        self._status = 0  # of the response to what is refused
        self._is_ending = False

    @property
    def is_last(self) -> bool:
        """Whether the next response is the last one."""
        return self._is_ending or self._serving.is_draining()

    async def serve(self, peers: Peers) -> None:
        """Answer requests until the client or the server ends the connection, or a limit is exceeded."""
        self._serving.timeouts.add(self)
        try:
            with self._scope:
                await self._serve_requests(peers)
        finally:
            self._serving.timeouts.discard(self)
        exchange, status = self._exchange, self._status
        if self._linger_scope.cancel_called:
            return
        if exchange is not None and exchange.has_started:
            if exchange.is_complete:
                await self._linger(b"")
            return
        if not status and self._scope.cancelled_caught:
            status = {Phase.RECEIVING: 408, Phase.ANSWERING: 500}.get(self.phase, 0)
        elif not status and exchange is not None:
            status = 500
        late = exchange.limit.make_late() if status == 504 and exchange is not None and exchange.limit else None
        if status:
            await self._linger(_make_error(status) if late is None else _make_last(200, late))

    def close(self) -> None:
        """Close the connection when the request in progress is answered; now if there is none."""
        self._is_ending = True
        if self.phase is Phase.IDLE:
            self.drop()

    def abandon(self) -> None:
        """Answer the request in progress with an error, and close the connection."""
        self._scope.cancel(reason="the server is stopping")

    def drop(self) -> None:
        """Close the connection now."""
        self._scope.cancel(reason="the connection is closed")
        self._linger_scope.cancel(reason="the connection is closed")

    def expire(self) -> None:
        """End what the connection is at, if its deadline is over. See :class:`.Timed`."""
        if self._now() >= self.deadline:
            if self._exchange is not None and self._exchange.limit is not None:
                self._status = 504
            self._scope.cancel(reason="a limit is exceeded")

    async def _serve_requests(self, peers: Peers) -> None:
        call, limits = self._serving.call, self._serving.limits
        while (request := await self._receive_request()) is not None:
            if request.is_complete:
                self._enter(Phase.ANSWERING, limits.answering)
            self._exchange = exchange = _Exchange(self, request)
            await call(exchange, peers)
            if not (exchange.is_complete and exchange.keeps):
                return
            self._exchange = None

    async def _receive_request(self) -> Request | None:
        """Return the next request when its head is there; None at the end of the connection."""
        parser = self._parser
        if parser.messages:
            await trio.lowlevel.checkpoint()  # requests that came together take turns with others'
        if parser.is_mid_request:
            self._enter(Phase.RECEIVING, _RECEIVING)
        elif not parser.messages:
            self._enter(Phase.IDLE, self._serving.limits.idle)
        while not parser.messages:
            if parser.error:
                await self._refuse(parser.error)
            elif not await self._read():
                return None
        return parser.messages.popleft()

    async def receive_body(self, exchange: _Exchange) -> bool:
        """Receive something more of the body of a request. Return False if there is nothing more to come."""
        if self._parser.error:
            await self._refuse(self._parser.error)
            return False
        self.phase = Phase.RECEIVING
        self._serving.timeouts.set(self, self._now() + exchange.receiving_left)
        try:
            if exchange.request.expects_continue:
                exchange.request.expects_continue = False
                await self._transport.send(_CONTINUE)
            return await self._read()
        except OSError:
            return False
        finally:
            if not self._scope.cancel_called:
                exchange.receiving_left = self.deadline - self._now()
                self._enter(Phase.ANSWERING, self._serving.limits.answering)

    def limit(self, seconds: float) -> None:
        """Limit the time until the application sends something."""
        self._serving.timeouts.set(self, min(self.deadline, self._now() + seconds))

    async def send(self, data: bytes) -> None:
        """Send a part of a response. If the client is gone, its request is cancelled."""
        try:
            rest = self._transport.send_nowait(data)
            if rest:
                self._enter(Phase.SENDING, _SENDING)
                await self._transport.send_rest(rest)
        except OSError:
            self.drop()
            await trio.lowlevel.checkpoint_if_cancelled()
        self._enter(Phase.ANSWERING, self._serving.limits.answering)

    async def wait_for_disconnect(self) -> None:
        """Return when the client is gone. A request that comes before is kept, and then that is not noticed."""
        parser = self._parser
        with contextlib.suppress(OSError):
            while not (parser.messages or parser.error):
                data = await self._transport.receive()
                if not data:
                    return
                parser.feed(data)
            await trio.sleep_forever()

    async def _read(self) -> bool:
        data = await self._transport.receive()
        if not data:
            return False
        messages = self._parser.messages
        self._parser.feed(data)
        if self.phase is Phase.IDLE and not (messages and messages[0].is_complete):
            self._enter(Phase.RECEIVING, _RECEIVING)
        return True

    async def _refuse(self, status: int) -> None:
        """End the connection with an error, whatever the application is doing."""
        self._status = status
        self._scope.cancel(reason="the request is not valid")
        await trio.lowlevel.checkpoint_if_cancelled()

    async def _linger(self, last: bytes) -> None:
        self.phase = Phase.CLOSING
        with trio.move_on_after(_LINGER), self._linger_scope, contextlib.suppress(OSError):
            if last:
                await self._transport.send(last)
            await self._transport.finish()

    def _enter(self, phase: Phase, seconds: float) -> None:
        self.phase, self.since = phase, self._now()
        self._serving.timeouts.set(self, self.since + seconds)


class _Exchange:
    """One request and its response: whether that has started and is complete, and *keeps* the connection open."""

    def __init__(self, connection: Connection, request: Request) -> None:
        self.request = request
        self.receiving_left = _RECEIVING  # seconds, without those in which the application does not receive
        self.has_started = self.is_complete = self.keeps = False
        self.limit: TimeLimit | None = None
        self._connection = connection
        self._is_received = False
        self._head = b""  # which is sent with the first part of the body
        self._is_chunked = False
        self._left: int | None = None  # bytes of the body that are announced; None if they are not

    def set_limit(self, limit: TimeLimit) -> None:
        self.limit = limit
        self._connection.limit(limit.seconds)

    async def receive(self) -> Message:
        request = self.request
        if self._is_received:
            await self._connection.wait_for_disconnect()
            return {"type": "http.disconnect"}
        while not (request.body or request.is_complete):
            if not await self._connection.receive_body(self):
                return {"type": "http.disconnect"}
        body = bytes(request.body)
        request.body.clear()
        self._is_received = request.is_complete
        return {"type": "http.request", "body": body, "more_body": not request.is_complete}

    def start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        request = self.request
        is_new, has_body = request.version == "1.1", request.method != "HEAD" and status not in _WITHOUT_BODY
        keeps = is_new and request.is_complete and request.keep_alive and not self._connection.is_last
        self._head, self._left, self.keeps = _make_head(status, tuple(headers), has_body, is_new, keeps)
        self._is_chunked = self._left is None and is_new

    def write(self, data: bytes) -> Awaitable[None]:
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:
                raise ValueError("The response is longer than its Content-Length.")
        return self._send(b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data)

    async def end(self) -> None:
        if self._left:
            raise ValueError("The response is shorter than its Content-Length.")
        if self._head or self._is_chunked:
            await self._send(b"0\r\n\r\n" if self._is_chunked else b"")
        self.is_complete = True

    def _send(self, data: bytes) -> Awaitable[None]:
        head, self._head, self.has_started = self._head, b"", True
        return self._connection.send(head + data if head else data)


@functools.lru_cache(maxsize=64)  # most responses differ in their bodies only
def _make_head(
    status: int, headers: tuple[tuple[bytes, bytes], ...], has_body: bool, is_new: bool, keeps: bool
) -> tuple[bytes, int | None, bool]:
    """Return the head of a response, the announced length of its body, and whether the connection is kept.

    With HTTP/1.1 (*is_new*), a body of unknown length comes in chunks. Before that, it ends with the connection.
    """
    parts, lines = [_make_status_line(status)], 1
    left = None if has_body else 0
    for name, value in headers:
        key = name.lower()
        if key == b"connection":
            keeps = keeps and value.lower() != b"close"
        elif key != b"transfer-encoding":
            parts += (name, b": ", value, b"\r\n")
            lines += 1
            if key == b"content-length" and has_body:
                left = int(value)
    if left is None and is_new:
        parts.append(b"transfer-encoding: chunked\r\n")
        lines += 1
    if not keeps:
        parts.append(b"connection: close\r\n")
        lines += 1
    head = b"".join(parts)
    if not head.count(b"\r") == head.count(b"\n") == lines or b"\0" in head:
        raise ValueError("A header of the response has a line break or a null byte.")
    return head + b"\r\n", left, keeps


def _make_status_line(status: int) -> bytes:
    phrase = http.HTTPStatus(status).phrase if status in http.HTTPStatus._value2member_map_ else ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode("ascii")


def _make_error(status: int) -> bytes:
    return _make_last(status, msgspec.json.encode({"error": f"{http.HTTPStatus(status).phrase}."}))


def _make_last(status: int, content: bytes) -> bytes:
    """Return a response that is JSON, and the last one of its connection."""
    head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(content)
    return _make_status_line(status) + head + content
