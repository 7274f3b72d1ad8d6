"""Tests for :mod:`trioperator._http.hypercorn_stream`: what is used of Hypercorn, whose next version may change it."""

from __future__ import annotations

import dataclasses
import inspect
import logging
from typing import Any

import pytest
import trio
from hypercorn.config import Config
from hypercorn.protocol import events
from hypercorn.protocol.http_stream import HTTPStream

from trioperator._http.asgi import Message, Receive, Send, TimeLimit
from trioperator._http.hypercorn_stream import Caller, Peers
from trioperator._http.request_parser import Message as Request

PEERS = Peers(client=("127.0.0.1", 1), server=("127.0.0.1", 2), is_tls=True, certificate={"version": 3})


class Recorded:
    """An exchange that records its response."""

    def __init__(self, method: str = "POST") -> None:
        self.request = Request([(b"host", b"x"), (b"upgrade", b"websocket"), (b"connection", b"upgrade")])
        self.request.method, self.request.target, self.request.version = method, b"/a%20b?c=d", "1.1"
        self.events: list[Any] = []
        self.is_complete = False

    def set_limit(self, limit: TimeLimit) -> None:
        self.events.append(limit.seconds)

    async def receive(self) -> Message:
        return {"type": "http.request", "body": b"abc", "more_body": False}

    def start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.events.append((status, headers))

    async def write(self, data: bytes) -> None:
        self.events.append(data)

    async def end(self) -> None:
        self.events.append(None)
        self.is_complete = True


def test_the_parts_that_are_used_have_not_changed() -> None:
    parameters = list(inspect.signature(HTTPStream.__init__).parameters)[1:]
    expected = ["app", "config", "context", "task_group", "ssl", "client", "server", "send", "stream_id"]
    assert parameters == expected
    assert inspect.iscoroutinefunction(HTTPStream.handle)
    assert inspect.iscoroutinefunction(HTTPStream.app_send)
    fields = {kind: [field.name for field in dataclasses.fields(kind)] for kind in (events.Request, events.Response)}
    assert fields == {
        events.Request: ["stream_id", "headers", "http_version", "method", "raw_path", "state"],
        events.Response: ["stream_id", "headers", "status_code"],
    }


async def test_an_application_gets_its_scope_and_answers_in_the_task_of_the_caller() -> None:
    seen: list[Any] = []

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        seen.extend([scope, await receive(), trio.lowlevel.current_task()])
        scope["extensions"].pop("trioperator.limit")(TimeLimit(9.0))
        await send({"type": "http.response.start", "status": 201, "headers": [(b"a", b"b")]})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        await send({"type": "http.response.body", "body": b"y"})

    exchange = Recorded()
    await Caller(app)(exchange, PEERS)
    assert exchange.events == [9.0, (201, [(b"a", b"b")]), b"x", b"y", None]
    scope, message, task = seen
    assert message["body"] == b"abc"
    assert task is trio.lowlevel.current_task()
    assert (scope["type"], scope["scheme"], scope["http_version"]) == ("http", "https", "1.1")
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("/a b", b"/a%20b", b"c=d")
    assert (scope["method"], scope["root_path"], scope["headers"]) == ("POST", "", exchange.request.headers)
    assert (scope["client"], scope["server"]) == (PEERS.client, PEERS.server)
    assert scope["extensions"] == {"trioperator.sslpeer": {"version": 3}}


async def test_each_request_has_a_state_of_its_own() -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        assert scope["state"] == {}
        scope["state"]["seen"] = True
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    caller, exchanges = Caller(app), (Recorded(), Recorded())
    for exchange in exchanges:
        await caller(exchange, PEERS)
        assert exchange.is_complete


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"type": "http.response.body", "body": b"x"}],
        [{"type": "nonsense"}],
        [{"type": "http.response.start", "status": "x"}],
    ],
)
async def test_an_application_that_does_not_answer_as_it_should_is_an_error(messages: list[Message]) -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    exchange = Recorded()
    await Caller(app)(exchange, PEERS)
    assert [event[0] for event in exchange.events if isinstance(event, tuple)] == [500]
    assert exchange.events[-1] is None


async def test_errors_of_all_tasks_of_an_application_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("broken")

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            await trio.sleep_forever()

    exchange = Recorded()
    await Caller(app)(exchange, PEERS)
    assert exchange.events[0][0] == 500
    assert [(record.name, record.levelno) for record in caplog.records] == [("hypercorn.error", logging.ERROR)]
    assert "broken" in caplog.text


async def test_a_response_that_is_not_complete_has_no_end(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        raise ValueError("broken")

    with caplog.at_level(logging.INFO, logger="hypercorn.access"):
        exchange = Recorded()
        await Caller(app)(exchange, PEERS)
    assert exchange.events == [(200, []), b"x"]
    assert [record.name for record in caplog.records] == ["hypercorn.error", "hypercorn.access"]


async def test_a_cancelled_application_is_cancelled_and_not_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await trio.sleep_forever()

    exchange = Recorded()
    with trio.move_on_after(0.01) as scope:
        await Caller(app)(exchange, PEERS)
    assert scope.cancelled_caught
    assert exchange.events == []
    assert caplog.records == []


async def test_a_head_request_gets_no_body() -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x"})

    exchange = Recorded("HEAD")
    await Caller(app)(exchange, PEERS)
    assert exchange.events == [(200, []), None]


def test_hypercorn_has_loggers_of_the_process_only() -> None:
    config: Config = Caller(test_hypercorn_has_loggers_of_the_process_only)._config  # type: ignore[arg-type]
    assert config.errorlog is logging.getLogger("hypercorn.error")
    assert config.accesslog is None
