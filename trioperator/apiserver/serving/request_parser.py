"""Parsing of HTTP requests, with limits on their size. Does no I/O."""

from __future__ import annotations

import ipaddress
from collections import deque
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import httptools

from trioperator.errors import ApiError

from ..model.errors import bad_request, headers_too_large, request_too_large
from ..model.messages import IMPERSONATION, Request
from ..model.user import ANONYMOUS, NO_CREDENTIALS, User

HEAD_LIMIT: Final = 65_536  # bytes of the request line and the headers together


def _is_loopback(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class RequestParser:
    """Incremental parser of one connection. httptools calls the methods that begin with ``on_``.

    ``requests`` are the complete requests, each with whether the connection is kept alive after it. ``error`` is set
    when a request is malformed or too large, ``is_upgrade`` when one asks for another protocol: nothing is parsed after
    either. ``started`` counts the requests that have started. ``user`` is the user that the connection authenticates.
    With ``local_only``, requests that a web page may have sent are errors.
    """

    def __init__(self, *, body_limit: int, user: User = ANONYMOUS, local_only: bool = False) -> None:
        self.requests: deque[tuple[Request, bool]] = deque()
        self.error: ApiError | None = None
        self.is_upgrade = False
        self.started = 0
        self.is_mid_request = False
        self.expects_continue = False  # the client waits for "100 Continue" before it sends the body
        self._body_limit = body_limit
        self._local_only = local_only
        self._user = user
        self._accepts_tokens = user in {ANONYMOUS, NO_CREDENTIALS}  # a client certificate takes precedence
        self._parser = httptools.HttpRequestParser(self)
        self._in_head = False
        self._unused = 0  # bytes since the request started, or since the last part of its body
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._impersonation: list[tuple[str, str]] = []
        self._body: list[bytes] = []
        self._size = 0
        self._head_size = 0

    def feed(self, data: bytes) -> None:
        """Parse received data."""
        if self.error is not None or self.is_upgrade:
            return
        try:
            self._unused += len(data)
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.is_upgrade = True
        except httptools.HttpParserError:
            self.error = self.error or bad_request("The request is not valid HTTP/1.1.")
        # Headers, trailers and extensions of chunks are counted when they are complete, which may never happen.
        if self.is_mid_request and self._unused > 2 * HEAD_LIMIT:
            self.error = self.error or headers_too_large(HEAD_LIMIT)

    def on_message_begin(self) -> None:
        """Start a request."""
        self._url = b""
        self._headers = {}
        self._impersonation = []
        self._body = []
        self._size = self._head_size = self._unused = 0
        self._in_head = self.is_mid_request = True
        self.started += 1

    def on_url(self, url: bytes) -> None:
        """Append to the URL."""
        self._url += url
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header. Fields in the trailer of a chunked body are ignored: they must not change the request."""
        self._count(len(name) + len(value))
        if not self._in_head:
            return
        name = name.lower()
        if name.startswith(IMPERSONATION):
            self._impersonation.append((name.decode("latin-1"), value.decode("latin-1")))
        self._headers.setdefault(name, value)

    def _count(self, size: int) -> None:
        self._head_size += size
        if self._head_size > HEAD_LIMIT:
            self._fail(headers_too_large(HEAD_LIMIT))

    def on_headers_complete(self) -> None:
        """Check the announced size of the body, and whether the client waits for "100 Continue"."""
        self._in_head = False
        if self._local_only:
            self._check_local()
        content_length = self._headers.get(b"content-length", b"")
        if content_length.isdigit() and int(content_length) > self._body_limit:
            self._fail(request_too_large(self._body_limit))
        self.expects_continue = self._headers.get(b"expect", b"").lower() == b"100-continue"

    def _check_local(self) -> None:
        """Refuse requests of web pages: those of other origins, and those whose own name was made to lead here."""
        for name, prefix in ((b"host", "//"), (b"origin", "")):  # browsers send the host with each request
            value = self._headers.get(name)
            if value is not None and not _is_loopback(prefix + value.decode("latin-1")):
                self._fail(bad_request(f"This server is for this machine only: see the header {name.decode()}."))

    def on_body(self, body: bytes) -> None:
        """Append to the body."""
        self._unused = 0
        self._size += len(body)
        if self._size > self._body_limit:
            self._fail(request_too_large(self._body_limit))
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
            if_none_match=headers.get(b"if-none-match", b"").decode("latin-1"),
            content_type=headers.get(b"content-type", b"").decode("latin-1"),
            user_agent=headers.get(b"user-agent", b"").decode("latin-1"),
            authorization=headers.get(b"authorization", b"").decode("latin-1") if self._accepts_tokens else "",
            user=self._user,
            impersonation=tuple(self._impersonation),
            body=b"".join(self._body),
        )
        self.requests.append((request, self._parser.should_keep_alive()))
        self._body = []
        self.is_mid_request = self.expects_continue = False

    def _fail(self, error: ApiError) -> None:
        self.error = self.error or error
        raise error  # makes httptools stop, and raise its own error
