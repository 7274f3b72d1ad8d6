"""The watches of an operator in a play: which of them say anything, and what is missed while they are cut."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator

import httpx
import trio

from trioperator.testing.plans import describe_request, is_watch
from trioperator.testing.rights import handler_at_work


class WatchTransport(httpx.AsyncBaseTransport):
    """Transport of watches without bookmarks: in the hours of a play, they would be most of what happens.

    While *is_cut* is true, the operator sees nothing: watches break with their next event, and are not opened again.
    Writes, and what handlers read themselves, go through.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport, heard: set[str]) -> None:
        self._inner = inner
        self.heard = heard  # resources whose watches have said anything
        self.is_cut = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and return the response."""
        is_own = handler_at_work.get() is None
        if self.is_cut and is_own and request.method == "GET":
            await trio.lowlevel.checkpoint()
            raise httpx.ConnectError("Nothing can be read.", request=request)
        if b"allowWatchBookmarks" in request.url.query:
            request.url = _without_bookmarks(request.url)
        response = await self._inner.handle_async_request(request)
        if is_watch(request) and is_own and response.status_code == 200:
            assert isinstance(response.stream, httpx.AsyncByteStream)
            response.stream = _WatchStream(response.stream, self, describe_request(request).resource or "")
        return response

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._inner.aclose()


@functools.lru_cache(maxsize=256)  # parsing one takes longer than what is done in a play for it
def _without_bookmarks(url: httpx.URL) -> httpx.URL:
    return url.copy_remove_param("allowWatchBookmarks")


class _WatchStream(httpx.AsyncByteStream):
    """Events of a watch, until the transport is cut."""

    def __init__(self, inner: httpx.AsyncByteStream, transport: WatchTransport, resource: str) -> None:
        self._inner = inner
        self._transport = transport
        self._resource = resource

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            if self._transport.is_cut:
                raise httpx.ReadError("The watch is cut.")
            self._transport.heard.add(self._resource)
            yield chunk

    async def aclose(self) -> None:
        """Close the inner stream."""
        await self._inner.aclose()
