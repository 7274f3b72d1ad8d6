"""Listening and accepting connections, for all servers of an operator. Both survive errors."""

from __future__ import annotations

import contextlib
import logging
import resource
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import trio

from trioperator._concurrency.backoff import Backoff
from trioperator._http.endpoint import Endpoint, open_sockets
from trioperator._logs import get_logger

# Tasks that accept connections. Each accepts one in a pass of Trio's scheduler, in which every other connection may do
# something, too: a single one does not keep up with many clients.
_ACCEPTORS: Final = 16

_RESTART: Final = Backoff(initial=1.0, maximum=60.0)

# Files that are left to everything else: connections to the API server and of handlers, pipes, libraries.
_RESERVED: Final = 256
# Files that nobody needs more of, where the system would allow millions.
_MAX_FILES: Final = 65_536
# Connections of a server, at least.
_MIN_CONNECTIONS: Final = 16
# Seconds between two messages about connections that cannot be accepted.
_QUIET: Final = 60.0


def raise_file_limit() -> None:
    """Let this process open as many files as the system allows it, as programs in Go do: 1,024 is a usual limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit_connections(wanted: int, *, share: float) -> int:
    """Return how many connections a server may have, by its *share* of the files that the process may open.

    Whatever comes to one server, the others can accept connections, and the operator reaches the API server.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, max(_MIN_CONNECTIONS, int((soft - _RESERVED) * share)))


class _Sparing(logging.Filter):
    """Filter of Trio's messages about connections that cannot be accepted: one a minute, in one line."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = None
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + _QUIET
        return True


_sparing: Final = _Sparing()


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
    logger = get_logger("trioperator.http.listener")
    logging.getLogger("trio.serve_listeners").addFilter(_sparing)  # which is there once
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
