"""An in-memory httpx transport to the API, which streams watches.

It has no threads, sockets or tasks: only Trio waits, so that a mock clock can jump.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import parse_qsl

import httpx
import trio

from ..model.messages import IMPERSONATION, Handler, Request, Stream
from ..model.user import ADMIN, User


class MemoryTransport(httpx.AsyncBaseTransport):
    """Transport of httpx to an API in the same process.

    Requests without credentials come from *user*. httpx's read timeout applies to each chunk of a watch, on Trio's
    clock.
    """

    def __init__(self, handler: Handler, user: User = ADMIN) -> None:
        self._handler = handler
        self._user = user

    async def aclose(self) -> None:
        """Close idle connections to webhooks."""
        await self._handler.aclose()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Return the response; a watch lasts until its response is closed."""
        body = await request.aread()
        await trio.lowlevel.checkpoint()
        if (trace := request.extensions.get("trace")) is not None:  # as httpx's own transports do it
            await trace("memory.send_request_headers.started", {"request": request})
        headers = dict(request.headers.items())  # as each lookup in httpx's goes through all of them
        raw_path = request.url.raw_path.decode("ascii")
        path, _, query = raw_path.partition("?")
        response = await self._handler.handle(
            Request(
                method=request.method,
                path=path,
                query=dict(parse_qsl(query, keep_blank_values=True)) if query else {},
                accept=headers.get("accept", ""),
                if_none_match=headers.get("if-none-match", ""),
                content_type=headers.get("content-type", ""),
                user_agent=headers.get("user-agent", ""),
                authorization=headers.get("authorization", ""),
                user=self._user,
                impersonation=_impersonation(request.headers),
                body=body,
            )
        )
        pairs = [("Content-Type", response.content_type), *response.headers]
        answer = [(name.encode(), " ".join(value.split()).encode()) for name, value in pairs]
        if not isinstance(response.body, bytes):
            timeout = (request.extensions.get("timeout") or {}).get("read")
            return httpx.Response(response.status, headers=answer, stream=_WatchStream(response.body, timeout))
        content = b"" if request.method == "HEAD" else response.body
        answer.append((b"Content-Length", b"%d" % len(content)))
        return httpx.Response(response.status, headers=answer, stream=httpx.ByteStream(content))


def _impersonation(headers: httpx.Headers) -> list[tuple[str, str]]:
    return [
        (name.lower().decode("latin-1"), value.decode("latin-1"))
        for name, value in headers.raw
        if name.lower().startswith(IMPERSONATION)
    ]


class _WatchStream(httpx.AsyncByteStream):
    """Response stream of a watch."""

    def __init__(self, watch: Stream, timeout: float | None) -> None:
        self._watch = watch
        self._timeout = timeout
        self._is_closed = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._is_closed:
            raise StopAsyncIteration
        chunk = await self._watch.receive() if self._timeout is None else await self._receive_within(self._timeout)
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    async def _receive_within(self, seconds: float) -> bytes | None:
        with trio.move_on_after(seconds):
            return await self._watch.receive()
        raise httpx.ReadTimeout("No data from the watch within the read timeout.")

    async def aclose(self) -> None:
        """End the watch."""
        self._is_closed = True
