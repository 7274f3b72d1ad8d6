"""A web server in a test, and requests as bytes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

import trio
import trio.testing

from trioperator._http.endpoint import Endpoint, parse_endpoint
from trioperator._http.server import serve_app

ANYWHERE = parse_endpoint("http://127.0.0.1:0/")
GET = b"GET / HTTP/1.1\r\nHost: x\r\n"
CLOSE = b"Connection: close\r\n\r\n"


class App:
    """An application that responds with the path, except for ``/slow`` (never), ``/late`` and ``/broken``."""

    def __init__(self) -> None:
        self.asked = trio.Event()
        self.cancelled = False

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        self.asked.set()
        if scope["path"] == "/slow":
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                self.cancelled = True
                raise
        if scope["path"] == "/late":
            await trio.sleep(30)
        if scope["path"] == "/broken":
            raise ValueError("broken")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/large":
            for _ in range(1000):
                await send({"type": "http.response.body", "body": bytes(65_536), "more_body": True})
        await send({"type": "http.response.body", "body": scope["path"].encode()})


@contextlib.asynccontextmanager
async def serving(app: App | None = None, **options: Any) -> AsyncIterator[Endpoint]:
    """Serve the application in a nursery that no error may leave, and check at the end that it still responds."""
    async with trio.open_nursery() as nursery:
        endpoint: Endpoint = await nursery.start(functools.partial(serve_app, app or App(), ANYWHERE, **options))
        yield endpoint
        assert (await talk(endpoint, GET + CLOSE)).startswith(b"HTTP/1.1 200")
        nursery.cancel_scope.cancel(reason="the test")


async def talk(endpoint: Endpoint, data: bytes, *, eof: bool = False) -> bytes:
    """Send the bytes, and return what the server sends until it closes the connection."""
    received = b""
    with trio.fail_after(20):
        async with await trio.open_tcp_stream(endpoint.host, endpoint.port) as stream:
            with contextlib.suppress(trio.BrokenResourceError):
                await stream.send_all(data)
                if eof:
                    await stream.send_eof()
            with contextlib.suppress(trio.BrokenResourceError):
                while chunk := await stream.receive_some():
                    received += chunk
    return received
