"""Listening and accepting connections, for all servers of an operator: errors end neither."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import trio

from trioperator.backoff import Backoff
from trioperator.logs import get_logger
from trioperator.web.endpoint import Endpoint, open_sockets

__all__ = ["accept_connections", "listen"]

# Tasks that accept connections. Each accepts one in a pass of Trio's scheduler, in which every other connection may do
# something, too: a single one does not keep up with many clients.
_ACCEPTORS: Final = 16

_RESTART: Final = Backoff(initial=1.0, maximum=60.0)


async def listen(endpoint: Endpoint, given: Sequence[socket.socket]) -> tuple[Endpoint, list[socket.socket]]:
    """Return copies of the given sockets; without any, listen."""
    return (endpoint, [sock.dup() for sock in given]) if given else await open_sockets(endpoint)


async def accept_connections(
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
