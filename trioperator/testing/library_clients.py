"""Client libraries in tests: what they send to the API server goes to the operator's transport, without the network.

That is done where a library would open a connection: in httpx and its fork httpx2 (kr8s, lightkube), in urllib3
(kubernetes, pykube-ng, requests), and in aiohttp (kubernetes_asyncio, kubernetes.aio). Only libraries that are imported
are changed.
"""

from __future__ import annotations

import contextlib
import http
import io
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, Final

import httpx

from trioperator._http.request_parser import Message, RequestParser
from trioperator.client.library_logins import LIBRARIES
from trioperator.testing.library_configuration import (
    change_default_path,
    change_service_account,
    configured_environment,
)
from trioperator.testing.library_routes import Answer, Change, Route, find_route
from trioperator.testing.library_threads import change_anyio


class Changes:
    """The libraries that were changed in a context."""

    def __init__(self) -> None:
        self._known = frozenset(_LIBRARIES) & sys.modules.keys()

    @property
    def are_whole(self) -> bool:
        """Whether no such library has been imported since: it may have connected by the network."""
        return self._known == frozenset(_LIBRARIES) & sys.modules.keys()


@contextlib.contextmanager
def routed_libraries() -> Iterator[Changes]:
    """Let client libraries in the context send by what :func:`.routing_to` says."""
    changes, replaced = Changes(), list[Change]()
    for name, change in _LIBRARIES.items():
        for owner, attribute, new in change(sys.modules[name]) if name in sys.modules else ():
            replaced.append((owner, attribute, vars(owner)[attribute]))
            setattr(owner, attribute, new)
    try:
        with configured_environment():
            yield changes
    finally:
        for owner, attribute, old in reversed(replaced):
            setattr(owner, attribute, old)


# -- httpx -------------------------------------------------------------------------------------------------------------


def _change_httpx(library: ModuleType) -> Iterator[Change]:
    kinds: Any = library
    send, send_sync = kinds.AsyncHTTPTransport.handle_async_request, kinds.HTTPTransport.handle_request
    stream = type("RoutedStream", (_Stream, kinds.AsyncByteStream, kinds.SyncByteStream), {})

    def respond(route: Route, answer: Answer) -> Any:
        body = stream(route, answer, kinds)
        return kinds.Response(answer.status, headers=answer.headers, stream=body)

    async def handle_async_request(transport: Any, request: Any) -> Any:
        if (route := find_route(request.url.host)) is None:
            return await send(transport, request)
        body = await request.aread()
        with _translated_for(kinds):
            return respond(route, await route.wait(route.send, *_describe(request), body))

    def handle_request(transport: Any, request: Any) -> Any:
        if (route := find_route(request.url.host)) is None:
            return send_sync(transport, request)
        body = request.read()
        with _translated_for(kinds):
            return respond(route, route.call(route.send, *_describe(request), body))

    yield kinds.AsyncHTTPTransport, "handle_async_request", handle_async_request
    yield kinds.HTTPTransport, "handle_request", handle_request


def _describe(request: Any) -> tuple[str, str, list[tuple[bytes, bytes]]]:
    return request.method, request.url.raw_path.decode("ascii"), request.headers.raw


class _Stream:
    """The body of a response, for httpx or its fork."""

    def __init__(self, route: Route, answer: Answer, library: Any) -> None:
        self._route = route
        self._answer = answer
        self._library = library

    def __iter__(self) -> Iterator[bytes]:
        with _translated_for(self._library):
            while part := self._route.call(self._answer.receive):
                yield part

    def close(self) -> None:
        self._route.call(self._answer.aclose)

    def __aiter__(self) -> _Stream:
        return self

    async def __anext__(self) -> bytes:
        with _translated_for(self._library):
            part = await self._route.wait(self._answer.receive)
        if not part:
            raise StopAsyncIteration
        return part

    async def aclose(self) -> None:
        await self._route.wait(self._answer.aclose)


@contextlib.contextmanager
def _translated_for(library: Any) -> Iterator[None]:
    """Raise errors of httpx as those of its fork, which have the same names."""
    try:
        yield
    except httpx.TransportError as error:
        if library is httpx:
            raise
        raise getattr(library, type(error).__name__)(str(error)) from error


# -- bytes -------------------------------------------------------------------------------------------------------------


class _Exchange:
    """One request and its response, as the bytes of a connection that is closed after it."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._parser = RequestParser()
        self._answer: Answer | None = None
        self._is_chunked = self._has_ended = False

    def send(self, data: bytes) -> bool:
        """Take bytes of the request, and return whether it is whole."""
        self._parser.feed(data)
        return self._find() is not None

    def _find(self) -> Message | None:
        messages = self._parser.messages
        return messages[0] if messages and messages[0].is_complete else None

    async def receive(self) -> bytes:
        """Return the next bytes of the response, on Trio; none at its end. Raises ConnectionResetError."""
        try:
            return await (self._receive_head() if self._answer is None else self._receive_part(self._answer))
        except httpx.TransportError as error:
            raise ConnectionResetError(str(error)) from error

    async def _receive_head(self) -> bytes:
        if (message := self._find()) is None:
            raise ConnectionResetError("The request is malformed.")
        target, body = message.target.decode("ascii"), bytes(message.body)
        headers = [(name, value) for name, value in message.headers if name != b"transfer-encoding"]
        answer = self._answer = await self._route.send(message.method, target, headers, body)
        self._is_chunked = not any(name.lower() == b"content-length" for name, _ in answer.headers)
        lines = [f"HTTP/1.1 {answer.status} {http.HTTPStatus(answer.status).phrase}".encode()]
        lines += [b"%s: %s" % header for header in answer.headers]
        lines += [b"Transfer-Encoding: chunked"] if self._is_chunked else []
        return b"\r\n".join([*lines, b"Connection: close", b"", b""])

    async def _receive_part(self, answer: Answer) -> bytes:
        if self._has_ended:
            return b""
        part = await answer.receive()
        self._has_ended = not part
        return b"%x\r\n%s\r\n" % (len(part), part) if self._is_chunked else part

    async def aclose(self) -> None:
        """End the response, if there is one."""
        self._has_ended = True
        if self._answer is not None:
            await self._answer.aclose()


# -- urllib3 -----------------------------------------------------------------------------------------------------------


def _change_urllib3(module: ModuleType) -> Iterator[Change]:
    owner: Any = getattr(module, "HTTPConnection")  # noqa: B009 -- of a module that is not installed everywhere
    connect = owner._new_conn

    def new_connection(connection: Any) -> Any:
        route = find_route(connection.host)
        return connect(connection) if route is None else _Socket(route)

    yield owner, "_new_conn", new_connection


class _Socket:
    """Socket, as far as http.client needs one."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._exchange = _Exchange(route)

    def sendall(self, data: bytes) -> None:
        self._exchange.send(bytes(data))

    def makefile(self, *args: Any, **options: Any) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._route, self._exchange))

    def settimeout(self, seconds: float | None) -> None:
        """Do nothing: responses come, in virtual time."""

    def shutdown(self, how: int = 0) -> None:
        """End the response."""
        self._route.call(self._exchange.aclose)

    def close(self) -> None:
        """Do nothing: as with sockets, files that were made of it can still be read."""


class _Reader(io.RawIOBase):
    """The bytes of a response."""

    def __init__(self, route: Route, exchange: _Exchange) -> None:
        self._route = route
        self._exchange = exchange
        self._rest = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what is there, and wait for it if there is nothing."""
        data = self._rest or self._route.call(self._exchange.receive)
        count = min(len(data), len(buffer))
        buffer[:count], self._rest = data[:count], data[count:]
        return count


# -- aiohttp -----------------------------------------------------------------------------------------------------------


def _change_aiohttp(module: ModuleType) -> Iterator[Change]:
    owner: Any = getattr(module, "TCPConnector")  # noqa: B009 -- of a module that is not installed everywhere
    connect = owner._create_connection

    async def create_connection(connector: Any, request: Any, *args: Any, **options: Any) -> Any:
        if (route := find_route(request.url.host)) is None:
            return await connect(connector, request, *args, **options)
        protocol = connector._factory()
        protocol.connection_made(_Transport(route, protocol))
        return protocol

    yield owner, "_create_connection", create_connection


class _Transport:
    """Transport of asyncio, as far as aiohttp needs one."""

    def __init__(self, route: Route, protocol: Any) -> None:
        self._route = route
        self._protocol = protocol
        self._exchange = _Exchange(route)
        self._task: Any = None
        self._is_closing = False

    def write(self, data: bytes) -> None:
        """Take bytes of the request, and respond when it is whole."""
        if self._exchange.send(bytes(data)) and self._task is None:
            import asyncio  # where this is called, it is running

            self._task = asyncio.get_running_loop().create_task(self._respond())

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    async def _respond(self) -> None:
        error = None
        try:
            while data := await self._route.wait(self._exchange.receive):
                self._protocol.data_received(data)
        except ConnectionResetError as raised:
            error = raised
        finally:
            self._is_closing = True
            await self._route.wait(self._exchange.aclose)
            self._protocol.connection_lost(error)

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """End the response."""
        self._is_closing = True
        if self._task is not None:
            self._task.cancel()

    abort = close

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None:
        """Do nothing: what has come is in memory."""

    def resume_reading(self) -> None:
        """Do nothing."""


_LIBRARIES: Final[Mapping[str, Callable[[ModuleType], Iterator[Change]]]] = {
    "httpx": _change_httpx,
    "httpx2": _change_httpx,
    "urllib3.connection": _change_urllib3,
    "aiohttp.connector": _change_aiohttp,
    "anyio._backends._asyncio": change_anyio,
    "anyio._backends._trio": change_anyio,
    **{f"{name}.config": change_service_account for name in LIBRARIES},
    **{f"{name}.config.kube_config": change_default_path for name in LIBRARIES},
}
