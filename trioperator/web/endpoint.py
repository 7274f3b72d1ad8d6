"""Endpoints to listen on: how they are written, and their sockets. It imports no web framework."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import urllib.parse

import trio

from trioperator.errors import ConfigError

__all__ = ["Endpoint", "open_sockets", "parse_endpoint"]

_BACKLOG = 100


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Say where to listen. Port 0 is any that is free."""

    host: str
    port: int
    path: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self.path}"


def parse_endpoint(url: str) -> Endpoint:
    """Read an endpoint such as ``http://0.0.0.0:8080/healthz``.

    The host is ``localhost``, the port 80 and the path ``/`` where they are missing. Raises ConfigError for what cannot
    be served.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"The endpoint {url!r} is no URL: {error}.") from None
    if parts.scheme != "http":
        raise ConfigError(f"The endpoint {url!r} has to begin with http://: nothing else can be served.")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigError(f"The endpoint {url!r} may have a host, a port and a path, and nothing else.")
    return Endpoint(host=host or "localhost", port=80 if port is None else port, path=parts.path or "/")


async def open_sockets(endpoint: Endpoint) -> tuple[Endpoint, list[socket.socket]]:
    """Listen at all addresses of the endpoint's host, and tell which port it is.

    The sockets are the caller's. Raises ConfigError where that is not possible.
    """
    port = endpoint.port
    try:
        addresses = await trio.socket.getaddrinfo(endpoint.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigError(f"Cannot listen on {endpoint}: the host is not known ({error}).") from None
    sockets: list[socket.socket] = []
    problem: OSError | None = None
    for family, kind, protocol, _, address in addresses:
        try:
            sock = _listen(family, kind, protocol, (address[0], port, *address[2:]))
        except OSError as error:  # one of the families may not be there: it takes one that is
            problem = error
            continue
        sockets.append(sock)
        port = sock.getsockname()[1]
    if not sockets:
        raise ConfigError(f"Cannot listen on {endpoint}: {problem.strerror if problem else 'it has no address'}.")
    return dataclasses.replace(endpoint, port=port), sockets


def _listen(family: int, kind: int, protocol: int, address: tuple[int | str, ...]) -> socket.socket:
    with contextlib.ExitStack() as stack:
        sock = stack.enter_context(socket.socket(family, kind, protocol))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:  # IPv4 has a socket of its own
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
        stack.pop_all()
        return sock
