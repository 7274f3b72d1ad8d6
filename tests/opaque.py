"""A transport to a server whose resource versions are no numbers, as they need not be in Kubernetes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx


class OpaqueTransport(httpx.AsyncBaseTransport):
    """Transport in which the versions of the inner one have letters around them."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request with the server's own versions, and return the response with those that are shown."""
        url = request.url
        if version := url.params.get("resourceVersion"):
            url = url.copy_set_param("resourceVersion", version.strip("vx"))
        body = re.sub(rb'"v(\d+)x"', rb'"\1"', await request.aread())
        sent = httpx.Request(request.method, url, headers=_without_length(request.headers), content=body)
        response = await self._inner.handle_async_request(sent)
        if "watch" in url.params and response.status_code == 200:
            assert isinstance(response.stream, httpx.AsyncByteStream)
            response.stream = _Stream(response.stream)
            return response
        content, headers = _show(await response.aread()), _without_length(response.headers)
        return httpx.Response(response.status_code, headers=headers, content=content)

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._inner.aclose()


class _Stream(httpx.AsyncByteStream):
    """The stream of a watch, with such versions."""

    def __init__(self, inner: httpx.AsyncByteStream) -> None:
        self._inner = inner
        self._chunks = inner.__aiter__()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        return _show(await anext(self._chunks))

    async def aclose(self) -> None:
        await self._inner.aclose()


def _show(text: bytes) -> bytes:
    return re.sub(rb'"resourceVersion":\s*"(\d+)"', rb'"resourceVersion":"v\1x"', text)


def _without_length(headers: httpx.Headers) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name != "content-length"}
