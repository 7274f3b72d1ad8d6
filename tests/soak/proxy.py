"""A proxy between the operator and the API server, and the weather in which it works.

Requests go through :class:`trioperator.testing.FaultyTransport`, and what happens to them there happens to the
operator's connections. On top of that all connections are cut, refused or frozen now and then.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import random
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import h11
import httpx
import trio

from trioperator.testing import Fault, FaultPlan
from trioperator.testing.plans import FaultRule, is_watch

# Seconds after which the proxy gives up a stalled request, or a silent watch.
_TIMEOUT = 40.0
_HOP_BY_HOP = {b"connection", b"keep-alive", b"transfer-encoding"}


class Proxy:
    """An HTTPS server on the loopback that passes requests on to a transport. ``port`` is its port once it serves."""

    def __init__(self, transport: httpx.AsyncBaseTransport, context: ssl.SSLContext, *, seed: int) -> None:
        self.port = 0
        self._transport = transport
        self._context = context
        self._random = random.Random(seed)
        self._serving = trio.CancelScope()
        self._closed_for = 0.0
        self._thawed = trio.Event()
        self._thawed.set()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        while True:
            listeners = await trio.open_tcp_listeners(self.port, host="127.0.0.1")
            self.port = listeners[0].socket.getsockname()[1]
            with trio.CancelScope() as self._serving:
                task_status.started()
                task_status = trio.TASK_STATUS_IGNORED
                await trio.serve_listeners(self._serve_connection, listeners)
            await trio.sleep(self._closed_for)

    def cut(self, seconds: float) -> None:
        """Cut all connections, and refuse new ones for a while."""
        self._closed_for = seconds
        self._serving.cancel()

    async def freeze(self, seconds: float) -> None:
        """Pass nothing on for a while."""
        self._thawed = trio.Event()
        try:
            await trio.sleep(seconds)
        finally:
            self._thawed.set()

    async def _serve_connection(self, stream: trio.SocketStream) -> None:
        tls = trio.SSLStream(stream, self._context, server_side=True, https_compatible=True)
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1_048_576)
        try:
            while (request := await _read_request(connection, tls)) and await self._answer(request, connection, tls):
                connection.start_next_cycle()
        except* (trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
            pass
        finally:
            if self._random.random() < 0.5:  # a reset
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            stream.socket.close()

    async def _answer(self, request: httpx.Request, connection: h11.Connection, tls: trio.SSLStream[Any]) -> bool:
        """Pass a request and its response on. Return whether the connection is still of use."""

        async def send(event: h11.Event) -> None:
            await self._thawed.wait()
            await tls.send_all(connection.send(event) or b"")

        async with trio.open_nursery() as nursery:
            if is_watch(request):
                nursery.start_soon(_cancel_at_end, tls, nursery.cancel_scope)
            with contextlib.suppress(httpx.TransportError):
                await self._exchange(request, send)
            nursery.cancel_scope.cancel()
        return connection.states == {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}

    async def _exchange(self, request: httpx.Request, send: Callable[[h11.Event], Awaitable[None]]) -> None:
        """Send the parts of the response. Raises what httpx raises."""
        response = await self._transport.handle_async_request(request)
        try:
            headers = [(name, value) for name, value in response.headers.raw if name.lower() not in _HOP_BY_HOP]
            await send(h11.Response(status_code=response.status_code, headers=headers))
            assert isinstance(response.stream, httpx.AsyncByteStream)
            async for data in response.stream:
                await send(h11.Data(data=data))
            await send(h11.EndOfMessage())
        finally:
            with trio.move_on_after(1, shield=True):
                await response.aclose()


async def _read_request(connection: h11.Connection, tls: trio.SSLStream[Any]) -> httpx.Request | None:
    head: h11.Request | None = None
    body = b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await tls.receive_some(65_536)))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            url = f"https://proxy{head.target.decode()}"
            request = httpx.Request(head.method.decode(), url, headers=head.headers.raw_items(), content=body)
            request.extensions = {"timeout": {"read": _TIMEOUT, "connect": 5}, "streaming": is_watch(request)}
            return request
        else:
            return None


async def _cancel_at_end(tls: trio.SSLStream[Any], scope: trio.CancelScope) -> None:
    """Cancel the scope when the client closes the connection."""
    with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        await tls.receive_some(1)
    scope.cancel()


_ANYWHERE: list[Callable[[], Fault]] = [
    Fault.refuse,
    Fault.reset,
    Fault.lose_answer,
    Fault.stall,
    Fault.half_body,
    lambda: Fault.delay(before=0.5),
    lambda: Fault.delay(after=1),
    lambda: Fault.status(429, retry_after=1),
    *(functools.partial(Fault.status, code) for code in (404, 409, 410, 429, 500, 502, 503, 504)),
    *(functools.partial(Fault.answer, 200, body) for body in (b"", b"{", b"null", b"[]", b"{}", b"<html>it works")),
    lambda: Fault.answer(502, b"<html>Bad Gateway"),
    lambda: Fault.answer(200, Fault.status(500).body),
]
_STREAMS: list[Callable[..., Fault]] = [
    Fault.close,
    Fault.break_off,
    Fault.half_line,
    Fault.garbage,
    functools.partial(Fault.error_event, 410),
    functools.partial(Fault.error_event, 500),
    Fault.silence,
]
_SELECTIONS: list[dict[str, Any]] = [{}, {"verb": "patch"}, {"verb": "list"}, {"watch": True}]


class Weather:
    """Changing faults of a proxy. ``counts`` says how often each has happened."""

    def __init__(self, plan: FaultPlan, proxy: Proxy, *, seed: int) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self._plan = plan
        self._proxy = proxy
        self._rules: list[FaultRule] = []
        self._random = random.Random(seed)

    async def change(self) -> None:
        """Change until cancelled; then it is fine."""
        try:
            while True:
                self._clear()
                for _ in range(self._random.randrange(5)):
                    self._add()
                await trio.sleep(self._random.uniform(0.5, 6))
                await self._storm()
        finally:
            self._clear()
            self._proxy.cut(0)  # silent watches, too

    def _add(self) -> None:
        selection = self._random.choice(_SELECTIONS)
        lines = self._random.choice([0, 0, 1, 5])
        makers = [*_ANYWHERE]
        if "watch" in selection:
            makers += [functools.partial(maker, lines=lines) for maker in _STREAMS]
            makers += [Fault.duplicate, functools.partial(Fault.lag, 0.02)]
            self._proxy.cut(0)  # so that there are new watches
        fault = self._random.choice(makers)()
        chance = self._random.choice([0.05, 0.2, 0.5, 1])
        self._rules.append(self._plan.add(fault, chance=chance, **selection))

    def _clear(self) -> None:
        for rule in self._rules:
            fault = rule.fault
            self.counts[f"{fault.kind} {fault.code}" if fault.code else fault.kind] += rule.hits
        self._rules.clear()
        self._plan.clear()

    async def _storm(self) -> None:
        number = self._random.random()
        if number < 0.1:
            self._proxy.cut(self._random.choice([0, 0, 1, 4]))
            self.counts["cut"] += 1
        elif number < 0.2:
            self.counts["freeze"] += 1
            await self._proxy.freeze(self._random.uniform(0.5, 5))
