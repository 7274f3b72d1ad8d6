"""Fakes of services outside of the cluster, for exploring: calls of handlers to them are recorded and compared.

::

    # fakes.py, for `trioperator explore app.py --setup fakes.py`
    import httpx
    from trioperator.testing import effects

    def dns(request: httpx.Request) -> httpx.Response:
        records = effects.store("dns")          # survives crashes of the operator, and begins empty in each play
        name = request.url.path.rpartition("/")[2]
        if request.method == "PUT":
            records[name] = request.content.decode()
        if request.method == "DELETE":
            records.pop(name, None)
        return httpx.Response(200, json=records.get(name))

    effects.fake("https://dns.example.com", dns)

The stores must have the same content whatever happens, and be empty when the object is deleted. Requests other than GET
are crash points, like writes to the cluster. Effects that are not idempotent, POST and :func:`record`, must not happen
more often than without faults; POST requests to a URL with the same header ``Idempotency-Key`` count once.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeAlias

import httpx

from trioperator._concurrency.threads import call_trio, current_calls

__all__ = ["Fake", "Outside", "fake", "play_outside", "record", "store"]

#: Function that responds to a request as a server would.
Fake: TypeAlias = Callable[[httpx.Request], httpx.Response]
Hook: TypeAlias = Callable[[Callable[[], Awaitable[httpx.Response]]], Awaitable[httpx.Response]]

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_fakes: Final[dict[str, Fake]] = {}
_outside: Final[contextvars.ContextVar[Outside]] = contextvars.ContextVar("trioperator-outside")


class Outside:
    """The world outside of the cluster in one play. *on_call* replaces each call that changes something."""

    def __init__(self) -> None:
        self.stores: dict[str, dict[str, Any]] = {}
        self.counts: Counter[str] = Counter()  # of what is not idempotent
        self.idempotent: set[tuple[str, str]] = set()  # the URLs of POST requests, with their idempotency keys
        self.calls = 0
        self.on_call: Hook | None = None


def fake(url: str, respond: Fake) -> None:
    """Answer all httpx requests to URLs that begin with *url* by *respond*, in plays only. The last fake wins."""
    _fakes[url.rstrip("/")] = respond


def store(name: str) -> dict[str, Any]:
    """Return the store with a name in the current play: a dict of JSON-serializable values by string keys."""
    return _outside.get().stores.setdefault(name, {})


def record(name: str, key: str) -> None:
    """Record an effect that must not happen more often than without faults, such as sending an e-mail."""
    _outside.get().counts[f"{name} {key}"] += 1


@contextlib.contextmanager
def play_outside() -> Iterator[Outside]:
    """Begin with an empty outside world in the context, and let the fakes respond."""
    outside = Outside()
    token = _outside.set(outside)
    send, send_sync = httpx.AsyncHTTPTransport.handle_async_request, httpx.HTTPTransport.handle_request

    async def respond(transport: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
        found = _find(request)
        return await send(transport, request) if found is None else await _call(outside, found, request)

    def respond_sync(transport: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
        found = _find(request)
        if found is None:
            return send_sync(transport, request)
        request.read()
        if current_calls() is not None:  # of a handler, in its thread
            return call_trio(functools.partial(_call, outside, found, request))
        _note(outside, request)
        return found(request)

    httpx.AsyncHTTPTransport.handle_async_request = respond  # type: ignore[assignment,method-assign]  # for all transports
    httpx.HTTPTransport.handle_request = respond_sync  # type: ignore[assignment,method-assign]  # for all transports
    try:
        yield outside
    finally:
        httpx.AsyncHTTPTransport.handle_async_request = send  # type: ignore[method-assign]  # as before
        httpx.HTTPTransport.handle_request = send_sync  # type: ignore[method-assign]  # as before
        _outside.reset(token)


def _find(request: httpx.Request) -> Fake | None:
    url = str(request.url)
    return next((respond for prefix, respond in reversed(_fakes.items()) if f"{url}/".startswith(f"{prefix}/")), None)


async def _call(outside: Outside, respond: Fake, request: httpx.Request) -> httpx.Response:
    await request.aread()

    async def send() -> httpx.Response:
        _note(outside, request)
        return respond(request)

    if request.method in _READS or outside.on_call is None:
        return await send()
    return await outside.on_call(send)


def _note(outside: Outside, request: httpx.Request) -> None:
    if request.method not in _READS:
        outside.calls += 1
    if request.method == "POST":
        call = (str(request.url), request.headers.get("Idempotency-Key", ""))
        if not call[1] or call not in outside.idempotent:
            outside.counts[f"POST {request.url}"] += 1
        outside.idempotent.add(call)
