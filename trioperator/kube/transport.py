"""The HTTP/1.1 transport of the hot path: one server, a pool of kept connections, Trio only.

It promises: never more than ``max_connections`` plain requests under way (a streaming reply has a connection of its
own), never more than a few handshakes at a time, the most recently used connection first, first come, first served;
and a kept connection that proves dead is replaced once, unseen, where the request can be sent twice. There are no
redirects, cookies, proxies, compression or HTTP/2.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import ssl
from collections import deque
from typing import Final

import trio

from trioperator.kube.exchange import MAX_BODY, Headers, Reply, TransportError
from trioperator.kube.http1 import Connection, render_request
from trioperator.kube.wire import open_wire

__all__ = ["HttpTransport", "Origin"]

# Handshakes at a time, for plain requests: a burst of requests waits for connections that get free rather than to
# open one for each of them.
_MAX_DIALS: Final = 4
# The same for streaming replies, which wait for nothing else.
_MAX_STREAM_DIALS: Final = 16
# Idle connections that are kept.
_MAX_IDLE: Final = 20
# Seconds. kube-apiserver closes idle connections after 90, balancers drop them unsaid after some minutes.
_MAX_IDLE_TIME: Final = 60.0

# What ends a request on a connection; ClosedResourceError: the transport was closed under it.
_FAULTS: Final = (OSError, TransportError, trio.ClosedResourceError)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the server is: *host* and *port* to connect to; under TLS a *context*, and the name in the certificate."""

    host: str
    port: int
    context: ssl.SSLContext | None = None
    server_name: str = ""

    @property
    def where(self) -> str:
        """The address for messages and for the ``Host`` header."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class HttpTransport:
    """Carry requests to one server over kept connections. It is an :class:`Exchange`."""

    def __init__(self, origin: Origin, *, max_connections: int = 20) -> None:
        self._origin = origin
        self._where = origin.where
        self._host = self._where.encode("ascii", "replace")
        self._max_connections = max_connections
        self._busy = 0  # plain requests that have a connection or are about to open one
        self._dials = 0
        self._stream_dials = trio.CapacityLimiter(_MAX_STREAM_DIALS)
        self._idle: deque[Connection] = deque()  # the most recently used one is the last
        self._open: set[Connection] = set()
        self._waiters: deque[trio.Event] = deque()
        self._retired = False

    async def send(
        self,
        method: str,
        target: str,
        *,
        headers: Headers,
        body: bytes | None = None,
        streaming: bool = False,
        connect_timeout: float | None = None,
    ) -> Reply:
        """Send a request, and give its reply when its head is there. See :class:`Exchange`."""
        request = render_request(method, target, host=self._host, headers=headers, body=body)
        fresh = False
        while True:
            if streaming:
                conn = await self._acquire_own(fresh=fresh, connect_timeout=connect_timeout)
            else:
                conn = await self._acquire(fresh=fresh, connect_timeout=connect_timeout)
            try:
                await conn.start(request)
            except _FAULTS as exc:
                self._discard(conn)
                if conn.used and not conn.heard and method != "POST":
                    fresh = True  # the server has closed the idle connection while we took it
                    continue
                raise _as_transport_error(exc, self._where) from exc
            except BaseException:
                self._discard(conn)
                raise
            return _PooledReply(self, conn, repeated=fresh)

    def retire(self) -> bool:
        """Drop idle connections, and keep no new ones; tell whether there are none left."""
        self._retired = True
        while self._idle:
            self._close(self._idle.pop())
        return not self._open

    async def aclose(self) -> None:
        """Drop all connections; replies that are under way end with a TransportError."""
        self.retire()
        for conn in list(self._open):
            self._close(conn)

    async def _acquire_own(self, *, fresh: bool, connect_timeout: float | None) -> Connection:
        """Give a connection that takes no place from plain requests."""
        conn = None if fresh else self._pop_idle()
        if conn is None:
            async with self._stream_dials:
                conn = await self._dial(connect_timeout)
        conn.shared = False
        return conn

    async def _acquire(self, *, fresh: bool, connect_timeout: float | None) -> Connection:
        """Give a connection as soon as there is a place and either an idle one or leave to open one."""
        queued = False
        while True:
            if self._busy < self._max_connections and (queued or not self._waiters):  # nobody is overtaken
                conn = None if fresh else self._pop_idle()
                if conn is not None:
                    self._busy += 1
                    conn.shared = True
                    return conn
                if self._dials < _MAX_DIALS:
                    break
            await self._wait(first=queued)
            queued = True
        self._busy += 1
        self._dials += 1
        try:
            conn = await self._dial(connect_timeout)
        except BaseException:
            self._busy -= 1
            raise
        finally:
            self._dials -= 1
            self._wake()
        conn.shared = True
        return conn

    async def _wait(self, *, first: bool) -> None:
        """Queue until something has changed, at the head of the queue if *first*."""
        waiter = trio.Event()
        if first:
            self._waiters.appendleft(waiter)
        else:
            self._waiters.append(waiter)
        try:
            await waiter.wait()
        except BaseException:
            if waiter.is_set():
                self._wake()  # woken by one that was cancelled with it: what was meant for us is for the next one
            else:
                self._waiters.remove(waiter)
            raise

    def _wake(self) -> None:
        if self._waiters:
            self._waiters.popleft().set()

    def _pop_idle(self) -> Connection | None:
        """Give the idle connection that was used last, if it is alive and not too old."""
        horizon = trio.current_time() - _MAX_IDLE_TIME
        while self._idle:
            conn = self._idle.pop()
            if conn.idle_since >= horizon and conn.is_quiet():
                return conn
            self._close(conn)
        return None

    async def _dial(self, connect_timeout: float | None) -> Connection:
        """Open a connection. Raises TransportError, with ``reached=False``."""
        origin = self._origin
        wire = None
        try:
            with trio.move_on_after(connect_timeout if connect_timeout is not None else float("inf")):
                wire = await open_wire(
                    origin.host, origin.port, context=origin.context, server_name=origin.server_name or origin.host
                )
        except (OSError, ValueError) as exc:  # ValueError: what is no host name
            final = isinstance(exc, (ssl.SSLCertVerificationError, ValueError))
            raise TransportError(
                f"Cannot connect to {self._where}: {_explain(exc)}", reached=False, final=final
            ) from exc
        if wire is None:
            raise TransportError(
                f"Cannot connect to {self._where}: no connection within {connect_timeout} s.", reached=False
            )
        conn = Connection(wire, where=self._where)
        self._open.add(conn)
        return conn

    def _release(self, conn: Connection) -> None:
        """Take a connection back whose response has been read to its end."""
        if conn.shared:
            self._busy -= 1
        if conn.reusable and not self._retired and len(self._idle) < _MAX_IDLE:
            now = trio.current_time()
            conn.used = True
            conn.idle_since = now
            self._idle.append(conn)
            while self._idle[0].idle_since < now - _MAX_IDLE_TIME:
                self._close(self._idle.popleft())
        else:
            self._close(conn)
        self._wake()

    def _discard(self, conn: Connection) -> None:
        """Drop a connection whose request has come to nothing."""
        if conn.shared:
            self._busy -= 1
        self._close(conn)
        self._wake()

    def _close(self, conn: Connection) -> None:
        self._open.discard(conn)
        conn.close()


class _PooledReply:
    """A reply on a connection of the pool, which gets the connection back at the reply's end."""

    __slots__ = ("_conn", "_pool", "headers", "repeated", "status")

    def __init__(self, pool: HttpTransport, conn: Connection, *, repeated: bool) -> None:
        self._pool = pool
        self._conn: Connection | None = conn
        self.status = conn.status
        self.headers: Headers = conn.headers
        self.repeated = repeated

    async def receive(self) -> bytes:
        conn = self._conn
        if conn is None:
            return b""
        try:
            data = await conn.receive()
        except _FAULTS as exc:
            self._drop()
            raise _as_transport_error(exc, conn.where) from exc
        except BaseException:
            self._drop()
            raise
        if not data:
            self._conn = None
            self._pool._release(conn)
        return data

    async def read(self, limit: int = MAX_BODY) -> bytes:
        conn = self._conn
        if conn is None:
            return b""
        try:
            data = await conn.read(limit)
        except _FAULTS as exc:
            self._drop()
            raise _as_transport_error(exc, conn.where) from exc
        except BaseException:
            self._drop()
            raise
        self._conn = None
        self._pool._release(conn)
        return data

    async def aclose(self) -> None:
        self._drop()

    def _drop(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            self._pool._discard(conn)


def _as_transport_error(exc: Exception, where: str) -> TransportError:
    if isinstance(exc, TransportError):
        return exc
    return TransportError(f"{where}: {_explain(exc)}", reached=True)


def _explain(exc: Exception) -> str:
    """Say in words what has gone wrong with a connection."""
    match exc:
        case ssl.SSLCertVerificationError():
            return f"the server's certificate does not fit: {exc.verify_message}"
        case ssl.SSLError(reason="WRONG_VERSION_NUMBER" | "HTTP_REQUEST" | "RECORD_LAYER_FAILURE"):
            return "TLS failed: the server does not speak TLS there"
        case ssl.SSLError():
            return f"TLS failed: {exc.reason or exc}"
        case socket.gaierror():
            return f"the host name cannot be resolved: {exc.strerror}"
        case OSError(__cause__=BaseExceptionGroup() as group):
            return ", ".join(dict.fromkeys(_explain(each) for each in group.exceptions if isinstance(each, Exception)))
        case OSError(__cause__=OSError() as cause):
            return _explain(cause)
        case OSError(errno=int(number)):
            return os.strerror(number).lower()  # its own text may be trio's, which says the address again
        case _:
            return str(exc) or type(exc).__name__
