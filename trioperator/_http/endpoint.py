"""Endpoints to listen on: their URLs and their sockets. Imports no web framework."""

from __future__ import annotations

import contextlib
import functools
import socket
import urllib.parse
from typing import Any

import msgspec
import trio

from trioperator._concurrency.threads import run_in_thread
from trioperator._model.urls import mask_userinfo
from trioperator.errors import ConfigError

_BACKLOG = 1024


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Host, port and path to listen on. Port 0 is any free port."""

    host: str
    port: int
    path: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self.path}"

    def find_base(self, *paths: str) -> str:
        """Return the path below which *paths* are served. It may end with one of them, as if the URL were theirs."""
        base = self.path.rstrip("/")
        return next((base.removesuffix(path) for path in paths if base.endswith(path)), base)


def parse_endpoint(url: str) -> Endpoint:
    """Parse an endpoint such as ``http://0.0.0.0:8080/healthz``.

    Defaults: host ``localhost``, port 80, path ``/``. Raises ConfigError for any other kind of URL.
    """
    shown = repr(mask_userinfo(url))
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"The endpoint {shown} is not a valid URL{'' if '@' in url else f': {error}'}.") from None
    if parts.scheme != "http":
        raise ConfigError(f"The endpoint {shown} must start with http://, the only supported scheme.")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigError(f"The endpoint {shown} must consist of a host, a port and a path only.")
    return Endpoint(host=host or "localhost", port=80 if port is None else port, path=parts.path or "/")


async def open_sockets(endpoint: Endpoint) -> tuple[Endpoint, list[socket.socket]]:
    """Listen on all addresses of the endpoint's host; return the endpoint with its actual port, and the sockets.

    The caller closes the sockets. Raises ConfigError if none can be opened.
    """
    port = endpoint.port
    try:
        addresses = await _look_up(endpoint.host, port)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"Cannot listen on port {port} of {endpoint.host}: unknown host ({error}).") from None
    sockets: list[socket.socket] = []
    problem: OSError | None = None
    for family, kind, protocol, _, address in addresses:
        try:
            sock = _listen(family, kind, protocol, (address[0], port, *address[2:]))
        except OSError as error:  # IPv4 or IPv6 may be unavailable: one of them is enough
            problem = error
            continue
        sockets.append(sock)
        port = sock.getsockname()[1]
    if not sockets:
        why = problem.strerror if problem else "the host has no address"
        raise ConfigError(f"Cannot listen on port {port} of {endpoint.host}: {why}.")
    return msgspec.structs.replace(endpoint, port=port), sockets


async def _look_up(host: str, port: int) -> list[tuple[Any, ...]]:
    """Return the addresses of a host, as ``socket.getaddrinfo()`` does. Names are looked up in a thread.

    Tests observe that thread. They do not observe that of Trio's own function: a mock clock would jump while it works.
    """
    find = functools.partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        return find(flags=socket.AI_PASSIVE | socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):  # it is a name
        return await run_in_thread(lambda: find(flags=socket.AI_PASSIVE), limiter=trio.CapacityLimiter(1))


def _listen(family: int, kind: int, protocol: int, address: tuple[int | str, ...]) -> socket.socket:
    with contextlib.ExitStack() as stack:
        sock = stack.enter_context(socket.socket(family, kind, protocol))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:  # IPv4 has its own socket
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
        stack.pop_all()
        return sock
