"""Calls of ASGI applications by Hypercorn: the one module that uses parts of it which it does not document.

Of Hypercorn, this is the stream of one request: it makes the scope, checks what the application sends and when, logs
accesses (``hypercorn.access``) and errors (``hypercorn.error``), and answers with HTTP 500 where an application does
not. Connections are not its own: see docs/decisions/endpoints.md. Each part that is used has a test.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec
from hypercorn.config import Config
from hypercorn.protocol.events import Body, EndBody, Request, Response, StreamClosed
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

from trioperator._http.asgi import LIMIT, SSL_PEER, AsgiApp, Message, TimeLimit
from trioperator._http.request_parser import Message as HttpMessage

_STREAM_ID = 1  # HTTP/1 has one stream
_NO_STATE = ConnectionState({})  # of lifespans; each scope gets a copy


class Peers(msgspec.Struct, frozen=True):
    """Both ends of a connection: the addresses, whether it is TLS, and the client's certificate."""

    client: tuple[str, int]
    server: tuple[str, int]
    is_tls: bool
    certificate: Mapping[str, Any] | None = None


class Exchange(Protocol):
    """One request and its response on a connection, and whether the response *is_complete*."""

    request: HttpMessage
    is_complete: bool

    def set_limit(self, limit: TimeLimit) -> None: ...
    async def receive(self) -> Message: ...
    def start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None: ...
    def write(self, data: bytes) -> Awaitable[None]: ...
    async def end(self) -> None: ...


class Caller:
    """Calls an application for the requests of a server, in the task of the caller."""

    def __init__(self, app: AsgiApp) -> None:
        self._app: Any = app  # which Hypercorn only passes on, to spawn_app()
        self._config = _build_config()
        self._context = WorkerContext(None)

    async def __call__(self, exchange: Exchange, peers: Peers) -> None:
        """Let the application answer a request. Its errors are logged; it may end without a complete response."""
        call: Any = _Call(exchange, peers)
        where = (peers.is_tls, peers.client, peers.server)
        stream = HTTPStream(self._app, self._config, self._context, call, *where, call.send_event, _STREAM_ID)
        request = exchange.request
        head = Request(
            stream_id=_STREAM_ID,
            headers=request.headers,
            http_version=request.version,
            method=request.method,
            raw_path=request.target,
            state=_NO_STATE,
        )
        await stream.handle(head)  # which calls spawn_app()
        try:
            try:
                app, scope, send = call.take()
                await app(scope, exchange.receive, send)
            except* Exception:  # noqa: BLE001 -- it is logged
                await self._config.log.exception("Error in ASGI Framework")
            if not exchange.is_complete:
                await stream.app_send(None)  # which answers if the application has not
        finally:
            if not exchange.is_complete:
                await stream.handle(StreamClosed(_STREAM_ID))  # which logs it


class _Call:
    """One call of an application. It stands for Hypercorn's task group, which would start a task for it."""

    def __init__(self, exchange: Exchange, peers: Peers) -> None:
        self._exchange = exchange
        self._peers = peers
        self._prepared: tuple[Any, Any, Any] | None = None

    async def spawn_app(self, app: Any, config: Config, scope: Any, send: Any) -> Callable[[Any], Awaitable[None]]:
        """Prepare the call. The function that is returned would pass on the body, which the application asks for."""
        scope["extensions"] |= {SSL_PEER: self._peers.certificate, LIMIT: self._exchange.set_limit}
        self._prepared = app, scope, send
        return _ignore

    def take(self) -> tuple[Any, Any, Any]:
        """Return the application, its scope and its function for sending."""
        assert self._prepared is not None
        prepared, self._prepared = self._prepared, None  # a circle would be left to the garbage collector
        return prepared

    async def send_event(self, event: Any) -> None:
        """Pass on a part of the response."""
        if isinstance(event, Body):
            await self._exchange.write(event.data)
        elif isinstance(event, Response):
            self._exchange.start(event.status_code, event.headers)
        elif isinstance(event, EndBody):
            await self._exchange.end()


async def _ignore(message: Any) -> None:
    pass


def _build_config() -> Config:
    config = Config()
    # With loggers given, Hypercorn configures none of its own. Access logging costs a copy of the environment for each
    # request, whether the record is emitted or not.
    config.errorlog = logging.getLogger("hypercorn.error")
    access = logging.getLogger("hypercorn.access")
    config.accesslog = access if access.isEnabledFor(logging.INFO) else None
    return config
