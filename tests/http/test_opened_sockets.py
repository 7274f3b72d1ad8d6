"""The sockets that an httpx transport opens for a request."""

from __future__ import annotations

import httpx
import trio

from trioperator._http.opened_sockets import OpenedSockets


async def request(url: str, sockets: OpenedSockets) -> None:
    sent = httpx.Request("GET", url, extensions={"trace": sockets.trace})
    async with httpx.AsyncHTTPTransport() as transport:
        with sockets:
            await transport.handle_async_request(sent)


async def test_a_request_that_is_cancelled_during_its_handshake_leaves_no_socket() -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener, trio.open_nursery() as callers:
        callers.start_soon(request, f"https://127.0.0.1:{listener.socket.getsockname()[1]}", OpenedSockets())
        server = await listener.accept()
        assert await server.receive_some()  # the handshake begins, and is not answered
        callers.cancel_scope.cancel()
    async with server:
        with trio.fail_after(60):
            while await server.receive_some():
                pass


async def test_the_socket_of_a_request_that_succeeds_stays_open() -> None:
    async def respond(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")
        await stream.send_all(b"body")

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery, httpx.AsyncHTTPTransport() as transport:
        nursery.start_soon(trio.serve_listeners, respond, [listener])
        sockets = OpenedSockets()
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        with sockets:
            response = await transport.handle_async_request(
                httpx.Request("GET", url, extensions={"trace": sockets.trace})
            )
        assert await response.aread() == b"body"
        nursery.cancel_scope.cancel()
