"""The HTTP/1.1 transport of the hot path: a keep-alive connection pool for one server, on Trio only.

At most ``max_connections`` requests run at a time, first come, first served; streaming responses have connections of
their own, and so have the few requests that must not wait for others (``reserved``). Few connections are opened at a
time, and the most recently used one is reused first. If a reused connection turns out to be dead, the request is sent
again on a new one, if that is harmless. No redirects, cookies, proxies, compression or HTTP/2.
"""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec
import trio

from trioperator._concurrency.clock import find_clock
from trioperator._concurrency.timeouts import Timeouts
from trioperator._http.client_connection import Http1Connection, render_request
from trioperator._http.tls_connection import describe_error, open_connection
from trioperator._http.transport import CONNECT_TIMEOUT, Headers, Request, Response, TransportError

# Connections that are being opened at a time: a burst of requests waits for connections to be released instead of
# opening one for each request.
_MAX_DIALS: Final = 4
# The same for streaming responses.
_MAX_STREAM_DIALS: Final = 16
# Idle connections to keep, at least.
_MAX_IDLE: Final = 20
# Seconds. kube-apiserver closes idle connections after 90, load balancers drop them silently after some minutes.
_MAX_IDLE_TIME: Final = 60.0
# Connections for requests that must not wait for others.
_RESERVED: Final = 4
_NEVER: Final = float("inf")

# Errors that make a connection unusable. ClosedResourceError: the pool was closed during the request.
_CONNECTION_ERRORS: Final = (OSError, TransportError, trio.ClosedResourceError)


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Host and port to connect to; for TLS, the SSL context and the name that the certificate must match."""

    host: str
    port: int
    context: ssl.SSLContext | None = None
    server_name: str = ""

    @property
    def address(self) -> str:
        """Return ``host:port`` for messages and for the ``Host`` header."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class _Dialer(msgspec.Struct):
    """How connections to a server are opened."""

    origin: Origin
    timeouts: Timeouts | None

    async def dial(self, seconds: float) -> Http1Connection:
        """Open a connection. Raises TransportError with ``reached=False``."""
        origin, stream = self.origin, None
        try:
            with trio.move_on_after(seconds):
                stream = await open_connection(
                    origin.host,
                    origin.port,
                    context=origin.context,
                    server_name=origin.server_name or origin.host,
                    timeouts=self.timeouts,
                )
        except (OSError, ValueError) as exc:  # ValueError: not a valid host name
            final = isinstance(exc, (ssl.SSLCertVerificationError, ValueError))
            text = f"Cannot connect to {origin.address}: {describe_error(exc)}"
            raise TransportError(text, reached=False, final=final) from exc
        if stream is None:
            text = f"Cannot connect to {origin.address}: no connection within {seconds:g} s."
            raise TransportError(text, reached=False)
        return Http1Connection(stream, address=origin.address)


class ConnectionPool:
    """A pool of keep-alive connections to one server; implements :class:`Transport`.

    *max_connections* returns the limit, which may change. While a task serves *timeouts*, that task keeps the deadlines
    of requests, which then need no cancel scopes.
    """

    def __init__(self, origin: Origin, *, max_connections: Callable[[], int], timeouts: Timeouts | None = None) -> None:
        self._dialer = _Dialer(origin, timeouts)
        self._host = origin.address.encode("ascii", "replace")
        self._max_connections = max_connections
        self._reserved: ConnectionPool | None = None
        self._busy = 0  # requests, streaming ones aside, that have a connection or are opening one
        self._dials = 0
        self._stream_dials = trio.CapacityLimiter(_MAX_STREAM_DIALS)
        self._idle: deque[Http1Connection] = deque()  # the most recently used one is the last
        self._opened: set[Http1Connection] = set()
        self._waiters: deque[trio.Event] = deque()
        self._retired = False
        self._now: Callable[[], float] = trio.current_time  # until the first connection is opened, in a run

    async def send(
        self,
        request: Request,
        *,
        streaming: bool = False,
        connect_timeout: float | None = None,
        check: Callable[[], None] | None = None,
    ) -> Response:
        """See :meth:`Transport.send`."""
        data = self._render(request)
        fresh = False
        while True:
            if streaming:
                conn = await self._acquire_own(fresh=fresh, connect_timeout=connect_timeout)
            else:
                conn = await self._take(fresh=fresh) or await self._open(connect_timeout)
            if await self._start(conn, data, request, check):
                return _PooledResponse(self, conn, repeated=fresh)
            fresh = True

    async def fetch(
        self,
        request: Request,
        *,
        limit: int,
        timeout: float,
        connect_timeout: float | None = None,
        check: Callable[[], None] | None = None,
    ) -> tuple[Response, bytes] | None:
        """See :meth:`Transport.fetch`."""
        data = self._render(request)
        fresh = False
        while True:
            # If the time counted here, a slow server would get requests whose time is nearly over: they would be given
            # up and sent again, and so on forever.
            conn = await self._take(fresh=fresh)
            deadline = self._now() + timeout
            try:
                if conn is None:
                    with trio.fail_at(deadline):
                        conn = await self._open(connect_timeout)
                conn.limit(deadline)
                if await self._start(conn, data, request, check):
                    response = _PooledResponse(self, conn, repeated=fresh)
                    return response, await response.read(limit)
            except trio.TooSlowError:
                return None
            fresh, timeout = True, max(0.0, deadline - self._now())

    @property
    def reserved(self) -> ConnectionPool:
        """See :attr:`Transport.reserved`."""
        if self._reserved is None:
            origin, timeouts = self._dialer.origin, self._dialer.timeouts
            self._reserved = ConnectionPool(origin, max_connections=lambda: _RESERVED, timeouts=timeouts)
        return self._reserved

    async def retire(self) -> bool:
        """See :meth:`Transport.retire`."""
        return self._retire()

    def _retire(self) -> bool:
        self._retired = True
        while self._idle:
            self._close(self._idle.pop())
        return (self._reserved is None or self._reserved._retire()) and not self._opened

    async def aclose(self) -> None:
        """Close all connections; responses in progress raise TransportError."""
        self._retire()
        for conn in list(self._opened):
            self._close(conn)
        if self._reserved is not None:
            await self._reserved.aclose()

    def _render(self, request: Request) -> bytes:
        method, target = request.method, request.target
        return render_request(method, target, host=self._host, headers=request.headers, body=request.body)

    async def _start(
        self, conn: Http1Connection, data: bytes, request: Request, check: Callable[[], None] | None
    ) -> bool:
        """Send a request; return False if it is to be sent on a new connection, as this one turned out to be dead."""
        if check is not None:
            self._check(check, conn)
        try:
            await conn.start(data)
        except _CONNECTION_ERRORS as exc:
            self._discard(conn)
            if conn.idle_since > -_NEVER and not conn.response_begun and request.is_repeatable():
                return False  # the server closed the idle connection just before the request
            raise _as_transport_error(exc, conn.address) from exc
        except BaseException:
            self._discard(conn)
            raise
        return True

    async def _acquire_own(self, *, fresh: bool, connect_timeout: float | None) -> Http1Connection:
        """Return a connection for a streaming response, which does not count against the limit."""
        conn = None if fresh else self._pop_idle()
        if conn is None:
            async with self._stream_dials:
                conn = await self._dial(connect_timeout)
        conn.counted = False
        return conn

    async def _take(self, *, fresh: bool) -> Http1Connection | None:
        """Return a connection as soon as one is idle; None as soon as one may be opened, which must follow."""
        queued = False
        while True:
            if self._busy < self._max_connections() and (queued or not self._waiters):  # first come, first served
                conn = None if fresh else self._pop_idle()
                if conn is not None:
                    self._busy += 1
                    conn.counted = True
                    return conn
                if self._dials < _MAX_DIALS:
                    self._busy += 1
                    self._dials += 1
                    return None
            await self._wait(first=queued)
            queued = True

    async def _open(self, connect_timeout: float | None) -> Http1Connection:
        """Open the connection for which :meth:`_take` has made room."""
        try:
            return await self._dial(connect_timeout)
        except BaseException:
            self._busy -= 1
            raise
        finally:
            self._dials -= 1
            self._wake()

    async def _wait(self, *, first: bool) -> None:
        """Wait in the queue until a connection is released, at the head of the queue if *first*."""
        waiter = trio.Event()
        if first:
            self._waiters.appendleft(waiter)
        else:
            self._waiters.append(waiter)
        try:
            await waiter.wait()
        except BaseException:
            if waiter.is_set():
                self._wake()  # cancelled just after being woken: pass it on to the next in the queue
            else:
                self._waiters.remove(waiter)
            raise

    def _wake(self) -> None:
        if self._waiters:
            self._waiters.popleft().set()

    def _pop_idle(self) -> Http1Connection | None:
        """Return the most recently used idle connection that is alive and not too old."""
        if not self._idle:
            return None
        horizon = self._now() - _MAX_IDLE_TIME
        while self._idle:
            conn = self._idle.pop()
            if conn.idle_since >= horizon and conn.is_alive():
                return conn
            self._close(conn)
        return None

    async def _dial(self, connect_timeout: float | None) -> Http1Connection:
        self._now = find_clock()
        conn = await self._dialer.dial(CONNECT_TIMEOUT if connect_timeout is None else connect_timeout)
        self._opened.add(conn)
        return conn

    def _check(self, check: Callable[[], None], conn: Http1Connection) -> None:
        """Call *check*; if it raises, others can have the connection, on which nothing is sent."""
        try:
            check()
        except BaseException:
            conn.reusable = True
            self._release(conn)
            raise

    def _release(self, conn: Http1Connection) -> None:
        """Return a connection to the pool after its response has been read completely."""
        if conn.counted:
            self._busy -= 1
        if conn.reusable and not self._retired and len(self._idle) < max(_MAX_IDLE, self._max_connections()):
            now = self._now()
            conn.limit(_NEVER)
            conn.idle_since = now
            self._idle.append(conn)
            while self._idle[0].idle_since < now - _MAX_IDLE_TIME:
                self._close(self._idle.popleft())
        else:
            self._close(conn)
        self._wake()

    def _discard(self, conn: Http1Connection) -> None:
        """Close a connection whose request has failed or was abandoned.

        If there was no response at all, those that were idle for longer may be dead, too, as where a load balancer has
        forgotten them: the next request would wait as long for one of them.
        """
        if conn.counted:
            self._busy -= 1
        if not conn.response_begun:
            while self._idle and self._idle[0].idle_since <= conn.idle_since:
                self._close(self._idle.popleft())
        self._close(conn)
        self._wake()

    def _close(self, conn: Http1Connection) -> None:
        self._opened.discard(conn)
        conn.close()


class _PooledResponse:
    """A response on a pooled connection, which is released at the end of the response."""

    __slots__ = ("_conn", "_pool", "headers", "repeated", "status")

    def __init__(self, pool: ConnectionPool, conn: Http1Connection, *, repeated: bool) -> None:
        self._pool = pool
        self._conn: Http1Connection | None = conn
        self.status = conn.status
        self.headers: Headers = conn.headers
        self.repeated = repeated

    async def receive(self, until: float = _NEVER) -> bytes:
        conn = self._conn
        if conn is None:
            return b""
        conn.limit(until)
        try:
            data = await conn.receive()
        except _CONNECTION_ERRORS as exc:
            self._drop()
            raise _as_transport_error(exc, conn.address) from exc
        except trio.Cancelled:  # nothing was received, so the next call goes on
            raise
        except BaseException:
            self._drop()
            raise
        if not data:
            self._conn = None
            self._pool._release(conn)
        return data

    async def read(self, limit: int) -> bytes:
        conn = self._conn
        if conn is None:
            return b""
        try:
            data = await conn.read(limit)
        except _CONNECTION_ERRORS as exc:
            self._drop()
            raise _as_transport_error(exc, conn.address) from exc
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


def _as_transport_error(exc: Exception, address: str) -> TransportError:
    if isinstance(exc, TransportError):
        return exc
    return TransportError(f"{address}: {describe_error(exc)}", reached=True)
