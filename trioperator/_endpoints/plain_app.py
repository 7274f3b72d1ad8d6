"""A small ASGI application: paths, and functions that answer them. Bodies of requests are limited.

It is for endpoints of the operator itself. A framework would cost them more memory than all their answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias
from urllib.parse import parse_qsl

import msgspec

from trioperator._http.asgi import Message, Receive, Send, respond
from trioperator._logs import get_logger

PLAIN: Final = "text/plain; charset=utf-8"
#: Bytes that are read of the body of a request. None has a meaning: a small one is ignored, a larger one rejected.
MAX_BODY: Final = 1024


class Request(msgspec.Struct, frozen=True):
    """A request: its method, its query, its headers by their names in lower case."""

    method: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


class Answer(msgspec.Struct, frozen=True):
    """The response to a request."""

    content: bytes
    status: int = 200
    type: str = PLAIN
    headers: tuple[tuple[bytes, bytes], ...] = ()


Handle: TypeAlias = Callable[[Request], Awaitable[Answer]]


class PlainApp:
    """ASGI application with the functions of *routes* by their paths. HEAD is answered as GET is, without the content.

    The other methods are those that *methods* has for a path. An error of a function is HTTP 500, and logged.
    """

    def __init__(self, routes: Mapping[str, Handle], *, methods: Mapping[str, str] | None = None) -> None:
        self._routes = {path.rstrip("/"): handle for path, handle in routes.items()}
        self._methods = {path.rstrip("/"): method for path, method in (methods or {}).items()}
        self._logger = get_logger("trioperator.endpoints.plain_app")

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        refused = await _drop_body(receive)
        answer = refused or await self._answer(scope)
        headers = [
            (b"content-type", answer.type.encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            *answer.headers,
        ]
        await respond(send, answer.status, answer.content, headers)

    async def _answer(self, scope: Message) -> Answer:
        path = scope["path"].rstrip("/")
        handle = self._routes.get(path)
        if handle is None:
            return Answer(b"not found\n", 404)
        allowed = self._methods.get(path, "GET")
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if method != allowed:
            return Answer(b"method not allowed\n", 405, headers=((b"allow", allowed.encode()),))
        query = dict(parse_qsl(scope.get("query_string", b"").decode("latin1"), keep_blank_values=True))
        headers = {name.decode("latin1").lower(): value.decode("latin1") for name, value in scope["headers"]}
        try:
            return await handle(Request(method, query, headers))
        except Exception:
            self._logger.exception("A request to %s has failed.", path)
            return Answer(b"internal error\n", 500)


async def _drop_body(receive: Receive) -> Answer | None:
    """Read and discard the body of a request. Return an error response if it is too large."""
    size, more = 0, True
    while more and size <= MAX_BODY:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    return None if size <= MAX_BODY else Answer(b"the body is too large\n", 413)
