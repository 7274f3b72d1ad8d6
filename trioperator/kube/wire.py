"""The bytes of one connection: a non-blocking socket, plain or under TLS.

TLS runs on memory buffers beside the socket, so that one request costs one TLS record, one ``send()`` and one turn of
Trio's loop: that is a fifth less CPU for each request than :class:`trio.SSLStream`, which is made for everything.
One task at a time uses a wire. Nothing here knows of HTTP, and nothing waits without a limit set by the caller's scope.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Final

import trio
import trio.lowlevel

__all__ = ["Wire", "open_wire"]

_CHUNK: Final = 64 * 1024
# Seconds: a peer that vanished without a word is noticed by the kernel, even where no time-out of ours is set.
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))


class Wire:
    """Send and receive bytes, through TLS where there is a context.

    A clean end and a cut one both read as ``b""``; ``truncated`` tells that the peer did not say farewell under TLS.
    Errors are those of the socket and of ``ssl``, untranslated.
    """

    __slots__ = ("_incoming", "_outgoing", "_sock", "_tls", "truncated")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext | None, server_name: str) -> None:
        self._sock = sock
        self.truncated = False
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        if context is not None:
            self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)

    async def handshake(self) -> None:
        """Agree on TLS with the peer; with no TLS, do nothing. Raises OSError, ``ssl.SSLError`` is one."""
        tls = self._tls
        if tls is None:
            return
        while True:
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                if not await self._fill():
                    raise ConnectionResetError("closed by the server during the TLS handshake") from None
            except ssl.SSLError:
                with contextlib.suppress(OSError):  # the alert is a courtesy
                    self._sock.send(self._outgoing.read())
                raise
            else:
                break
        await self._flush()

    async def send(self, data: bytes) -> None:
        """Send all of *data*. It is a checkpoint only where the kernel's buffer is full."""
        tls = self._tls
        if tls is None:
            await self._send_raw(data)
            return
        sent = tls.write(data)
        while sent < len(data):
            sent += tls.write(data[sent:])
        await self._send_raw(self._outgoing.read())

    async def receive(self) -> bytes:
        """Give what has arrived, at least one byte; ``b""`` at the end."""
        tls = self._tls
        if tls is None:
            return await self._receive_raw()
        while True:
            if tls.pending() or self._incoming.pending:
                try:
                    data = tls.read(_CHUNK)
                except ssl.SSLWantReadError:
                    if self._outgoing.pending:
                        await self._flush()
                except ssl.SSLZeroReturnError:
                    return b""
                else:
                    return data
            if not await self._fill():
                self.truncated = True
                return b""

    def is_quiet(self) -> bool:
        """Tell whether an idle connection can take another request: it is open, and the peer has said nothing."""
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
            return True  # it was between the two TLS machines only: a session ticket, as a rule
        except OSError:
            return False
        return False

    def close(self) -> None:
        """Say farewell if that takes no waiting, and close. It can be called again."""
        if self._sock.fileno() < 0:
            return
        if self._tls is not None:
            with contextlib.suppress(OSError):
                self._tls.unwrap()
            with contextlib.suppress(OSError):
                self._sock.send(self._outgoing.read())
        trio.lowlevel.notify_closing(self._sock)
        self._sock.close()

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await self._send_raw(self._outgoing.read())

    async def _fill(self) -> bool:
        data = await self._receive_raw()
        self._incoming.write(data)
        return bool(data)

    async def _send_raw(self, data: bytes) -> None:
        sock = self._sock
        try:
            sent = sock.send(data)
        except BlockingIOError:
            sent = 0
        if sent == len(data):
            return
        view = memoryview(data)
        while sent < len(data):
            await trio.lowlevel.wait_writable(sock)
            with contextlib.suppress(BlockingIOError):
                sent += sock.send(view[sent:])

    async def _receive_raw(self) -> bytes:
        while True:
            await trio.lowlevel.wait_readable(self._sock)
            try:
                return self._sock.recv(_CHUNK)
            except BlockingIOError:
                continue


async def open_wire(host: str, port: int, *, context: ssl.SSLContext | None, server_name: str) -> Wire:
    """Connect, to the first of the host's addresses that answers, and shake hands.

    *server_name* is what the server's certificate has to be made for. Raises OSError.
    """
    stream = await trio.open_tcp_stream(host, port)
    sock = socket.socket(fileno=stream.socket.detach())
    sock.setblocking(False)
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    try:
        wire = Wire(sock, context, server_name)
    except BaseException:
        sock.close()
        raise
    try:
        await wire.handshake()
    except BaseException:
        wire.close()
        raise
    return wire
