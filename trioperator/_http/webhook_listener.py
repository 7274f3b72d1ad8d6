"""The listener of the webhook server: connections with TLS, their number, and their end.

API servers keep connections, and send reviews to all operators of a cluster: so requests cost little here. A server
ends only by cancellation, within seconds, and answers all requests in progress.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import trio

from trioperator._concurrency.pulse import Pulse
from trioperator._http.endpoint import Endpoint
from trioperator._http.listener import accept_connections, limit_connections, listen
from trioperator._http.server_connection import Budget, Connection, Limits, Request, Response
from trioperator._http.tls_connection import TlsConnection
from trioperator._logs import get_logger

__all__ = ["serve_webhooks"]

# Seconds for a TLS handshake.
_HANDSHAKE: Final = 10.0
# Seconds between requests, which is less than API servers keep idle connections.
_IDLE: Final = 60.0
# Connections, those in their handshakes included. Beyond that, the one that has been idle for the longest time is
# closed; where none is idle, the new one.
_MAX_CONNECTIONS: Final = 1000
_SHARE: Final = 0.7
# Handshakes at a time: beyond that, the one that takes longest has failed.
_MAX_HANDSHAKES: Final = 256
# Bytes of large bodies at a time.
_BUDGET: Final = 64 * 1024 * 1024
# Seconds that requests in progress may take when the server ends, and for answering the others with an error then.
_DRAIN: Final = 2.0
_GRACE: Final = 1.0


async def serve_webhooks(
    answer: Callable[[Request], Awaitable[Response]],
    endpoint: Endpoint,
    *,
    limit_body: Callable[[str], int | None],
    make_context: Callable[[], ssl.SSLContext] | None = None,
    sockets: Sequence[socket.socket] = (),
    is_draining: Callable[[], bool] = lambda: False,
    task_status: trio.TaskStatus[Endpoint] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve requests until cancelled; started once it is listening, with the actual port as the value.

    *sockets* that listen there already are used, and stay open. *limit_body* returns the size of a body by its path,
    None where there is nothing. With *make_context*, which is called for each connection, connections use TLS. While
    the server *is_draining*, each connection ends with its next response. Raises ConfigError if it cannot listen.
    """
    endpoint, opened = await listen(endpoint, sockets)
    with contextlib.ExitStack() as stack:
        for sock in opened:
            stack.enter_context(sock)
        limits = Limits(idle=_IDLE, body=limit_body, budget=Budget(_BUDGET))
        connections = _Connections(answer, limits, make_context, is_draining)
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
    """All connections of a server."""

    def __init__(
        self,
        answer: Callable[[Request], Awaitable[Response]],
        limits: Limits,
        make_context: Callable[[], ssl.SSLContext] | None,
        is_draining: Callable[[], bool],
    ) -> None:
        self._answer = answer
        self._limits = limits
        self._make_context = make_context
        self._is_draining = is_draining
        self._ending = False
        self._logger = get_logger("trioperator.webhooks")
        # Requests in progress are to be answered when the server is cancelled.
        self._limit = trio.CancelScope()
        self._open: dict[Connection, None] = {}  # the one without a request for the longest time first
        self._handshakes: dict[trio.CancelScope, None] = {}  # the one that has begun first, first
        self._max = limit_connections(_MAX_CONNECTIONS, share=_SHARE)
        self._stopping = trio.Event()
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
        """Answer requests in progress, close idle connections, and cancel the others after a grace period.

        What is in its handshake has a request to send: the first one is answered, too.
        """
        self._ending = True
        for connection in list(self._open):
            connection.close()
        with trio.move_on_after(_DRAIN, shield=True):
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
        transport = self._open_transport(stream)
        connection: Connection | None = None

        async def answer(request: Request) -> Response:
            if connection in self._open:
                self._open[connection] = self._open.pop(connection)
            return await self._answer(request)

        try:
            await self._shake_hands(transport)
            draining = lambda: self._ending or self._is_draining()  # noqa: E731 -- short
            connection = Connection(transport, answer, self._limits, is_draining=draining)
            self._open[connection] = None
            await connection.serve()
        except Exception as error:
            self._logger.debug("A connection has failed.", exc_info=error)
        finally:
            if connection is not None:
                self._open.pop(connection, None)
                self._drained.set()
            transport.close()

    def _open_transport(self, stream: trio.SocketStream) -> TlsConnection:
        """Take the socket of a stream."""
        sock = socket.socket(fileno=stream.socket.detach())
        sock.setblocking(False)
        try:
            return TlsConnection(sock, None if self._make_context is None else self._make_context())
        except BaseException:
            sock.close()
            raise

    def _make_room(self) -> bool:
        """Make room for a connection; return whether there is any. What is being answered is never given up for it."""
        if len(self._handshakes) >= _MAX_HANDSHAKES:
            slowest = next(iter(self._handshakes))
            del self._handshakes[slowest]
            slowest.cancel(reason="there are too many handshakes")
        if len(self._open) + len(self._handshakes) < self._max:
            return True
        idle = next((connection for connection in self._open if connection.is_idle), None)
        if idle is not None:
            del self._open[idle]
            idle.close()
        return idle is not None

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
