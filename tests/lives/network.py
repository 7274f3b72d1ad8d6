"""The network between operators and their API server: in memory, or by connections, of which there are only so many.

Both stop at checkpoints, where ambushes wait, and note what is sent by whom.
"""

from __future__ import annotations

import contextlib
import functools
import socket
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import httpx
import trio

from tests.opaque import OpaqueTransport
from trioperator._http import connection_pool
from trioperator._http.tls_connection import TlsConnection
from trioperator.apiserver.model.messages import Request, Response
from trioperator.apiserver.model.user import ADMIN
from trioperator.apiserver.serving.http import serve_stream
from trioperator.testing import FaultPlan, FaultyTransport
from trioperator.testing.plans import describe_request

if TYPE_CHECKING:
    from tests.lives.life import Life
    from tests.lives.plans import Ambush


class Checkpoints:
    """The checkpoints of one operator: its requests, one after another."""

    def __init__(self, life: Life, operator: str, ambushes: tuple[Ambush, ...]) -> None:
        self._life = life
        self._operator = operator
        self._counts = [(ambush, [0]) for ambush in ambushes]

    async def pass_through(self, request: httpx.Request) -> list[Ambush]:
        """Note a request, fall into the ambushes before it, and return those that wait for its response."""
        info = describe_request(request)
        what = f"{info.verb or request.method} {info.resource or request.url.path} {info.name}"
        self._life.journal.note_request(self._operator, what)
        await self._life.check_request(self._operator, request, info)
        later = []
        for ambush, count in self._counts:
            verbs = (info.verb,) if not ambush.verb else ambush.verb.split(",")
            if info.verb not in verbs or ambush.resource not in {"", info.resource}:
                continue
            if ambush.stopping and not self._life.operators[self._operator].is_stopping:
                continue
            count[0] += 1
            if count[0] == ambush.nth:
                if ambush.answered:
                    later.append(ambush)
                else:
                    await self.fall_into(ambush, request)
        return later

    async def fall_into(self, ambush: Ambush, request: httpx.Request) -> None:
        """Do the deed of an ambush."""
        if not self._life.is_peaceful:
            await self._life.do(ambush.deed, ambush.args, about=describe_request(request))
            await trio.sleep(ambush.pause)


class Wire(httpx.AsyncBaseTransport):
    """An operator's transport in memory, with faults."""

    def __init__(self, life: Life, operator: str, plan: FaultPlan) -> None:
        inner: httpx.AsyncBaseTransport = _Current(life)
        self._inner = FaultyTransport(OpaqueTransport(inner) if life.is_tuned("opaque") else inner, plan)
        self._life = life
        self._operator = operator
        self._checkpoints = life.checkpoints[operator]
        self.is_cut = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and return the response."""
        if self.is_cut:
            await trio.lowlevel.checkpoint()
            raise httpx.ConnectError("The operator has crashed.", request=request)
        later = await self._checkpoints.pass_through(request)
        response = await self._inner.handle_async_request(request)
        await self._life.note_response(self._operator, describe_request(request), response.status_code)
        for ambush in later:
            await self._checkpoints.fall_into(ambush, request)
        return response

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._inner.aclose()


class _Current(httpx.AsyncBaseTransport):
    """Transport to the cluster that is there now."""

    def __init__(self, life: Life) -> None:
        self._life = life

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        is_watch = "watch" in request.url.params
        if is_watch and int(request.url.params.get("resourceVersion") or 0) > self._life.cluster.revision:
            # A server that was restored would accept that, and send nothing until its versions have passed this one.
            await trio.lowlevel.checkpoint()
            return httpx.Response(410, json={"kind": "Status", "code": 410, "reason": "Expired", "message": "restored"})
        response = await self._life.cluster.transport().handle_async_request(request)
        if is_watch and response.status_code == 200:
            assert isinstance(response.stream, httpx.AsyncByteStream)
            response.stream = _Stream(response.stream, self._life)
        return response


class _Stream(httpx.AsyncByteStream):
    """The stream of a watch, until it is cut."""

    def __init__(self, inner: httpx.AsyncByteStream, life: Life) -> None:
        self._inner = inner
        self._chunks = inner.__aiter__()
        self._cut = life.cut
        self._life = life
        self._held: bytes | None = None  # as long as the tide is out; a read that is cancelled loses nothing

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._held is None:
            self._held = await self._receive()
        if not self._life.tide.is_set():
            await self._life.tide.wait()
        chunk, self._held = self._held, None
        return chunk

    async def _receive(self) -> bytes:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_when_cut, nursery.cancel_scope)
            chunk = await anext(self._chunks, None)
            nursery.cancel_scope.cancel(reason="there is data")
        if self._cut.is_set():
            raise httpx.ReadError("The server has gone.")
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    async def _cancel_when_cut(self, scope: trio.CancelScope) -> None:
        await self._cut.wait()
        scope.cancel(reason="the stream is cut")

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Server:
    """The API behind connections: its responses take as long as the life says."""

    def __init__(self, life: Life, operator: str, checkpoints: Checkpoints) -> None:
        self.body_limit = life.cluster.api.body_limit
        self._life = life
        self._operator = operator
        self._checkpoints = checkpoints

    async def handle(self, request: Request) -> Response:
        seen = httpx.Request(request.method, _make_url(request.path, tuple(request.query.items())))
        later = await self._checkpoints.pass_through(seen)
        response = await self._life.cluster.api.handle(request)
        info = describe_request(seen)
        await self._life.note_response(self._operator, info, response.status)
        for ambush in later:
            await self._checkpoints.fall_into(ambush, seen)
        await self._life.delay(self._operator, info)
        return response

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


@functools.lru_cache(maxsize=1024)  # making one takes longer than all else that is done here for a request
def _make_url(path: str, query: tuple[tuple[str, str], ...]) -> httpx.URL:
    return httpx.URL(f"http://cluster{path}", params=query)


@contextlib.contextmanager
def connected(life: Life, nursery: trio.Nursery) -> Iterator[None]:
    """Let the operators' own connections lead to the life's cluster, by the name of the operator as the host."""
    pool: Any = connection_pool
    found = pool.open_connection

    async def open_connection(host: str, port: int, **_: Any) -> TlsConnection:
        await trio.lowlevel.checkpoint()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        nursery.start_soon(_serve, life, host, theirs)
        return TlsConnection(ours, None, host)

    pool.open_connection = open_connection
    try:
        yield
    finally:
        pool.open_connection = found


async def _serve(life: Life, operator: str, sock: socket.socket) -> None:
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
    async with stream:
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await serve_stream(_Server(life, operator, life.checkpoints[operator]), stream, user=ADMIN)
