"""Transports of servers whose objects have no uid, as those of some aggregated APIs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx


class WithoutUid(httpx.AsyncBaseTransport):
    """Rename the uids in all that the server sends of a resource."""

    def __init__(self, inner: httpx.AsyncBaseTransport, plural: str = "widgets") -> None:
        self._inner = inner
        self._plural = plural

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        if f"/{self._plural}" in request.url.path:
            assert isinstance(response.stream, httpx.AsyncByteStream)
            response.stream = _Renamed(response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Renamed(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream) -> None:
        self._inner = inner
        self._parts = aiter(inner)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        return (await anext(self._parts)).replace(b'"uid":', b'"was":')

    async def aclose(self) -> None:
        await self._inner.aclose()
