"""The sockets that an httpx transport opens for a request, closed if it fails.

httpcore leaves a socket open if it is cancelled between a connection and the request, as in a TLS handshake.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import trio

from trioperator._http.tls_connection import keep_alive


class OpenedSockets(contextlib.AbstractContextManager[None]):
    """The sockets of one request: leaving the context with an exception closes them."""

    def __init__(self) -> None:
        self._sockets: list[trio.socket.SocketType] = []

    async def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """See httpcore's extension ``trace``, by which a transport tells that it has connected.

        The kernel is to detect a dead peer: transports by a proxy do not pass on options of sockets.
        """
        if event == "connection.connect_tcp.complete":
            sock = info["return_value"].get_extra_info("socket")
            self._sockets.append(sock)
            keep_alive(sock)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            for sock in self._sockets:
                sock.close()
