"""The connection pool on real sockets, with TLS and without: reuse, replacement, limits, and every kind of failure."""

from __future__ import annotations

import functools
import ssl
from collections.abc import AsyncIterator, Callable

import pytest
import trio
import trio.testing
import trustme
from trio.testing import MockClock

from tests.kube.conftest import ANSWER, Script, Serve, Server, Talk, answer_all
from trioperator._concurrency.timeouts import Timeouts
from trioperator._http.connection_pool import ConnectionPool, Origin
from trioperator._http.transport import Request, TransportError, find_header
from trioperator._kube.connection_info import ConnectionInfo, parse_server_url
from trioperator._kube.tls_config import build_ssl_context, read_tls_config
from trioperator.errors import PausedError

OpenTransport = Callable[..., ConnectionPool]


@pytest.fixture(params=["deadlines by a task", "deadlines by scopes"])
async def timeouts(request: pytest.FixtureRequest, nursery: trio.Nursery) -> Timeouts:
    """What keeps the deadlines of requests: one task, or each its own."""
    timeouts = Timeouts()
    if request.param == "deadlines by a task":
        nursery.start_soon(timeouts.serve)
    return timeouts


@pytest.fixture
async def open_transport() -> AsyncIterator[OpenTransport]:
    """Open pools to servers, which are closed at the end."""
    opened: list[ConnectionPool] = []

    def open_one(
        server: Server,
        *,
        context: ssl.SSLContext | None = None,
        server_name: str = "",
        max_connections: int = 100,
        timeouts: Timeouts | None = None,
    ) -> ConnectionPool:
        origin = Origin(host="127.0.0.1", port=server.port, context=context, server_name=server_name)
        transport = ConnectionPool(origin, max_connections=lambda: max_connections, timeouts=timeouts)
        opened.append(transport)
        return transport

    yield open_one
    for transport in opened:
        await transport.aclose()


@pytest.fixture
def client_tls(ca: trustme.CA, ca_pem: str) -> ssl.SSLContext:
    return build_ssl_context(read_tls_config(ConnectionInfo(server="https://x", ca_data=ca_pem)))


async def fetch(
    transport: ConnectionPool, method: str = "GET", target: str = "/", *, body: bytes | None = None
) -> bytes:
    """Send one request and read its response."""
    with trio.fail_after(60):
        request = Request(method, target, [(b"Accept", b"*/*")], body, lambda: method != "POST")
        fetched = await transport.fetch(request, limit=10**9, timeout=60)
        assert fetched is not None
        return fetched[1]


def sends(*parts: bytes, end: bool = True) -> Script:
    """Return a script that responds to the first request with these parts, and closes the connection."""

    async def script(talk: Talk) -> None:
        await talk.request()
        for part in parts:
            await talk.send(part)
            await trio.sleep(0.01)
        if not end:
            await trio.sleep_forever()

    return script


async def test_a_request_arrives_unchanged(serve: Serve, open_transport: OpenTransport) -> None:
    seen = []

    async def script(talk: Talk) -> None:
        while (request := await talk.request()) is not None:
            seen.append(request)
            await talk.send(ANSWER)

    server = await serve(script)
    transport = open_transport(server)
    with trio.fail_after(60):
        response = await transport.send(Request("PATCH", "/a/b?c=d", [(b"X-One", b"1"), (b"X-Two", b"2")], b"{1}"))
        assert response.status == 200
        assert find_header(response.headers, b"content-type") == "application/json"
        assert await response.read(10**9) == b"{}"
    await fetch(transport, "POST")
    await fetch(transport, "GET")
    request, empty, bare = seen
    assert (request.method, request.target, request.body) == ("PATCH", "/a/b?c=d", b"{1}")
    assert request.headers == {
        "host": f"127.0.0.1:{server.port}",
        "x-one": "1",
        "x-two": "2",
        "content-length": "3",
    }
    assert empty.headers["content-length"] == "0"
    assert "content-length" not in bare.headers


@pytest.mark.parametrize(("target", "value"), [("/a b", b"x"), ("/a\r\nX: y", b"x"), ("/a", b"x\r\nY: z")])
async def test_nothing_can_be_injected_into_a_request(
    serve: Serve, open_transport: OpenTransport, target: str, value: bytes
) -> None:
    server = await serve(answer_all)
    with pytest.raises(ValueError, match="Illegal line break"):
        await open_transport(server).send(Request("GET", target, [(b"X", value)]))
    assert server.connections == 0


async def test_a_connection_is_kept_and_used_again(serve: Serve, open_transport: OpenTransport) -> None:
    server = await serve(answer_all)
    transport = open_transport(server)
    for _ in range(5):
        assert await fetch(transport) == b"{}"
    assert server.connections == 1


async def test_a_connection_is_kept_under_tls_too(
    serve: Serve, open_transport: OpenTransport, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    server = await serve(answer_all, tls=server_tls)
    transport = open_transport(server, context=client_tls)
    for _ in range(5):
        assert await fetch(transport) == b"{}"
    assert server.connections == 1


@pytest.mark.parametrize("tls", [False, True])
async def test_big_bodies_go_both_ways(
    serve: Serve, open_transport: OpenTransport, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, tls: bool
) -> None:
    async def echo(talk: Talk) -> None:
        while (request := await talk.request()) is not None:
            await talk.answer(request.body)

    server = await serve(echo, tls=server_tls if tls else None)
    transport = open_transport(server, context=client_tls if tls else None)
    body = bytes(range(256)) * 40_000
    assert await fetch(transport, "PUT", body=body) == body
    assert await fetch(transport, "PUT", body=body) == body
    assert server.connections == 1


async def test_a_connection_that_the_server_will_close_is_not_reused(
    serve: Serve, open_transport: OpenTransport
) -> None:
    async def script(talk: Talk) -> None:
        while await talk.request() is not None:
            await talk.answer({}, headers="Connection: close\r\n")

    server = await serve(script)
    transport = open_transport(server)
    await fetch(transport)
    await fetch(transport)
    assert server.connections == 2


@pytest.mark.parametrize("tls", [False, True])
async def test_an_idle_connection_closed_by_the_server_is_replaced(
    serve: Serve, open_transport: OpenTransport, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, tls: bool
) -> None:
    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.send(ANSWER)

    server = await serve(script, tls=server_tls if tls else None)
    transport = open_transport(server, context=client_tls if tls else None)
    for method in ("GET", "PATCH", "POST"):  # a POST too: the end was there before it was sent
        assert await fetch(transport, method) == b"{}"
        await server.all_closed()
    assert server.connections == 3


@pytest.mark.parametrize("method", ["GET", "PATCH", "PUT", "DELETE"])
async def test_a_connection_that_is_lost_during_a_request_is_replaced_once(
    serve: Serve, open_transport: OpenTransport, method: str
) -> None:
    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.send(ANSWER)
        await talk.request()
        if server.connections == 1:
            talk.reset()  # it had the request, and has said nothing
        else:
            await talk.send(ANSWER)

    server = await serve(script)
    transport = open_transport(server)
    await fetch(transport)
    assert await fetch(transport, method) == b"{}"
    assert server.connections == 2


@pytest.mark.parametrize(("timeout", "is_late"), [(15, False), (10, True)])
async def test_a_request_has_only_the_time_that_is_left_on_the_new_connection(
    serve: Serve,
    open_transport: OpenTransport,
    timeouts: Timeouts,
    mock_clock: MockClock,
    timeout: float,
    is_late: bool,
) -> None:
    mock_clock.rate = 20

    async def script(talk: Talk) -> None:
        await talk.request()
        if server.connections == 2:
            await trio.sleep(6)
        await talk.send(ANSWER)
        await talk.request()
        if server.connections == 1:
            await trio.sleep(6)
            talk.reset()

    server = await serve(script)
    transport = open_transport(server, timeouts=timeouts)
    await fetch(transport)
    late = await transport.fetch(Request("GET", "/", []), limit=10, timeout=timeout) is None
    assert (late, server.connections) == (is_late, 2)


async def test_a_late_request_leaves_the_others_and_their_connections_alone(
    serve: Serve, open_transport: OpenTransport, timeouts: Timeouts, mock_clock: MockClock
) -> None:
    """A stream that is silent for long goes on, a slow response arrives, and the next request has time of its own."""
    mock_clock.rate = 20

    async def script(talk: Talk) -> None:
        while (request := await talk.request()) is not None:
            if request.target == "/stream":
                await talk.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                await trio.sleep(20)
                await talk.send(b"2\r\n{}\r\n0\r\n\r\n")
            else:
                await trio.sleep(float(request.target[1:]))
                await talk.send(ANSWER)

    server = await serve(script)
    transport = open_transport(server, timeouts=timeouts)
    stream = await transport.send(Request("GET", "/stream", []), streaming=True)
    ended: dict[str, bool] = {}

    async def request(target: str, timeout: float) -> None:
        ended[target] = await transport.fetch(Request("GET", target, []), limit=10, timeout=timeout) is not None

    async with trio.open_nursery() as requests:
        requests.start_soon(request, "/8", 12)
        requests.start_soon(request, "/6", 2)
    await request("/7", 10)
    assert ended == {"/8": True, "/6": False, "/7": True}
    assert await stream.receive(trio.current_time() + 60) == b"{}"
    assert server.connections == 3


async def test_whether_a_request_is_repeatable_is_checked_only_if_its_connection_is_lost(
    serve: Serve, open_transport: OpenTransport
) -> None:
    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.send(ANSWER)
        await talk.request()
        talk.reset()

    checks: list[str] = []

    def check() -> bool:
        checks.append("checked")
        return False

    transport = open_transport(await serve(script))
    request = Request("PATCH", "/", [], b"{}", check)
    assert await transport.fetch(request, limit=10, timeout=60) is not None
    assert checks == []
    with pytest.raises(TransportError):
        await transport.fetch(request, limit=10, timeout=60)
    assert checks == ["checked"]


async def test_the_replacement_is_a_new_connection_not_another_old_one(
    serve: Serve, open_transport: OpenTransport
) -> None:
    seconds = 0
    both = trio.Event()

    async def script(talk: Talk) -> None:
        nonlocal seconds
        number = server.connections
        await talk.request()
        if number == 2:
            both.set()
        await both.wait()
        await talk.send(ANSWER)
        if number > 2:
            return
        if await talk.request() is not None:
            seconds += 1

    server = await serve(script)
    transport = open_transport(server)
    async with trio.open_nursery() as requests:
        requests.start_soon(fetch, transport)
        requests.start_soon(fetch, transport)
    assert server.connections == 2
    assert await fetch(transport) == b"{}"
    assert (server.connections, seconds) == (3, 1)


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_connections_that_were_idle_for_longer_than_a_dead_one_are_not_used_again(
    serve: Serve, open_transport: OpenTransport, mock_clock: MockClock, is_cancelled: bool
) -> None:
    """As where a load balancer has forgotten all connections: requests must not find out one after the other."""
    mock_clock.rate = 20
    all_open = trio.Event()

    async def script(talk: Talk) -> None:
        number = server.connections
        if number == 3:
            all_open.set()
        await talk.request()
        await all_open.wait()
        await talk.send(ANSWER)
        while number > 3 and await talk.request():
            await talk.send(ANSWER)
        await trio.sleep_forever()

    server = await serve(script)
    transport = open_transport(server)
    async with trio.open_nursery() as requests:
        for _ in range(3):
            requests.start_soon(fetch, transport)
    with trio.move_on_after(5 if is_cancelled else 60):
        assert await transport.fetch(Request("GET", "/", []), limit=10, timeout=5) is None
    assert await transport.fetch(Request("GET", "/", []), limit=10, timeout=5) is not None
    assert server.connections == 4


async def test_a_connection_that_was_used_after_a_dead_one_is_used_again(
    serve: Serve, open_transport: OpenTransport, mock_clock: MockClock
) -> None:
    mock_clock.rate = 20
    both = trio.Event()

    async def script(talk: Talk) -> None:
        number = server.connections
        while (request := await talk.request()) is not None and request.target != "/hangs":
            if number == 2:
                both.set()
            await both.wait()
            await talk.send(ANSWER)
        await trio.sleep_forever()

    server = await serve(script)
    transport = open_transport(server)
    async with trio.open_nursery() as requests:
        for _ in range(2):
            requests.start_soon(fetch, transport)
    async with trio.open_nursery() as requests:
        requests.start_soon(functools.partial(transport.fetch, Request("GET", "/hangs", []), limit=10, timeout=5))
        await trio.sleep(1)
        await fetch(transport)
    await fetch(transport)
    assert server.connections == 2


@pytest.mark.parametrize(("idle", "connections"), [(55, 1), (65, 2)])
async def test_a_connection_that_was_idle_for_too_long_is_not_reused(
    serve: Serve, open_transport: OpenTransport, mock_clock: MockClock, idle: float, connections: int
) -> None:
    server = await serve(answer_all)
    transport = open_transport(server)
    await fetch(transport)
    mock_clock.jump(idle)
    await fetch(transport)
    assert server.connections == connections


async def test_a_post_on_a_connection_that_is_lost_is_not_sent_again(
    serve: Serve, open_transport: OpenTransport
) -> None:
    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.send(ANSWER)
        await talk.request()

    server = await serve(script)
    transport = open_transport(server)
    await fetch(transport)
    with pytest.raises(TransportError) as caught:
        await fetch(transport, "POST")
    assert caught.value.reached
    assert server.connections == 1


async def test_a_new_connection_that_is_lost_is_not_replaced(serve: Serve, open_transport: OpenTransport) -> None:
    server = await serve(sends())
    with pytest.raises(TransportError, match=r"127.0.0.1:\d+: the connection was closed without a response"):
        await fetch(open_transport(server))
    assert server.connections == 1


async def test_chunks_are_joined_however_they_arrive(serve: Serve, open_transport: OpenTransport) -> None:
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nTrail: er\r\n\r\n"

    async def script(talk: Talk) -> None:
        await talk.request()
        for index in range(len(raw)):
            await talk.send(raw[index : index + 1])
        await talk.request()
        await talk.send(raw)
        await talk.request()

    server = await serve(script)
    transport = open_transport(server)
    assert await fetch(transport) == b"abcdefg"
    assert await fetch(transport) == b"abcdefg"
    assert server.connections == 1


async def test_a_streaming_response_returns_parts_as_they_arrive(serve: Serve, open_transport: OpenTransport) -> None:
    go = trio.Event()

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await talk.send(b"2\r\nab\r\n")
        await go.wait()
        await talk.send(b"1\r\nc\r\n0\r\n\r\n")
        await talk.request()

    server = await serve(script)
    transport = open_transport(server)
    with trio.fail_after(60):
        response = await transport.send(Request("GET", "/", []), streaming=True)
        assert await response.receive() == b"ab"
        go.set()
        assert await response.receive() == b"c"
        assert await response.receive() == b""
        assert await response.receive() == b""


async def test_interim_responses_are_skipped(serve: Serve, open_transport: OpenTransport) -> None:
    server = await serve(sends(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n", ANSWER))
    with trio.fail_after(60):
        response = await open_transport(server).send(Request("GET", "/", []))
        assert response.status == 200
        assert find_header(response.headers, b"link") is None
        assert await response.read(10**9) == b"{}"


async def test_a_response_without_a_body_is_empty(serve: Serve, open_transport: OpenTransport) -> None:
    server = await serve(sends(b"HTTP/1.1 204 No Content\r\n\r\n", end=False))
    assert await fetch(open_transport(server)) == b""


async def test_a_body_without_a_length_ends_with_its_connection(serve: Serve, open_transport: OpenTransport) -> None:
    server = await serve(sends(b"HTTP/1.1 200 OK\r\n\r\nabc", b"def"))
    assert await fetch(open_transport(server)) == b"abcdef"


async def test_a_tls_stream_without_close_notify_is_truncated(
    serve: Serve, open_transport: OpenTransport, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.send(b"HTTP/1.1 200 OK\r\n\r\nabc")
        talk._sock.shutdown(trio.socket.SHUT_WR)
        await trio.sleep(1)

    server = await serve(script, tls=server_tls)
    with pytest.raises(TransportError, match="closed in the middle of the response"):
        await fetch(open_transport(server, context=client_tls))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([b"HTTP/1.1 200 OK\r\nContent-"], "closed in the middle of the response's headers"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"], "closed in the middle of the response"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"], "closed in the middle of the response"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n"], "closed in the middle of the response"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"], "the response is not valid HTTP"),
        ([b"SSH-2.0-OpenSSH\r\n"], "the response is not valid HTTP"),
        ([b"\x15\x03\x01\x00\x02\x02\x16"], "the response is not valid HTTP"),
        ([b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nabc"], "switched to another protocol"),
        ([b"HTTP/1.1 200 OK\r\nX: " + b"y" * 300_000] + [b"y" * 300_000] * 3, "headers are larger than"),
        ([b"HTTP/1.1 200 OK\r\n" + b"X: yyyyyyyy\r\n" * 100_000], "headers are larger than"),
    ],
)
async def test_an_invalid_or_incomplete_response_is_an_error(
    serve: Serve, open_transport: OpenTransport, parts: list[bytes], message: str
) -> None:
    server = await serve(sends(*parts))
    with pytest.raises(TransportError, match=message) as caught:
        await fetch(open_transport(server))
    assert caught.value.reached
    assert not caught.value.final


async def test_a_second_response_to_one_request_is_an_error(serve: Serve, open_transport: OpenTransport) -> None:
    server = await serve(sends(ANSWER + ANSWER, end=False))
    with pytest.raises(TransportError, match="more than one response"):
        await fetch(open_transport(server))


async def test_an_unexpected_response_is_never_taken_for_the_next_one(
    serve: Serve, open_transport: OpenTransport
) -> None:
    read, strayed = trio.Event(), trio.Event()

    async def script(talk: Talk) -> None:
        number = server.connections
        await talk.request()
        await talk.answer({"connection": number})
        if number == 1:
            await read.wait()
            await talk.answer({"stray": True})
            strayed.set()
        await talk.request()

    server = await serve(script)
    transport = open_transport(server)
    assert await fetch(transport) == b'{"connection": 1}'
    read.set()
    await strayed.wait()
    (idle,) = transport._idle
    await trio.lowlevel.wait_readable(idle._stream._sock)  # it has arrived here, too
    assert await fetch(transport) == b'{"connection": 2}'


async def test_a_body_above_the_limit_is_a_final_error(serve: Serve, open_transport: OpenTransport) -> None:
    server = await serve(sends(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000))
    response = await open_transport(server).send(Request("GET", "/", []))
    with pytest.raises(TransportError, match="larger than 4096 bytes") as caught:
        await response.read(4096)
    assert caught.value.final


async def test_a_refused_connection_is_a_clear_error_and_has_not_reached_the_server(
    serve: Serve, open_transport: OpenTransport
) -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    await listeners[0].aclose()
    with pytest.raises(TransportError, match=rf"Cannot connect to 127.0.0.1:{port}: connection refused") as caught:
        await fetch(open_transport(Server(port=port, tls=False)))
    assert not caught.value.reached
    assert not caught.value.final


async def test_an_unknown_host_is_a_clear_error() -> None:
    transport = ConnectionPool(Origin(host="nowhere.invalid", port=443), max_connections=lambda: 1)
    with pytest.raises(TransportError, match=r"Cannot connect to nowhere.invalid:443: cannot resolve the host name"):
        await fetch(transport)


@pytest.mark.parametrize("host", ["a" * 70 + ".example", "a..b"])
async def test_an_invalid_host_name_is_a_final_error(host: str) -> None:
    with pytest.raises(TransportError, match="Cannot connect to") as caught:
        await fetch(ConnectionPool(Origin(host=host, port=443), max_connections=lambda: 1))
    assert not caught.value.reached


async def test_an_unknown_ca_is_a_clear_and_final_error(
    serve: Serve, open_transport: OpenTransport, server_tls: ssl.SSLContext
) -> None:
    server = await serve(answer_all, tls=server_tls)
    other = trustme.CA().cert_pem.bytes().decode()
    context = build_ssl_context(read_tls_config(ConnectionInfo(server="https://x", ca_data=other)))
    with pytest.raises(TransportError, match="certificate cannot be verified: unable to get local issuer") as caught:
        await fetch(open_transport(server, context=context))
    assert caught.value.final
    assert not caught.value.reached


async def test_a_wrong_host_name_is_a_clear_error_and_the_right_one_can_be_set(
    serve: Serve, open_transport: OpenTransport, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    server = await serve(answer_all, tls=server_tls)
    with pytest.raises(TransportError, match=r"certificate cannot be verified: Hostname mismatch.*wrong\.example"):
        await fetch(open_transport(server, context=client_tls, server_name="wrong.example"))
    assert await fetch(open_transport(server, context=client_tls, server_name="kubernetes.default")) == b"{}"


async def test_an_insecure_connection_verifies_no_certificate(
    serve: Serve, open_transport: OpenTransport, server_tls: ssl.SSLContext
) -> None:
    server = await serve(answer_all, tls=server_tls)
    context = build_ssl_context(read_tls_config(ConnectionInfo(server="https://x", insecure=True)))
    assert await fetch(open_transport(server, context=context, server_name="any.example")) == b"{}"


async def test_tls_to_a_server_without_it_is_a_clear_error(
    serve: Serve, open_transport: OpenTransport, client_tls: ssl.SSLContext
) -> None:
    async def script(talk: Talk) -> None:
        await talk.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await talk._fill()

    server = await serve(script)
    with pytest.raises(TransportError, match="does not speak TLS"):
        await fetch(open_transport(server, context=client_tls))


async def test_a_connection_closed_during_the_handshake_is_a_clear_error(
    serve: Serve, open_transport: OpenTransport, client_tls: ssl.SSLContext
) -> None:
    async def script(talk: Talk) -> None:
        await talk._fill()

    server = await serve(script)
    with pytest.raises(TransportError, match="closed by the server during the TLS handshake") as caught:
        await fetch(open_transport(server, context=client_tls))
    assert not caught.value.reached


async def test_the_connect_timeout_covers_the_handshake(
    serve: Serve, open_transport: OpenTransport, client_tls: ssl.SSLContext
) -> None:
    async def script(talk: Talk) -> None:
        await trio.sleep_forever()

    server = await serve(script)
    transport = open_transport(server, context=client_tls)
    with trio.fail_after(60):
        with pytest.raises(TransportError, match=r"no connection within 0\.05 s") as caught:
            await transport.send(Request("GET", "/", []), connect_timeout=0.05)
    assert not caught.value.reached


async def test_a_client_certificate_is_presented(
    serve: Serve, open_transport: OpenTransport, ca: trustme.CA, ca_pem: str
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    ca.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    server = await serve(answer_all, tls=context)
    mine = ca.issue_cert("me@example.org")
    info = ConnectionInfo(
        server="https://x",
        ca_data=ca_pem,
        certificate_data=b"".join(blob.bytes() for blob in mine.cert_chain_pems),
        private_key_data=mine.private_key_pem.bytes(),
    )
    assert await fetch(open_transport(server, context=build_ssl_context(read_tls_config(info)))) == b"{}"
    bare = build_ssl_context(read_tls_config(ConnectionInfo(server="https://x", ca_data=ca_pem)))
    with pytest.raises(TransportError, match=r"TLS failed: .*CERTIFICATE_REQUIRED|reset|broken pipe|closed"):
        await fetch(open_transport(server, context=bare))


async def test_requests_above_the_limit_wait(serve: Serve, open_transport: OpenTransport) -> None:
    under_way = 0
    most = 0
    full = trio.Event()

    async def script(talk: Talk) -> None:
        nonlocal under_way, most
        while await talk.request() is not None:
            under_way += 1
            most = max(most, under_way)
            if most == 3:
                full.set()
            await full.wait()
            await trio.sleep(0.005)  # others may come meanwhile
            under_way -= 1
            await talk.send(ANSWER)

    server = await serve(script)
    transport = open_transport(server, max_connections=3)
    async with trio.open_nursery() as requests:
        for _ in range(40):
            requests.start_soon(fetch, transport)
    assert most == 3
    assert server.connections == 3


async def test_the_time_for_a_request_begins_when_it_has_a_connection(
    serve: Serve, open_transport: OpenTransport, timeouts: Timeouts, mock_clock: MockClock
) -> None:
    mock_clock.rate = 20

    async def script(talk: Talk) -> None:
        while await talk.request() is not None:
            await trio.sleep(5)
            await talk.send(ANSWER)

    transport = open_transport(await serve(script), max_connections=1, timeouts=timeouts)
    late: list[bool] = []

    async def request(timeout: float) -> None:
        late.append(await transport.fetch(Request("GET", "/", []), limit=10, timeout=timeout) is None)

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(request, 10)
    assert late == [False] * 4
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(request, 2)
    assert late[4:] == [True] * 2


async def test_a_request_that_must_not_be_sent_any_more_when_its_turn_comes_is_not(
    serve: Serve, open_transport: OpenTransport
) -> None:
    held, seen, lost = trio.Event(), list[str](), False

    async def script(talk: Talk) -> None:
        while (request := await talk.request()) is not None:
            seen.append(request.target)
            await held.wait()
            await talk.send(ANSWER)

    def check() -> None:
        if lost:
            raise PausedError("others have taken over")

    async def write() -> None:
        with pytest.raises(PausedError):
            await transport.send(Request("PATCH", "/late", []), check=check)

    server = await serve(script)
    transport = open_transport(server, max_connections=1)
    async with trio.open_nursery() as requests:
        requests.start_soon(lambda: fetch(transport, target="/first"))
        await trio.testing.wait_all_tasks_blocked(0.05)
        for _ in range(3):
            requests.start_soon(write)
        await trio.testing.wait_all_tasks_blocked(0.05)
        lost = True
        held.set()
    assert seen == ["/first"]
    assert await fetch(transport, target="/next") == b"{}"
    assert (seen, server.connections) == (["/first", "/next"], 1)


async def test_a_burst_opens_few_connections_at_a_time(
    serve: Serve, open_transport: OpenTransport, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    opening = 0
    most = 0

    async def script(talk: Talk) -> None:
        nonlocal opening, most
        opening += 1
        most = max(most, opening)
        await trio.sleep(0.01)
        opening -= 1
        await answer_all(talk)

    server = await serve(script, tls=server_tls)
    transport = open_transport(server, context=client_tls)
    async with trio.open_nursery() as requests:
        for _ in range(60):
            requests.start_soon(fetch, transport)
    assert 1 <= most <= 4
    assert server.connections < 60


async def test_streams_do_not_count_against_the_limit(serve: Serve, open_transport: OpenTransport) -> None:
    async def script(talk: Talk) -> None:
        while (request := await talk.request()) is not None:
            if request.target == "/watch":
                await talk.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                await trio.sleep_forever()
            await talk.send(ANSWER)

    server = await serve(script)
    transport = open_transport(server, max_connections=1)
    with trio.fail_after(60):
        responses = [await transport.send(Request("GET", "/watch", []), streaming=True) for _ in range(5)]
        assert await fetch(transport) == b"{}"
        for response in responses:
            await response.aclose()
        assert await fetch(transport) == b"{}"


async def test_reserved_connections_wait_for_nobody_and_are_closed_with_the_others(
    serve: Serve, open_transport: OpenTransport
) -> None:
    hanging = trio.Event()

    async def script(talk: Talk) -> None:
        while (request := await talk.request()) is not None:
            if request.target == "/hang":
                hanging.set()
                await talk._fill()  # the end of the connection
            await talk.send(ANSWER)

    server = await serve(script)
    transport = open_transport(server, max_connections=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: fetch(transport, target="/hang"))
        await hanging.wait()
        for _ in range(3):
            assert await fetch(transport.reserved) == b"{}"
        nursery.cancel_scope.cancel()
    assert server.connections == 2
    assert await transport.retire()
    await server.all_closed()


async def test_a_limit_that_is_raised_counts_at_once(serve: Serve) -> None:
    limit, talking, seen = 1, trio.Event(), 0

    async def script(talk: Talk) -> None:
        nonlocal seen
        while await talk.request() is not None:
            seen += 1
            if seen == 2:
                talking.set()
            await talking.wait()
            await talk.send(ANSWER)

    server = await serve(script)
    transport = ConnectionPool(Origin(host="127.0.0.1", port=server.port), max_connections=lambda: limit)
    async with trio.open_nursery() as requests:
        requests.start_soon(fetch, transport)
        await trio.testing.wait_all_tasks_blocked(0.05)
        limit = 2
        assert await fetch(transport) == b"{}"
    await transport.aclose()


@pytest.mark.parametrize("tls", [False, True])
async def test_a_stream_whose_reader_is_cancelled_goes_on(
    serve: Serve, open_transport: OpenTransport, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, tls: bool
) -> None:
    more = trio.Event()

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n")
        await more.wait()
        await talk.send(b"2\r\ncd\r\n0\r\n\r\n")
        await talk._fill()

    server = await serve(script, tls=server_tls if tls else None)
    transport = open_transport(server, context=client_tls if tls else None)
    with trio.fail_after(60):
        response = await transport.send(Request("GET", "/watch", []), streaming=True)
        assert await response.receive() == b"ab"
        for _ in range(3):
            with trio.move_on_after(0.01) as scope:
                await response.receive()
            assert scope.cancelled_caught
        more.set()
        assert [await response.receive(), await response.receive()] == [b"cd", b""]


async def test_a_cancelled_request_releases_its_place(serve: Serve, open_transport: OpenTransport) -> None:
    hanging = trio.Event()

    async def script(talk: Talk) -> None:
        while (request := await talk.request()) is not None:
            if request.target == "/hang":
                hanging.set()
                await trio.sleep_forever()
            await talk.send(ANSWER)

    server = await serve(script)
    transport = open_transport(server, max_connections=1)
    for _ in range(3):
        hanging = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: fetch(transport, target="/hang"))
            await hanging.wait()
            nursery.cancel_scope.cancel()
    async with trio.open_nursery() as requests:
        requests.start_soon(fetch, transport)
        with trio.move_on_after(0):  # cancelled while it waits in the queue
            await fetch(transport)
        requests.start_soon(fetch, transport)
    assert await fetch(transport) == b"{}"


async def test_a_failed_connection_attempt_releases_its_place(open_transport: OpenTransport) -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    await listeners[0].aclose()
    transport = open_transport(Server(port=port, tls=False), max_connections=2)
    failures = 0

    async def fail() -> None:
        nonlocal failures
        with pytest.raises(TransportError):
            await fetch(transport)
        failures += 1

    async with trio.open_nursery() as requests:
        for _ in range(20):
            requests.start_soon(fail)
    assert failures == 20


async def test_an_abandoned_response_closes_its_connection_only(serve: Serve, open_transport: OpenTransport) -> None:
    server = await serve(answer_all)
    transport = open_transport(server, max_connections=1)
    response = await transport.send(Request("GET", "/", []))
    await response.aclose()
    await response.aclose()
    assert await response.receive() == b""
    assert await response.read(10**9) == b""
    assert await fetch(transport) == b"{}"
    assert server.connections == 2


async def test_the_server_may_reject_a_body_before_it_has_read_it(serve: Serve, open_transport: OpenTransport) -> None:
    async def script(talk: Talk) -> None:
        await talk._fill()
        await talk.answer({"kind": "Status"}, status=413, headers="Connection: close\r\n")
        with trio.move_on_after(1):
            while await talk._fill():
                pass

    server = await serve(script)
    response = await open_transport(server).send(Request("PUT", "/", [], b"x" * 10_000_000))
    assert response.status == 413


async def test_a_retired_pool_lets_streams_finish_and_keeps_no_connections(
    serve: Serve, open_transport: OpenTransport
) -> None:
    go = trio.Event()

    async def script(talk: Talk) -> None:
        while (request := await talk.request()) is not None:
            if request.target == "/watch":
                await talk.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                await go.wait()
                await talk.send(b"1\r\na\r\n0\r\n\r\n")
            else:
                await talk.send(ANSWER)

    server = await serve(script)
    transport = open_transport(server)
    with trio.fail_after(60):
        await fetch(transport)
        stream = await transport.send(Request("GET", "/watch", []), streaming=True)
        await transport.retire()
        go.set()
        assert await stream.read(10**9) == b"a"
        await server.all_closed()


async def test_closing_ends_responses_in_progress(serve: Serve, open_transport: OpenTransport) -> None:
    server = await serve(sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", end=False))
    transport = open_transport(server)
    response = await transport.send(Request("GET", "/", []), streaming=True)

    async def close() -> None:
        await trio.testing.wait_all_tasks_blocked()
        await transport.aclose()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(close)
            with pytest.raises(TransportError):
                await response.receive()


async def test_ipv6_addresses_work(nursery: trio.Nursery) -> None:
    try:
        listeners = await trio.open_tcp_listeners(0, host="::1")
    except OSError:
        pytest.skip("this machine has no IPv6")

    async def talk(stream: trio.SocketStream) -> None:
        request = await Talk(stream, stream.socket).request()
        assert request is not None
        assert request.headers["host"] == f"[::1]:{port}"
        await stream.send_all(ANSWER)

    port = listeners[0].socket.getsockname()[1]
    nursery.start_soon(trio.serve_listeners, talk, listeners)
    server = parse_server_url(f"https://[::1]:{port}")
    transport = ConnectionPool(Origin(host=server.host, port=server.port), max_connections=lambda: 20)
    assert await fetch(transport) == b"{}"
    await transport.aclose()
