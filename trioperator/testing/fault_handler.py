"""Fault injection in the server, for clients in other processes and languages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import urlencode

import httpx
import trio

from trioperator.apiserver.model.messages import Handler, Request, Response, Stream

from .plans import FaultPlan
from .transport import FaultyTransport

_STALL: Final = 600.0  # seconds after which a connection that got no response is dropped
_OWN_HEADERS: Final = frozenset({"content-type", "content-length"})


class FaultHandler:
    """Handler of an API server that injects the faults of the plan into the responses of another handler.

    Faults that break a connection drop it: a refused connection looks to the client like one that was reset.
    """

    def __init__(self, handler: Handler, plan: FaultPlan) -> None:
        self.body_limit = handler.body_limit
        self._handler = handler
        self._plan = plan
        self._transport: FaultyTransport | None = None  # it remembers responses while there are faults

    async def aclose(self) -> None:
        """Close what the other handler has open."""
        await self._handler.aclose()

    async def handle(self, request: Request) -> Response:
        """Return the response. Raises BrokenResourceError to drop the connection."""
        if not self._plan.rules:
            self._transport = None
            return await self._handler.handle(request)
        if self._transport is None:
            self._transport = FaultyTransport(_HandlerTransport(self._handler), self._plan)
        query = f"?{urlencode(request.query)}" if request.query else ""
        try:
            sent = httpx.Request(request.method, f"http://cluster{request.path}{query}")
        except httpx.InvalidURL:
            return await self._handler.handle(request)
        sent.extensions = {"request": request, "timeout": {"read": _STALL}}
        try:
            return await _read(await self._transport.handle_async_request(sent))
        except httpx.TransportError as error:
            raise trio.BrokenResourceError from error


async def _read(received: httpx.Response) -> Response:
    headers = [(name, value) for name, value in received.headers.items() if name not in _OWN_HEADERS]
    content_type = received.headers.get("content-type", "application/json")
    if isinstance(received.stream, httpx.ByteStream):
        return Response(received.status_code, await received.aread(), content_type, headers)
    assert isinstance(received.stream, httpx.AsyncByteStream)
    return Response(received.status_code, _Chunks(received.stream), content_type, headers)


class _HandlerTransport(httpx.AsyncBaseTransport):
    """Transport to a handler, by requests that carry the handler's."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._handler.handle(request.extensions["request"])
        headers = [("Content-Type", response.content_type), *response.headers]
        body = response.body
        stream = httpx.ByteStream(body) if isinstance(body, bytes) else _Watch(body)
        return httpx.Response(response.status, headers=headers, stream=stream)


class _Watch(httpx.AsyncByteStream):
    """Response stream of a watch for httpx."""

    def __init__(self, watch: Stream) -> None:
        self._watch = watch

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if (chunk := await self._watch.receive()) is None:
            raise StopAsyncIteration
        return chunk


class _Chunks:
    """Stream of a response for a handler, from httpx."""

    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._chunks = aiter(stream)

    async def receive(self) -> bytes | None:
        """Return the next chunk, or None at the end. Raises BrokenResourceError to drop the connection."""
        try:
            return await anext(self._chunks, None)
        except httpx.TransportError as error:
            raise trio.BrokenResourceError from error
