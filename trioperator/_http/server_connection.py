"""HTTP/1.1 for webhooks: one connection of small requests, each of which is answered by one call.

Requests are parsed by httptools. Heads, bodies, trailers and times are limited, and so are the bodies of all
connections together. There is one cancel scope for a connection, whose deadline moves on with what it is doing.
"""

from __future__ import annotations

import enum
import functools
import http
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import httptools
import msgspec
import trio

from trioperator._http.tls_connection import TlsConnection

__all__ = ["Budget", "Connection", "Limits", "Request", "Response"]

_CHUNK: Final = 65_536
# Bytes of the line and the headers of a request, and of its trailers.
_MAX_HEAD: Final = 65_536
# Bytes of each body that do not count in the budget: small requests are answered whatever large ones occupy.
_FREE: Final = 16_384
# Seconds for receiving a request from its first byte on, and for sending a response.
_RECEIVING: Final = 10.0
_SENDING: Final = 10.0
# Seconds in which a client may read the last response: what it is still sending is read and dropped.
_LINGER: Final = 1.0


class Request(msgspec.Struct, frozen=True):
    """Request with its body; header names are as in ``User-Agent``, and *peer* is the client's certificate."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    peer: Mapping[str, Any] | None = None


class Response(msgspec.Struct, frozen=True):
    """Response in JSON."""

    status: int
    body: bytes


class Budget:
    """Bytes of large bodies that a server may hold at a time, over all its connections."""

    def __init__(self, size: int) -> None:
        self.left = size

    def take(self, size: int) -> bool:
        """Take bytes out of the budget; return whether they were left."""
        if size > self.left:
            return False
        self.left -= size
        return True

    def give_back(self, size: int) -> None:
        """Return bytes to the budget."""
        self.left += size


class Limits(msgspec.Struct, frozen=True):
    """Limits of a connection: *idle* seconds between requests, and what their bodies may occupy.

    *body* returns the size of the body for the path of a request, None where there is nothing: then it is not read.
    """

    idle: float
    body: Callable[[str], int | None]
    budget: Budget


class _Phase(enum.Enum):
    IDLE = enum.auto()
    RECEIVING = enum.auto()
    ANSWERING = enum.auto()
    SENDING = enum.auto()


class _BadRequestError(Exception):
    """Raised to answer what is no proper request, and close the connection."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Connection:
    """One connection, after the TLS handshake. It ends with :meth:`serve`, which does not close the transport.

    While the server *is_draining*, a response is the last one of its connection, and says so: clients then send the
    next request elsewhere. Closing an idle connection at once could cross a request that is on its way.
    """

    def __init__(
        self,
        transport: TlsConnection,
        answer: Callable[[Request], Awaitable[Response]],
        limits: Limits,
        *,
        is_draining: Callable[[], bool] = lambda: False,
    ) -> None:
        self._transport = transport
        self._answer = answer
        self._limits = limits
        self._is_draining = is_draining
        self._messages = _Messages(limits, transport.peer)
        self._scope = trio.CancelScope()
        self._phase = _Phase.IDLE
        self._closing = False

    async def serve(self) -> None:
        """Answer requests until the client or the server ends the connection, or a limit is exceeded."""
        status = 0
        with self._scope:
            try:
                await self._serve_requests()
            except _BadRequestError as error:
                status = error.status
            finally:
                self._messages.give_back()
        if self._scope.cancelled_caught:
            status = {_Phase.RECEIVING: 408, _Phase.ANSWERING: 500}.get(self._phase, 0)
        if status:
            with trio.move_on_after(_LINGER):
                await self._transport.send(_encode(_error(status), close=True))
                while await self._transport.receive():
                    pass

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress."""
        return self._phase is _Phase.IDLE

    def close(self) -> None:
        """Close the connection when the request in progress is answered; now if there is none."""
        self._closing = True
        if self._phase is _Phase.IDLE:
            self._scope.cancel(reason="the server is stopping")

    def abandon(self) -> None:
        """Answer the request in progress with an error, and close the connection."""
        self._scope.cancel(reason="the server is stopping, or there are too many connections")

    async def _serve_requests(self) -> None:
        while not self._closing:
            received = await self._receive()
            if received is None:
                return
            request, keep = received
            self._enter(_Phase.ANSWERING, math.inf)  # whoever answers has limits of his own
            response = await self._answer(request)
            self._messages.give_back(request)
            self._enter(_Phase.SENDING, _SENDING)
            close = self._closing or self._is_draining() or not keep
            await self._transport.send(_encode(response, close=close))
            if close:
                return

    async def _receive(self) -> tuple[Request, bool] | None:
        """Return the next request, and whether others may follow; None at the end of the connection."""
        messages = self._messages
        if messages.complete:
            await trio.lowlevel.checkpoint()  # requests that came together take turns with those of others
        else:
            self._enter(*((_Phase.RECEIVING, _RECEIVING) if messages.has_begun else (_Phase.IDLE, self._limits.idle)))
        while not messages.complete:
            messages.check()
            data = await self._transport.receive()
            if not data:
                return None
            if self._phase is _Phase.IDLE:
                self._enter(_Phase.RECEIVING, _RECEIVING)
            messages.feed(data)
            if messages.wants_continue:
                messages.wants_continue = False
                await self._transport.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        return messages.complete.popleft()

    def _enter(self, phase: _Phase, seconds: float) -> None:
        self._phase = phase
        self._scope.deadline = trio.current_time() + seconds


class _Messages:
    """Parser of the requests of a connection; the callbacks are those of httptools."""

    def __init__(self, limits: Limits, peer: Mapping[str, Any] | None) -> None:
        self._limits = limits
        self._peer = peer
        self._parser = httptools.HttpRequestParser(self)
        self._error = 0
        self._fed = 0  # bytes since the beginning of the head, or since the last part of the body
        self._held = 0  # bytes of the budget
        self._limit: int | None = None  # bytes of the body, when the head is complete
        self.complete: deque[tuple[Request, bool]] = deque()
        self.wants_continue = False
        self.has_begun = False

    def feed(self, data: bytes) -> None:
        """Parse data; what is complete comes before errors."""
        self._fed += len(data)
        if self._fed > _MAX_HEAD + _CHUNK:
            self._error = 431
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # it is answered as any other, and nothing is read after it
            self.complete.append((self.complete.pop()[0], False))
        except httptools.HttpParserError:
            self._error = self._error or 400

    def check(self) -> None:
        """Raise _BadRequestError if nothing more can be parsed."""
        if self._error:
            raise _BadRequestError(self._error)

    def give_back(self, request: Request | None = None) -> None:
        """Return what a request has taken of the budget; without one, all that is left of it."""
        size = self._held if request is None else max(0, len(request.body) - _FREE)
        self._held -= size
        self._limits.budget.give_back(size)

    # -- callbacks ------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self.has_begun = True
        self._url, self._size, self._limit = b"", 0, None
        self._body = bytearray()
        self._headers: dict[str, str] = {}

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._limit is None:  # else it is a trailer
            self._headers[_title(name)] = value.decode("latin1")

    def on_headers_complete(self) -> None:
        path, _, self._query = self._url.decode("latin1").partition("?")
        limit = self._limits.body(unquote(path))
        self._path, self._limit, self._fed = unquote(path), limit or 0, 0
        announced = self._headers.get("Content-Length", "0")
        if not path.startswith("/"):  # full URLs, too: this is no proxy
            self._fail(400)
        elif not self._parser.get_http_version().startswith("1."):
            self._fail(505)
        elif limit is None:
            self._fail(404)
        elif announced.isdigit() and int(announced[:20]) > self._limit and "Expect" in self._headers:
            self._fail(413)
        self.wants_continue = self._headers.get("Expect", "").lower() == "100-continue"

    def on_body(self, data: bytes) -> None:
        before, self._fed = max(self._size, _FREE), 0
        self._size += len(data)
        assert self._limit is not None
        if self._size > self._limit:  # the rest of a large one is dropped, so that the client sees the answer
            return
        taken = max(self._size - before, 0)
        if not self._limits.budget.take(taken):
            self._fail(503)
        self._held += taken
        self._body += data

    def on_message_complete(self) -> None:
        self.has_begun, self.wants_continue = False, False
        assert self._limit is not None
        if self._size > self._limit:
            self._fail(413)
        method = self._parser.get_method().decode("latin1")
        keep = self._parser.should_keep_alive() and method == "POST"  # others might expect a response without a body
        request = Request(method, self._path, self._query, self._headers, bytes(self._body), self._peer)
        self.complete.append((request, keep))
        self._body, self._limit, self._fed = bytearray(), None, 0

    def _fail(self, status: int) -> None:
        """Stop parsing."""
        self._error = self._error or status
        raise _BadRequestError(status)


@functools.lru_cache(maxsize=256)
def _title(name: bytes) -> str:
    return name.decode("latin1").title()


def _error(status: int) -> Response:
    return Response(status, msgspec.json.encode({"error": f"{http.HTTPStatus(status).phrase}."}))


@functools.lru_cache(maxsize=32)
def _make_head(status: int) -> str:
    phrase = http.HTTPStatus(status).phrase
    return f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\ncontent-length: "


def _encode(response: Response, *, close: bool) -> bytes:
    end = "\r\nconnection: close\r\n\r\n" if close else "\r\n\r\n"
    return f"{_make_head(response.status)}{len(response.body)}{end}".encode("latin1") + response.body
