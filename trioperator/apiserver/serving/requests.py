"""Requests to the API, from the messages of a connection: their limits, and what a web page must not send."""

from __future__ import annotations

import ipaddress
from collections import deque
from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit

from trioperator._http.request_parser import HEAD_LIMIT, Message, RequestParser
from trioperator.errors import ApiError

from ..model.errors import bad_request, headers_too_large, request_too_large
from ..model.messages import IMPERSONATION, Request
from ..model.user import ANONYMOUS, NO_CREDENTIALS, User


def _is_loopback(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class RequestReader:
    """Incremental reader of one connection.

    ``requests`` are the complete requests of the ``parser``, each with whether the connection is kept alive after it.
    ``error`` is set when one is malformed, too large or not allowed: nothing is read after that. ``user`` is the user
    that the connection authenticates. With ``local_only``, requests that a web page may have sent are errors.
    """

    def __init__(self, *, body_limit: int, user: User = ANONYMOUS, local_only: bool = False) -> None:
        self.requests: deque[tuple[Request, bool]] = deque()
        self.error: ApiError | None = None
        self.parser = RequestParser()
        self._body_limit = body_limit
        self._local_only = local_only
        self._user = user
        self._accepts_tokens = user in {ANONYMOUS, NO_CREDENTIALS}  # a client certificate takes precedence

    def feed(self, data: bytes) -> None:
        """Parse received data."""
        if self.error is not None:
            return
        self.parser.feed(data)
        messages = self.parser.messages
        try:
            while messages:
                self._check(messages[0])
                if not messages[0].is_complete:
                    break
                message = messages.popleft()
                self.requests.append((self._make_request(message), message.keep_alive))
        except ApiError as error:
            self.error = error
        if self.parser.error and self.error is None:
            self.error = self._explain(self.parser.error)

    def _explain(self, status: int) -> ApiError:
        if status == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            return headers_too_large(HEAD_LIMIT)
        if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return bad_request("The request's body is in too many tiny chunks.")
        return bad_request("The request is not valid HTTP/1.1.")

    def take_expectation(self) -> bool:
        """Return, once for each request, whether its client waits for "100 Continue" before it sends the body."""
        messages = self.parser.messages
        if not messages or not messages[0].expects_continue or self.error is not None:
            return False
        messages[0].expects_continue = False
        return True

    def _check(self, message: Message) -> None:
        """Raise an ApiError for a request that is not to be read further."""
        if self._local_only:
            # Of other origins, or of a name that was made to lead here: browsers send the host with each request.
            for name, prefix in ((b"host", "//"), (b"origin", "")):
                value = message.find(name)
                if value is not None and not _is_loopback(prefix + value.decode("latin-1")):
                    raise bad_request(f"This server is for this machine only: see the header {name.decode()}.")
        announced = message.find(b"content-length") or b""
        size = int(announced[:20]) if announced.isdigit() else 0
        if max(size, len(message.body)) > self._body_limit:
            raise request_too_large(self._body_limit)

    def _make_request(self, message: Message) -> Request:
        headers: dict[bytes, str] = {}
        impersonation = []
        for name, value in message.headers:
            if name.startswith(IMPERSONATION):
                impersonation.append((name.decode("latin-1"), value.decode("latin-1")))
            else:
                headers.setdefault(name, value.decode("latin-1"))
        path, _, query = message.target.decode("latin-1").partition("?")
        return Request(
            method=message.method,
            path=path,
            query=dict(parse_qsl(query, keep_blank_values=True)) if query else {},
            accept=headers.get(b"accept", ""),
            if_none_match=headers.get(b"if-none-match", ""),
            content_type=headers.get(b"content-type", ""),
            user_agent=headers.get(b"user-agent", ""),
            upgrade=headers.get(b"upgrade", ""),
            authorization=headers.get(b"authorization", "") if self._accepts_tokens else "",
            user=self._user,
            impersonation=tuple(impersonation),
            body=bytes(message.body),
        )
