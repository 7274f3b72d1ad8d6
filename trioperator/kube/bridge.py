"""httpx on both sides of the seam.

:class:`HttpxExchange` lets the client talk through any transport of httpx: one in memory, one with faults, one through
a proxy. :class:`PooledTransport` is the project's own transport with httpx's interface. This is the only module of
``kube`` that imports httpx: a program that needs neither does not pay for it.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx
import trio

from trioperator.errors import ConfigError
from trioperator.kube.connection import ConnectionInfo
from trioperator.kube.exchange import MAX_BODY, Exchange, Headers, Reply, TransportError
from trioperator.kube.tls import build_ssl_context, parse_server, read_material
from trioperator.kube.transport import HttpTransport, Origin

__all__ = ["HttpxExchange", "PooledTransport", "open_proxy_exchange"]

# The errors that httpx raises before the request is on its way.
_UNREACHED: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
# Seconds for letting go of a response when its reader is cancelled.
_FAREWELL: Final = 1.0


class HttpxExchange:
    """Carry requests over a transport of httpx. It is an :class:`Exchange`.

    The transport is closed with the exchange only where it is *owned*.
    """

    def __init__(
        self, transport: httpx.AsyncBaseTransport, *, origin: str, server_name: str | None = None, owned: bool = False
    ) -> None:
        self._transport = transport
        self._origin = httpx.URL(origin)
        # The same objects are asked for again and again, and taking a URL apart costs as much as sending it.
        self._url_of = functools.lru_cache(maxsize=1024)(self._make_url)
        self._server_name = server_name
        self._owned = owned

    async def send(
        self,
        method: str,
        target: str,
        *,
        headers: Headers,
        body: bytes | None = None,
        streaming: bool = False,
        connect_timeout: float | None = None,
    ) -> Reply:
        """Send a request, and give its reply when its head is there. See :class:`Exchange`."""
        extensions: dict[str, Any] = {
            "timeout": {"connect": connect_timeout, "read": None, "write": None, "pool": None}
        }
        if self._server_name:
            extensions["sni_hostname"] = self._server_name
        host = self._origin.netloc
        request = httpx.Request(
            method,
            self._url_of(target),
            headers=[(b"Host", host), *headers],
            content=body,
            extensions=extensions,
        )
        try:
            response = await self._transport.handle_async_request(request)
        except (httpx.TransportError, httpx.InvalidURL, OSError, trio.BrokenResourceError) as exc:
            raise self._error(exc, reached=not isinstance(exc, _UNREACHED)) from exc
        return _HttpxReply(self, response)

    def _make_url(self, target: str) -> httpx.URL:
        return self._origin.copy_with(raw_path=target.encode("ascii"))

    def retire(self) -> bool:
        """Do nothing: a transport of httpx looks after its connections itself."""
        return not self._owned

    async def aclose(self) -> None:
        """Close the transport where it is ours."""
        if self._owned:
            await self._transport.aclose()

    def _error(self, exc: Exception, *, reached: bool = True) -> TransportError:
        where = f"{self._origin.host}:{self._origin.port or ''}".rstrip(":")
        if isinstance(exc, TransportError):
            return exc
        return TransportError(f"{where}: {str(exc) or type(exc).__name__}", reached=reached)


class _HttpxReply:
    """A reply of httpx, read as it comes."""

    __slots__ = ("_exchange", "_parts", "_response", "headers", "repeated", "status")

    def __init__(self, exchange: HttpxExchange, response: httpx.Response) -> None:
        self._exchange = exchange
        self._response = response
        self._parts: AsyncIterator[bytes] | None = None
        self.status = response.status_code
        self.headers: Headers = response.headers.raw
        self.repeated = False  # httpx sends nothing twice by itself

    async def receive(self) -> bytes:
        if self._parts is None:
            stream = self._response.stream
            if not isinstance(stream, httpx.AsyncByteStream):
                raise TypeError(f"The transport's response has no asynchronous stream but {type(stream).__name__}.")
            self._parts = aiter(stream)
        try:
            while True:
                data = await anext(self._parts, None)
                if data is None:
                    await self._response.aclose()
                    return b""
                if data:
                    return data
        except (httpx.TransportError, httpx.StreamError, OSError, trio.BrokenResourceError) as exc:
            await self.aclose()
            raise self._exchange._error(exc) from exc

    async def read(self, limit: int = MAX_BODY) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            while data := await self.receive():
                parts.append(data)
                size += len(data)
                if size > limit:
                    raise TransportError(f"The response is bigger than {limit} bytes.", reached=True, final=True)
        except BaseException:
            await self.aclose()
            raise
        return b"".join(parts)

    async def aclose(self) -> None:
        with trio.move_on_after(_FAREWELL, shield=True):
            parts, self._parts = self._parts, None
            close = getattr(parts, "aclose", None)
            if close is not None:
                await close()
            await self._response.aclose()


def open_proxy_exchange(info: ConnectionInfo, proxy_url: str) -> HttpxExchange:
    """Give an exchange through a proxy, by httpx's own transport. Raises ConfigError."""
    server = parse_server(info.server)
    verify = build_ssl_context(read_material(info)) if server.scheme == "https" else False
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=25)
    try:
        transport = httpx.AsyncHTTPTransport(verify=verify, proxy=proxy_url, limits=limits, trust_env=False)
    except (ImportError, ValueError, httpx.InvalidURL) as exc:
        raise ConfigError(f"The proxy of {info.server} cannot be used: {exc}") from exc
    host = f"[{server.host}]" if ":" in server.host else server.host
    return HttpxExchange(
        transport,
        origin=f"{server.scheme}://{host}:{server.port}",
        server_name=info.tls_server_name,
        owned=True,
    )


class PooledTransport(httpx.AsyncBaseTransport):
    """Be the project's own transport for any client of httpx: to wrap it in a test, to use it elsewhere.

    It carries requests to the one server of *info*, whatever the host of their URL. It adds no credentials.
    Raises ConfigError.
    """

    def __init__(self, info: ConnectionInfo, *, max_connections: int = 100) -> None:
        server = parse_server(info.server)
        context = build_ssl_context(read_material(info)) if server.scheme == "https" else None
        origin = Origin(
            host=server.host, port=server.port, context=context, server_name=info.tls_server_name or server.host
        )
        self._exchange: Exchange = HttpTransport(origin, max_connections=max_connections)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; its response streams. Raises ``httpx.ConnectError`` or ``httpx.ReadError``."""
        timeout = request.extensions.get("timeout", {})
        skipped = (b"host", b"content-length", b"transfer-encoding")
        headers = [pair for pair in request.headers.raw if pair[0].lower() not in skipped]
        body = await request.aread()
        try:
            reply = await self._exchange.send(
                request.method,
                request.url.raw_path.decode("ascii"),
                headers=headers,
                body=body or None,
                streaming=bool(request.extensions.get("streaming")),
                connect_timeout=timeout.get("connect"),
            )
        except TransportError as exc:
            kind = httpx.ReadError if exc.reached else httpx.ConnectError
            raise kind(str(exc), request=request) from exc
        return httpx.Response(reply.status, headers=list(reply.headers), stream=_ReplyStream(reply), request=request)

    async def aclose(self) -> None:
        """Drop all connections."""
        await self._exchange.aclose()


class _ReplyStream(httpx.AsyncByteStream):
    """The body of a reply, as httpx wants it."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while data := await self._reply.receive():
                yield data
        except TransportError as exc:
            raise httpx.ReadError(str(exc)) from exc

    async def aclose(self) -> None:
        await self._reply.aclose()
