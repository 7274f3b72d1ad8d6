"""Tests for :mod:`trioperator._http.server_connection`, over socket pairs in virtual time."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.http.attacks import ATTACKS
from trioperator._http.server_connection import Budget, Connection, Limits, Request, Response
from trioperator._http.tls_connection import TlsConnection

LIMIT = 1000
LIMITS = Limits(idle=60.0, body=lambda path: None if path == "/nothing" else LIMIT, budget=Budget(100_000))
HEAD = b"POST /a%20b?x=y HTTP/1.1\r\nHost: x\r\nuser-agent: me\r\n"
GOOD = HEAD + b"Content-Length: 3\r\n\r\nabc"


class Bench:
    """A connection, its client, and the requests so far."""

    def __init__(self, client: trio.SocketStream, transport: TlsConnection) -> None:
        self.client = client
        self.requests: list[Request] = []
        self.seconds = 0.0
        self.connection = Connection(transport, self.answer, LIMITS)
        self.ended = trio.Event()

    async def answer(self, request: Request) -> Response:
        self.requests.append(request)
        await trio.sleep(self.seconds)
        return Response(200, b"[]")

    async def send(self, *chunks: bytes, pause: float = 0.0) -> None:
        for number, chunk in enumerate(chunks):
            if number:
                await trio.sleep(pause)
            await self.client.send_all(chunk)

    async def receive(self) -> bytes:
        """Receive what there is when the server has nothing more to say."""
        received = b""
        with trio.move_on_after(0.5):
            while data := await self.client.receive_some():
                received += data
        return received

    async def read(self) -> bytes:
        """Receive until the server closes the connection."""
        received = b""
        async for data in self.client:
            received += data
        return received


@contextlib.asynccontextmanager
async def connected() -> AsyncIterator[Bench]:
    one, other = socket.socketpair()
    one.setblocking(False)
    client = trio.SocketStream(trio.socket.from_stdlib_socket(other))
    transport = TlsConnection(one, None)
    bench = Bench(client, transport)

    async def serve() -> None:
        try:
            await bench.connection.serve()
        except OSError:
            pass  # the client is gone
        finally:
            transport.close()
            bench.ended.set()

    async with client, trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        yield bench
        nursery.cancel_scope.cancel(reason="the test is over")


def statuses(received: bytes) -> list[int]:
    return [int(part[:3]) for part in received.split(b"HTTP/1.1 ")[1:]]


async def test_a_request_is_passed_on_and_answered(autojump_clock: MockClock) -> None:
    async with connected() as bench:
        await bench.send(GOOD)
        expected = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n[]"
        assert await bench.receive() == expected
    (request,) = bench.requests
    assert (request.method, request.path, request.query, request.body) == ("POST", "/a b", "x=y", b"abc")
    assert request.headers == {"Host": "x", "User-Agent": "me", "Content-Length": "3"}
    assert request.peer is None


@pytest.mark.parametrize("size", [1, 7, 50])
async def test_requests_may_come_in_pieces_and_together(size: int, autojump_clock: MockClock) -> None:
    data = GOOD * 3
    async with connected() as bench:
        await bench.send(*(data[at : at + size] for at in range(0, len(data), size)))
        assert statuses(await bench.receive()) == [200, 200, 200]
    assert [request.body for request in bench.requests] == [b"abc"] * 3


async def test_chunked_bodies_are_joined_without_trailers(autojump_clock: MockClock) -> None:
    async with connected() as bench:
        chunked = b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\nUser-Agent: evil\r\n\r\n"
        await bench.send(HEAD + chunked)
        assert statuses(await bench.receive()) == [200]
    assert (bench.requests[0].body, bench.requests[0].headers["User-Agent"]) == (b"abc", "me")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"junk\r\n\r\n", [400]),
        (GOOD + b"junk\r\n\r\n", [200, 400]),
        (b"POST http://x/ HTTP/1.1\r\nHost: x\r\n\r\n", [400]),
        (b"POST / HTTP/2.0\r\nHost: x\r\n\r\n", [505]),
        (HEAD + b"X: " + b"x" * 200_000 + b"\r\n\r\n", [431]),
        (HEAD + b"Content-Length: 1001\r\n\r\n" + b"x" * 1001, [413]),
        (HEAD + b"Content-Length: 1001\r\nExpect: 100-continue\r\n\r\n", [413]),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 1001 + b"0\r\n\r\n", [413]),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + GOOD, [200]),
        (b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" + GOOD, [200]),
        (HEAD + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n" + GOOD, [200]),
    ],
)
async def test_what_cannot_be_followed_by_a_request_closes_the_connection(
    data: bytes, expected: list[int], autojump_clock: MockClock
) -> None:
    async with connected() as bench:
        await bench.send(data)
        await bench.client.send_eof()
        received = await bench.read()
        assert statuses(received) == expected
        assert received.count(b"connection: close") == 1


async def test_a_client_that_asks_first_is_told_to_go_on(autojump_clock: MockClock) -> None:
    async with connected() as bench:
        await bench.send(HEAD + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert statuses(await bench.receive()) == [100]
        await bench.send(b"abc")
        assert statuses(await bench.receive()) == [200]


@pytest.mark.parametrize("chunks", [(HEAD[:20],), (HEAD + b"Content-Length: 9\r\n\r\n", b"x"), (GOOD + HEAD,)])
async def test_a_slow_request_times_out(chunks: tuple[bytes, ...], autojump_clock: MockClock) -> None:
    async with connected() as bench:
        await bench.send(*chunks, pause=4)
        received = await bench.read()
        assert statuses(received)[-1] == 408
        assert 10 <= trio.current_time() <= 12


async def test_an_idle_connection_is_closed_without_a_word(autojump_clock: MockClock) -> None:
    async with connected() as bench:
        await trio.sleep(50)
        await bench.send(GOOD)
        assert statuses(await bench.read()) == [200]
        assert 110 <= trio.current_time() <= 111


async def test_a_long_request_is_not_limited_here(autojump_clock: MockClock) -> None:
    async with connected() as bench:
        bench.seconds = 1000
        await bench.send(GOOD)
        await trio.sleep(999)
        assert statuses(await bench.read()) == [200]


async def test_closing_lets_the_request_in_progress_finish(autojump_clock: MockClock) -> None:
    async with connected() as bench:
        bench.seconds = 5
        await bench.send(GOOD)
        await trio.sleep(1)
        bench.connection.close()
        received = await bench.read()
        assert (statuses(received), b"connection: close" in received) == ([200], True)
        assert trio.current_time() < 6.1


async def test_closing_an_idle_connection_is_immediate(autojump_clock: MockClock) -> None:
    async with connected() as bench:
        await wait_all_tasks_blocked()
        bench.connection.close()
        assert await bench.read() == b""
        assert trio.current_time() == 0


async def test_an_abandoned_request_gets_an_error(autojump_clock: MockClock) -> None:
    async with connected() as bench:
        bench.seconds = 1000
        await bench.send(GOOD)
        await trio.sleep(1)
        bench.connection.abandon()
        await bench.client.send_eof()
        assert statuses(await bench.read()) == [500]


async def test_a_client_that_reads_nothing_is_given_up(autojump_clock: MockClock) -> None:
    async with connected() as bench:
        bench.seconds = 0.001

        async def flood() -> None:
            with contextlib.suppress(trio.BrokenResourceError):
                while True:
                    await bench.send(GOOD * 100)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood)
            await bench.ended.wait()
            nursery.cancel_scope.cancel(reason="the connection has ended")


@pytest.mark.parametrize("name", ATTACKS)
async def test_attacks_end_their_connection_only(name: str, autojump_clock: MockClock) -> None:
    async with connected() as bench:
        with contextlib.suppress(trio.BrokenResourceError):
            await bench.send(ATTACKS[name])
            await bench.client.send_eof()
            await bench.read()
        await bench.ended.wait()


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300), at=st.integers(0, len(GOOD)))
def test_junk_never_raises(data: bytes, at: int) -> None:
    async def attack() -> None:
        async with connected() as bench:
            with contextlib.suppress(trio.BrokenResourceError):
                await bench.send(GOOD[:at] + data + GOOD[at:])
                await bench.client.send_eof()
                await bench.read()
            await bench.ended.wait()

    trio.run(attack, clock=MockClock(autojump_threshold=0))


async def test_a_body_for_a_path_with_nothing_is_not_read(autojump_clock: MockClock) -> None:
    async with connected() as bench:
        await bench.send(b"POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n")
        assert statuses(await bench.read()) == [404]
        assert bench.requests == []


async def test_large_bodies_share_a_budget_and_small_ones_need_none(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trioperator._http.server_connection._FREE", 10)
    limits = Limits(idle=60.0, body=lambda path: LIMIT, budget=Budget(500))
    monkeypatch.setitem(globals(), "LIMITS", limits)

    def request(size: int) -> bytes:
        return HEAD + b"Content-Length: %d\r\n\r\n" % size + b"x" * size

    async with connected() as one, connected() as two, connected() as three:
        await one.send(request(400)[:-1])
        await wait_all_tasks_blocked()
        assert limits.budget.left == 500 - 389
        await two.send(request(10), request(200))
        assert statuses(await two.read()) == [200, 503]
        await one.send(b"x")
        assert statuses(await one.receive()) == [200]
        assert limits.budget.left == 500
        await three.send(request(400)[:-1])
        await wait_all_tasks_blocked()
        await three.client.aclose()
        await three.ended.wait()
    assert limits.budget.left == 500


async def test_trailers_are_limited(autojump_clock: MockClock) -> None:
    async with connected() as bench:
        await bench.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n", b"A: b\r\n" * 60_000)
        assert statuses(await bench.read()) == [431]
        assert bench.requests == []


async def test_a_body_in_tiny_chunks_takes_no_more_than_its_size(autojump_clock: MockClock) -> None:
    async with connected() as bench:
        await bench.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"2\r\nxy\r\n" * 500 + b"0\r\n\r\n")
        assert statuses(await bench.receive()) == [200]
        assert bench.requests[0].body == b"xy" * 500
