"""Clocks of API servers that differ from that of the operator."""

from __future__ import annotations

import datetime
import re

import httpx


class SkewedTransport(httpx.AsyncBaseTransport):
    """A transport of a machine whose clock is wrong: what it writes about times is."""

    def __init__(self, inner: httpx.AsyncBaseTransport, skew: float) -> None:
        self.inner = inner
        self.skew = datetime.timedelta(seconds=skew)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        def shift(found: re.Match[str]) -> str:
            time = datetime.datetime.fromisoformat(found[2]) + self.skew
            return f'"{found[1]}":"{time:%Y-%m-%dT%H:%M:%S.%f}Z"'

        if request.method in ("POST", "PUT"):
            body = re.sub(r'"(renewTime|acquireTime)":"([^"]+)"', shift, request.content.decode())
            headers = {key: value for key, value in request.headers.items() if key.lower() != "content-length"}
            request = httpx.Request(request.method, request.url, headers=headers, content=body.encode())
        return await self.inner.handle_async_request(request)
