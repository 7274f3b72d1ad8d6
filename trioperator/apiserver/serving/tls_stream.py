"""TLS connections of the server, which send without Trio as long as the socket has room.

:class:`trio.SSLStream` takes twice as long for each event of a watch.
"""

from __future__ import annotations

import socket
import ssl

import trio

from trioperator._http.tls_connection import TlsConnection


class TlsStream(trio.abc.Stream):
    """A connection of a client. One task may receive while another one sends."""

    def __init__(self, stream: trio.SocketStream, context: ssl.SSLContext) -> None:
        sock = socket.socket(fileno=stream.socket.detach())
        sock.setblocking(False)
        self.connection = TlsConnection(sock, context)

    def send_nowait(self, data: bytes | memoryview) -> memoryview:
        """Encrypt all of the data, and send what there is room for. The rest is for :meth:`send_all`, as it is."""
        return self.connection.send_nowait(data)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send the rest that :meth:`send_nowait` has left over."""
        await self.connection.send_rest(memoryview(data))

    async def wait_send_all_might_not_block(self) -> None:
        """Return at once: it is not known whether there is room."""
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Receive at least one byte; none at the end of the connection."""
        return await self.connection.receive()

    async def aclose(self) -> None:
        """Close the connection at once."""
        self.connection.close()
        await trio.lowlevel.checkpoint()
