"""A stand-in for etcd: it answers health checks and stores nothing.

Test environments start an etcd, wait until it is healthy, and pass its URL to their API server, which keeps its objects
in its own memory here. This file is run as a script, with the standard library only, so that it starts in no time.
"""

from __future__ import annotations

import json
import select
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Final

_FLAG: Final = "listen-client-urls"
_DEFAULT: Final = "http://localhost:2379"
_CLIENT_TIMEOUT: Final = 1.0  # seconds, for a request: one client is served after another
_VERSION: Final = "3.6.0"
_BODIES: Final = {
    "/health": json.dumps({"health": "true", "reason": ""}),
    "/version": json.dumps({"etcdserver": _VERSION, "etcdcluster": _VERSION}),
    **dict.fromkeys(("/livez", "/readyz", "/healthz"), "ok\n"),
}


def find_addresses(args: Sequence[str]) -> list[tuple[str, int]]:
    """Return the hosts and ports of the last ``--listen-client-urls``; other flags are ignored."""
    urls = _DEFAULT
    for arg, following in zip(args, [*args, ""][1:], strict=True):
        name, equals, value = arg.lstrip("-").partition("=")
        if name == _FLAG:
            urls = value if equals else following
    found = [url.partition("://")[2].rstrip("/").rpartition(":") for url in urls.split(",")]
    return [(host.strip("[]"), int(port)) for host, _, port in found]


def answer(request: bytes) -> bytes:
    """Return the response to a request, which depends only on the path."""
    words = request.decode("latin-1").split(" ", 2)
    body = _BODIES.get(words[1].partition("?")[0]) if len(words) > 1 else None
    status = "404 Not Found" if body is None else "200 OK"
    content = (body or "404 page not found\n").encode()
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    return head.encode() + content


def main(args: Sequence[str]) -> None:
    """Answer on all addresses until SIGTERM or SIGINT."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit())
    try:
        listeners = [_listen(host, port) for host, port in find_addresses(args)]
    except (OSError, ValueError) as error:
        sys.exit(f"etcd: cannot listen on the URLs of --{_FLAG}: {error}.")
    while True:
        for listener in select.select(listeners, [], [])[0]:
            _serve(listener)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


def _serve(listener: socket.socket) -> None:
    try:
        client, _ = listener.accept()
        with client:
            client.settimeout(_CLIENT_TIMEOUT)
            client.sendall(answer(client.recv(65_536)))
    except OSError:  # a client that has gone, or is too slow
        return


if __name__ == "__main__":
    main(sys.argv[1:])
