"""A client for figures of the embedded API server: bytes over Trio's sockets, responses read and hardly parsed.

It has to be several times cheaper than the server, or it would be what is measured.
"""

from __future__ import annotations

import json
import pathlib
import re
import time
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit

import trio

from tests.bench.api import Target, load_target

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
STAMP = re.compile(rb'"stamp":"(\d+)"')


class Wire:
    """One connection."""

    def __init__(self, stream: trio.abc.Stream, target: Target) -> None:
        self._stream = stream
        host = urlsplit(target.url).netloc
        self._head = f"Host: {host}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in target.headers.items())
        self._rest = b""

    async def send(self, method: str, path: str, body: bytes = b"", *, content_type: str = "application/json") -> None:
        """Send a request."""
        head = f"{method} {path} HTTP/1.1\r\n{self._head}"
        if body:
            head += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        await self._stream.send_all(f"{head}\r\n".encode() + body)

    async def request(
        self, method: str, path: str, body: bytes = b"", *, content_type: str = "application/json"
    ) -> bytes:
        """Send a request, and return the content of the response, which must be a success."""
        await self.send(method, path, body, content_type=content_type)
        head = await self.read_head()
        found = _LENGTH.search(head)
        assert found is not None, head
        content, size = self._rest, int(found[1])
        parts, missing = [content], size - len(content)
        while missing > 0:
            data = await self._receive()
            parts.append(data)
            missing -= len(data)
        content = b"".join(parts)
        self._rest = content[size:]
        return content[:size]

    async def read_head(self) -> bytes:
        """Read the head of a response."""
        while b"\r\n\r\n" not in self._rest:
            self._rest += await self._receive()
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 2"), head + self._rest
        return head

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield chunks of data as they arrive."""
        if self._rest:
            yield self._rest
        while True:
            yield await self._receive()

    async def _receive(self) -> bytes:
        data = bytes(await self._stream.receive_some(1_048_576))
        assert data, "the server has closed the connection"
        return data


async def open_wire(kubeconfig: pathlib.Path) -> Wire:
    """Connect to the server of the kubeconfig."""
    target = load_target(kubeconfig)
    address = urlsplit(target.url)
    assert address.hostname is not None
    assert address.port is not None
    stream: trio.abc.Stream = await trio.open_tcp_stream(address.hostname, address.port)
    if target.tls is not None:
        stream = trio.SSLStream(stream, target.tls, server_hostname=address.hostname, https_compatible=True)
    return Wire(stream, target)


async def watch_stamps(kubeconfig: pathlib.Path, path: str, *, watchers: int, events: int) -> None:
    """Watch over so many connections until each has had so many events; report when all are open, and print delays.

    Events are identified by their stamp: the monotonic time, in nanoseconds, at which the change was sent.
    """
    delays: list[int] = []
    ready: list[Callable[[], None]] = []

    async def follow() -> None:
        wire = await open_wire(kubeconfig)
        await wire.send("GET", path)
        await wire.read_head()
        ready.append(lambda: None)
        if len(ready) == watchers:
            print("ready", flush=True)
        seen, rest = 0, b""
        async for chunk in wire.chunks():
            now = time.monotonic_ns()
            content = rest + chunk
            end = content.rfind(b"\n")
            rest = content[end:]
            stamps = STAMP.findall(content, 0, end)
            delays.extend([now - int(stamp) for stamp in stamps])
            seen += len(stamps)
            if seen >= events:
                return

    async with trio.open_nursery() as nursery:
        for _ in range(watchers):
            nursery.start_soon(follow)
    print(json.dumps({"ended": time.monotonic_ns(), "delays": delays}))
