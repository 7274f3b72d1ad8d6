"""Tests for :mod:`trioperator._http.server`, on real sockets."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import random
import socket
import struct
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

import httpx
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.http.attacks import ATTACKS, CONNECT_H2, mutate
from trioperator._http import server
from trioperator._http.endpoint import Endpoint, parse_endpoint
from trioperator._http.server import serve_app
from trioperator.errors import ConfigError

ANYWHERE = parse_endpoint("http://127.0.0.1:0/")
GET = b"GET / HTTP/1.1\r\nHost: x\r\n"
CLOSE = b"Connection: close\r\n\r\n"


class App:
    """An application that responds with the path, except for ``/slow`` (never), ``/late`` and ``/broken``."""

    def __init__(self) -> None:
        self.asked = trio.Event()
        self.cancelled = False

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        self.asked.set()
        if scope["path"] == "/slow":
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                self.cancelled = True
                raise
        if scope["path"] == "/late":
            await trio.sleep(30)
        if scope["path"] == "/broken":
            raise ValueError("broken")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/large":
            for _ in range(1000):
                await send({"type": "http.response.body", "body": bytes(65_536), "more_body": True})
        await send({"type": "http.response.body", "body": scope["path"].encode()})


@contextlib.asynccontextmanager
async def serving(app: App | None = None, **options: Any) -> AsyncIterator[Endpoint]:
    """Serve the application in a nursery that no error may leave, and check at the end that it still responds."""
    async with trio.open_nursery() as nursery:
        endpoint: Endpoint = await nursery.start(functools.partial(serve_app, app or App(), ANYWHERE, **options))
        yield endpoint
        assert (await talk(endpoint, GET + CLOSE)).startswith(b"HTTP/1.1 200")
        nursery.cancel_scope.cancel(reason="the test")


async def talk(endpoint: Endpoint, data: bytes, *, eof: bool = False) -> bytes:
    """Send the bytes, and return what the server sends until it closes the connection."""
    received = b""
    with trio.fail_after(20):
        async with await trio.open_tcp_stream(endpoint.host, endpoint.port) as stream:
            with contextlib.suppress(trio.BrokenResourceError):
                await stream.send_all(data)
                if eof:
                    await stream.send_eof()
            with contextlib.suppress(trio.BrokenResourceError):
                while chunk := await stream.receive_some():
                    received += chunk
    return received


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


@pytest.mark.parametrize("name", ATTACKS)
async def test_an_attack_ends_at_most_its_connection(name: str) -> None:
    async with serving(lifetime=0.5) as endpoint:
        await talk(endpoint, ATTACKS[name], eof=True)
        await talk(endpoint, ATTACKS[name])
        await reset(endpoint, ATTACKS[name])


@pytest.mark.parametrize("seed", range(4))
async def test_random_bytes_end_at_most_their_connections(seed: int) -> None:
    rng = random.Random(seed)
    async with serving(lifetime=0.5) as endpoint:
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


async def test_a_client_that_has_gone_frees_its_connection_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_IDLE", 600)
    async with serving(lifetime=600) as endpoint:
        assert await talk(endpoint, b"", eof=True) == b""


@pytest.mark.parametrize("name", ["an upgrade to h2c", "an upgrade to a WebSocket"])
async def test_an_upgrade_is_ignored(name: str) -> None:
    async with serving(lifetime=0.5) as endpoint:
        assert (await talk(endpoint, ATTACKS[name])).startswith(b"HTTP/1.1 200 ")


async def test_an_error_of_a_connection_is_logged_at_debug_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(lifetime=1) as endpoint:
        await talk(endpoint, ATTACKS["CONNECT under h2"], eof=True)
    [record] = [record for record in caplog.records if record.name == "trioperator.http.server"]
    assert (record.levelno, record.message, bool(record.exc_info)) == (logging.DEBUG, "A connection has failed.", True)


@pytest.mark.parametrize("data", [b"", b"GET / HT", GET + b"\r\n"], ids=["silent", "half a request", "kept alive"])
async def test_three_hundred_idle_connections_keep_nobody_out(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_IDLE", 600)
    async with serving(lifetime=600) as endpoint, contextlib.AsyncExitStack() as stack:
        for _ in range(300):
            stream = await stack.enter_async_context(await trio.open_tcp_stream(endpoint.host, endpoint.port))
            await stream.send_all(data)
        assert (await talk(endpoint, GET + CLOSE)).startswith(b"HTTP/1.1 200")


async def test_the_oldest_connection_beyond_the_limit_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_MAX_CONNECTIONS", 2)
    monkeypatch.setattr(server, "_IDLE", 600)
    async with serving(lifetime=600) as endpoint, contextlib.AsyncExitStack() as stack:
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
        serving(lifetime=600) as endpoint,
        await trio.open_tcp_stream(endpoint.host, endpoint.port) as stream,
    ):
        await stream.send_all(data)
        nursery.start_soon(receive, stream)
        for _ in range(30):  # time does not pass by itself
            mock_clock.jump(1)
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert closed.is_set()


async def test_an_unfinished_body_ends_with_the_life_of_its_connection() -> None:
    async with serving(lifetime=0.3) as endpoint, await trio.open_tcp_stream(endpoint.host, endpoint.port) as stream:
        await stream.send_all(b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
        with trio.fail_after(50), contextlib.suppress(trio.BrokenResourceError):
            while await stream.receive_some():
                pass


async def test_a_client_that_does_not_read_is_disconnected() -> None:
    async with serving(lifetime=0.3) as endpoint, await trio.open_tcp_stream(endpoint.host, endpoint.port) as stream:
        await stream.send_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        await trio.sleep(0.6)
        with trio.fail_after(10), contextlib.suppress(trio.BrokenResourceError):
            while await stream.receive_some():
                pass


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
