"""The way of requests that client libraries send in tests: from any thread or event loop to the operator's transport.

A thread waits for Trio as sync clients of handlers do, so that the clock of a test may jump meanwhile, and tasks of
asyncio wait for a future. A sync function that is called in Trio's thread, by an async handler, blocks the event loop:
its request is processed at once, as long as nothing in it waits.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Final, TypeAlias, TypeVar

import httpx
import outcome
import trio

from trioperator._concurrency.threads import call_trio

T = TypeVar("T")

#: Change of a library: an object, the name of its attribute, and the new one.
Change: TypeAlias = tuple[Any, str, Any]
#: The host name of the API server in tests, whose connections have in-memory transports.
HOST: Final = "cluster"


class Answer:
    """A response of the API server, whose body is received in parts."""

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.headers: list[tuple[bytes, bytes]] = response.headers.raw
        stream = response.stream
        self._rest = b""
        self._stream: httpx.AsyncByteStream | None = None
        self._parts: Any = None
        if isinstance(stream, httpx.ByteStream):
            self._rest = b"".join(stream)
        else:
            assert isinstance(stream, httpx.AsyncByteStream)
            self._stream, self._parts = stream, aiter(stream)

    async def receive(self) -> bytes:
        """Return the next part of the body; an empty one at its end. Raises httpx.TransportError."""
        found, self._rest = self._rest, b""
        while not found and self._stream is not None:
            try:
                found = await anext(self._parts)
            except StopAsyncIteration:
                await self.aclose()
        return found

    async def aclose(self) -> None:
        """End the response."""
        stream, self._stream = self._stream, None
        if stream is not None:
            if hasattr(self._parts, "aclose"):  # a generator
                await self._parts.aclose()
            await stream.aclose()


class Route:
    """The way from all threads and event loops to a transport in the current run of Trio."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self._transport = transport
        self._token = trio.lowlevel.current_trio_token()
        self._thread = threading.get_ident()

    @property
    def is_near(self) -> bool:
        """Whether this is the thread of that run."""
        return threading.get_ident() == self._thread

    async def send(self, method: str, target: str, headers: list[tuple[bytes, bytes]], body: bytes) -> Answer:
        """Send a request, on Trio. Raises httpx.TransportError."""
        request = httpx.Request(method, f"http://{HOST}{target}", headers=headers, content=body)
        return Answer(await self._transport.handle_async_request(request))

    def call(self, fn: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """Run an async function on Trio, from any sync function, and return its result.

        Raises what it raises, and httpx.ConnectError where it would have to wait while the event loop is blocked.
        """
        if self.is_near:
            return _run_at_once(fn(*args))
        return call_trio(functools.partial(fn, *args), token=self._token)

    async def wait(self, fn: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """Run an async function on Trio, from any async function, and return its result. Raises what it raises."""
        if not self.is_near:
            import asyncio  # Trio's functions have no threads of their own

            return await asyncio.to_thread(self._call_from_afar, fn, *args)
        bridge = sys.modules.get("trioperator.kopf.bridge")
        if bridge is not None and bridge.is_in_asyncio():
            future: Awaitable[T] = bridge.current_loop.get().start(functools.partial(fn, *args))
            return await future
        return await fn(*args)

    def _call_from_afar(self, fn: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """Call for a loop that goes on when this run of Trio has ended: it does not know Trio's cancellation."""
        try:
            return self.call(fn, *args)
        except (trio.Cancelled, trio.RunFinishedError):
            raise httpx.ConnectError("The operator has ended, and its connections with it.") from None


_route: Final[contextvars.ContextVar[Route]] = contextvars.ContextVar("trioperator-library-route")


@contextlib.contextmanager
def routing_to(transport: httpx.AsyncBaseTransport | None) -> Iterator[None]:
    """Let what runs or starts in the context send its requests by the transport, if there is one."""
    if transport is None:
        yield
        return
    token = _route.set(Route(transport))
    try:
        yield
    finally:
        _route.reset(token)


def find_route(host: object) -> Route | None:
    """Return the way of requests to a host, in this context; None for all hosts but the API server's."""
    return _route.get(None) if host == HOST else None


def _run_at_once(call: Coroutine[Any, Any, T]) -> T:
    """Run an async function to its end in the task that calls. Raises httpx.ConnectError if it waits."""
    try:
        trap = call.send(None)
        while not hasattr(trap, "abort_func"):  # a checkpoint, which need not yield
            trap = call.send(outcome.Value(None))
        trap.abort_func(lambda: None)
        call.throw(httpx.ConnectError("The API server does not respond while the event loop is blocked."))
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        call.close()
    raise httpx.ConnectError("The API server does not respond while the event loop is blocked.")
