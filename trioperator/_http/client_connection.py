"""HTTP/1.1 on one connection: render requests and parse responses. One request at a time, no pipelining.

Responses are parsed by httptools (llhttp). Protocol errors are raised as :class:`TransportError`, socket errors as
``OSError``; either makes the connection unusable. Pooling and retries are elsewhere.
"""

from __future__ import annotations

import functools

import httptools

from trioperator._http.tls_connection import TlsConnection
from trioperator._http.transport import MAX_HEAD, BodyTooLargeError, Headers, TransportError


def render_request(method: str, target: str, *, host: bytes, headers: Headers, body: bytes | None) -> bytes:
    """Render a request as bytes, with its body.

    Raises ValueError if the target or a header contains a character that would break the syntax.
    """
    start = f"{method} {target} HTTP/1.1"
    if "\n" in start or "\r" in start or start.count(" ") != 2:
        raise ValueError(f"Illegal line break or space in {method} {target!r}.")
    head = start.encode("ascii") + _render_headers(host, tuple(headers))
    if body is None and method not in ("POST", "PUT", "PATCH"):
        return head + b"\r\n\r\n"
    body = body or b""
    return b"".join((head, b"\r\nContent-Length: %d\r\n\r\n" % len(body), body))


@functools.lru_cache(maxsize=32)
def _render_headers(host: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """Render headers, each after a line break. Nearly all requests have one of a few combinations."""
    lines = [b"\r\n%b: %b" % header for header in ((b"Host", host), *headers)]
    if any(line.count(b"\n") != 1 for line in lines):
        raise ValueError("Illegal line break in the headers of a request.")
    return b"".join(lines)


class Http1Connection:
    """An HTTP/1.1 connection and the response that is being read from it.

    ``status`` is that of the response once its headers have arrived; until then 0, or that of an interim one (1xx).
    ``response_begun`` is set once a byte of the response has arrived, ``complete`` when all of it has. ``counted`` and
    ``idle_since`` belong to the pool; the latter is finite once the connection has carried a request.
    """

    __slots__ = (
        "_before_head",
        "_parser",
        "_parts",
        "_stream",
        "address",
        "complete",
        "counted",
        "headers",
        "idle_since",
        "response_begun",
        "reusable",
        "status",
    )

    def __init__(self, stream: TlsConnection, *, address: str) -> None:
        self._stream = stream
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self.address = address
        self.counted = True
        self.idle_since = -float("inf")
        self._reset()

    def _reset(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []
        self._before_head = 0
        self.response_begun = False
        self.complete = False
        self.reusable = False

    def is_alive(self) -> bool:
        """Return whether an idle connection can be reused."""
        return self._stream.is_alive()

    async def start(self, request: bytes) -> None:
        """Send a request and read the status line and headers of its response."""
        self._reset()
        try:
            await self._stream.send(request)
        except (BrokenPipeError, ConnectionResetError):
            # The server closed before it had read the request. Its response, if any, says why (400, 408, 413).
            while self.status < 200:
                await self._feed()
            self.reusable = False
            return
        while self.status < 200:
            await self._feed()

    async def receive(self) -> bytes:
        """Return the next part of the body, ``b""`` at its end."""
        while not self._parts:
            if self.complete:
                return b""
            await self._feed()
        parts = self._parts
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        return data

    async def read(self, limit: int) -> bytes:
        """Read the rest of the body, *limit* bytes at most."""
        parts: list[bytes] = []
        size = 0
        while True:
            parts += self._parts
            size += sum(map(len, self._parts))
            self._parts.clear()
            if size > limit:
                raise BodyTooLargeError(f"{self.address}: the response is larger than {limit} bytes.")
            if self.complete:
                return parts[0] if len(parts) == 1 else b"".join(parts)
            await self._feed()

    def limit(self, deadline: float) -> None:
        """Let all that waits from now on raise TooSlowError at the *deadline*, in Trio's time."""
        self._stream.limit(deadline)

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._parser = None  # break the reference cycle of parser and connection
        self._stream.close()

    async def _feed(self) -> None:
        """Receive bytes and feed them to the parser."""
        data = await self._stream.receive()
        parser = self._parser
        if parser is None:
            raise TransportError(f"{self.address}: the connection was closed locally.", reached=True)
        if not data:
            self._finish_at_eof()
            return
        self.response_begun = True
        if self.status < 200:
            self._before_head += len(data)
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade as exc:
            message = f"{self.address}: the server switched to another protocol without being asked."
            raise TransportError(message, reached=True) from exc
        except httptools.HttpParserError as exc:
            if isinstance(exc.__context__, TransportError):
                raise exc.__context__ from None
            reason = str(exc) or type(exc).__name__
            raise TransportError(f"{self.address}: the response is not valid HTTP: {reason}", reached=True) from exc
        if self.status < 200 and self._before_head > MAX_HEAD:
            raise TransportError(
                f"{self.address}: the response's headers are larger than {MAX_HEAD} bytes.", reached=True
            )

    def _finish_at_eof(self) -> None:
        """Handle end of file: the end of a body without a length, or a truncated response."""
        if self.status < 200:
            when = "in the middle of the response's headers" if self.response_begun else "without a response"
            raise TransportError(f"{self.address}: the connection was closed {when}.", reached=True)
        names = {name.lower() for name, _ in self.headers}
        if self._stream.truncated or b"content-length" in names or b"transfer-encoding" in names:
            raise TransportError(
                f"{self.address}: the connection was closed in the middle of the response.", reached=True
            )
        self.complete = True

    # Callbacks of httptools.

    def on_message_begin(self) -> None:
        """Reject a second response to one request."""
        if self.complete:
            raise TransportError(f"{self.address}: the server sent more than one response.", reached=True)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header; ignore trailers."""
        if self.status < 200:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Store the status; the headers of an interim (1xx) response are not final."""
        assert self._parser is not None
        self.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        """Store a part of the body."""
        self._parts.append(data)

    def on_message_complete(self) -> None:
        """Mark the response as complete; discard an interim one."""
        if self.status < 200:
            self.headers.clear()
            return
        assert self._parser is not None
        self.complete = True
        # After a 401, the next request may reach another one of several servers, which accepts the same credentials.
        self.reusable = self.status != 401 and self._parser.should_keep_alive()
