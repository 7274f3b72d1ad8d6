"""Parsing of HTTP/1 requests, for the operator's server and for the embedded API server. Does no I/O.

httptools parses strictly. Input that another parser might read differently is refused besides, as requests could be
smuggled with it: several hosts, encodings other than ``chunked``, versions before 1.0 and after 1.1.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import httptools
import msgspec

#: Bytes of the request line and the headers together, and of trailers; each header counts as 32 bytes more (as in
#: HTTP/2), so that many small ones do not take much more memory than a few large ones.
HEAD_LIMIT: Final = 65_536
_HEADER_OVERHEAD: Final = 32
# Parts of a body, and the bytes of each further one on average: tiny chunks cost a hundred times what others do.
_MAX_PARTS: Final = 1000
_MIN_PART: Final = 256
_VERSIONS: Final = frozenset({"1.0", "1.1"})


class Message(msgspec.Struct):
    """One request, whose ``body`` is what has arrived of it and was not taken out yet.

    ``headers`` are in their order, with names in lower case. ``keep_alive`` is known when it is complete, and
    ``expects_continue`` says that the client waits for "100 Continue" before it sends the body.
    """

    headers: list[tuple[bytes, bytes]]
    method: str = ""
    target: bytes = b""
    version: str = ""
    body: bytearray = msgspec.field(default_factory=bytearray)
    is_complete: bool = False
    keep_alive: bool = False
    expects_continue: bool = False

    def find(self, name: bytes) -> bytes | None:
        """Return the first header with a name, if there is one."""
        return next((value for key, value in self.headers if key == name), None)


class RequestParser:
    """Incremental parser of one connection. httptools calls the methods that begin with ``on_``.

    ``messages`` are the requests whose heads are complete. ``error`` is the HTTP status for one that is malformed or
    too large, and ``is_upgrade`` is set by one that asks for another protocol: nothing is parsed after either.
    ``started`` counts the requests that have started; ``is_mid_request`` is set while one of them is incomplete.
    """

    def __init__(self) -> None:
        self.messages: deque[Message] = deque()
        self.error = 0
        self.is_upgrade = False
        self.is_mid_request = False
        self.started = 0
        self._parser = httptools.HttpRequestParser(self)
        self._headers: list[tuple[bytes, bytes]] | None = None  # of the head that is being received
        self._message = Message([])
        self._head_size = 0
        self._parts = self._size = 0  # of the body
        self._unused = 0  # bytes since the request has started, or since the last part of its body

    def feed(self, data: bytes) -> None:
        """Parse received data."""
        if self.error or self.is_upgrade:
            return
        self._unused += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.is_upgrade = True
            self._message.keep_alive = False
        except httptools.HttpParserError:
            is_other = self._parser.get_http_version() not in {*_VERSIONS, "0.0"}
            self.error = self.error or (505 if is_other else 400)
        # Headers, trailers and extensions of chunks are counted when they are complete, which may never happen.
        if self.is_mid_request and self._unused > 2 * HEAD_LIMIT:
            self.error = self.error or 431

    def on_message_begin(self) -> None:
        """Start a request."""
        self._headers = []
        self._message = Message(self._headers)
        self._head_size = self._unused = 0
        self.is_mid_request = True
        self.started += 1

    def on_url(self, url: bytes) -> None:
        """Append to the URL."""
        self._message.target += url
        self._head_size += len(url)
        if self._head_size > HEAD_LIMIT:
            self._fail(431)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header. Fields in the trailer of a chunked body are ignored: they must not change the request."""
        self._head_size += len(name) + len(value) + _HEADER_OVERHEAD
        if self._head_size > HEAD_LIMIT:
            self._fail(431)
        if self._headers is not None:
            self._headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """Check the head, and queue the request."""
        self._headers, self._unused = None, 0
        self._parts = self._size = 0
        message = self._message
        message.method = self._parser.get_method().decode("ascii")
        message.version = self._parser.get_http_version()
        if message.version not in _VERSIONS:
            self._fail(505)
        if not message.target.startswith(b"/"):  # full URLs, too: this is no proxy
            self._fail(400)
        hosts, codings = 0, []
        for name, value in message.headers:
            if name == b"host":
                hosts += 1
            elif name == b"transfer-encoding":
                codings.append(value.lower())
            elif name == b"expect":
                message.expects_continue = value.lower() == b"100-continue"
        is_old = message.version == "1.0"
        if hosts != 1 and not (is_old and hosts == 0):
            self._fail(400)
        if codings and (codings != [b"chunked"] or is_old):
            self._fail(501)
        self.messages.append(message)

    def on_body(self, data: bytes) -> None:
        """Append to the body."""
        self._unused = 0
        self._parts += 1
        self._size += len(data)
        if self._parts > _MAX_PARTS + self._size // _MIN_PART:
            self._fail(413)
        self._message.body += data

    def on_message_complete(self) -> None:
        """Complete the request."""
        message = self._message
        message.is_complete, message.expects_continue = True, False
        message.keep_alive = self._parser.should_keep_alive()
        self.is_mid_request = False

    def _fail(self, status: int) -> None:
        self.error = status
        raise httptools.HttpParserError(f"HTTP {status}")  # makes httptools stop, and raise its own error
