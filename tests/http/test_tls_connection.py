"""Bytes over sockets, with TLS and without. How connections are reused is tested with the connection pool."""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.kube.conftest import Script, Serve, Talk
from trioperator._concurrency.timeouts import Timeouts
from trioperator._http.tls_connection import TlsConnection, open_connection
from trioperator._kube.tls_config import TlsConfig, build_ssl_context


class Connector:
    """Opens connections to servers, with TLS or without."""

    def __init__(self, serve: Serve, server_tls: ssl.SSLContext | None, client_tls: ssl.SSLContext | None) -> None:
        self._serve = serve
        self._server_tls = server_tls
        self._client_tls = client_tls
        self.timeouts = Timeouts()

    async def __call__(self, script: Script) -> TlsConnection:
        server = await self._serve(script, tls=self._server_tls)
        return await open_connection(
            "127.0.0.1", server.port, context=self._client_tls, server_name="127.0.0.1", timeouts=self.timeouts
        )


@pytest.fixture(params=["plain", "TLS"])
def connect(request: pytest.FixtureRequest, serve: Serve, server_tls: ssl.SSLContext, ca_pem: str) -> Connector:
    if request.param == "plain":
        return Connector(serve, None, None)
    return Connector(serve, server_tls, build_ssl_context(TlsConfig(ca=ca_pem)))


async def echo(talk: Talk) -> None:
    async for data in talk._stream:
        await talk.send(bytes(data))


async def test_the_kernel_detects_a_dead_peer_within_minutes(connect: Connector) -> None:
    with trio.fail_after(60):
        conn = await connect(echo)
        assert conn._sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if sys.platform == "linux":
            idle, interval, count, unanswered = (
                conn._sock.getsockopt(socket.IPPROTO_TCP, name)
                for name in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
            )
            assert idle + count * interval == unanswered / 1000 == 60
        conn.close()


async def test_bytes_go_both_ways(connect: Connector) -> None:
    with trio.fail_after(60):
        conn = await connect(echo)
        await conn.send(b"hello")
        assert await conn.receive() == b"hello"
        conn.close()


async def test_what_has_arrived_is_received_at_once(connect: Connector) -> None:
    sent = trio.Event()

    async def script(talk: Talk) -> None:
        for data in (b"a", b"b", b"c"):
            await talk.send(data)
        sent.set()
        await talk._fill()

    with trio.fail_after(60):
        conn = await connect(script)
        await sent.wait()
        assert await conn.receive() == b"abc"
        conn.close()


async def test_what_was_sent_before_an_invalid_record_is_received(connect: Connector) -> None:
    sent = trio.Event()

    async def script(talk: Talk) -> None:
        await talk.send(b"a")
        if isinstance(talk._stream, trio.SSLStream):
            await talk._stream.transport_stream.send_all(b"this is no record")
        sent.set()

    with trio.fail_after(60):
        conn = await connect(script)
        await sent.wait()
        assert await conn.receive() == b"a"
        if conn._tls is not None:
            for _ in range(2):
                with pytest.raises(ssl.SSLError):
                    await conn.receive()
        conn.close()


@pytest.mark.parametrize("notify", [False, True])
async def test_only_a_tls_stream_without_close_notify_is_truncated(connect: Connector, notify: bool) -> None:
    async def script(talk: Talk) -> None:
        await talk.send(b"bye")
        if notify and isinstance(talk._stream, trio.SSLStream):
            await talk._stream.unwrap()

    with trio.fail_after(60):
        conn = await connect(script)
        assert await conn.receive() == b"bye"
        assert await conn.receive() == b""
        assert conn.truncated == (conn._tls is not None and not notify)
        conn.close()


async def test_an_idle_connection_is_alive_until_the_server_closes_it(connect: Connector) -> None:
    close = trio.Event()

    async def script(talk: Talk) -> None:
        await talk._fill()
        await talk.send(b"x")
        await close.wait()

    with trio.fail_after(60):
        conn = await connect(script)
        await conn.send(b"x")
        await conn.receive()
        assert conn.is_alive()
        close.set()
        await trio.lowlevel.wait_readable(conn._sock)
        assert not conn.is_alive()
        conn.close()


async def test_a_connection_with_unexpected_data_is_not_alive(connect: Connector) -> None:
    async def script(talk: Talk) -> None:
        await talk._fill()
        await talk.send(b"xy")
        await talk._fill()

    with trio.fail_after(60):
        conn = await connect(script)
        await conn.send(b"x")
        while conn.is_alive():  # nothing has arrived yet, or only session tickets
            await trio.lowlevel.wait_readable(conn._sock)
        conn.close()


async def test_closing_twice_does_no_harm(connect: Connector) -> None:
    with trio.fail_after(60):
        conn = await connect(echo)
        conn.close()
        conn.close()


async def test_a_refused_connection_raises_os_error() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    await listeners[0].aclose()
    with pytest.raises(OSError, match="all attempts to connect"):
        await open_connection("127.0.0.1", port, context=None, server_name="x")


@contextlib.asynccontextmanager
async def keeping(timeouts: Timeouts, *, by_task: bool) -> AsyncIterator[None]:
    """Keep deadlines in a task, or let each wait keep its own."""
    async with trio.open_nursery() as nursery:
        if by_task:
            nursery.start_soon(timeouts.serve)
            await trio.testing.wait_all_tasks_blocked()
        yield
        nursery.cancel_scope.cancel(reason="the test is over")


async def stay_silent(talk: Talk) -> None:
    if isinstance(talk._stream, trio.SSLStream):
        await talk._stream.do_handshake()
    await trio.sleep_forever()


@pytest.mark.parametrize("by_task", [True, False])
async def test_nothing_is_received_after_the_deadline(connect: Connector, by_task: bool, mock_clock: MockClock) -> None:
    conn = await connect(stay_silent)
    async with keeping(connect.timeouts, by_task=by_task):
        mock_clock.autojump_threshold = 0.05
        conn.limit(trio.current_time() + 20)
        with pytest.raises(trio.TooSlowError):
            await conn.receive()
        assert 20 <= trio.current_time() < 21
        with pytest.raises(trio.TooSlowError):
            await conn.receive()
    conn.close()


@pytest.mark.parametrize("by_task", [True, False])
async def test_nothing_is_sent_after_the_deadline(connect: Connector, by_task: bool, mock_clock: MockClock) -> None:
    conn = await connect(stay_silent)
    async with keeping(connect.timeouts, by_task=by_task):
        mock_clock.autojump_threshold = 0.05
        conn.limit(trio.current_time() + 20)
        with pytest.raises(trio.TooSlowError):
            await conn.send(bytes(50_000_000))
        assert 20 <= trio.current_time() < 21
    conn.close()


async def test_a_deadline_that_is_moved_while_something_waits_counts(connect: Connector, mock_clock: MockClock) -> None:
    conn = await connect(stay_silent)
    async with keeping(connect.timeouts, by_task=True), trio.open_nursery() as nursery:
        mock_clock.autojump_threshold = 0.05

        async def receive() -> None:
            with pytest.raises(trio.TooSlowError):
                await conn.receive()

        conn.limit(trio.current_time() + 20)
        nursery.start_soon(receive)
        await trio.sleep(10)
        conn.limit(trio.current_time() + 20)
    assert 30 <= trio.current_time() < 31
    conn.close()


async def test_a_deadline_outlives_the_task_that_has_kept_it(connect: Connector, mock_clock: MockClock) -> None:
    conn = await connect(stay_silent)
    async with trio.open_nursery() as nursery:

        async def receive() -> None:
            with pytest.raises(trio.TooSlowError):
                await conn.receive()

        async with keeping(connect.timeouts, by_task=True):
            conn.limit(trio.current_time() + 20)
            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
        mock_clock.autojump_threshold = 0.05
    assert 20 <= trio.current_time() < 21
    conn.close()


async def test_a_closed_connection_is_not_kept(connect: Connector) -> None:
    with trio.fail_after(60):
        conn = await connect(stay_silent)
        assert connect.timeouts._timed == {conn}
        conn.close()
        assert not connect.timeouts._timed


async def test_a_connection_that_could_not_be_made_is_not_kept(serve: Serve, ca_pem: str) -> None:
    server, timeouts = await serve(stay_silent), Timeouts()
    context = build_ssl_context(TlsConfig(ca=ca_pem))
    with pytest.raises(ValueError):  # of the ssl module: no name begins with a dot
        await open_connection("127.0.0.1", server.port, context=context, server_name=".x", timeouts=timeouts)
    assert not timeouts._timed
