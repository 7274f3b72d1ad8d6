"""What an etcd that is restored from a backup needs: a transport to one server after another, and data in memory."""

from __future__ import annotations

import httpx
import trio

from trioperator.apiserver.store.data_file import DataFile


class Switch(httpx.AsyncBaseTransport):
    """A transport to one server after another, or to none. What is *slow* is not answered, what is *expired* once."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.inner: httpx.AsyncBaseTransport | None = inner
        self.slow: str | None = None
        self.expired: str | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == self.slow:
            await trio.sleep_forever()
        if request.url.path == self.expired and "watch" in request.url.params:
            self.expired = None
            return httpx.Response(410, json={"code": 410})
        if self.inner is None:
            raise httpx.ConnectError("down", request=request)
        return await self.inner.handle_async_request(request)


class Memory(DataFile):
    """A data file in memory: writes to a real one take no virtual time, and end in the future."""

    def __init__(self) -> None:
        super().__init__("")

    async def flush(self) -> None:
        await trio.lowlevel.checkpoint()

    def copy(self) -> Memory:
        other = Memory()
        other.objects, other.facts, other.revision = {**self.objects}, {**self.facts}, self.revision
        return other
