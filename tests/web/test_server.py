"""Tests for :mod:`trioperator.web.server`, on real sockets."""

from __future__ import annotations

import gc
import logging
import warnings
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import httpx
import pytest
import trio

from trioperator.errors import ConfigError
from trioperator.web.endpoint import Endpoint, parse_endpoint
from trioperator.web.server import serve_app

ANYWHERE = parse_endpoint("http://127.0.0.1:0/")


class App:
    """An application that responds with the path, except for ``/slow`` (never) and ``/broken``."""

    def __init__(self) -> None:
        self.asked = trio.Event()
        self.cancelled = False

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        if scope["type"] == "lifespan":
            while True:
                message = await receive()
                await send({"type": f"{message['type']}.complete"})
        self.asked.set()
        if scope["path"] == "/slow":
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                self.cancelled = True
                raise
        if scope["path"] == "/broken":
            raise ValueError("broken")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope["path"].encode()})


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
                with trio.CancelScope(shield=True), trio.move_on_after(5) as scope:
                    while await idle.receive_some():
                        pass
                    while await half.receive_some():
                        pass
                assert not scope.cancelled_caught
        gc.collect()
    assert statuses == [500]
    assert app.cancelled


async def test_the_port_is_closed_after_the_end() -> None:
    async with trio.open_nursery() as server:
        endpoint: Endpoint = await server.start(serve_app, App(), ANYWHERE)
        server.cancel_scope.cancel(reason="the test")
    with pytest.raises(OSError, match="all attempts to connect"):
        await trio.open_tcp_stream(endpoint.host, endpoint.port)


async def test_an_error_of_the_application_is_logged_and_returned_as_http_500(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    endpoint: Endpoint = await nursery.start(serve_app, App(), ANYWHERE)
    async with httpx.AsyncClient(base_url=str(endpoint), timeout=60) as client:
        assert (await client.get("/broken")).status_code == 500
        assert (await client.get("/x")).status_code == 200
    assert [record.name for record in caplog.records if record.levelno >= logging.WARNING] == ["hypercorn.error"]
    assert not any(logging.getLogger(name).handlers for name in ("hypercorn.error", "hypercorn.access"))
    assert "Running on" not in capfd.readouterr().err
