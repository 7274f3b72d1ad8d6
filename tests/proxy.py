"""A proxy between operators and their API server."""

from __future__ import annotations

import contextlib
import pathlib
import re
import select
import socket
import threading
from collections.abc import Iterator
from typing import Any

import yaml


class Proxy:
    """A TCP proxy in front of the API server, whose connections can be cut.

    ``received`` is how many bytes have come from the server.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.received = 0
        self._servers: set[socket.socket] = set()
        self._is_cut = self._is_closed = self._is_stalling = False
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def cut(self) -> None:
        """Let nothing pass any more. Connections stay open: nobody is told."""
        self._is_cut = True

    def stall(self) -> None:
        """Let nothing pass any more through the connections that are open. They stay so, and new ones are let pass."""
        self._is_stalling = True

    def mend(self) -> None:
        """Let new connections pass; those that were cut are reset."""
        self._is_cut = False

    def close(self) -> None:
        self._is_closed = True
        self._thread.join()

    def _serve(self) -> None:
        peers: dict[socket.socket, socket.socket] = {}
        dead: set[socket.socket] = set()
        stalled: set[socket.socket] = set()
        with self._listener:
            while not self._is_closed:
                if self._is_cut:
                    dead |= peers.keys()
                elif dead:
                    for one in dead:
                        one.close()
                        peers.pop(one, None)
                    dead.clear()
                if self._is_stalling:
                    stalled |= peers.keys()
                    self._is_stalling = False
                sources = [one for one in peers if one not in dead | stalled]
                readable, _, _ = select.select([*sources, *([] if self._is_cut else [self._listener])], [], [], 0.05)
                for source in readable:
                    if source is self._listener:
                        self._accept(peers)
                    elif source in peers:
                        self._pass_on(source, peers)
        for one in peers:
            one.close()

    def _accept(self, peers: dict[socket.socket, socket.socket]) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection(self._target)
        peers[client], peers[server] = server, client
        self._servers.add(server)

    def _pass_on(self, source: socket.socket, peers: dict[socket.socket, socket.socket]) -> None:
        try:
            data = source.recv(65536)
            if data:
                self.received += len(data) if source in self._servers else 0
                peers[source].sendall(data)
                return
        except OSError:
            pass
        other = peers.pop(source)
        peers.pop(other, None)
        self._servers -= {source, other}
        source.close()
        other.close()


@contextlib.contextmanager
def open_proxy(kubeconfig: pathlib.Path, path: pathlib.Path) -> Iterator[Proxy]:
    """Run a proxy in front of the API server of a kubeconfig, and write at *path* the kubeconfig of its users."""
    config: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    host, port = re.fullmatch(r"https://([^:/]+):(\d+)/?", cluster["server"]).groups()  # type: ignore[union-attr]
    proxy = Proxy(host, int(port))
    cluster["server"] = f"https://{host}:{proxy.port}"
    path.write_text(yaml.safe_dump(config))
    try:
        yield proxy
    finally:
        proxy.close()
