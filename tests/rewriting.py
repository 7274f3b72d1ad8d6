"""A transport that changes what a server sends, to what the embedded one would not store or send."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import httpx

WITHOUT_UIDS: Final = (b'"uid":', b'"was":')
"""Objects without a uid, as those of some aggregated APIs."""


class Rewriting(httpx.AsyncBaseTransport):
    """Replace some bytes in all responses of a resource, or of all: in each part of them by itself."""

    def __init__(self, inner: httpx.AsyncBaseTransport, replaced: tuple[bytes, bytes], *, plural: str = "") -> None:
        self._inner = inner
        self._replaced = replaced
        self._plural = plural

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        if f"/{self._plural}" not in request.url.path:
            return response
        headers = [(name, value) for name, value in response.headers.raw if name.lower() != b"content-length"]
        assert isinstance(response.stream, httpx.AsyncByteStream)
        return httpx.Response(response.status_code, headers=headers, stream=_Stream(response.stream, self._replaced))

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Stream(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, replaced: tuple[bytes, bytes]) -> None:
        self._inner = inner
        self._replaced = replaced
        self._parts = aiter(inner)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        return (await anext(self._parts)).replace(*self._replaced)

    async def aclose(self) -> None:
        await self._inner.aclose()
