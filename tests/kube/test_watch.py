"""Watches: lines arrive complete, and every kind of end is distinguished."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import httpx
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.kube.conftest import Chunks, Memory, Serve, Streaming, Talk, client_of, ok, status
from tests.levels import TOO_MANY
from trioperator._kube.api_client import open_client
from trioperator._kube.bookmarks import Bookmarks
from trioperator._kube.connection_info import ConnectionInfo
from trioperator._kube.objects import BrokenObject
from trioperator._kube.watch import MAX_LINE, RawWatchEvent, Watch, open_watch
from trioperator.errors import ApiError, ConnectionLostError, ExpiredError, ForbiddenError, ServerError
from trioperator.settings import OperatorSettings

INFO = ConnectionInfo(server="http://cluster")


def event(type: str = "ADDED", name: str = "x", **fields: Any) -> bytes:
    """Return a line as kube-apiserver writes it."""
    obj = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "uid": "u", "resourceVersion": "7"}, **fields}
    return json.dumps({"type": type, "object": obj}, separators=(",", ":")).encode() + b"\n"


async def watch_parts(
    parts: list[bytes | Exception | None], settings: OperatorSettings | None = None
) -> list[RawWatchEvent]:
    """Watch a stream of these parts to its end."""
    streaming = Streaming(Chunks(parts))
    settings = settings or OperatorSettings()
    async with (
        open_client(lambda: INFO, settings=settings, transport=streaming) as client,
        open_watch(client, "/api/v1/pods", resource_version="5") as watch,
    ):
        return [line async for line in watch]


async def test_lines_become_events_of_objects() -> None:
    lines = await watch_parts(
        [event("ADDED", "a"), event("MODIFIED", "b"), event("DELETED", "c"), event("BOOKMARK", "")]
    )
    assert [(line.type, line.object.name, line.object.resource_version) for line in lines] == [
        ("ADDED", "a", "7"),
        ("MODIFIED", "b", "7"),
        ("DELETED", "c", "7"),
        ("BOOKMARK", "", "7"),
    ]
    assert lines[0].object.decode() == json.loads(event("ADDED", "a"))["object"]


async def test_a_bookmark_needs_a_resource_version_only() -> None:
    (line,) = await watch_parts(
        [b'{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"12746"}}}\n']
    )
    assert (line.type, line.object.resource_version) == ("BOOKMARK", "12746")


@pytest.mark.parametrize(
    "line",
    [
        b'{ "type" : "ADDED", "object" : {"metadata": {"name": "x"}} }\n',
        b'{"object":{"metadata":{"name":"x"}},"type":"ADDED"}\n',
        b'{"type":"ADDED","object":{"metadata":{"name":"x"}},"more":{}}\n',
        b'{"type":"ADDED","object":{"metadata":{"name":"x"}} }\n',
        b'{"type":"ADDED","object":{"metadata":{"name":"x"}}}\r\n',
    ],
)
async def test_lines_may_be_formatted_in_any_way(line: bytes) -> None:
    (event,) = await watch_parts([line])
    assert (event.type, event.object.name) == ("ADDED", "x")
    assert event.object.decode() == {"metadata": {"name": "x"}}


@pytest.mark.parametrize("blank", [b"\n", b"\r\n", b" \t\r\n", b"\n\r\n  \n"])
async def test_blank_lines_are_passed_over(blank: bytes) -> None:
    lines = [event(name=name).replace(b"\n", b"\r\n") for name in "ab"]
    for parts in ([blank, lines[0], blank, lines[1], blank], [blank + lines[0] + blank + lines[1] + blank]):
        assert [line.object.name for line in await watch_parts(list(parts))] == ["a", "b"]


async def test_many_small_lines_may_arrive_at_once() -> None:
    lines = await watch_parts([b"".join(event(name=f"n{number}") for number in range(5000))])
    assert [line.object.name for line in lines] == [f"n{number}" for number in range(5000)]


@given(data=st.data())
def test_lines_are_complete_however_they_are_split(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.text(max_size=5), max_size=6))
    raw = b"".join(event(name=name) for name in names)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    bounds = [0, *cuts, len(raw)]
    parts: list[bytes | Exception | None] = [raw[a:b] for a, b in itertools.pairwise(bounds)]
    assert [line.object.name for line in trio.run(watch_parts, parts)] == names


async def test_a_long_line_in_small_parts_is_joined_in_linear_time() -> None:
    line = event(data="y" * 8_000_000)
    parts: list[bytes | Exception | None] = [line[at : at + 512] for at in range(0, len(line), 512)]
    (got,) = await watch_parts(parts)
    assert len(got.object.raw) > 8_000_000


async def test_the_limit_is_for_each_line_not_for_the_stream() -> None:
    line = event(data="y" * 1_000_000)
    parts: list[bytes | Exception | None] = [line[10:] + line[:10]] * 20
    assert len(await watch_parts([line[:10], *parts, line[10:]])) == 21


async def test_a_line_without_end_is_an_error() -> None:
    part = b"y" * 1_000_000
    with pytest.raises(ConnectionLostError, match=f"a line longer than {MAX_LINE} bytes"):
        await watch_parts([b'{"type":"ADDED","object":{"data":"', *([part] * 17), None])


async def test_events_before_an_invalid_line_are_returned_first() -> None:
    streaming = Streaming(Chunks([event(name="a") + event(name="b") + b"{nonsense\n"]))
    async with (
        open_client(lambda: INFO, settings=OperatorSettings(), transport=streaming) as client,
        open_watch(client, "/x", resource_version="5") as watch,
    ):
        assert [(await anext(watch)).object.name, (await anext(watch)).object.name] == ["a", "b"]
        with pytest.raises(ConnectionLostError, match="invalid JSON"):
            await anext(watch)


@pytest.mark.parametrize("tail", [b"{", event()[:-1], b'{"type":"ADDED"'])
async def test_a_truncated_line_at_the_end_is_a_lost_connection(tail: bytes) -> None:
    with pytest.raises(ConnectionLostError, match="The watch of /api/v1/pods ended in the middle of a line"):
        await watch_parts([event(), tail])


async def test_white_space_at_the_end_is_ignored() -> None:
    assert len(await watch_parts([event(), b"\n\n \r", b"  "])) == 1


@pytest.mark.parametrize("line", [b"<html>\n", b"\xff\xfe\n", b'{"type": }\n', b'{"type":"ADDED","object":{"a":}}\n'])
async def test_a_line_that_is_not_json_is_a_lost_connection(line: bytes) -> None:
    with pytest.raises(ConnectionLostError, match="The watch of /api/v1/pods sent invalid JSON"):
        await watch_parts([line, event()])


@pytest.mark.parametrize("line", [b"{}\n", b"[]\n", b"1\n", b'{"type":"ADDED"}\n', b'{"type":1,"object":{}}\n'])
async def test_a_line_that_is_not_an_event_is_skipped(line: bytes, caplog: pytest.LogCaptureFixture) -> None:
    assert len(await watch_parts([line, event()])) == 1
    assert "skipping an event with an invalid object" in caplog.text


@pytest.mark.parametrize("obj", [b"null", b"[]", b"{}", b'{"metadata":{"uid":7}}', b'{"metadata":[]}'])
async def test_an_object_with_invalid_metadata_does_not_end_the_stream(
    obj: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    lines = await watch_parts([b'{"type":"ADDED","object":' + obj + b"}\n", event()])
    assert len(lines) == 1
    assert "Watching /api/v1/pods: skipping an event with an invalid object" in caplog.text


async def test_an_unknown_type_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    assert len(await watch_parts([event("SURPRISE"), event()])) == 1
    assert "skipping an event of the unknown type SURPRISE" in caplog.text


@pytest.mark.parametrize(
    ("code", "kind"), [(410, ExpiredError), (500, ServerError), (504, ServerError), (400, ApiError)]
)
async def test_an_error_event_raises_the_error_of_its_code(code: int, kind: type[ApiError]) -> None:
    error = {"kind": "Status", "code": code, "message": "too old resource version: 1 (9)", "reason": "Expired"}
    line = json.dumps({"type": "ERROR", "object": error}).encode() + b"\n"
    with pytest.raises(kind, match=f"HTTP {code} Expired: too old") as caught:
        await watch_parts([event(), line])
    assert caught.value.status == code


@pytest.mark.parametrize(("code", "kind"), [(410, ExpiredError), (403, ForbiddenError), (503, ServerError)])
async def test_an_error_response_to_a_watch_is_raised_at_once(
    autojump_clock: MockClock, code: int, kind: type[ApiError]
) -> None:
    memory = Memory([status(code, "because")])
    async with open_client(lambda: INFO, settings=OperatorSettings(), transport=memory) as client:
        with pytest.raises(kind, match="because"):
            async with open_watch(client, "/x", resource_version="5"):
                raise AssertionError
    assert len(memory.requests) == 1


async def test_a_rejected_token_is_reloaded() -> None:
    memory = Memory([status(401), ok()])
    async with (
        open_client(lambda: INFO, settings=OperatorSettings(), transport=memory) as client,
        open_watch(client, "/x", resource_version="5"),
    ):
        pass
    assert len(memory.requests) == 2


@pytest.mark.parametrize("error", [httpx.ReadError("gone"), OSError("gone"), trio.BrokenResourceError("gone")])
async def test_a_dropped_stream_is_a_lost_connection(error: Exception) -> None:
    with pytest.raises(ConnectionLostError, match="cluster: gone"):
        await watch_parts([event(), error])


async def test_silence_ends_the_stream_without_an_error(autojump_clock: MockClock, settings: OperatorSettings) -> None:
    settings.watching.inactivity_timeout = 70
    assert len(await watch_parts([event(), None], settings)) == 1
    assert trio.current_time() == 70


async def test_silence_for_longer_than_a_minute_ends_the_stream_as_it_may_be_deaf(
    autojump_clock: MockClock, settings: OperatorSettings
) -> None:
    assert len(await watch_parts([event(), event()[:5], None], settings)) == 1
    assert 75 <= trio.current_time() <= 86


async def test_a_server_that_shows_that_its_bookmarks_are_rare_is_given_more_time(
    autojump_clock: MockClock, settings: OperatorSettings
) -> None:
    class Rare(Chunks):
        async def __aiter__(self) -> Any:
            for number in range(1, 5):
                await trio.sleep(60)
                yield event("BOOKMARK", "") if number % 2 == 0 else event()
            await trio.sleep_forever()

    settings.watching.server_timeout = 3600
    async with open_client(lambda: INFO, settings=settings, transport=Streaming(Rare([]))) as client:
        async with open_watch(client, "/api/v1/pods", resource_version="5") as watch:
            assert len([line async for line in watch]) == 4
        assert 240 + 75 <= trio.current_time() <= 240 + 86  # it was asked for before that was known
        assert client.bookmarks.choose_patience("/api/v1/pods") == 150


@pytest.mark.parametrize("server_timeout", [None, 10, 3600])
async def test_a_stream_that_the_server_does_not_end_is_ended_a_little_later(
    autojump_clock: MockClock, settings: OperatorSettings, server_timeout: float | None
) -> None:
    settings.watching.server_timeout = server_timeout
    settings.watching.inactivity_timeout = math.inf
    assert len(await watch_parts([event(), event()[:5], None], settings)) == 1
    if server_timeout is None:
        assert 330 <= trio.current_time() <= 630
    else:
        assert trio.current_time() == server_timeout + 30


async def test_watches_ask_for_random_durations() -> None:
    memory = Memory([ok()])
    async with open_client(lambda: INFO, settings=OperatorSettings(), transport=memory) as client:
        for _ in range(100):
            async with open_watch(client, "/x", resource_version="5"):
                pass
    durations = [int(request.url.params["timeoutSeconds"]) for request in memory.requests]
    assert all(300 <= duration <= 600 for duration in durations)
    assert len(set(durations)) > 20


async def test_the_inactivity_timeout_restarts_with_each_line(
    autojump_clock: MockClock, settings: OperatorSettings
) -> None:
    class Slow(Chunks):
        async def __aiter__(self) -> Any:
            for _ in range(5):
                await trio.sleep(60)
                yield event()

    settings.watching.server_timeout = 3600
    settings.watching.inactivity_timeout = 70
    streaming = Streaming(Slow([]))
    async with (
        open_client(lambda: INFO, settings=settings, transport=streaming) as client,
        open_watch(client, "/x", resource_version="5") as watch,
    ):
        assert len([line async for line in watch]) == 5
    assert trio.current_time() == 300


class Deaf:
    """A response that sends one event and is silent from then on. A read that is cancelled can be repeated."""

    status, headers, repeated = 200, (), False

    def __init__(self) -> None:
        self._data = [event()]

    async def receive(self, until: float = math.inf) -> bytes:
        await trio.lowlevel.checkpoint()
        if not self._data:
            with trio.fail_at(until):
                await trio.sleep_forever()
        return self._data.pop()

    async def read(self, limit: int) -> bytes:
        raise NotImplementedError

    async def aclose(self) -> None: ...


async def test_silence_adds_up_for_a_reader_who_waits_for_short_times(autojump_clock: MockClock) -> None:
    watch, received = Watch(Deaf(), path="/x", inactivity_timeout=70, bookmarks=Bookmarks()), 0
    with pytest.raises(StopAsyncIteration):
        while trio.current_time() < 1000:
            with trio.move_on_after(2):
                await anext(watch)
                received += 1
            await trio.sleep(8)  # in which nobody listens, so that this is no silence
    assert received == 1
    assert 8 + 34 * 10 < trio.current_time() < 8 + 36 * 10


async def test_silence_before_the_response_is_a_lost_connection(
    autojump_clock: MockClock, settings: OperatorSettings
) -> None:
    async def hang(_: httpx.Request) -> httpx.Response:
        await trio.sleep_forever()
        raise AssertionError

    async with open_client(lambda: INFO, settings=settings, transport=Memory(hang)) as client:
        with pytest.raises(ConnectionLostError, match="no response within 70 s"):
            async with open_watch(client, "/x", resource_version="5"):
                raise AssertionError
    assert trio.current_time() == 70


async def test_the_client_timeout_ends_the_stream_without_an_error(
    autojump_clock: MockClock, settings: OperatorSettings
) -> None:
    settings.watching.client_timeout = 30
    assert len(await watch_parts([event(), event()[:5], None], settings)) == 1
    assert trio.current_time() == 30


@pytest.mark.parametrize(("server_timeout", "sent"), [(10, "10"), (0.1, "1"), (9.6, "10"), (math.inf, "2147483648")])
async def test_the_request_follows_the_settings(settings: OperatorSettings, server_timeout: float, sent: str) -> None:
    settings.watching.server_timeout = server_timeout
    memory = Memory([ok()])
    async with (
        open_client(lambda: INFO, settings=settings, transport=memory) as client,
        open_watch(client, "/apis/a/v1/namespaces/n/kexes", resource_version="5&6"),
    ):
        pass
    (request,) = memory.requests
    expected = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "5&6", "timeoutSeconds": sent}
    assert dict(request.url.params) == expected
    assert request.url.path == "/apis/a/v1/namespaces/n/kexes"


async def test_a_watch_closes_its_stream_on_exit() -> None:
    chunks = Chunks([event(), None])
    async with (
        open_client(lambda: INFO, settings=OperatorSettings(), transport=Streaming(chunks)) as client,
        open_watch(client, "/x", resource_version="5") as watch,
    ):
        await anext(watch)
    assert chunks.closed


async def test_a_cancelled_watch_closes_its_stream(autojump_clock: MockClock) -> None:
    chunks = Chunks([None])
    async with open_client(lambda: INFO, settings=OperatorSettings(), transport=Streaming(chunks)) as client:
        with trio.move_on_after(1):
            async with open_watch(client, "/x", resource_version="5") as watch:
                await anext(watch)
    assert chunks.closed


class TestSockets:
    """What only real connections show."""

    async def watch(self, serve: Serve, settings: OperatorSettings, *parts: bytes) -> list[str]:
        async def script(talk: Talk) -> None:
            await talk.request()
            await talk.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for part in parts:
                await talk.send(part)
                await trio.sleep(0.01)

        server = await serve(script)
        async with (
            client_of(server, settings) as client,
            open_watch(client, "/x", resource_version="5") as watch,
        ):
            with trio.fail_after(60):
                return [line.object.name async for line in watch]

    def chunk(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data)

    async def test_the_stream_ends_when_the_server_ends_it(self, serve: Serve, settings: OperatorSettings) -> None:
        parts = [self.chunk(event(name="a")), self.chunk(event(name="b") + event(name="c")), b"0\r\n\r\n"]
        assert await self.watch(serve, settings, *parts) == ["a", "b", "c"]

    async def test_a_truncated_response_is_a_lost_connection(self, serve: Serve, settings: OperatorSettings) -> None:
        with pytest.raises(ConnectionLostError, match="closed in the middle of the response"):
            await self.watch(serve, settings, self.chunk(event()))
        with pytest.raises(ConnectionLostError, match="closed in the middle of the response"):
            await self.watch(serve, settings, self.chunk(event())[:-20])

    async def test_a_truncated_line_before_a_clean_end_is_a_lost_connection(
        self, serve: Serve, settings: OperatorSettings
    ) -> None:
        with pytest.raises(ConnectionLostError, match="in the middle of a line"):
            await self.watch(serve, settings, self.chunk(event()), self.chunk(event()[:30]), b"0\r\n\r\n")

    async def test_large_and_small_lines_arrive(self, serve: Serve, settings: OperatorSettings) -> None:
        raw = b"".join(
            event(name=f"n{number}", data="z" * (1_048_576 if number % 50 == 0 else 1)) for number in range(200)
        )
        parts = [self.chunk(raw[at : at + 10_000]) for at in range(0, len(raw), 10_000)]
        assert await self.watch(serve, settings, b"".join(parts), b"0\r\n\r\n") == [f"n{n}" for n in range(200)]

    async def test_a_silent_stream_is_closed(self, serve: Serve, settings: OperatorSettings) -> None:
        async def script(talk: Talk) -> None:
            await talk.request()
            await talk.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            await talk.request()  # it says nothing until the client has left

        settings.watching.inactivity_timeout = 0.05
        server = await serve(script)
        async with (
            client_of(server, settings) as client,
            open_watch(client, "/x", resource_version="5") as watch,
        ):
            with trio.fail_after(60):
                assert [line async for line in watch] == []
        await server.all_closed()

    async def test_many_watches_leave_room_for_requests(self, serve: Serve, settings: OperatorSettings) -> None:
        async def script(talk: Talk) -> None:
            while (request := await talk.request()) is not None:
                if "watch" in request.target:
                    await talk.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                    await trio.sleep_forever()
                await talk.answer({})

        async def hold(task_status: trio.TaskStatus[None]) -> None:
            async with open_watch(client, "/x", resource_version="5") as watch:
                task_status.started()
                await anext(watch)

        server = await serve(script)
        async with client_of(server, settings) as client:
            with trio.fail_after(60):
                async with trio.open_nursery() as watches:
                    for _ in range(150):
                        await watches.start(hold)
                    assert await client.get("/y") == {}
                    watches.cancel_scope.cancel()


DEEP = b'{"a":[' * TOO_MANY + b"]}" * TOO_MANY  # more levels than any decoder has


def deep_line(type: bytes, name: bytes) -> bytes:
    obj = b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"%b","uid":"u-%b"},"spec":%b}' % (name, name, DEEP)
    return b'{"type":"%b","object":%b}' % (type, obj)


@pytest.mark.parametrize("format", [b"%b\n", b" %b\n"], ids=["fast", "slow"])
async def test_a_deep_object_is_skipped_but_not_its_deletion(caplog: pytest.LogCaptureFixture, format: bytes) -> None:
    lines = [deep_line(b"ADDED", b"a"), deep_line(b"MODIFIED", b"b"), deep_line(b"DELETED", b"c")]
    events = await watch_parts([*(format % line for line in lines), event(name="d")])
    assert [(each.type, str(each.object), each.object.uid) for each in events] == [
        ("DELETED", "Pod c", "u-c"),
        ("ADDED", "Pod d", "u"),
    ]
    assert "skipping an event with Pod a: it is nested too deeply" in caplog.text
    assert "skipping an event with Pod b: it is nested too deeply" in caplog.text


async def test_objects_that_cannot_be_read_are_passed_to_the_report() -> None:
    reported: list[BrokenObject] = []
    streaming = Streaming(Chunks([deep_line(b"ADDED", b"a") + b"\n", event(metadata=None)]))
    async with (
        open_client(lambda: INFO, settings=OperatorSettings(), transport=streaming) as client,
        open_watch(client, "/x", resource_version="5", report=reported.append) as watch,
    ):
        assert [line async for line in watch] == []
    assert [str(broken.identity) for broken in reported] == ["Pod a", "None"]


async def test_an_error_event_that_is_nested_too_deeply_is_still_that_error() -> None:
    status = b'{"kind":"Status","code":410,"reason":"Expired","details":%b}' % (b"[" * 20_000 + b"]" * 20_000)
    with pytest.raises(ExpiredError):
        await watch_parts([b'{"type":"ERROR","object":%b}\n' % status])


async def test_a_deep_line_that_is_no_event_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    assert await watch_parts([b'{"type":%b}\n' % DEEP, b'{"type":"NEW","object":%b}\n' % DEEP]) == []
    assert "an event of the unknown type NEW" in caplog.text
