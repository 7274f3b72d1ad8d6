"""A small ASGI application: paths, and functions that answer them. Bodies of requests, and their time, are limited.

It is for endpoints of the operator itself. A framework would cost them more memory than all their answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

import msgspec
import trio

from trioperator._logs import get_logger

__all__ = ["MAX_BODY", "PLAIN", "Answer", "PlainApp", "Request"]

PLAIN: Final = "text/plain; charset=utf-8"
#: Bytes that are read of the body of a request. None has a meaning: a small one is ignored, a larger one rejected.
MAX_BODY: Final = 1024
# Seconds for receiving a body.
_BODY_TIMEOUT: Final = 10.0

_Message: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[_Message]]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]


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

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """Answer one request."""
        refused = await _drop_body(receive)
        answer = refused or await self._answer(scope)
        headers = [
            (b"content-type", answer.type.encode()),
            (b"content-length", str(len(answer.content)).encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            *answer.headers,
        ]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer.content})

    async def _answer(self, scope: _Message) -> Answer:
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


async def _drop_body(receive: _Receive) -> Answer | None:
    """Read the body of a request to its end, as nobody needs it. Return the answer if it is too large or too slow."""
    size = 0
    with trio.move_on_after(_BODY_TIMEOUT):
        while True:
            message = await receive()
            size += len(message.get("body", b""))
            if message["type"] == "http.disconnect" or not message.get("more_body"):
                return None if size <= MAX_BODY else Answer(b"the body is too large\n", 413)
            if size > MAX_BODY:
                return Answer(b"the body is too large\n", 413)
    return Answer(b"the body is not complete in time\n", 408)
