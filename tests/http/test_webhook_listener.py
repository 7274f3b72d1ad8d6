"""Tests for :mod:`trioperator._http.webhook_listener`, on real sockets. TLS is tested with the webhook server."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing
import trustme

from trioperator._http import webhook_listener
from trioperator._http.endpoint import Endpoint
from trioperator._http.server_connection import Request, Response
from trioperator._http.webhook_listener import serve_webhooks

GOOD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n[]"


class Serving:
    """A listener at work."""

    def __init__(self) -> None:
        self.endpoint = Endpoint(host="127.0.0.1", port=0, path="/")
        self.entered = trio.Event()
        self.release = trio.Event()
        self.release.set()

    async def answer(self, request: Request) -> Response:
        self.entered.set()
        await self.release.wait()
        return Response(200, b"{}")

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", self.endpoint.port)


async def ask(stream: trio.SocketStream) -> bytes:
    await stream.send_all(GOOD)
    return bytes(await stream.receive_some())


@contextlib.asynccontextmanager
async def serving(serving: Serving, ended: trio.Event, **options: Any) -> AsyncIterator[trio.CancelScope]:
    """Serve in the block; the scope stops the server, which sets the event when it has ended."""
    scope = trio.CancelScope()

    async def serve(*, task_status: trio.TaskStatus[Endpoint]) -> None:
        with scope:
            options.setdefault("limit_body", lambda path: 1000)
            await serve_webhooks(serving.answer, serving.endpoint, task_status=task_status, **options)
        ended.set()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            serving.endpoint = await nursery.start(serve)
            yield scope
            scope.cancel(reason="the test is over")


async def test_requests_are_answered_on_a_connection_that_is_kept() -> None:
    state = Serving()
    async with serving(state, trio.Event()), await state.connect() as stream:
        for _ in range(3):
            assert (await ask(stream)).startswith(b"HTTP/1.1 200 OK")


async def test_a_stopping_server_answers_requests_in_progress_and_closes_idle_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhook_listener, "_DRAIN", 60)
    state, ended = Serving(), trio.Event()
    async with serving(state, ended) as scope, await state.connect() as idle, await state.connect() as busy:
        await ask(idle)
        state.entered, state.release = trio.Event(), trio.Event()
        await busy.send_all(GOOD)
        await state.entered.wait()
        scope.cancel(reason="the test")
        assert await idle.receive_some() == b""
        state.release.set()
        response = bytes(await busy.receive_some())
        assert response.startswith(b"HTTP/1.1 200 OK")
        assert b"connection: close" in response
        await ended.wait()


async def test_a_request_that_takes_too_long_for_a_stopping_server_gets_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhook_listener, "_DRAIN", 0.05)
    monkeypatch.setattr(webhook_listener, "_GRACE", 60)
    state, ended = Serving(), trio.Event()
    state.release = trio.Event()
    async with serving(state, ended) as scope:
        async with await state.connect() as busy:
            await busy.send_all(GOOD)
            await state.entered.wait()
            scope.cancel(reason="the test")
            assert bytes(await busy.receive_some()).startswith(b"HTTP/1.1 500")
        await ended.wait()


async def test_the_connection_without_a_request_for_the_longest_time_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhook_listener, "_MAX_CONNECTIONS", 2)
    state = Serving()
    async with serving(state, trio.Event()), await state.connect() as first, await state.connect() as second:
        await ask(first)
        await ask(second)
        await ask(first)
        async with await state.connect() as third:
            await ask(third)
            assert await second.receive_some() == b""
            assert (await ask(first)).startswith(b"HTTP/1.1 200 OK")


async def test_a_request_in_progress_is_not_given_up_for_a_new_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_listener, "_MAX_CONNECTIONS", 2)
    state = Serving()
    state.release = trio.Event()
    async with serving(state, trio.Event()), await state.connect() as first, await state.connect() as second:
        for stream in (first, second):
            state.entered = trio.Event()
            await stream.send_all(GOOD)
            await state.entered.wait()
        for _ in range(5):
            async with await state.connect() as third:
                with contextlib.suppress(trio.BrokenResourceError):
                    assert await third.receive_some() == b""
        state.release.set()
        for stream in (first, second):
            assert bytes(await stream.receive_some()).startswith(b"HTTP/1.1 200 OK")


async def test_handshakes_that_take_longest_make_room_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhook_listener, "_MAX_HANDSHAKES", 3)
    authority = trustme.CA()
    state, server, client = Serving(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    async with serving(state, trio.Event(), make_context=lambda: server), contextlib.AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(await state.connect()) for _ in range(6)]
        secured = trio.SSLStream(await state.connect(), client, server_hostname="127.0.0.1")
        stack.push_async_callback(trio.aclose_forcefully, secured)
        await secured.send_all(GOOD)
        assert bytes(await secured.receive_some()).startswith(b"HTTP/1.1 200 OK")
        for stream in silent[:3]:
            with contextlib.suppress(trio.BrokenResourceError):
                assert await stream.receive_some() == b""


async def test_errors_of_a_connection_end_that_connection_only() -> None:
    state = Serving()
    async with serving(state, trio.Event()):
        broken = await state.connect()
        await broken.send_all(GOOD)
        broken.socket.close()
        async with await state.connect() as stream:
            assert (await ask(stream)).startswith(b"HTTP/1.1 200 OK")


async def test_a_draining_server_accepts_connections_and_closes_each_with_its_next_response() -> None:
    state, draining = Serving(), trio.Event()
    async with serving(state, trio.Event(), is_draining=draining.is_set), await state.connect() as kept:
        assert b"connection: close" not in await ask(kept)
        draining.set()
        for stream in (kept, await state.connect()):
            async with stream:
                response = await ask(stream)
                assert response.startswith(b"HTTP/1.1 200 OK")
                assert b"connection: close" in response
                assert await stream.receive_some() == b""


async def test_a_request_on_an_idle_connection_is_answered_at_any_time_while_the_server_drains() -> None:
    state, draining = Serving(), trio.Event()
    async with serving(state, trio.Event(), is_draining=draining.is_set), await state.connect() as idle:
        await ask(idle)
        draining.set()
        with trio.move_on_after(0.2):
            assert await idle.receive_some() != b""
        assert (await ask(idle)).startswith(b"HTTP/1.1 200 OK")


async def test_a_handshake_in_progress_when_the_server_stops_leads_to_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhook_listener, "_DRAIN", 60)
    authority = trustme.CA()
    state, server, client = Serving(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    entered = trio.Event()

    def make_context() -> ssl.SSLContext:
        entered.set()
        return server

    async with serving(state, trio.Event(), make_context=make_context) as scope:
        stream = await state.connect()
        await entered.wait()
        scope.cancel(reason="the test")
        await trio.testing.wait_all_tasks_blocked()
        secured = trio.SSLStream(stream, client, server_hostname="127.0.0.1")
        await secured.send_all(GOOD)
        response = bytes(await secured.receive_some())
        assert response.startswith(b"HTTP/1.1 200 OK")
        assert b"connection: close" in response
        await trio.aclose_forcefully(secured)
