"""ASGI applications on Hypercorn, as a service in the nursery tree.

Connections are accepted here, and each one is served by Hypercorn in a guard of its own: whatever goes wrong with a
connection ends that connection. HTTP/1 only: no HTTP/2, no WebSockets. A server ends only by cancellation, within
seconds, and closes all connections.
Hypercorn handles no signals here, and logs through the process's own handlers: warnings and errors only, unless more is
enabled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import socket
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Final, NoReturn, TypeAlias

import hypercorn
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.events import Closed, RawData, Updated
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr

from trioperator._http.endpoint import Endpoint
from trioperator._http.listener import accept_connections, limit_connections, listen
from trioperator._logs import get_logger

__all__ = ["AsgiApp", "serve_app"]

_Message: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[_Message]]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[_Message, _Receive, _Send], Awaitable[None]]

# Seconds. At shutdown all requests in progress are answered at once, so only slow receivers need any time.
_GRACE: Final = 1.0

# Seconds from the first to the last byte of a connection, whatever it is used for. There is no shorter limit for single
# reads: Hypercorn's also applies to clients that have sent their request and wait for the response.
_LIFETIME: Final = 60.0

# Seconds without a request, and until the head of the first one is complete.
_IDLE: Final = 5.0

# Seconds between the last byte to a client and the end of its connection. What it is still sending is read: otherwise
# the kernel would reset the connection, and the client might never see the response.
_LINGER: Final = 1.0
_CHUNK: Final = 65_536

_MAX_CONNECTIONS: Final = 200
_SHARE: Final = 0.1

# Bytes that are parsed before other connections have their turn: of a body in small chunks, a thousand chunks.
_READ: Final = 4096


async def serve_app(
    app: AsgiApp,
    endpoint: Endpoint,
    *,
    lifetime: float = _LIFETIME,
    sockets: Sequence[socket.socket] = (),
    task_status: trio.TaskStatus[Endpoint] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve *app* at *endpoint*; started once it is listening, with the actual port as the value.

    Each connection is closed after *lifetime* seconds. *sockets* that listen there already are used, and stay open.
    Guarantees: no client and no error of *app* ends the server; it ends within two seconds of its cancellation;
    requests in progress are answered with HTTP 500. The application gets no lifespan events. Raises ConfigError if it
    cannot listen.
    """
    endpoint, opened = await listen(endpoint, sockets)
    with contextlib.ExitStack() as stack:
        for sock in opened:
            stack.enter_context(sock)
        connections = _Connections(app, lifetime)
        async with trio.open_nursery() as nursery:
            try:
                handlers: trio.Nursery = await nursery.start(connections.run, name="connections")
                connections.shield()
                task_status.started(endpoint)
                reopen = functools.partial(listen, endpoint, sockets)
                await accept_connections(endpoint, opened, reopen, connections.serve, handlers)
            finally:
                await connections.stop()


class _Connections:
    """All connections of a server: each in a guard and with a limited life, and a limited number of them."""

    def __init__(self, app: AsgiApp, lifetime: float) -> None:
        self._stopping = trio.Event()
        wrapped: Any = _cancel_requests_when(self._stopping, app)  # Hypercorn's types of ASGI messages are more precise
        self._app = ASGIWrapper(wrapped)
        self._lifetime = lifetime
        self._config = _build_config()
        self._context = WorkerContext(None)
        self._logger = get_logger("trioperator.http.server")
        # Requests in progress are to be answered when the server is cancelled.
        self._limit = trio.CancelScope()
        self._max = limit_connections(_MAX_CONNECTIONS, share=_SHARE)
        self._open: dict[trio.CancelScope, None] = {}  # oldest first

    async def run(self, *, task_status: trio.TaskStatus[trio.Nursery]) -> None:
        """Open the nursery of the connections; return once the server is stopped and all connections are closed."""
        with self._limit:
            async with trio.open_nursery() as nursery:
                task_status.started(nursery)
                await self._stopping.wait()

    def shield(self) -> None:
        """Shield the connections from cancellation: from now on, :meth:`stop` ends them."""
        self._limit.shield = True

    async def stop(self) -> None:
        """Answer requests in progress, close idle connections, and cancel the others after a grace period."""
        self._stopping.set()
        self._limit.deadline = trio.current_time() + _GRACE
        await self._context.terminated.set()

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve a connection; its errors end here."""
        if len(self._open) >= self._max:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.cancel(reason="there are too many connections")
        with trio.move_on_after(self._lifetime) as scope:
            self._open[scope] = None
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_close_when_cancelled, stream)
                    transport: Any = _Connection(stream)  # Hypercorn's type is that of TLS streams
                    await _Http1Server(self._app, self._config, self._context, ConnectionState({}), transport)
                    nursery.cancel_scope.cancel(reason="the connection is closed")
            except* Exception as errors:
                self._logger.debug("A connection has failed.", exc_info=errors)
            finally:
                self._open.pop(scope, None)


class _Connection:
    """A stream as Hypercorn wants it: read in small pieces, so that others have a turn."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self.socket = stream.socket

    async def send_all(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(min(max_bytes or _READ, _READ))

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


class _UnsupportedRequestError(Exception):
    """Raised to end a connection after a request of another version than HTTP/1, or without a path."""


class _Http1Protocol(H11Protocol):
    """Hypercorn's HTTP/1 without its ways to HTTP/2 and WebSockets. Requests for an upgrade get a usual response."""

    async def _check_protocol(self, event: Any) -> None:
        """Reject other versions (HTTP/2 may begin with a request of its own version), and targets that are no paths."""
        if not event.http_version.startswith(b"1."):
            await self._reject(505, event)
        if not event.target.startswith(b"/"):  # full URLs, too: this is no proxy
            await self._reject(400, event)

    async def _reject(self, status: int, event: Any) -> NoReturn:
        await self._send_error_response(status)
        raise _UnsupportedRequestError(f"{event.target[:100]!r} HTTP/{event.http_version.decode()}")

    async def _create_stream(self, request: Any) -> None:
        """Pass a request on, as one without an upgrade."""
        if any(name == b"upgrade" for name, _ in request.headers):
            headers = [(name, value) for name, value in request.headers if name != b"upgrade"]
            request = dataclasses.replace(request, headers=headers)
        await super()._create_stream(request)


class _Http1Server(TCPServer):
    """Hypercorn's server of one connection, for HTTP/1 without TLS. It lingers before it closes the connection."""

    async def run(self) -> None:
        """Serve the connection to its end."""
        stream: Any = self.stream  # Hypercorn's type is that of TLS streams
        self._read_to_end = trio.Event()
        try:
            client = parse_socket_addr(stream.socket.family, stream.socket.getpeername())
            server = parse_socket_addr(stream.socket.family, stream.socket.getsockname())
            async with TaskGroup() as self._task_group:
                protocol: Any = _Http1Protocol(
                    self.app,
                    self.config,
                    self.context,
                    self._task_group,
                    ConnectionState(self.state),
                    False,
                    client,
                    server,
                    self.protocol_send,
                )
                self.protocol = protocol
                await self.idle_task.restart(self._task_group, self._idle_timeout)
                await self._read_data()
                self._read_to_end.set()
                await self.idle_task.stop()
        except OSError:
            pass
        finally:
            await self._close()

    async def protocol_send(self, event: Any) -> None:
        """Send an event of the protocol: data, the end of the connection, or whether it is idle."""
        if isinstance(event, RawData):
            await super().protocol_send(event)
            return
        # Applications may be cancelled at their end, which may be in here: connections would be left open then.
        with trio.move_on_after(_LINGER, shield=True):
            if isinstance(event, Updated):
                await super().protocol_send(event)
            elif not self.context.terminated.is_set():
                with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await self._linger()
        if isinstance(event, Closed):
            await super().protocol_send(event)

    async def _linger(self) -> None:
        """Send the end of file, and read until the client sends it, too."""
        stream: Any = self.stream
        async with self.send_lock:  # the application may still be sending, after an error in what the client sends
            await stream.send_eof()
        try:
            while await stream.receive_some(_CHUNK):
                pass
        except trio.BusyResourceError:  # the connection's own task is reading
            await self._read_to_end.wait()

    async def _close(self) -> None:
        """Close the connection. Hypercorn sends the end of file before, in conflict with an application that sends."""
        await self.stream.aclose()


async def _close_when_cancelled(stream: trio.SocketStream) -> None:
    """Close the socket of a cancelled connection: Hypercorn shields its sending, which then fails."""
    try:
        await trio.sleep_forever()
    finally:
        stream.socket.close()


def _build_config() -> hypercorn.Config:
    config = hypercorn.Config()
    config.h11_max_incomplete_size = 16 * 1024
    config.keep_alive_timeout = _IDLE
    config.include_server_header = False
    # With loggers given, Hypercorn configures none of its own. Access logging costs a copy of the environment for each
    # request, whether the record is emitted or not.
    config.errorlog = logging.getLogger("hypercorn.error")
    access = logging.getLogger("hypercorn.access")
    config.accesslog = access if access.isEnabledFor(logging.INFO) else None
    return config


def _cancel_requests_when(stopping: trio.Event, app: AsgiApp) -> AsgiApp:
    """Wrap an application so that its requests are cancelled when the server is stopping."""

    async def run(scope: _Message, receive: _Receive, send: _Send) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when, stopping, nursery.cancel_scope)
            await app(scope, receive, send)
            nursery.cancel_scope.cancel(reason="the request has been answered")

    return run


async def _cancel_when(stopping: trio.Event, scope: trio.CancelScope) -> None:
    await stopping.wait()
    scope.cancel(reason="the server is stopping")
