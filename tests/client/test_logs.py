"""Tests for :mod:`trioperator.client.logs`, and of the logs of pods."""

from __future__ import annotations

import httpx
import pytest
import trio

from tests.client.conftest import opened
from tests.kube.conftest import Chunks, Memory, Streaming, status
from trioperator.errors import ApiError, ConnectionLostError

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0", "namespace": "prod"}}


async def follow(stream: Chunks) -> list[str]:
    server = Streaming(stream)
    async with opened(server) as client, client.follow_logs(POD, container="main") as log:
        lines = [line async for line in log]
    (request,) = server.requests
    assert request.url.path == "/api/v1/namespaces/prod/pods/web-0/log"
    assert dict(request.url.params) == {"follow": "true", "container": "main"}
    return lines


async def test_logs_are_followed_line_by_line() -> None:
    assert await follow(Chunks([b"one\ntw", b"o\n\nthr\xffee", b"\nlast"])) == ["one", "two", "", "thr�ee", "last"]


async def test_a_line_without_an_end_is_cut() -> None:
    assert list(map(len, await follow(Chunks([b"x" * 1024 * 1024, b"y", b"z\n"])))) == [1024 * 1024 + 1, 1]


async def test_the_stream_is_closed_when_the_block_is_left() -> None:
    stream = Chunks([b"one\n", None])
    async with opened(Streaming(stream)) as client, client.follow_logs("web-0") as log:
        async for line in log:
            assert line == "one"
            break
    assert stream.closed


async def test_a_log_that_breaks_off_is_an_error() -> None:
    with pytest.raises(ConnectionLostError):
        await follow(Chunks([b"one\n", httpx.ReadError("reset")]))


async def test_logs_so_far_are_a_string() -> None:
    server = Memory([httpx.Response(200, content=b"one\ntwo\n")])
    async with opened(server) as client:
        assert await client.logs("web-0", tail_lines=2, previous=True) == "one\ntwo\n"
    (request,) = server.requests
    assert request.url.path == "/api/v1/namespaces/default/pods/web-0/log"
    assert dict(request.url.params) == {"tailLines": "2", "previous": "true"}


async def test_logs_of_what_has_not_started_are_an_error() -> None:
    async with opened(Memory([status(400, "container is waiting to start")])) as client:
        with pytest.raises(ApiError, match="waiting to start"):
            await client.logs("web-0")


async def test_a_log_whose_reader_was_cancelled_has_not_ended() -> None:
    async with opened(Streaming(Chunks([b"one\n", None]))) as client, client.follow_logs("web-0") as log:
        assert await anext(log) == "one"
        with trio.move_on_after(0.01):
            await anext(log)
        with pytest.raises(ConnectionLostError):
            await anext(log)
