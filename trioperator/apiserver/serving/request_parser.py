"""From the bytes of a connection to requests, within limits. No sockets, no waiting."""

from __future__ import annotations

from collections import deque
from typing import Final
from urllib.parse import parse_qsl

import httptools

from trioperator.errors import ApiError

from ..model.errors import bad_request, headers_too_large, request_too_large
from ..model.messages import IMPERSONATION, Request
from ..model.user import ANONYMOUS, NO_CREDENTIALS, User

__all__ = ["HEAD_LIMIT", "RequestParser"]

HEAD_LIMIT: Final = 65_536  # bytes of the request line and the headers together


class RequestParser:
    """What was parsed of one connection. The methods with ``on_`` are called by httptools.

    ``requests`` are those that have come as a whole, each with whether the connection is to be kept after it.
    ``refusal`` is set when nothing after them can be understood, or is too large; ``is_over`` when they ask for another
    protocol, which nobody speaks here. ``begun`` counts the requests that have begun. ``user`` is whom the connection
    vouches for.
    """

    def __init__(self, *, body_limit: int, user: User = ANONYMOUS) -> None:
        self.requests: deque[tuple[Request, bool]] = deque()
        self.refusal: ApiError | None = None
        self.is_over = False
        self.begun = 0
        self.is_midway = False
        self.expects_sign = False  # the client waits for a 100 before it sends the body
        self._body_limit = body_limit
        self._user = user
        self._takes_tokens = user in {ANONYMOUS, NO_CREDENTIALS}  # a certificate goes before them
        self._parser = httptools.HttpRequestParser(self)
        self._in_head = False
        self._fed = 0  # bytes since the head has begun
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._impersonation: list[tuple[str, str]] = []
        self._body: list[bytes] = []
        self._size = 0
        self._head_size = 0

    def feed(self, data: bytes) -> None:
        """Parse what has come."""
        if self.refusal is not None or self.is_over:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.is_over = True
        except httptools.HttpParserError:
            self.refusal = self.refusal or bad_request("The request is not HTTP/1.1 as it should be.")
        # A header is counted when it is whole, and may never be.
        self._fed += len(data)
        if self._in_head and self._fed > 2 * HEAD_LIMIT:
            self.refusal = self.refusal or headers_too_large(HEAD_LIMIT)

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._url = b""
        self._headers = {}
        self._impersonation = []
        self._body = []
        self._size = self._head_size = self._fed = 0
        self._in_head = self.is_midway = True
        self.begun += 1

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
        if self._head_size > HEAD_LIMIT:
            self._refuse(headers_too_large(HEAD_LIMIT))

    def on_headers_complete(self) -> None:
        """See whether the body is going to be too large, and whether a sign is waited for."""
        self._in_head = False
        announced = self._headers.get(b"content-length", b"")
        if announced.isdigit() and int(announced) > self._body_limit:
            self._refuse(request_too_large(self._body_limit))
        self.expects_sign = self._headers.get(b"expect", b"").lower() == b"100-continue"

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._size += len(body)
        if self._size > self._body_limit:
            self._refuse(request_too_large(self._body_limit))
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
            authorization=headers.get(b"authorization", b"").decode("latin-1") if self._takes_tokens else "",
            user=self._user,
            impersonation=tuple(self._impersonation),
            body=b"".join(self._body),
        )
        self.requests.append((request, self._parser.should_keep_alive()))
        self._body = []
        self.is_midway = self.expects_sign = False

    def _refuse(self, refusal: ApiError) -> None:
        self.refusal = self.refusal or refusal
        raise refusal  # httptools stops parsing, and raises an error of its own
