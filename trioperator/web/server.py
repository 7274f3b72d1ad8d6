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
import ssl
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
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

from trioperator.backoff import Backoff
from trioperator.logs import get_logger
from trioperator.pulse import Pulse
from trioperator.web.endpoint import Endpoint, open_sockets

__all__ = ["AsgiApp", "ServerOptions", "serve_app"]

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

# Bytes that are parsed before other connections have their turn: of a body in small chunks, a thousand chunks.
_READ: Final = 4096

# Tasks that accept connections. Each accepts one in a pass of Trio's scheduler, in which every other connection may do
# something, too: a single one does not keep up with many clients.
_ACCEPTORS: Final = 16

_RESTART: Final = Backoff(initial=1.0, maximum=60.0)


# Seconds for a TLS handshake.
_HANDSHAKE: Final = 10.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Limits of a server, and its certificate. Times are in seconds.

    A connection is closed after ``lifetime``, which is ``renewed`` by each request if that is set, and when it is
    ``idle`` (default: 5). Beyond so many ``connections``, the one without a request for the longest time is closed.
    Requests in progress may take ``drain`` more when the server ends. With ``make_context``, which is called for each
    connection, connections use TLS.
    """

    lifetime: float = _LIFETIME
    renewed: bool = False
    idle: float | None = None
    connections: int = _MAX_CONNECTIONS
    drain: float = 0.0
    make_context: Callable[[], ssl.SSLContext] | None = None


_DEFAULTS: Final = ServerOptions()


async def serve_app(
    app: AsgiApp,
    endpoint: Endpoint,
    *,
    options: ServerOptions = _DEFAULTS,
    sockets: Sequence[socket.socket] = (),
    task_status: trio.TaskStatus[Endpoint] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve *app* at *endpoint*; started once it is listening, with the actual port as the value.

    *sockets* that listen there already are used, and stay open. Guarantees: no client and no error of *app* ends the
    server; it ends within two seconds of its cancellation, or those of ``options.drain`` more; requests in progress are
    answered with HTTP 500. The application gets no lifespan events. Raises ConfigError if it cannot listen.
    """
    endpoint, opened = await _listen(endpoint, sockets)
    with contextlib.ExitStack() as stack:
        for sock in opened:
            stack.enter_context(sock)
        connections = _Connections(app, options)
        async with trio.open_nursery() as nursery:
            try:
                handlers: trio.Nursery = await nursery.start(connections.run, name="connections")
                connections.shield()
                task_status.started(endpoint)
                reopen = functools.partial(_listen, endpoint, sockets)
                await _accept(endpoint, opened, reopen, connections.serve, handlers)
            finally:
                await connections.stop()


async def _listen(endpoint: Endpoint, given: Sequence[socket.socket]) -> tuple[Endpoint, list[socket.socket]]:
    """Return copies of the given sockets; without any, listen."""
    return (endpoint, [sock.dup() for sock in given]) if given else await open_sockets(endpoint)


async def _accept(
    endpoint: Endpoint,
    sockets: list[socket.socket],
    reopen: Callable[[], Awaitable[tuple[Endpoint, list[socket.socket]]]],
    handle: Callable[[trio.SocketStream], Awaitable[None]],
    handlers: trio.Nursery,
) -> None:
    """Accept connections until cancelled. After an error, listen again at the same port."""
    logger = get_logger(__name__)
    failures = 0
    while True:
        started_at = trio.current_time()
        try:
            if failures:
                _, sockets = await reopen()
            copies = [sock.dup() for sock in sockets for _ in range(_ACCEPTORS)]
            for sock in sockets:
                sock.close()
            listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(copy)) for copy in copies]
            await trio.serve_listeners(handle, listeners, handler_nursery=handlers)  # closes the listeners
        except* Exception:
            failures = 1 if trio.current_time() - started_at > _RESTART.maximum else failures + 1
            logger.exception("The web server at %s has failed, and will be restarted.", endpoint)
        await trio.sleep(_RESTART.delay(failures))


class _Connections:
    """All connections of a server: each in a guard and with a limited life, and a limited number of them."""

    def __init__(self, app: AsgiApp, options: ServerOptions) -> None:
        self._stopping = trio.Event()
        self._app = _cancel_requests_when(self._stopping, app)
        self._options = options
        self._config = _build_config(options)
        self._context = WorkerContext(None)
        self._logger = get_logger(__name__)
        # Requests in progress are to be answered when the server is cancelled.
        self._limit = trio.CancelScope()
        self._open: dict[trio.CancelScope, None] = {}  # the one without a request for the longest time first
        self._requests = 0  # in progress
        self._drained = Pulse()

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
        with trio.move_on_after(self._options.drain, shield=True):
            await self._context.terminated.set()
            while self._requests:
                await self._drained.wait()
        self._stopping.set()
        self._limit.deadline = trio.current_time() + _GRACE
        await self._context.terminated.set()

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve a connection; its errors end here."""
        if len(self._open) >= self._options.connections:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.cancel(reason="there are too many connections")
        with trio.move_on_after(self._options.lifetime) as scope:
            self._open[scope] = None
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_close_when_cancelled, stream)
                    transport: Any = await self._secure(stream)  # Hypercorn's type is that of TLS streams
                    wrapped: Any = self._make_app(scope, transport.peer)
                    await _Http1Server(
                        ASGIWrapper(wrapped), self._config, self._context, ConnectionState({}), transport
                    )
                    nursery.cancel_scope.cancel(reason="the connection is closed")
            except* Exception as errors:
                self._logger.debug("A connection has failed.", exc_info=errors)
            finally:
                self._open.pop(scope, None)

    async def _secure(self, stream: trio.SocketStream) -> _Connection:
        """Return the stream of a connection, after the TLS handshake if there is TLS."""
        if self._options.make_context is None:
            return _Connection(stream)
        tls = trio.SSLStream(stream, self._options.make_context(), server_side=True, https_compatible=True)
        with trio.fail_after(_HANDSHAKE):
            await tls.do_handshake()
        return _Connection(tls)

    def _make_app(self, connection: trio.CancelScope, peer: Mapping[str, Any] | None) -> AsgiApp:
        """Return the application for one connection: it counts its requests, and knows the client's certificate."""

        async def run(scope: _Message, receive: _Receive, send: _Send) -> None:
            if self._options.renewed and connection in self._open:
                connection.deadline = trio.current_time() + self._options.lifetime
                self._open[connection] = self._open.pop(connection)
            scope["extensions"] = {**(scope.get("extensions") or {}), "trioperator.peer": peer}
            self._requests += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._requests -= 1
                self._drained.set()

        return run


class _Connection:
    """A stream as Hypercorn wants it for connections without TLS: read in small pieces, so that others have a turn.

    ``peer`` is the client's certificate.
    """

    def __init__(self, stream: trio.SocketStream | trio.SSLStream[trio.SocketStream]) -> None:
        self._stream = stream
        self.socket = stream.socket if isinstance(stream, trio.SocketStream) else stream.transport_stream.socket
        self.peer: Mapping[str, Any] | None = None
        if isinstance(stream, trio.SSLStream):
            self.peer = stream.getpeercert() or None

    async def send_all(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(min(max_bytes or _READ, _READ))

    async def send_eof(self) -> None:
        """Send the end of file; nothing with TLS, which has no half-closed connections."""
        if isinstance(self._stream, trio.SocketStream):
            await self._stream.send_eof()
        else:
            await trio.lowlevel.checkpoint()

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


def _build_config(options: ServerOptions) -> hypercorn.Config:
    config = hypercorn.Config()
    config.h11_max_incomplete_size = 16 * 1024
    config.keep_alive_timeout = _IDLE if options.idle is None else options.idle
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
