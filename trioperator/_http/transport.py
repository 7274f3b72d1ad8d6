"""The interface between the client and the HTTP transport under it.

A :class:`Transport` sends one request and returns its :class:`Response`. There are two implementations: the project's
own HTTP/1.1 connection pool (:mod:`trioperator._http.connection_pool`), and an adapter for any httpx transport
(:mod:`trioperator._kube.httpx_adapter`): a proxy, the embedded API server, a test's. Nothing here retries or logs.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

import msgspec

from trioperator.errors import ConnectionLostError

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

# Seconds until there is a connection, if nothing else is said: Go's clients of Kubernetes have the same limit. The
# system's own is two minutes for TCP, and there is none for TLS.
CONNECT_TIMEOUT: Final = 30.0

# Bytes of a response's status line and headers, at most. Go's net/http has the same limit.
MAX_HEAD: Final = 1024 * 1024


class TransportError(ConnectionLostError):
    """Raised when a request or its response is lost between the client and the server.

    ``reached`` is whether the server may have received the request: if not, even a POST is safe to send again.
    ``final`` is whether the same request would fail in the same way (an untrusted certificate, a body too large).
    """

    def __init__(self, message: str, *, reached: bool, final: bool = False) -> None:
        super().__init__(message)
        self.reached = reached
        self.final = final


class BodyTooLargeError(TransportError):
    """Raised when the body of a response is larger than it may be. It was not read to its end."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reached=True, final=True)


class ResponseTimeoutError(TransportError):
    """Raised when there is no response, or not all of it, within the time that a request may take."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reached=True)


class Request(msgspec.Struct, frozen=True):
    """A request. *target* is the encoded path and query.

    A request is sent once more if the connection is lost, had been idle before, and *is_repeatable* returns true. That
    is only called then, as it may have to decode the body.
    """

    method: str
    target: str
    headers: Headers
    body: bytes | None = None
    is_repeatable: Callable[[], bool] = lambda: True


class Response(Protocol):
    """The response to one request: status and headers, and the body as it arrives."""

    @property
    def status(self) -> int:
        """The HTTP status code."""

    @property
    def headers(self) -> Headers:
        """The headers as received: names in any case."""

    @property
    def repeated(self) -> bool:
        """Whether the request was sent twice because the first connection was lost: it may have been applied twice."""

    async def receive(self, until: float = ...) -> bytes:
        """Return the next part of the body, ``b""`` after the last one.

        After cancellation the next call goes on, if the transport can. Raises TransportError if the body is cut off,
        TooSlowError at *until*, in Trio's time: then nothing more can be received.
        """

    async def read(self, limit: int) -> bytes:
        """Read the rest of the body and free the connection. Raises BodyTooLargeError above *limit* bytes."""

    async def aclose(self) -> None:
        """Abandon the response, however much of it has been read. Idempotent."""


class Transport(Protocol):
    """A transport of requests to one API server."""

    async def send(
        self,
        request: Request,
        *,
        streaming: bool = False,
        connect_timeout: float | None = None,
        check: Callable[[], None] | None = None,
    ) -> Response:
        """Send a request and return its response as soon as the headers have arrived.

        A *streaming* response has a connection of its own, which does not count against the limit for other requests.
        *connect_timeout* is in seconds, 30 by default. *check* is called directly before the request is sent, however
        long it has waited: if it raises, nothing is sent. Raises TransportError.
        """

    async def fetch(
        self,
        request: Request,
        *,
        limit: int,
        timeout: float,
        connect_timeout: float | None = None,
        check: Callable[[], None] | None = None,
    ) -> tuple[Response, bytes] | None:
        """Send a request and return its response with the whole body, of *limit* bytes at most.

        Returns None after *timeout* seconds, without those for which the request waits for other requests. All else is
        as in :meth:`send` and :meth:`Response.read`.
        """

    @property
    def reserved(self) -> Transport:
        """The same server by other connections, for the few requests that must never wait for others: leases."""

    async def retire(self) -> bool:
        """Close idle connections and keep no new ones; responses in progress run to their end.

        Return whether all connections are closed.
        """

    async def aclose(self) -> None:
        """Close all connections."""


def find_header(headers: Headers, name: bytes) -> str | None:
    """Return the value of the header *name* (lower case), or None."""
    for key, value in headers:
        if key.lower() == name:
            return value.decode("latin-1").strip()
    return None


def find_date(headers: Headers) -> datetime.datetime | None:
    """Return when a response was sent, aware, by the server's clock; None if it does not say so."""
    text = find_header(headers, b"date")
    return None if text is None else parse_date(text)


def parse_date(text: str) -> datetime.datetime | None:
    """Parse a date of a header; return None if it is invalid, or without a zone, and cannot be compared."""
    import email.utils  # big, and most operators need it rarely

    try:
        date = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    return None if date.tzinfo is None else date
