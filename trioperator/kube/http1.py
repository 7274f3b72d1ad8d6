"""HTTP/1.1 on one connection: render a request, parse its response. One request at a time, no pipelining.

Parsing is httptools' (llhttp). A response that breaks the protocol breaks its connection, never the process. Nothing
here knows of pools, retries or Kubernetes; faults are :class:`TransportError` or the wire's ``OSError``.
"""

from __future__ import annotations

import httptools

from trioperator.kube.exchange import MAX_HEAD, Headers, TransportError
from trioperator.kube.wire import Wire

__all__ = ["Connection", "render_request"]


def render_request(method: str, target: str, *, host: bytes, headers: Headers, body: bytes | None) -> bytes:
    """Give a request as it goes over the wire, its body included.

    Raises ValueError where the target or a header would end its line early.
    """
    length = len(body) if body is not None else (0 if method in ("POST", "PUT", "PATCH") else None)
    lines = [f"{method} {target} HTTP/1.1\r\nHost: ".encode("ascii"), host]
    for name, value in headers:
        lines += (b"\r\n", name, b": ", value)
    if length is not None:
        lines.append(b"\r\nContent-Length: %d" % length)
    head = b"".join(lines)
    if head.count(b"\n") != len(headers) + 1 + (length is not None) or head.count(b" ", 0, head.index(b"\r")) != 2:
        raise ValueError(f"A line break or a space where none can be, in {method} {target!r} or its headers.")
    return b"%b\r\n\r\n%b" % (head, body) if body else head + b"\r\n\r\n"


class Connection:
    """One connection and the response that is being read from it.

    ``used`` tells that it has carried a request before the present one; ``heard`` that a byte of the present response
    has come; ``complete`` that the response is there to its end. ``shared`` and ``idle_since`` are the pool's.
    """

    __slots__ = (
        "_before_head",
        "_head_done",
        "_parser",
        "_parts",
        "_wire",
        "complete",
        "headers",
        "heard",
        "idle_since",
        "reusable",
        "shared",
        "status",
        "used",
        "where",
    )

    def __init__(self, wire: Wire, *, where: str) -> None:
        self._wire = wire
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self.where = where
        self.used = False
        self.shared = True
        self.idle_since = 0.0
        self._reset()

    def _reset(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []
        self._before_head = 0
        self._head_done = False
        self.heard = False
        self.complete = False
        self.reusable = False

    def is_quiet(self) -> bool:
        """Tell whether this idle connection can take another request."""
        return self._wire.is_quiet()

    async def start(self, request: bytes) -> None:
        """Send a request, and read the response's head."""
        self._reset()
        try:
            await self._wire.send(request)
        except (BrokenPipeError, ConnectionResetError):
            # The server has closed before it had the request. It may have said why (400, 408, 413): that is worth more.
            while not self._head_done:
                await self._feed()
            self.reusable = False
            return
        while not self._head_done:
            await self._feed()

    async def receive(self) -> bytes:
        """Give the next part of the body, ``b""`` at its end."""
        while not self._parts:
            if self.complete:
                return b""
            await self._feed()
        parts = self._parts
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        return data

    async def read(self, limit: int) -> bytes:
        """Give the whole rest of the body, *limit* bytes at most."""
        parts: list[bytes] = []
        size = 0
        while True:
            parts += self._parts
            size += sum(map(len, self._parts))
            self._parts.clear()
            if size > limit:
                raise TransportError(
                    f"{self.where}: the response is bigger than {limit} bytes.", reached=True, final=True
                )
            if self.complete:
                return parts[0] if len(parts) == 1 else b"".join(parts)
            await self._feed()

    def close(self) -> None:
        """Close the connection. It can be called again."""
        self._parser = None  # the parser and its connection refer to each other
        self._wire.close()

    async def _feed(self) -> None:
        """Take what has arrived into the parser."""
        data = await self._wire.receive()
        parser = self._parser
        if parser is None:
            raise TransportError(f"{self.where}: the connection was closed by this side.", reached=True)
        if not data:
            self._finish_at_end()
            return
        self.heard = True
        if not self._head_done:
            self._before_head += len(data)
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade as exc:
            message = f"{self.where}: the server switches to another protocol, unasked."
            raise TransportError(message, reached=True) from exc
        except httptools.HttpParserError as exc:
            if isinstance(exc.__context__, TransportError):
                raise exc.__context__ from None
            reason = str(exc) or type(exc).__name__
            raise TransportError(f"{self.where}: the answer is not HTTP: {reason}", reached=True) from exc
        if not self._head_done and self._before_head > MAX_HEAD:
            raise TransportError(f"{self.where}: the response's head is bigger than {MAX_HEAD} bytes.", reached=True)

    def _finish_at_end(self) -> None:
        """Judge the end of the connection: the end of a body without a length, or a cut."""
        if not self._head_done:
            came = "in the middle of the response's head" if self.heard else "without a response"
            raise TransportError(f"{self.where}: the connection was closed {came}.", reached=True)
        names = {name.lower() for name, _ in self.headers}
        if self._wire.truncated or b"content-length" in names or b"transfer-encoding" in names:
            raise TransportError(
                f"{self.where}: the connection was closed in the middle of the response.", reached=True
            )
        self.complete = True

    # What httptools calls.

    def on_message_begin(self) -> None:
        """Take note that a response begins, one that nobody has asked for where one is there already."""
        if self.complete:
            raise TransportError(f"{self.where}: the server sent more than one response.", reached=True)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, or drop a trailer."""
        if not self._head_done:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Keep the status; the head is done unless it is an interim response."""
        assert self._parser is not None
        self.status = self._parser.get_status_code()
        self._head_done = self.status >= 200

    def on_body(self, data: bytes) -> None:
        """Keep a part of the body."""
        self._parts.append(data)

    def on_message_complete(self) -> None:
        """Take note of the end of the response; of an interim one keep nothing."""
        if not self._head_done:
            self.headers.clear()
            return
        assert self._parser is not None
        self.complete = True
        self.reusable = self._parser.should_keep_alive()
