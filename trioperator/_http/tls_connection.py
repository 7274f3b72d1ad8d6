"""One connection at the level of bytes: a non-blocking socket, with TLS or without.

TLS runs on memory buffers next to the socket, so that one request costs one TLS record, one ``send()`` and one pass of
Trio's scheduler: a fifth less CPU per request than :class:`trio.SSLStream`. One task may receive while another sends,
but no two tasks may do the same. Timeouts are the caller's cancel scopes, or a deadline of the connection.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import trio
import trio.lowlevel

from trioperator._concurrency.timeouts import Timeouts

_CHUNK: Final = 64 * 1024
_NEVER: Final = float("inf")
# With TCP keep-alive the kernel detects a dead peer even if no timeout is set: after 60 seconds without an answer to
# probes or, where the system can do that (the last one is in milliseconds), to what was sent.
_KEEPALIVE: Final = (
    ("TCP_KEEPIDLE", 30),
    ("TCP_KEEPINTVL", 10),
    ("TCP_KEEPCNT", 3),
    ("TCP_USER_TIMEOUT", 60_000),
)


class TlsConnection:
    """A socket with TLS on top; plain TCP if the SSL context is None. Without a *server_name*, it is a server's.

    End of file reads as ``b""``; ``truncated`` is set if the peer closed without TLS ``close_notify``. Errors of the
    socket and of ``ssl`` are raised as they are, TooSlowError once the *deadline* is over, which *timeouts* keep.
    """

    __slots__ = (
        "_broken",
        "_ended",
        "_incoming",
        "_is_sending",
        "_outgoing",
        "_poll",
        "_sock",
        "_timeouts",
        "_tls",
        "deadline",
        "truncated",
    )

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext | None,
        server_name: str | None = None,
        *,
        timeouts: Timeouts | None = None,
    ) -> None:
        self._sock = sock
        self._timeouts = timeouts
        self.deadline = _NEVER
        self.truncated = False
        self._ended = False
        self._is_sending = False  # a rest, which nothing may come in between
        self._broken: OSError | None = None
        self._poll: select.poll | None = None  # made when the connection is reused: those of servers never are
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        if context is not None:
            server_side = server_name is None
            self._tls = context.wrap_bio(
                self._incoming, self._outgoing, server_side=server_side, server_hostname=server_name
            )
        if timeouts is not None:
            timeouts.add(self)

    @property
    def peer(self) -> Mapping[str, Any] | None:
        """The verified certificate of the peer, as from ``getpeercert()``; None without one."""
        return None if self._tls is None else self._tls.getpeercert() or None

    async def handshake(self) -> None:
        """Perform the TLS handshake, if any. Raises OSError, of which ``ssl.SSLError`` is a subclass."""
        tls = self._tls
        if tls is None:
            return
        while True:
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                received = await self._receive_raw()
                self._incoming.write(received)
                if not received:
                    who = "client" if tls.server_side else "server"
                    raise ConnectionResetError(f"closed by the {who} during the TLS handshake") from None
            except ssl.SSLError:
                with contextlib.suppress(OSError):  # the TLS alert is best effort
                    self._sock.send(self._outgoing.read())
                raise
            else:
                break
        await self._flush()

    async def send(self, data: bytes) -> None:
        """Send all of *data*. A checkpoint only if the socket's send buffer is full."""
        rest = self.send_nowait(data)
        if rest:
            await self.send_rest(rest)

    def send_nowait(self, data: bytes | memoryview) -> memoryview:
        """Send what the socket's send buffer has room for; return the rest, for :meth:`send_rest`."""
        tls = self._tls
        if tls is not None:
            sent = tls.write(data)
            while sent < len(data):
                sent += tls.write(data[sent:])
            data = self._outgoing.read()
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        return memoryview(data)[sent:]

    async def send_rest(self, rest: memoryview) -> None:
        """Send all that :meth:`send_nowait` has left over."""
        sent = 0
        self._is_sending = True
        try:
            while sent < len(rest):
                await self._wait(trio.lowlevel.wait_writable)
                with contextlib.suppress(BlockingIOError):
                    sent += self._sock.send(rest[sent:])
        finally:
            self._is_sending = False

    async def receive(self) -> bytes:
        """Receive at least one byte, and all that has arrived; ``b""`` at end of file."""
        if self._tls is None:
            return await self._receive_raw()
        while True:
            data = self._decrypt(self._tls)
            if data or self._ended:
                return data
            if self._outgoing.pending and not self._is_sending:  # otherwise, it is sent with what is sent next
                await self._flush()
            received = await self._receive_raw()
            self._incoming.write(received)
            if not received:
                self.truncated = self._ended = True

    def _decrypt(self, tls: ssl.SSLObject) -> bytes:
        """Return the data of all complete records: servers send each watch event in a record of its own."""
        if self._broken is not None:
            raise self._broken
        parts: list[bytes] = []
        try:
            while not self._ended and (tls.pending() or self._incoming.pending):
                part = tls.read(_CHUNK)
                self._ended = not part  # the peer has sent close_notify
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except OSError as error:
            self._broken = error  # it is raised once more, after what was sent before
            if not parts:
                raise
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def is_alive(self) -> bool:
        """Return whether an idle connection can be reused: it is open, and the peer has sent no data."""
        if self._poll is None:
            self._poll = _make_poll(self._sock)
        if self._poll is not None and not self._poll.poll(0):
            return True  # nothing has arrived: to receive would raise, which takes ten times as long
        try:
            data = self._sock.recv(_CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data or self._tls is None:
            return False
        self._incoming.write(data)
        try:
            self._tls.read(1)
        except ssl.SSLWantReadError:
            return True  # a TLS record without application data, usually a session ticket
        except OSError:
            return False
        return False

    def close(self) -> None:
        """Send ``close_notify`` if that does not block, and close the socket. Idempotent."""
        if self._sock.fileno() < 0:
            return
        if self._tls is not None:
            with contextlib.suppress(OSError):
                self._tls.unwrap()
            with contextlib.suppress(OSError):
                self._sock.send(self._outgoing.read())
        trio.lowlevel.notify_closing(self._sock)
        self._sock.close()
        if self._timeouts is not None:
            self._timeouts.discard(self)

    def limit(self, deadline: float) -> None:
        """Set the deadline for all that is received and sent from now on, in Trio's time; infinite for none."""
        if self._timeouts is None:
            self.deadline = deadline
        else:
            self._timeouts.set(self, deadline)

    def expire(self) -> None:
        """Let the tasks that wait look at the deadline again. See :class:`.Timed`."""
        if self._sock.fileno() >= 0:
            trio.lowlevel.notify_closing(self._sock)

    async def finish(self) -> None:
        """Send the end of the data, and read and drop data until the peer sends its end, too."""
        if self._tls is not None:
            with contextlib.suppress(OSError):
                self._tls.unwrap()
            await self._flush()
        self._sock.shutdown(socket.SHUT_WR)
        while await self._receive_raw():
            pass

    async def _flush(self) -> None:
        if self._outgoing.pending:
            try:
                await self.send_rest(memoryview(self._outgoing.read()))
            except trio.Cancelled:
                self._broken = ConnectionAbortedError("cancelled in the middle of a TLS record")
                raise

    async def _receive_raw(self) -> bytes:
        while True:
            await self._wait(trio.lowlevel.wait_readable)
            try:
                return self._sock.recv(_CHUNK)
            except BlockingIOError:
                continue

    async def _wait(self, wait: Callable[[socket.socket], Awaitable[None]]) -> None:
        """Wait for the socket, until the deadline at most."""
        while True:
            deadline = self.deadline
            if deadline != _NEVER and trio.current_time() >= deadline:
                raise trio.TooSlowError
            is_kept = deadline == _NEVER or (self._timeouts is not None and self._timeouts.is_served)
            try:
                if is_kept:
                    return await wait(self._sock)
                with trio.move_on_at(deadline):
                    return await wait(self._sock)
            except trio.ClosedResourceError:  # by close(), or by expire()
                if self._sock.fileno() < 0:
                    raise


def _make_poll(sock: socket.socket) -> select.poll | None:
    """Return what tells whether anything has arrived, where the system has it."""
    if not hasattr(select, "poll"):
        return None
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return poll


def keep_alive(sock: socket.socket | trio.socket.SocketType) -> None:
    """Let the kernel detect a dead peer, as far as the system can."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def open_connection(
    host: str, port: int, *, context: ssl.SSLContext | None, server_name: str, timeouts: Timeouts | None = None
) -> TlsConnection:
    """Connect to the first of the host's addresses that accepts, and perform the TLS handshake.

    *server_name* is the name that the server's certificate must match. Raises OSError.
    """
    stream = await trio.open_tcp_stream(host, port)
    sock = socket.socket(fileno=stream.socket.detach())
    sock.setblocking(False)
    keep_alive(sock)
    try:
        conn = TlsConnection(sock, context, server_name, timeouts=timeouts)
    except BaseException:
        sock.close()
        raise
    try:
        await conn.handshake()
    except BaseException:
        conn.close()
        raise
    return conn


def describe_error(exc: Exception) -> str:
    """Return a short description of an error while connecting, sending or receiving."""
    match exc:
        case ssl.SSLCertVerificationError():
            return f"the server's certificate cannot be verified: {exc.verify_message}"
        case ssl.SSLError(reason="WRONG_VERSION_NUMBER" | "HTTP_REQUEST" | "RECORD_LAYER_FAILURE"):
            return "TLS failed: the server does not speak TLS on this port"
        case ssl.SSLError():
            return f"TLS failed: {exc.reason or exc}"
        case socket.gaierror():
            return f"cannot resolve the host name: {exc.strerror}"
        case OSError(__cause__=BaseExceptionGroup() as group):
            return ", ".join(
                dict.fromkeys(describe_error(each) for each in group.exceptions if isinstance(each, Exception))
            )
        case OSError(__cause__=OSError() as cause):
            return describe_error(cause)
        case OSError(errno=int(number)):
            return os.strerror(number).lower()  # str(exc) may be Trio's, which repeats the address
        case _:
            return str(exc) or type(exc).__name__
