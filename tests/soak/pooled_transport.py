"""The operator's own HTTP transport with the interface of httpx."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator

import httpx

from trioperator._http.connection_pool import ConnectionPool, Origin
from trioperator._http.transport import Request, Response, TransportError
from trioperator._kube.connection_info import ConnectionInfo, parse_server_url
from trioperator._kube.retry import is_repeatable
from trioperator._kube.tls_config import build_ssl_context, read_tls_config


class PooledTransport(httpx.AsyncBaseTransport):
    """An httpx transport over the operator's own connection pool, to be wrapped with faults or used by httpx clients.

    All requests go to the server of *info*, whatever the host of their URL, without its credentials. Raises
    ConfigError.
    """

    def __init__(self, info: ConnectionInfo, *, max_connections: int = 100) -> None:
        server = parse_server_url(info.server)
        context = build_ssl_context(read_tls_config(info)) if server.scheme == "https" else None
        origin = Origin(
            host=server.host, port=server.port, context=context, server_name=info.tls_server_name or server.host
        )
        self._pool = ConnectionPool(origin, max_connections=lambda: max_connections)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return a streaming response. Raises ``httpx.ConnectError`` or ``httpx.ReadError``."""
        timeout = request.extensions.get("timeout", {})
        skipped = (b"host", b"content-length", b"transfer-encoding")
        headers = [pair for pair in request.headers.raw if pair[0].lower() not in skipped]
        body = await request.aread()
        try:
            target = request.url.raw_path.decode("ascii")
            content_type = request.headers.get("content-type")
            response = await self._pool.send(
                Request(
                    request.method,
                    target,
                    headers,
                    body or None,
                    functools.partial(is_repeatable, request.method, content_type, body),
                ),
                streaming=bool(request.extensions.get("streaming")),
                connect_timeout=timeout.get("connect"),
            )
        except TransportError as exc:
            kind = httpx.ReadError if exc.reached else httpx.ConnectError
            raise kind(str(exc), request=request) from exc
        return httpx.Response(
            response.status, headers=list(response.headers), stream=_ResponseStream(response), request=request
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


class _ResponseStream(httpx.AsyncByteStream):
    """The body of a response as an httpx stream."""

    def __init__(self, response: Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while data := await self._response.receive():
                yield data
        except TransportError as exc:
            raise httpx.ReadError(str(exc)) from exc

    async def aclose(self) -> None:
        await self._response.aclose()
