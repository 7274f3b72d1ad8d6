"""Tests for :mod:`trioperator._endpoints.live_view.serving`: where the live view is served, over real sockets."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import trio

import trioperator
from tests.endpoints.live_view.conftest import TOKEN
from tests.runtime.conftest import Bench, widget
from trioperator._endpoints.live_view.serving import parse_loopback
from trioperator.errors import ConfigError


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:80", "http://localhost:1/x", "http://[::1]:80", "http://127.9.9.9:1"]
)
def test_the_loopback_interface_is_accepted(url: str) -> None:
    assert parse_loopback(url).port


@pytest.mark.parametrize(
    "url",
    ["http://0.0.0.0:80", "http://[::]:80", "http://10.0.0.1:80", "http://example.com:1", "http://localhost.evil:1"],
)
def test_other_interfaces_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="loopback"):
        parse_loopback(url)


@contextlib.asynccontextmanager
async def serving(bench: Bench, caplog: pytest.LogCaptureFixture, path: str = "") -> AsyncIterator[httpx.AsyncClient]:
    """Serve the live view of an operator in the block, and yield a client with its address and its token."""
    async with bench.running(live_view_endpoint=f"http://127.0.0.1:0{path}", live_view_token=TOKEN, standalone=True):
        [url] = re.findall(r"Serving the live view at (\S+)", caplog.text)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60, trust_env=False) as client:
            yield client


@pytest.mark.parametrize(
    ("path", "url"), [("", "/debug"), ("/", "/debug"), ("/debug", "/debug"), ("/debug/", "/debug"), ("/x", "/x/debug")]
)
async def test_the_url_may_be_that_of_the_page(
    path: str, url: str, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(bench, caplog, path) as client:
        assert client.base_url.path.rstrip("/") == url
        assert (await client.get("snapshot")).json()["ready"] is True
        root = f"http://{client.base_url.netloc.decode()}"
        response = await client.get(root)
        assert (response.status_code, response.headers["location"]) == (307, f"{url}/")
        assert (await client.get(f"{root}{url}")).headers["location"] == f"{url}/"
        assert (await client.get(f"{root}{url}")).has_redirect_location
        for other in ("/favicon.ico", f"{url}ger", "/other/snapshot"):
            assert (await client.get(f"{root}{other}")).status_code == 404
        for host in ("evil.example", "evil.example:80"):
            for target in (root, f"{root}{url}/", f"{root}{url}/snapshot"):
                assert (await client.get(target, headers={"Host": host})).status_code == 403


async def test_a_stream_over_a_socket_ends_with_the_operator(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    trioperator.on.event("widgets", registry=bench.registry)(lambda **_: None)
    events: list[Any] = []
    stop, ended = trio.Event(), trio.Event()

    async def read(client: httpx.AsyncClient, *, task_status: trio.TaskStatus[None]) -> None:
        with contextlib.suppress(httpx.HTTPError):
            async with client.stream("GET", "objects", headers={"Accept": "text/event-stream"}) as response:
                assert response.headers["content-type"] == "text/event-stream"
                async for line in response.aiter_lines():
                    if line.startswith("data: "):
                        events.append(json.loads(line[6:]))
                        (task_status.started if len(events) == 1 else stop.set)()
        ended.set()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            async with serving(bench, caplog) as client:
                await nursery.start(read, client)
                await bench.cluster.create(widget("live-one"))
                await stop.wait()
                began = trio.current_time()
            await ended.wait()
            assert trio.current_time() - began < 10
    assert "live-one" in events[-1]
