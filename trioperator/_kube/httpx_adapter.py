"""An adapter that lets the client use any httpx transport: in memory, with injected faults, or through a proxy.

This is the only module of ``kube`` that imports httpx, and it is imported only when needed: httpx takes 8 MiB.
"""

from __future__ import annotations

import contextlib
import functools
import math
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import httpx
import trio

from trioperator._http.opened_sockets import OpenedSockets
from trioperator._http.tls_connection import describe_error
from trioperator._http.transport import CONNECT_TIMEOUT, BodyTooLargeError, Headers, Request, Response, TransportError
from trioperator._kube.connection_info import ConnectionInfo, parse_server_url
from trioperator._model.urls import mask_userinfo
from trioperator.errors import ConfigError

# Errors that httpx raises before it sends the request.
_NOT_REACHED: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
# Seconds for closing a response when its reader is cancelled, and connections that are no longer used.
_CLOSE_TIMEOUT: Final = 1.0
_UNLIMITED: Final = contextlib.nullcontext()


class _Progress:
    """What httpcore tells of a request: when it has connected, and when it sends the request, before which *check* is
    called. From then on ``is_sent`` is set, and the scope ``connecting`` has no deadline.
    """

    def __init__(self, check: Callable[[], None] | None) -> None:
        self.is_sent = False
        self.connecting = trio.CancelScope()
        self.sockets = OpenedSockets()
        self._check = check

    async def trace(self, event: str, info: dict[str, Any]) -> None:
        """See httpcore's extension ``trace``. A request to a proxy for a tunnel is not yet the request."""
        if event.endswith(".send_request_headers.started") and info["request"].method != b"CONNECT":
            self.connecting.deadline = math.inf
            if self._check is not None:
                self._check()
            self.is_sent = True
        await self.sockets.trace(event, info)


class HttpxTransport:
    """A :class:`Transport` over an httpx transport, which is closed with it only if it is *owned*.

    *route* is what errors add to the server's address.
    """

    def __init__(
        self, transport: httpx.AsyncBaseTransport, *, origin: str, owned: bool = False, route: str = ""
    ) -> None:
        self._transport = transport
        self._route = route
        self._origin = httpx.URL(origin)
        self._base = origin
        self._owned = owned
        self._open = 0  # requests without a response, and responses that have not ended

    async def send(
        self,
        request: Request,
        *,
        streaming: bool = False,
        connect_timeout: float | None = None,
        check: Callable[[], None] | None = None,
    ) -> Response:
        """See :meth:`Transport.send`. Only a transport that is owned is known to tell when it has a connection."""
        seconds = CONNECT_TIMEOUT if connect_timeout is None else connect_timeout
        progress = _Progress(check)
        if check is not None:
            check()
        headers = [(b"Host", self._origin.netloc), *request.headers]
        url = _make_url(self._base, request.target)
        timeout = {"connect": connect_timeout, "read": None, "write": None, "pool": None}
        extensions = {"timeout": timeout, "trace": progress.trace}
        sent = httpx.Request(request.method, url, headers=headers, content=request.body, extensions=extensions)
        self._open += 1
        try:
            if self._owned:
                progress.connecting.deadline = trio.current_time() + seconds
            with progress.connecting if self._owned else _UNLIMITED, progress.sockets:
                return _HttpxResponse(self, await self._transport.handle_async_request(sent))
            raise httpx.ConnectTimeout(f"no connection within {seconds:g} s")
        except BaseException as exc:
            self.release()
            if isinstance(exc, httpx.TransportError | httpx.InvalidURL | OSError | trio.BrokenResourceError):
                reached = progress.is_sent if self._owned else not isinstance(exc, _NOT_REACHED)
                raise self._error(exc, reached=reached) from exc
            raise

    async def fetch(
        self,
        request: Request,
        *,
        limit: int,
        timeout: float,
        connect_timeout: float | None = None,
        check: Callable[[], None] | None = None,
    ) -> tuple[Response, bytes] | None:
        """See :meth:`Transport.fetch`."""
        with trio.move_on_after(timeout):
            response = await self.send(request, connect_timeout=connect_timeout, check=check)
            return response, await response.read(limit)
        return None

    @property
    def reserved(self) -> HttpxTransport:
        """The transport itself: httpx's have as many connections as there are requests."""
        return self

    def release(self) -> None:
        """Note that a request has failed, or its response has ended."""
        self._open -= 1

    async def retire(self) -> bool:
        """Close the transport if it is owned, unless responses are in progress: httpx closes no idle connections."""
        if self._open and self._owned:
            return False
        with trio.move_on_after(_CLOSE_TIMEOUT, shield=True):
            await self.aclose()
        return True

    async def aclose(self) -> None:
        """Close the transport if it is owned."""
        if self._owned:
            await self._transport.aclose()

    def _error(self, exc: Exception, *, reached: bool = True) -> TransportError:
        where = f"{self._origin.host}:{self._origin.port or ''}".rstrip(":") + self._route
        if isinstance(exc, TransportError):
            return exc
        if (failure := _find_tls_error(exc)) is not None:
            final = isinstance(failure, ssl.SSLCertVerificationError)
            return TransportError(f"{where}: {describe_error(failure)}", reached=reached, final=final)
        return TransportError(f"{where}: {str(exc) or type(exc).__name__}", reached=reached)


@functools.lru_cache(maxsize=1024)
def _make_url(origin: str, target: str) -> httpx.URL:
    """Return a URL. The same ones are requested repeatedly, and parsing one costs as much as sending the request."""
    return httpx.URL(origin).copy_with(raw_path=target.encode("ascii"))


def _find_tls_error(exc: BaseException | None) -> ssl.SSLError | None:
    """Return the error of TLS that has led to an error of httpx, which does not say what is wrong."""
    while exc is not None and not isinstance(exc, ssl.SSLError):
        exc = exc.__cause__ or exc.__context__
    return exc


class _HttpxResponse:
    """An httpx response, read as it arrives."""

    __slots__ = ("_adapter", "_has_ended", "_is_interrupted", "_parts", "_response", "headers", "repeated", "status")

    def __init__(self, transport: HttpxTransport, response: httpx.Response) -> None:
        self._adapter = transport
        self._response = response
        self._parts: AsyncIterator[bytes] | None = None
        self._is_interrupted = self._has_ended = False
        self.status = response.status_code
        self.headers: Headers = response.headers.raw
        self.repeated = False  # httpx sends nothing twice on its own

    async def receive(self, until: float = float("inf")) -> bytes:
        with trio.fail_at(until):
            return await self._receive()

    async def _receive(self) -> bytes:
        if self._parts is None:
            stream = self._response.stream
            if not isinstance(stream, httpx.AsyncByteStream):
                raise TypeError(
                    f"The transport's response must have an async byte stream, not {type(stream).__name__}."
                )
            self._parts = aiter(stream)
        try:
            while True:
                data = await anext(self._parts, None)
                if data is None:
                    self._end()
                    await self._response.aclose()
                    if self._is_interrupted:  # the end of a generator that did not survive it
                        raise httpx.StreamError("a read was cancelled before")
                    return b""
                self._is_interrupted = False
                if data:
                    return data
        except trio.Cancelled:
            self._is_interrupted = True
            raise
        except (httpx.TransportError, httpx.StreamError, OSError, trio.BrokenResourceError) as exc:
            await self.aclose()
            raise self._adapter._error(exc) from exc

    async def read(self, limit: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            while data := await self._receive():
                parts.append(data)
                size += len(data)
                if size > limit:
                    raise BodyTooLargeError(f"The response is larger than {limit} bytes.")
        except BaseException:
            await self.aclose()
            raise
        return b"".join(parts)

    def _end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._adapter.release()

    async def aclose(self) -> None:
        self._end()
        with trio.move_on_after(_CLOSE_TIMEOUT, shield=True):
            parts, self._parts = self._parts, None
            close = getattr(parts, "aclose", None)
            if close is not None:
                await close()
            await self._response.aclose()


def open_proxy_transport(info: ConnectionInfo, proxy_url: str, context: ssl.SSLContext | None) -> HttpxTransport:
    """Return a transport through a proxy, which is httpx's own; without a *context*, for plain HTTP.

    The context has the name in the server's certificate, as httpx would ignore it behind a proxy. Raises ConfigError.
    """
    server = parse_server_url(info.server)
    verify = context or False
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=25)
    try:
        transport = httpx.AsyncHTTPTransport(verify=verify, proxy=proxy_url, limits=limits, trust_env=False)
    except (ImportError, ValueError, httpx.InvalidURL) as exc:
        reason = type(exc).__name__ if "@" in proxy_url else exc  # it may quote parts of the URL
        shown = mask_userinfo(proxy_url)
        raise ConfigError(f"The proxy {shown!r} of {info.server} cannot be used: {reason}") from None
    host = f"[{server.host}]" if ":" in server.host else server.host
    return HttpxTransport(
        transport,
        origin=f"{server.scheme}://{host}:{server.port}",
        owned=True,
        route=f" by the proxy {mask_userinfo(proxy_url)}",
    )
