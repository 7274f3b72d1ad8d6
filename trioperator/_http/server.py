"""The web server of an operator: it serves ASGI applications in the nursery tree, each at an endpoint of its own.

Connections are accepted, counted, secured by TLS, and ended here; :mod:`~trioperator._http.server_connection` serves
each of them in a guard: whatever goes wrong with a connection ends that connection. HTTP/1 only: no HTTP/2, no
WebSockets. A server ends only by cancellation, within seconds, and answers all requests in progress.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final

import trio

from trioperator._concurrency.pulse import Pulse
from trioperator._concurrency.timeouts import Timeouts
from trioperator._http.asgi import AsgiApp
from trioperator._http.endpoint import Endpoint
from trioperator._http.hypercorn_stream import Caller, Peers
from trioperator._http.listener import accept_connections, limit_connections, listen
from trioperator._http.server_connection import Connection, Limits, Phase, Serving
from trioperator._http.tls_connection import TlsConnection
from trioperator._logs import get_logger

# Seconds for a TLS handshake.
_HANDSHAKE: Final = 10.0
# Handshakes at a time: beyond that, the one that takes longest has failed.
_MAX_HANDSHAKES: Final = 256
# Seconds for answering the requests with an error that are still in progress when the server ends.
_GRACE: Final = 1.0


async def serve_app(
    app: AsgiApp,
    endpoint: Endpoint,
    *,
    limits: Limits | None = None,
    make_context: Callable[[], ssl.SSLContext] | None = None,
    sockets: Sequence[socket.socket] = (),
    is_draining: Callable[[], bool] = lambda: False,
    task_status: trio.TaskStatus[Endpoint] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve *app* at *endpoint* until cancelled; started once it is listening, with the actual port as the value.

    With *make_context*, which is called for each connection, connections use TLS. *sockets* that listen there already
    are used, and stay open. While the server *is_draining*, each connection ends with its next response.
    Guarantees: no client and no error of *app* ends the server; it ends within a second of its cancellation, after the
    time in which *limits* let it drain; requests in progress get HTTP 500 then. The application gets no lifespan
    events. Raises ConfigError if it cannot listen.
    """
    endpoint, opened = await listen(endpoint, sockets)
    with contextlib.ExitStack() as stack:
        for sock in opened:
            stack.enter_context(sock)
        connections = _Connections(app, limits or Limits(), make_context, is_draining)
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
    """All connections of a server: each in a guard, and a limited number of them."""

    def __init__(
        self,
        app: AsgiApp,
        limits: Limits,
        make_context: Callable[[], ssl.SSLContext] | None,
        is_draining: Callable[[], bool],
    ) -> None:
        self._limits = limits
        self._make_context = make_context
        self._is_ending = False
        self._serving = Serving(Caller(app), limits, Timeouts(), lambda: self._is_ending or is_draining())
        self._logger = get_logger("trioperator.http.server")
        # Requests in progress are to be answered when the server is cancelled.
        self._limit = trio.CancelScope()
        self._open: set[Connection] = set()
        self._handshakes: dict[trio.CancelScope, None] = {}  # the one that has begun first, first
        self._max = limit_connections(limits.connections, share=limits.share)
        self._stopping = trio.Event()
        self._drained = Pulse()

    async def run(self, *, task_status: trio.TaskStatus[trio.Nursery]) -> None:
        """Open the nursery of the connections; return once the server is stopped and all connections are closed."""
        with self._limit:
            async with trio.open_nursery() as keepers:
                keepers.start_soon(self._serving.timeouts.serve, name="timeouts")
                async with trio.open_nursery() as nursery:
                    task_status.started(nursery)
                    await self._stopping.wait()
                keepers.cancel_scope.cancel(reason="all connections are closed")

    def shield(self) -> None:
        """Shield the connections from cancellation: from now on, :meth:`stop` ends them."""
        self._limit.shield = True

    async def stop(self) -> None:
        """Answer requests in progress, close idle connections, and cancel the others after a grace period.

        A connection in its handshake has a request to send: the first one is answered, too.
        """
        self._is_ending = True
        for connection in list(self._open):
            connection.close()
        with trio.move_on_after(self._limits.drain, shield=True):
            while self._open or self._handshakes:
                await self._drained.wait()
        for connection in list(self._open):
            connection.abandon()
        self._limit.deadline = trio.current_time() + _GRACE
        self._stopping.set()

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve a connection; its errors end here."""
        if not self._make_room():
            stream.socket.close()
            return
        try:
            with contextlib.closing(socket.socket(fileno=stream.socket.detach())) as sock:
                sock.setblocking(False)
                context = None if self._make_context is None else self._make_context()
                with contextlib.closing(TlsConnection(sock, context)) as transport:
                    await self._shake_hands(transport)
                    await self._serve_requests(sock, transport)
        except* Exception as errors:
            self._logger.debug("A connection has failed.", exc_info=errors)

    async def _serve_requests(self, sock: socket.socket, transport: TlsConnection) -> None:
        peers = Peers(
            client=sock.getpeername()[:2],
            server=sock.getsockname()[:2],
            is_tls=self._make_context is not None,
            certificate=transport.peer,
        )
        connection = Connection(transport, self._serving)
        self._open.add(connection)
        try:
            await connection.serve(peers)
        finally:
            self._open.discard(connection)
            self._drained.set()

    def _make_room(self) -> bool:
        """Make room for a connection; return whether there is any. Connections with a running request are kept."""
        if len(self._handshakes) >= _MAX_HANDSHAKES:
            slowest = next(iter(self._handshakes))
            del self._handshakes[slowest]
            slowest.cancel(reason="there are too many handshakes")
        if len(self._open) + len(self._handshakes) < self._max:
            return True
        given_up = min(self._open, key=lambda each: (each.phase, each.since), default=None)
        if given_up is None or given_up.phase is Phase.ANSWERING:
            return False
        self._open.discard(given_up)
        given_up.drop()
        return True

    async def _shake_hands(self, transport: TlsConnection) -> None:
        with trio.fail_after(_HANDSHAKE) as scope:
            self._handshakes[scope] = None
            try:
                await transport.handshake()
            finally:
                self._handshakes.pop(scope, None)
                self._drained.set()
        if scope.cancel_called:  # in favour of others, or too late
            raise trio.TooSlowError
