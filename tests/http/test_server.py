"""Tests for :mod:`trioperator._http.server`, on real sockets."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import random
import socket
import ssl
import struct
import warnings
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import trio
import trio.testing
import trustme
from trio.testing import MockClock

from tests.http.attacks import ATTACKS, CONNECT_H2, mutate
from tests.http.serving import ANYWHERE, CLOSE, GET, App, serving, talk
from trioperator._http import server, server_connection
from trioperator._http.endpoint import Endpoint
from trioperator._http.server import serve_app
from trioperator._http.server_connection import Limits
from trioperator.errors import ConfigError


async def reset(endpoint: Endpoint, data: bytes) -> None:
    """Send the bytes, and reset the connection."""
    async with await trio.open_tcp_stream(endpoint.host, endpoint.port) as stream:
        with contextlib.suppress(trio.BrokenResourceError), trio.move_on_after(5):
            await stream.send_all(data)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def test_the_server_responds_once_started(nursery: trio.Nursery) -> None:
    endpoint: Endpoint = await nursery.start(serve_app, App(), ANYWHERE)
    async with httpx.AsyncClient(base_url=str(endpoint), timeout=60) as client:
        response = await client.get("/x")
    assert response.content == b"/x"
    assert "server" not in response.headers


async def test_a_port_in_use_is_an_error_of_the_server(nursery: trio.Nursery) -> None:
    endpoint: Endpoint = await nursery.start(serve_app, App(), ANYWHERE)
    with pytest.RaisesGroup(ConfigError, allow_unwrapped=True):
        await serve_app(App(), endpoint)


async def test_the_end_of_a_cancelled_server_is_prompt_and_clean() -> None:
    app = App()
    statuses: list[int] = []

    async def ask(url: str) -> None:
        async with httpx.AsyncClient(timeout=60) as client:
            statuses.append((await client.get(f"{url}slow", timeout=30)).status_code)

    with trio.fail_after(60), warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        async with trio.open_nursery() as clients, trio.open_nursery() as server:
            endpoint: Endpoint = await server.start(serve_app, app, ANYWHERE)
            async with (
                await trio.open_tcp_stream(endpoint.host, endpoint.port) as half,
                await trio.open_tcp_stream(endpoint.host, endpoint.port) as idle,
            ):
                await half.send_all(b"GET /x HT")  # a request that is never finished
                await idle.send_all(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
                assert (await idle.receive_some()).startswith(b"HTTP/1.1 200")
                app.asked = trio.Event()
                clients.start_soon(ask, str(endpoint))
                await app.asked.wait()
                server.cancel_scope.cancel(reason="the test")
                with trio.CancelScope(shield=True), trio.move_on_after(20) as scope:
                    while await idle.receive_some():
                        pass
                    while await half.receive_some():
                        pass
                assert not scope.cancelled_caught
        gc.collect()
    assert statuses == [500]
    assert app.cancelled


@pytest.mark.parametrize("checkpoints", range(8))
async def test_a_server_that_is_cancelled_while_it_starts_ends(checkpoints: int) -> None:
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_app, App(), ANYWHERE)
            for _ in range(checkpoints):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel(reason="the test")


async def test_the_port_is_closed_after_the_end() -> None:
    async with trio.open_nursery() as server:
        endpoint: Endpoint = await server.start(serve_app, App(), ANYWHERE)
        server.cancel_scope.cancel(reason="the test")
    with pytest.raises(OSError, match="all attempts to connect"):
        await trio.open_tcp_stream(endpoint.host, endpoint.port)


async def test_an_error_of_the_application_is_logged_and_returned_as_http_500(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    loggers = [logging.getLogger(name) for name in ("hypercorn.error", "hypercorn.access")]
    handlers = [list(logger.handlers) for logger in loggers]  # other programs in this process may have some
    endpoint: Endpoint = await nursery.start(serve_app, App(), ANYWHERE)
    async with httpx.AsyncClient(base_url=str(endpoint), timeout=60) as client:
        assert (await client.get("/broken")).status_code == 500
        assert (await client.get("/x")).status_code == 200
    assert [record.name for record in caplog.records if record.levelno >= logging.WARNING] == ["hypercorn.error"]
    assert [logger.handlers for logger in loggers] == handlers
    assert "Running on" not in capfd.readouterr().err


async def test_requests_are_logged_where_the_level_of_the_logger_says_so(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="hypercorn.access"):
        endpoint: Endpoint = await nursery.start(serve_app, App(), ANYWHERE)
        async with httpx.AsyncClient(base_url=str(endpoint), timeout=60) as client:
            await client.get("/x")
    (message,) = (record.getMessage() for record in caplog.records if record.name == "hypercorn.access")
    assert '"GET /x' in message


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> Limits:
    """Return limits that end idle and slow connections soon."""
    monkeypatch.setattr(server_connection, "_RECEIVING", 0.3)
    return Limits(idle=0.3)


@pytest.mark.parametrize("name", ATTACKS)
async def test_an_attack_ends_at_most_its_connection(name: str, hasty: Limits) -> None:
    async with serving(limits=hasty) as endpoint:
        await talk(endpoint, ATTACKS[name], eof=True)
        await talk(endpoint, ATTACKS[name])
        await reset(endpoint, ATTACKS[name])


@pytest.mark.parametrize("seed", range(4))
async def test_random_bytes_end_at_most_their_connections(seed: int, hasty: Limits) -> None:
    rng = random.Random(seed)
    async with serving(limits=hasty) as endpoint:
        for _ in range(5):
            async with trio.open_nursery() as clients:
                for _ in range(10):
                    data = mutate(rng)
                    if rng.random() < 0.3:
                        clients.start_soon(reset, endpoint, data)
                    else:
                        clients.start_soon(functools.partial(talk, endpoint, data, eof=rng.random() < 0.8))


async def test_http_2_is_rejected() -> None:
    async with serving() as endpoint:
        assert (await talk(endpoint, CONNECT_H2)).startswith(b"HTTP/1.1 505 ")
        assert (await talk(endpoint, b"GET / HTTP/2.0\r\n\r\n")).startswith(b"HTTP/1.1 505 ")


@pytest.mark.parametrize("target", [b"*", b"?", b"x", b"http://[", b"http://x/"])
async def test_a_target_that_is_no_path_is_rejected(target: bytes) -> None:
    async with serving() as endpoint:
        assert (await talk(endpoint, b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % target)).startswith(b"HTTP/1.1 400 ")


async def test_a_client_that_has_gone_frees_its_connection_at_once() -> None:
    async with serving(limits=Limits(idle=600)) as endpoint:
        assert await talk(endpoint, b"", eof=True) == b""


@pytest.mark.parametrize("name", ["an upgrade to h2c", "an upgrade to a WebSocket"])
async def test_an_upgrade_is_ignored(name: str) -> None:
    async with serving() as endpoint:
        assert (await talk(endpoint, ATTACKS[name])).startswith(b"HTTP/1.1 200 ")


async def test_an_error_of_a_connection_is_logged_at_debug_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving() as endpoint:
        await reset(endpoint, GET)
        while not caplog.records:  # noqa: ASYNC110 -- of log records there are no events
            await trio.sleep(0.01)
    [record] = [record for record in caplog.records if record.name == "trioperator.http.server"]
    assert (record.levelno, record.message, bool(record.exc_info)) == (logging.DEBUG, "A connection has failed.", True)


@pytest.mark.parametrize("data", [b"", b"GET / HT", GET + b"\r\n"], ids=["silent", "half a request", "kept alive"])
async def test_three_hundred_idle_connections_keep_nobody_out(data: bytes) -> None:
    async with serving(limits=Limits(idle=600)) as endpoint, contextlib.AsyncExitStack() as stack:
        for _ in range(300):
            stream = await stack.enter_async_context(await trio.open_tcp_stream(endpoint.host, endpoint.port))
            await stream.send_all(data)
        assert (await talk(endpoint, GET + CLOSE)).startswith(b"HTTP/1.1 200")


async def test_the_oldest_connection_beyond_the_limit_is_closed() -> None:
    async with serving(limits=Limits(connections=2, idle=600)) as endpoint, contextlib.AsyncExitStack() as stack:
        first, second, _third = [
            await stack.enter_async_context(await trio.open_tcp_stream(endpoint.host, endpoint.port)) for _ in range(3)
        ]
        with trio.fail_after(60):
            assert await first.receive_some() == b""
        await second.send_all(GET + b"\r\n")
        assert (await second.receive_some()).startswith(b"HTTP/1.1 200")


async def test_a_response_may_take_its_time(mock_clock: MockClock) -> None:
    app = App()
    async with serving(app) as endpoint, await trio.open_tcp_stream(endpoint.host, endpoint.port) as stream:
        await stream.send_all(b"GET /late HTTP/1.1\r\nHost: x\r\n\r\n")
        await app.asked.wait()
        mock_clock.jump(30)  # time does not pass by itself
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("data", [b"", b"GET / HT", GET + b"\r\n"], ids=["silent", "half a request", "kept alive"])
async def test_a_connection_without_a_request_is_closed(
    data: bytes, mock_clock: MockClock, nursery: trio.Nursery
) -> None:
    closed = trio.Event()

    async def receive(stream: trio.SocketStream) -> None:
        while await stream.receive_some():
            pass
        closed.set()

    async with (
        serving() as endpoint,
        await trio.open_tcp_stream(endpoint.host, endpoint.port) as stream,
    ):
        await stream.send_all(data)
        nursery.start_soon(receive, stream)
        for _ in range(30):  # time does not pass by itself
            mock_clock.jump(1)
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert closed.is_set()


async def test_the_server_ends_in_time_although_clients_do_not_read() -> None:
    app = App()
    async with trio.open_nursery() as nursery:
        endpoint: Endpoint = await nursery.start(serve_app, app, ANYWHERE)
        async with await trio.open_tcp_stream(endpoint.host, endpoint.port) as stream:
            await stream.send_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
            await app.asked.wait()
            await trio.sleep(0.1)
            nursery.cancel_scope.cancel(reason="the test")
            ended_at = trio.current_time()
    assert trio.current_time() - ended_at < 30  # half of the time that a connection may take


# Requests that are held up.


class Held:
    """An application that answers when it is released."""

    def __init__(self) -> None:
        self.endpoint = ANYWHERE
        self.entered = trio.Event()
        self.release = trio.Event()
        self.release.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.entered.set()
        await self.release.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"{}"})

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", self.endpoint.port)


POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n[]"


async def ask(stream: trio.SocketStream) -> bytes:
    await stream.send_all(POST)
    return bytes(await stream.receive_some())


@contextlib.asynccontextmanager
async def holding(state: Held, ended: trio.Event, **options: Any) -> AsyncIterator[trio.CancelScope]:
    """Serve in the block; the scope stops the server, which sets the event when it has ended."""
    scope = trio.CancelScope()

    async def serve(*, task_status: trio.TaskStatus[Endpoint]) -> None:
        with scope:
            await serve_app(state, state.endpoint, task_status=task_status, **options)
        ended.set()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            state.endpoint = await nursery.start(serve)
            yield scope
            scope.cancel(reason="the test is over")


async def test_requests_are_answered_on_a_connection_that_is_kept() -> None:
    state = Held()
    async with holding(state, trio.Event()), await state.connect() as stream:
        for _ in range(3):
            assert (await ask(stream)).startswith(b"HTTP/1.1 200 OK")


async def test_a_stopping_server_answers_requests_in_progress_and_closes_idle_connections() -> None:
    state, ended = Held(), trio.Event()
    async with (
        holding(state, ended, limits=Limits(drain=60)) as scope,
        await state.connect() as idle,
        await state.connect() as busy,
    ):
        await ask(idle)
        state.entered, state.release = trio.Event(), trio.Event()
        await busy.send_all(POST)
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
    monkeypatch.setattr(server, "_GRACE", 60)
    state, ended = Held(), trio.Event()
    state.release = trio.Event()
    async with holding(state, ended) as scope:
        async with await state.connect() as busy:
            await busy.send_all(POST)
            await state.entered.wait()
            scope.cancel(reason="the test")
            assert bytes(await busy.receive_some()).startswith(b"HTTP/1.1 500")
        await ended.wait()


async def test_the_connection_without_a_request_for_the_longest_time_makes_room() -> None:
    state, limits = Held(), Limits(connections=2)
    async with (
        holding(state, trio.Event(), limits=limits),
        await state.connect() as first,
        await state.connect() as second,
    ):
        await ask(first)
        await ask(second)
        await ask(first)
        async with await state.connect() as third:
            await ask(third)
            assert await second.receive_some() == b""
            assert (await ask(first)).startswith(b"HTTP/1.1 200 OK")


async def test_a_request_in_progress_is_not_given_up_for_a_new_connection() -> None:
    state, limits = Held(), Limits(connections=2)
    state.release = trio.Event()
    async with (
        holding(state, trio.Event(), limits=limits),
        await state.connect() as first,
        await state.connect() as second,
    ):
        for stream in (first, second):
            state.entered = trio.Event()
            await stream.send_all(POST)
            await state.entered.wait()
        for _ in range(5):
            async with await state.connect() as third:
                with contextlib.suppress(trio.BrokenResourceError):
                    assert await third.receive_some() == b""
        state.release.set()
        for stream in (first, second):
            assert bytes(await stream.receive_some()).startswith(b"HTTP/1.1 200 OK")


async def test_what_a_client_still_sends_is_given_up_for_others_and_the_longest_first() -> None:
    state, limits = Held(), Limits(connections=3)
    async with holding(state, trio.Event(), limits=limits), contextlib.AsyncExitStack() as stack:
        slow = []
        for _ in range(3):
            slow.append(await stack.enter_async_context(await state.connect()))
            await slow[-1].send_all(POST[:20])
            await trio.sleep(0.05)
        for closed in slow[:2]:
            stream = await stack.enter_async_context(await state.connect())
            await stream.send_all(POST[:20])
            assert await closed.receive_some() == b"", "without a word"


async def test_errors_of_a_connection_end_that_connection_only() -> None:
    state = Held()
    async with holding(state, trio.Event()):
        broken = await state.connect()
        await broken.send_all(POST)
        broken.socket.close()
        async with await state.connect() as stream:
            assert (await ask(stream)).startswith(b"HTTP/1.1 200 OK")


async def test_a_draining_server_accepts_connections_and_closes_each_with_its_next_response() -> None:
    state, draining = Held(), trio.Event()
    async with holding(state, trio.Event(), is_draining=draining.is_set), await state.connect() as kept:
        assert b"connection: close" not in await ask(kept)
        draining.set()
        for stream in (kept, await state.connect()):
            async with stream:
                response = await ask(stream)
                assert response.startswith(b"HTTP/1.1 200 OK")
                assert b"connection: close" in response
                assert await stream.receive_some() == b""


async def test_a_request_on_an_idle_connection_is_answered_at_any_time_while_the_server_drains() -> None:
    state, draining = Held(), trio.Event()
    async with holding(state, trio.Event(), is_draining=draining.is_set), await state.connect() as idle:
        await ask(idle)
        draining.set()
        with trio.move_on_after(0.2):
            assert await idle.receive_some() != b""
        assert (await ask(idle)).startswith(b"HTTP/1.1 200 OK")


# TLS.


class Tls:
    """A certificate of a server, and clients that trust it."""

    def __init__(self) -> None:
        authority = trustme.CA()
        self.context, self._client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
        authority.issue_cert("127.0.0.1").configure_cert(self.context)
        authority.configure_trust(self._client)
        self.entered = trio.Event()

    def make_context(self) -> ssl.SSLContext:
        self.entered.set()
        return self.context

    def secure(self, stream: trio.SocketStream) -> trio.SSLStream[trio.SocketStream]:
        return trio.SSLStream(stream, self._client, server_hostname="127.0.0.1", https_compatible=True)

    async def ask(self, stream: trio.SocketStream) -> bytes:
        """Shake hands, send a request and return the response."""
        secured = self.secure(stream)
        try:
            await secured.send_all(POST)
            return bytes(await secured.receive_some())
        finally:
            await trio.aclose_forcefully(secured)


async def test_handshakes_that_take_longest_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_MAX_HANDSHAKES", 3)
    state, tls = Held(), Tls()
    async with holding(state, trio.Event(), make_context=tls.make_context), contextlib.AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(await state.connect()) for _ in range(6)]
        assert (await tls.ask(await state.connect())).startswith(b"HTTP/1.1 200 OK")
        for stream in silent[:3]:
            with contextlib.suppress(trio.BrokenResourceError):
                assert await stream.receive_some() == b""


async def test_a_handshake_in_progress_when_the_server_stops_leads_to_an_answer() -> None:
    state, tls = Held(), Tls()
    async with holding(state, trio.Event(), limits=Limits(drain=60), make_context=tls.make_context) as scope:
        stream = await state.connect()
        await tls.entered.wait()
        scope.cancel(reason="the test")
        await trio.testing.wait_all_tasks_blocked()
        response = await tls.ask(stream)
        assert response.startswith(b"HTTP/1.1 200 OK")
        assert b"connection: close" in response


async def test_a_slow_handshake_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_HANDSHAKE", 0.2)
    state, tls = Held(), Tls()
    async with holding(state, trio.Event(), make_context=tls.make_context), await state.connect() as slow:
        await slow.send_all(bytes.fromhex("16030100c8010000c40303"))
        with contextlib.suppress(trio.BrokenResourceError):
            while await slow.receive_some():
                pass
        assert (await tls.ask(await state.connect())).startswith(b"HTTP/1.1 200 OK")


async def test_idle_connections_with_tls_keep_nobody_out() -> None:
    state, tls, limits = Held(), Tls(), Limits(connections=50, idle=600)
    async with (
        holding(state, trio.Event(), limits=limits, make_context=tls.make_context),
        contextlib.AsyncExitStack() as stack,
    ):
        idle = []
        for _ in range(60):
            idle.append(tls.secure(await state.connect()))
            stack.push_async_callback(trio.aclose_forcefully, idle[-1])
            await idle[-1].do_handshake()
        assert (await tls.ask(await state.connect())).startswith(b"HTTP/1.1 200 OK")
        assert await idle[0].receive_some() == b"", "the first of them"


async def test_the_end_of_a_connection_with_tls_is_announced() -> None:
    state, tls = Held(), Tls()
    async with holding(state, trio.Event(), make_context=tls.make_context, is_draining=lambda: True):
        secured = tls.secure(await state.connect())
        await secured.send_all(POST)
        received = b""
        while data := await secured.receive_some():  # raises an error if it is not
            received += data
        assert received.endswith(b"{}")
        await trio.aclose_forcefully(secured)
