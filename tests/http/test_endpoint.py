"""Tests for :mod:`trioperator._http.endpoint`."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from trioperator._http.endpoint import Endpoint, open_sockets, parse_endpoint
from trioperator.errors import ConfigError


@contextlib.contextmanager
def closing(sockets: list[socket.socket]) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        for sock in sockets:
            stack.enter_context(sock)
        yield sockets


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "text"),
    [
        ("http://0.0.0.0:8080/healthz", "0.0.0.0", 8080, "/healthz", "http://0.0.0.0:8080/healthz"),
        ("http://:8080/a/b", "localhost", 8080, "/a/b", "http://localhost:8080/a/b"),
        ("http://example.com", "example.com", 80, "/", "http://example.com:80/"),
        ("http://", "localhost", 80, "/", "http://localhost:80/"),
        ("http://[::1]:0/x/", "::1", 0, "/x/", "http://[::1]:0/x/"),
    ],
)
def test_missing_parts_have_defaults(url: str, host: str, port: int, path: str, text: str) -> None:
    endpoint = parse_endpoint(url)
    assert endpoint == Endpoint(host=host, port=port, path=path)
    assert str(endpoint) == text


@pytest.mark.parametrize(
    ("path", "base"),
    [
        ("", ""),
        ("/", ""),
        ("/a/", "/a"),
        ("/livez", ""),
        ("/a/readyz/", "/a"),
        ("/livez/readyz", "/livez"),
        ("/mylivez", "/mylivez"),
    ],
)
def test_the_path_of_one_of_several_stands_for_their_base(path: str, base: str) -> None:
    assert parse_endpoint(f"http://localhost{path}").find_base("/livez", "/readyz") == base


@pytest.mark.parametrize(
    "url",
    [
        "",
        "0.0.0.0:8080",
        "/healthz",
        "https://localhost/healthz",
        "http://[::1/x",
        "http://localhost:99999/",
        "http://localhost:port/",
        "http://localhost/?a=b",
        "http://localhost/#a",
    ],
)
def test_an_unsupported_url_is_rejected_by_name(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_endpoint(url)
    assert repr(url) in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://user:s3cret@localhost/", "http://user:s3cret/@localhost", "https://user:s3cret@h"]
)
def test_a_password_in_an_unsupported_url_is_not_shown(url: str) -> None:
    with pytest.raises(ConfigError, match="://…@") as caught:
        parse_endpoint(url)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


async def test_all_addresses_of_a_host_have_the_same_port() -> None:
    endpoint, sockets = await open_sockets(parse_endpoint("http://localhost:0/x"))
    with closing(sockets):
        assert endpoint.port != 0
        assert {sock.getsockname()[1] for sock in sockets} == {endpoint.port}
        assert {sock.getsockname()[0] for sock in sockets} <= {"127.0.0.1", "::1"}
        stream = await trio.open_tcp_stream("localhost", endpoint.port)
        await stream.aclose()


async def test_a_port_in_use_is_an_error() -> None:
    endpoint, sockets = await open_sockets(parse_endpoint("http://127.0.0.1:0/"))
    with (
        closing(sockets),
        pytest.raises(ConfigError, match=rf"Cannot listen on port {endpoint.port} of 127\.0\.0\.1: Address already"),
    ):
        await open_sockets(endpoint)


async def test_an_unknown_host_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"Cannot listen on port 80 of no-such-host\.invalid: unknown host"):
        await open_sockets(parse_endpoint("http://no-such-host.invalid/"))


@pytest.mark.parametrize("host", [f"{'a' * 64}.example", "\ud800.example", "a..b"])
async def test_a_host_that_can_be_no_name_is_an_error(host: str) -> None:
    with pytest.raises(ConfigError, match=r"Cannot listen on port 80 of .*: unknown host"):
        await open_sockets(Endpoint(host=host, port=80, path="/"))


async def test_a_mock_clock_stands_still_while_a_name_is_looked_up(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up, is_asked = socket.getaddrinfo, threading.Event()

    def look_up_slowly(host: str, port: int, **options: Any) -> Any:
        if not options["flags"] & socket.AI_NUMERICHOST:
            is_asked.set()
            time.sleep(0.05)  # real time, in which the clock would jump
        return look_up(host, port, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up_slowly)
    with trio.fail_after(100):
        _, sockets = await open_sockets(parse_endpoint("http://localhost:0/"))
    with closing(sockets):
        assert is_asked.is_set()
        assert trio.current_time() == 0
