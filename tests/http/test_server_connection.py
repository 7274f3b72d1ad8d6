"""Tests for :mod:`trioperator._http.server_connection`, over socket pairs in virtual time."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.http.attacks import ATTACKS, SMUGGLED
from trioperator._concurrency.timeouts import Timeouts
from trioperator._http.asgi import LIMIT, AsgiApp, Message, Receive, Send, TimeLimit
from trioperator._http.hypercorn_stream import Caller, Peers
from trioperator._http.server_connection import Connection, Limits, Serving
from trioperator._http.tls_connection import TlsConnection

LIMITS = Limits(idle=60.0, answering=100.0)
PEERS = Peers(client=("127.0.0.1", 1), server=("127.0.0.1", 2), is_tls=False)
HEAD = b"POST /a%20b?x=y HTTP/1.1\r\nHost: x\r\nuser-agent: me\r\n"
GOOD = HEAD + b"Content-Length: 3\r\n\r\nabc"
JSON = [(b"content-type", b"application/json")]


class Exchange:
    """A connection, its client, and an application with the requests so far, which it answers after a while."""

    def __init__(self, client: trio.SocketStream, transport: TlsConnection, app: AsgiApp | None) -> None:
        self.client = client
        self.scopes: list[Message] = []
        self.bodies: list[bytes] = []
        self.seconds = 0.0
        self.reads = True
        self.is_draining = False
        self.timeouts = Timeouts()
        serving = Serving(Caller(app or self.answer), LIMITS, self.timeouts, lambda: self.is_draining)
        self.connection = Connection(transport, serving)
        self.ended = trio.Event()

    async def answer(self, scope: Message, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        body, more = b"", self.reads
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.bodies.append(body)
        await trio.sleep(self.seconds)
        await respond(send)

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


async def respond(send: Send, body: bytes = b"[]", *, status: int = 200, headers: Any = None) -> None:
    if headers is None:
        headers = [*JSON, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def connected(app: AsgiApp | None = None) -> AsyncIterator[Exchange]:
    one, other = socket.socketpair()
    one.setblocking(False)
    client = trio.SocketStream(trio.socket.from_stdlib_socket(other))
    transport = TlsConnection(one, None)
    bench = Exchange(client, transport, app)

    async def serve() -> None:
        try:
            await bench.connection.serve(PEERS)
        except OSError:
            pass  # the client is gone
        finally:
            transport.close()
            bench.ended.set()

    async with client, trio.open_nursery() as nursery:
        nursery.start_soon(bench.timeouts.serve)
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
    (scope,) = bench.scopes
    assert (scope["method"], scope["path"], scope["query_string"]) == ("POST", "/a b", b"x=y")
    assert (scope["client"], scope["server"], scope["scheme"]) == (PEERS.client, PEERS.server, "http")
    assert scope["headers"] == [(b"host", b"x"), (b"user-agent", b"me"), (b"content-length", b"3")]
    assert scope["extensions"].keys() == {"trioperator.sslpeer", "trioperator.limit"}
    assert scope["extensions"]["trioperator.sslpeer"] is None
    assert bench.bodies == [b"abc"]


@pytest.mark.parametrize("size", [1, 7, 50])
async def test_requests_may_come_in_pieces_and_together(size: int, autojump_clock: MockClock) -> None:
    data = GOOD * 3
    async with connected() as bench:
        await bench.send(*(data[at : at + size] for at in range(0, len(data), size)))
        assert statuses(await bench.receive()) == [200, 200, 200]
    assert bench.bodies == [b"abc"] * 3


async def test_chunked_bodies_are_joined_without_trailers(autojump_clock: MockClock) -> None:
    async with connected() as bench:
        chunked = b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\nUser-Agent: evil\r\n\r\n"
        await bench.send(HEAD + chunked)
        assert statuses(await bench.receive()) == [200]
    assert bench.bodies == [b"abc"]
    assert (b"user-agent", b"evil") not in bench.scopes[0]["headers"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"junk\r\n\r\n", [400]),
        (GOOD + b"junk\r\n\r\n", [200, 400]),
        (b"POST http://x/ HTTP/1.1\r\nHost: x\r\n\r\n", [400]),
        (b"POST / HTTP/2.0\r\nHost: x\r\n\r\n", [505]),
        (HEAD + b"X: " + b"x" * 200_000 + b"\r\n\r\n", [431]),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\nzz\r\n", [400]),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n" + b"A: b\r\n" * 30_000, [431]),
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


async def test_an_answer_may_take_its_time(autojump_clock: MockClock) -> None:
    async with connected() as bench:
        bench.seconds = 99
        await bench.send(GOOD)
        await trio.sleep(98)
        assert statuses(await bench.receive()) == []
        await trio.sleep(1)
        assert statuses(await bench.receive()) == [200]


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


@pytest.mark.parametrize(("limit", "after"), [(5.0, 5.0), (0.0, 0.0), (500.0, 100.0), (float("inf"), 100.0)])
async def test_an_application_may_limit_its_time(limit: float, after: float, autojump_clock: MockClock) -> None:
    ended: list[float] = []

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await receive()
        scope["extensions"][LIMIT](TimeLimit(limit))
        try:
            await trio.sleep_forever()
        finally:
            ended.append(trio.current_time())

    async with connected(app) as bench:
        await bench.send(GOOD)
        assert statuses(await bench.read()) == [504]
        assert ended == [pytest.approx(after)]


async def test_what_is_late_gets_the_response_that_its_application_has_for_that(autojump_clock: MockClock) -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await receive()
        limit = TimeLimit(5)
        scope["extensions"][LIMIT](limit)
        try:
            await trio.sleep_forever()
        finally:
            limit.make_late = lambda: b'"too late"'

    async with connected(app) as bench:
        await bench.send(GOOD)
        received = await bench.read()
        assert (statuses(received), b"connection: close" in received) == ([200], True)
        assert received.endswith(b'\r\n\r\n"too late"')


@pytest.mark.parametrize("end", ["drop", "abandon"])
async def test_what_is_cancelled_for_another_reason_is_not_called_late(end: str, autojump_clock: MockClock) -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await receive()
        scope["extensions"][LIMIT](TimeLimit(5, lambda: b'"too late"'))
        await trio.sleep_forever()

    async with connected(app) as bench:
        await bench.send(GOOD)
        await trio.sleep(1)
        getattr(bench.connection, end)()
        assert b"too late" not in await bench.read()


async def test_a_limit_is_for_one_response_that_has_not_begun(autojump_clock: MockClock) -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await receive()
        if scope["path"] == "/limited":
            scope["extensions"][LIMIT](TimeLimit(5))
            await trio.sleep(4)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        await trio.sleep(20)
        await send({"type": "http.response.body", "body": b"b"})

    async with connected(app) as bench:
        await bench.send(GOOD.replace(b"/a%20b?x=y", b"/limited"), GOOD, pause=30)
        await trio.sleep(60)
        received = await bench.receive()
        assert (statuses(received), received.count(b"\r\na\r\n1\r\nb\r\n0\r\n")) == ([200, 200], 2)


async def test_a_limited_request_that_is_abandoned_gets_the_error_of_the_others(autojump_clock: MockClock) -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        scope["extensions"][LIMIT](TimeLimit(5))
        await trio.sleep_forever()

    async with connected(app) as bench:
        await bench.send(GOOD)
        await wait_all_tasks_blocked()
        bench.connection.abandon()
        assert statuses(await bench.read()) == [500]


async def test_an_abandoned_request_gets_an_error(autojump_clock: MockClock) -> None:
    async with connected() as bench:
        bench.seconds = 90
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


@pytest.mark.parametrize("name", SMUGGLED)
async def test_requests_that_may_be_smuggled_are_refused_with_all_that_follows(
    name: str, autojump_clock: MockClock
) -> None:
    async with connected() as bench:
        await bench.send(GOOD + SMUGGLED[name] + GOOD)
        received = await bench.read()
    assert statuses(received)[0] == 200
    assert statuses(received)[1:] in ([400], [501], [505])
    assert received.count(b"connection: close") == 1
    assert bench.bodies == [b"abc"]


async def test_a_body_that_the_application_does_not_want_is_not_read(autojump_clock: MockClock) -> None:
    async with connected() as bench:
        bench.reads = False
        await bench.send(HEAD + b"Content-Length: 900\r\nExpect: 100-continue\r\n\r\n")
        received = await bench.read()
        assert statuses(received) == [200], "it need not go on"
        assert b"connection: close" in received
        await bench.send(b"x" * 900)  # which may be on its way: it is read, and dropped
        await bench.ended.wait()


async def test_a_body_is_received_when_the_application_asks_for_it(autojump_clock: MockClock) -> None:
    parts: list[bytes] = []

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            parts.append(message["body"])
            if not message["more_body"]:
                break
            await trio.sleep(1)
        await respond(send)

    async with connected(app) as bench:
        chunk = b"200\r\n%b\r\n" % (b"xy" * 256)
        await bench.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 1000 + b"0\r\n\r\n")
        assert statuses(await bench.receive()) == []
        await trio.sleep(100)
        assert statuses(await bench.receive()) == [200]
    assert b"".join(parts) == b"xy" * 256_000
    assert max(map(len, parts)) <= 65_536


async def test_a_stream_is_sent_as_it_comes_and_its_application_learns_when_the_client_is_gone(
    autojump_clock: MockClock,
) -> None:
    kinds: list[str] = []

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        async def stream() -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while True:
                await send({"type": "http.response.body", "body": b"tick", "more_body": True})
                await trio.sleep(50)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream)
            while (message := await receive())["type"] != "http.disconnect":
                kinds.append(message["type"])
            kinds.append(message["type"])
            nursery.cancel_scope.cancel(reason="the client is gone")

    async with connected(app) as bench:
        await bench.send(GOOD)
        await trio.sleep(500)
        received = await bench.receive()
        assert b"transfer-encoding: chunked\r\n\r\n4\r\ntick\r\n4\r\ntick\r\n" in received
        assert kinds == ["http.request"]
        await bench.client.aclose()
        await bench.ended.wait()
    assert kinds == ["http.request", "http.disconnect"]


async def test_an_application_whose_client_does_not_read_is_cancelled(autojump_clock: MockClock) -> None:
    cancelled = trio.Event()

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while True:
                await send({"type": "http.response.body", "body": bytes(65_536), "more_body": True})
        finally:
            cancelled.set()

    async with connected(app) as bench:
        await bench.send(GOOD)
        await cancelled.wait()
        await bench.ended.wait()
        assert 10 <= trio.current_time() <= 11


@pytest.mark.parametrize(
    ("request_head", "status", "headers", "expected"),
    [
        (b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", 200, [(b"content-length", b"2")], b"content-length: 2\r\n\r\n"),
        (b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", 200, [], b"HTTP/1.1 200 OK\r\n\r\n"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 204, [], b"HTTP/1.1 204 No Content\r\n\r\n"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 200, [], b"chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 299, [(b"transfer-encoding", b"gzip")], b"2\r\n[]\r\n0\r\n\r\n"),
        (b"GET / HTTP/1.0\r\n\r\n", 200, [], b"connection: close\r\n\r\n[]"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 200, [(b"connection", b"close")], b"2\r\n[]\r\n0\r\n\r\n"),
    ],
)
async def test_a_response_has_the_body_and_the_end_that_its_client_expects(
    request_head: bytes, status: int, headers: Any, expected: bytes, autojump_clock: MockClock
) -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await respond(send, status=status, headers=headers)

    async with connected(app) as bench:
        await bench.send(request_head)
        received = await bench.receive()
        assert received.endswith(expected)
        assert statuses(received) == [status]
        is_closed = headers == [(b"connection", b"close")] or request_head.startswith(b"GET / HTTP/1.0")
        assert (b"connection: close" in received) is is_closed


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"[]", [(b"content-length", b"1")]),
        (b"[]", [(b"content-length", b"3")]),
        (b"[]", [(b"content-length", b"x")]),
        (b"[]", [(b"location", b"/x\r\nset-cookie: y")]),
        (b"[]", [(b"location", b"/x\ny")]),
    ],
)
async def test_a_response_that_its_client_would_misunderstand_ends_the_connection(
    body: bytes, headers: Any, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await respond(send, body, headers=headers)

    async with connected(app) as bench:
        await bench.send(GOOD + GOOD)
        received = await bench.read()
    assert len(statuses(received)) <= 1
    assert b"set-cookie" not in received
    assert caplog.messages == ["Error in ASGI Framework"]


async def test_an_application_that_does_not_answer_is_an_error(autojump_clock: MockClock) -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if scope["path"] == "/half":
            await send({"type": "http.response.start", "status": 200, "headers": []})

    async with connected(app) as bench:
        await bench.send(GOOD)
        assert statuses(await bench.read()) == [500]
    async with connected(app) as bench:
        await bench.send(b"GET /half HTTP/1.1\r\nHost: x\r\n\r\n")
        assert statuses(await bench.read()) == [500]


async def test_an_application_that_says_nothing_for_long_is_given_up(autojump_clock: MockClock) -> None:
    async with connected() as bench:
        bench.seconds = 1000
        await bench.send(GOOD)
        assert statuses(await bench.read()) == [500]
        assert 100 <= trio.current_time() <= 101


async def test_a_draining_server_says_that_a_response_is_the_last_one(autojump_clock: MockClock) -> None:
    async with connected() as bench:
        await bench.send(GOOD)
        assert b"connection: close" not in await bench.receive()
        bench.is_draining = True
        await trio.sleep(10)
        await bench.send(GOOD)
        assert b"connection: close" in await bench.read()


async def test_the_last_response_is_seen_although_the_client_is_still_sending(autojump_clock: MockClock) -> None:
    async with connected() as bench:
        bench.reads = False
        await bench.send(HEAD + b"Content-Length: 1000000\r\n\r\n")
        await wait_all_tasks_blocked()
        for _ in range(10):
            await bench.send(b"x" * 65_536)
        assert statuses(await bench.read()) == [200]
