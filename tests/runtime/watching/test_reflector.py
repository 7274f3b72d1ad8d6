"""The reflector: lists and watches that go on whatever happens, and at which pace."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import math
from collections.abc import AsyncIterator, Collection
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, settle, widget
from trioperator._kube.api_client import open_client
from trioperator._kube.objects import RawObject
from trioperator._model.shard_ranges import hash_text
from trioperator._runtime.watching.reflector import Reflector
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport

WIDGETS = "/apis/example.com/v1/widgets"


class Recorder:
    """Remember what was seen."""

    def __init__(self) -> None:
        self.events: list[tuple[str | None, str]] = []
        self.lists: list[set[str]] = []

    def observe(self, type: str | None, obj: RawObject) -> str:
        self.events.append((type, obj.name))
        return obj.name

    def replace(self, listed: Collection[str]) -> None:
        self.lists.append(set(listed))


class Asked(FaultyTransport):
    """Remember what was asked when, whatever became of it."""

    def __init__(self, inner: httpx.AsyncBaseTransport, plan: FaultPlan) -> None:
        super().__init__(inner, plan)
        self.lists: list[tuple[float, httpx.QueryParams]] = []
        self.watches: list[tuple[float, httpx.QueryParams]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        params = request.url.params
        asked = self.watches if params.get("watch") else self.lists
        asked.append((trio.current_time(), params))
        return await super().handle_async_request(request)


class Stage:
    """A cluster with one kind, and a reflector of it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.settings = trioperator.OperatorSettings()
        self.plan = FaultPlan()
        self.asked = Asked(cluster.transport(), self.plan)
        self.seen = Recorder()

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[Reflector]:
        info = trioperator.ConnectionInfo(server="http://embedded")
        async with (
            open_client(lambda: info, settings=self.settings, transport=self.asked) as client,
            trio.open_nursery() as nursery,
        ):
            reflector = Reflector(client, WIDGETS, self.seen)
            await nursery.start(reflector.serve)
            yield reflector
            nursery.cancel_scope.cancel()


@pytest.fixture
async def stage(cluster: Cluster) -> Stage:
    await cluster.apply(CRD)
    return Stage(cluster)


def gaps(asked: list[tuple[float, Any]]) -> list[float]:
    return [after - before for (before, _), (after, _) in itertools.pairwise(asked)]


async def test_it_has_started_when_the_list_is_in(stage: Stage, autojump_clock: MockClock) -> None:
    await stage.cluster.create(widget("a"))
    async with stage.following() as reflector:
        assert stage.seen.events == [(None, "a")]
        assert stage.seen.lists == [{"a"}]
        assert reflector.status.trouble is None


async def test_a_watch_begins_where_the_list_ended(stage: Stage, autojump_clock: MockClock) -> None:
    await stage.cluster.create(widget("a"))
    version = str(stage.cluster.revision)
    async with stage.following():
        await settle()
        assert [params["resourceVersion"] for _, params in stage.asked.watches] == [version]
        await stage.cluster.create(widget("b"))
        await stage.cluster.delete("widgets", "a")
        await settle()
        assert stage.seen.events == [(None, "a"), ("ADDED", "b"), ("DELETED", "a")]


async def test_a_big_list_comes_in_pages(stage: Stage, autojump_clock: MockClock) -> None:
    for number in range(1200):
        await stage.cluster.create(widget(f"w{number}"))
    async with stage.following():
        assert len(stage.seen.events) == 1200
        assert [len(listed) for listed in stage.seen.lists] == [1200]
        assert [params["limit"] for _, params in stage.asked.lists] == ["500"] * 3
        assert ["continue" in params for _, params in stage.asked.lists] == [False, True, True]
        await stage.cluster.patch("widgets", "w7", {"spec": {"size": 2}})
        await settle()
        assert stage.seen.events[1200:] == [("MODIFIED", "w7")]


@pytest.mark.parametrize("times", [1, None], ids=["once", "always"])
async def test_a_list_whose_pages_expire_is_requested_as_a_whole(
    stage: Stage, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, times: int | None
) -> None:
    stage.settings.watching.page_size = 2
    for name in "abcde":
        await stage.cluster.create(widget(name))
    stage.plan.add(Fault.status(410), path="continue=", times=times)
    async with stage.following() as reflector:
        await settle(5)
        assert reflector.status.trouble is None
        await stage.cluster.create(widget("f"))
        await settle(1)
    assert stage.seen.lists == [set("abcde")]
    assert stage.seen.events[-1] == ("ADDED", "f")
    asked = [(params.get("limit"), "continue" in params) for _, params in stage.asked.lists]
    assert asked == [("2", False), ("2", True), (None, False)]
    assert "warning" not in caplog.text.lower()


async def test_a_list_that_expires_as_a_whole_too_is_backed_off(stage: Stage, autojump_clock: MockClock) -> None:
    stage.settings.watching.page_size = 2
    for name in "abcde":
        await stage.cluster.create(widget(name))
    stage.plan.add(Fault.status(410), watch=False)
    async with stage.following() as reflector:
        await settle(600)
        assert reflector.status.trouble is not None
    assert 10 < len(stage.asked.lists) < 45


async def test_what_vanishes_while_pages_expire_is_not_concluded_from_half_a_list(
    stage: Stage, autojump_clock: MockClock
) -> None:
    stage.settings.watching.page_size = 2
    for name in "abcde":
        await stage.cluster.create(widget(name))

    def compact() -> None:
        stage.cluster.compact()

    async def delete() -> None:
        await stage.cluster.delete("widgets", "b")

    stage.plan.add(Fault.status(410), path="continue=", times=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(delete)
        async with stage.following():
            await settle(5)
    assert stage.seen.lists == [set("acde")]


async def test_pauses_grow_while_a_list_fails_and_are_spread(stage: Stage, autojump_clock: MockClock) -> None:
    stage.plan.add(Fault.status(403), watch=False, times=10)
    async with stage.following() as reflector:
        assert isinstance(reflector.status.trouble, trioperator.errors.ForbiddenError)
        await settle(400)
        assert reflector.status.trouble is None
        assert stage.seen.lists == [set()]
    expected = [0.5, 1, 2, 4, 8, 16, 30, 30, 30, 30]
    for gap, middle in zip(gaps(stage.asked.lists), expected, strict=True):
        assert 0.74 * middle <= gap <= 1.26 * middle
    assert len({round(gap / middle, 6) for gap, middle in zip(gaps(stage.asked.lists), expected, strict=True)}) > 1


async def test_the_backoff_starts_over_after_an_event(stage: Stage, autojump_clock: MockClock) -> None:
    stage.settings.watching.client_timeout = 50
    stage.plan.add(Fault.refuse(), watch=True, times=8)
    async with stage.following():
        await settle(150)
        assert max(gaps(stage.asked.watches)) > 20
        await stage.cluster.create(widget("new"))
        await settle(1)
        assert stage.seen.events == [("ADDED", "new")]
        stage.plan.add(Fault.refuse(), watch=True, times=2)
        stage.asked.watches.clear()
        await settle(60)
        assert len(stage.asked.watches) >= 3
        assert max(gaps(stage.asked.watches)[:2]) < 1.3


async def test_the_servers_retry_after_is_respected(stage: Stage, autojump_clock: MockClock) -> None:
    stage.plan.add(Fault.status(429, retry_after=100), watch=True, times=1)
    async with stage.following():
        await settle(250)
        assert gaps(stage.asked.watches)[0] >= 100


async def test_a_bookmark_advances_the_version(stage: Stage, autojump_clock: MockClock) -> None:
    stage.settings.watching.client_timeout = 90  # a bookmark comes after 60
    async with stage.following() as reflector:
        await settle(1)
        for number in range(10):
            await stage.cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{number}"}})
        version = stage.cluster.revision
        await settle(65)
        stage.cluster.compact()
        await settle(60)
        assert [params["resourceVersion"] for _, params in stage.asked.watches][1] == str(version)
        assert len(stage.asked.lists) == 1
        assert reflector.status.trouble is None
    assert stage.seen.events == []


async def test_an_expired_resource_version_is_listed_again(stage: Stage, autojump_clock: MockClock) -> None:
    await stage.cluster.create(widget("a"))
    stage.plan.add(Fault.error_event(410), watch=True, times=1)
    async with stage.following() as reflector:
        await settle(5)
        assert stage.seen.events == [(None, "a"), (None, "a")]
        assert stage.seen.lists == [{"a"}, {"a"}]
        assert reflector.status.trouble is None


async def test_a_resource_version_that_expires_over_and_over_does_not_flood_the_server(
    stage: Stage, autojump_clock: MockClock
) -> None:
    stage.plan.add(Fault.error_event(410), watch=True)
    async with stage.following():
        await settle(600)
    assert 10 < len(stage.asked.lists) < 45


@pytest.mark.parametrize("fault", [Fault.status(410), Fault.error_event(410)], ids=["HTTP", "in the stream"])
async def test_a_resource_version_that_expires_over_and_over_logs_a_few_warnings(
    fault: Fault, stage: Stage, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    rule = stage.plan.add(fault, watch=True)
    async with stage.following() as reflector:
        await settle(0.01)
        assert reflector.status.trouble is None
        await settle(3600)
        assert reflector.status.trouble is not None
        warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert 2 <= len(warnings) <= 20
        assert "410" in warnings[0].getMessage()
        stage.plan.remove(rule)
        await settle(60)
        assert reflector.status.trouble is None


TOO_LARGE = {
    "kind": "Status",
    "code": 504,
    "reason": "Timeout",
    "message": "Timeout: Too large resource version: 900, current: 17",
    "details": {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]},
}


@pytest.mark.parametrize(
    "fault",
    [
        Fault.answer(504, json.dumps(TOO_LARGE).encode()),
        Fault.error_event(504, reason="Timeout", message="Timeout: Too large resource version: 900, current: 17"),
    ],
    ids=["HTTP", "in the stream"],
)
async def test_a_version_that_the_server_does_not_have_is_listed_again(
    fault: Fault, stage: Stage, autojump_clock: MockClock
) -> None:
    await stage.cluster.create(widget("a"))
    stage.plan.add(fault, watch=True, times=1)
    async with stage.following() as reflector:
        await settle(5)
        assert stage.seen.lists == [{"a"}, {"a"}]
        assert all("resourceVersion" not in params for _, params in stage.asked.lists)
        assert reflector.status.trouble is None


async def test_other_errors_do_not_list_again(stage: Stage, autojump_clock: MockClock) -> None:
    for fault in (Fault.error_event(500), Fault.status(503), Fault.break_off(), Fault.half_line(), Fault.garbage()):
        stage.plan.add(fault, watch=True, times=1)
    async with stage.following():
        await settle(200)
        await stage.cluster.create(widget("a"))
        await settle(1)
    assert [params["limit"] for _, params in stage.asked.lists] == ["500", "1"]  # the latter only for the version
    assert stage.seen.events == [("ADDED", "a")]


async def test_streams_that_end_at_once_are_backed_off(stage: Stage, autojump_clock: MockClock) -> None:
    stage.plan.add(Fault.close(), watch=True)
    async with stage.following() as reflector:
        await settle(600)
        assert reflector.status.trouble is not None
    assert len(stage.asked.watches) <= 6 + 600 / 22


@pytest.mark.parametrize("fault", [Fault.close(), Fault.break_off(), Fault.status(403), Fault.status(405)])
async def test_what_watches_never_bring_is_listed(stage: Stage, autojump_clock: MockClock, fault: Fault) -> None:
    stage.plan.add(fault, watch=True, until=trio.current_time() + 1000)
    async with stage.following() as reflector:
        await settle(300)
        await stage.cluster.create(widget("a"))
        await settle(40)
        assert stage.seen.lists[-1] == {"a"}
        await stage.cluster.delete("widgets", "a")
        await settle(40)
        assert stage.seen.lists[-1] == set()
        assert min(gaps(stage.asked.lists[-5:])) > 20
        await settle(1000)
        assert reflector.status.trouble is None
        asked = len(stage.asked.lists)
        await stage.cluster.create(widget("b"))
        await settle(40)
        assert stage.seen.events[-1] == ("ADDED", "b")
        assert len(stage.asked.lists) == asked


@pytest.mark.parametrize("fault", [Fault.refuse(), Fault.status(503)])
async def test_a_server_that_is_down_is_not_listed_after_it(
    stage: Stage, autojump_clock: MockClock, fault: Fault
) -> None:
    stage.plan.add(fault, watch=True, until=trio.current_time() + 1000)
    async with stage.following():
        await settle(1100)
    assert [params["limit"] for _, params in stage.asked.lists] == ["500", "1"]  # the latter only for the version


async def test_streams_that_end_in_order_are_opened_again_soon(stage: Stage, autojump_clock: MockClock) -> None:
    stage.settings.watching.client_timeout = 10
    async with stage.following() as reflector:
        await settle(101)
        assert reflector.status.trouble is None
    assert 9 <= len(stage.asked.watches) <= 11


async def test_a_quiet_kind_costs_twelve_watch_requests_an_hour_at_most(
    stage: Stage, autojump_clock: MockClock
) -> None:
    async with stage.following():
        await settle(3600)
        assert len(stage.asked.watches) <= 12
        assert len(stage.asked.lists) == 1


@pytest.mark.parametrize("lines", [0, 1])
async def test_a_stream_that_goes_deaf_delays_a_change_by_a_minute_and_a_half_at_most(
    stage: Stage, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, lines: int
) -> None:
    caplog.set_level(logging.INFO)
    stage.plan.add(Fault.silence(lines=lines), watch=True, times=1)
    async with stage.following() as reflector:
        await settle(0.5)
        names = ["before", "after"][1 - lines :]
        for name in names:
            await stage.cluster.create(widget(name))
        version = [str(stage.cluster.revision - 1)] if lines else []
        await settle(89)
        assert stage.seen.events == [("ADDED", name) for name in names]
        assert reflector.status.trouble is None
    assert [params["resourceVersion"] for _, params in stage.asked.watches][1:] == version or not lines
    assert len(stage.asked.watches) == 2
    assert len(stage.asked.lists) == 1
    assert not caplog.records


async def test_a_silent_stream_may_be_kept_until_it_should_have_ended(stage: Stage, autojump_clock: MockClock) -> None:
    stage.settings.watching.inactivity_timeout = math.inf
    stage.plan.add(Fault.silence(), watch=True, times=1)
    async with stage.following():
        await settle(0.5)
        await stage.cluster.create(widget("a"))
        await settle(632)
        assert stage.seen.events == [("ADDED", "a")]
    requested = int(stage.asked.watches[0][1]["timeoutSeconds"])
    assert requested + 30 <= gaps(stage.asked.watches)[0] <= requested + 31


async def test_an_inactivity_timeout_drops_a_silent_stream_sooner(stage: Stage, autojump_clock: MockClock) -> None:
    stage.settings.watching.inactivity_timeout = 70
    stage.plan.add(Fault.silence(), watch=True, times=1)
    async with stage.following():
        await settle(0.5)
        await stage.cluster.create(widget("a"))
        await settle(72)
        assert stage.seen.events == [("ADDED", "a")]
    assert 70 <= gaps(stage.asked.watches)[0] <= 71


@pytest.mark.parametrize("inactivity_timeout", [None, 70, 10])
async def test_a_kind_without_events_or_bookmarks_is_no_trouble(
    inactivity_timeout: float | None, stage: Stage, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    stage.settings.watching.inactivity_timeout = inactivity_timeout
    stage.plan.add(Fault.silence(), watch=True)
    async with stage.following() as reflector:
        for _ in range(60):
            await settle(60)
            assert reflector.status.trouble is None
        assert [params["limit"] for _, params in stage.asked.lists].count("500") == 1
        assert len(stage.asked.watches) <= 3600 / (inactivity_timeout or 75) + 1
        assert 9 <= len(stage.asked.lists) <= 12  # whether the server is the same
    assert caplog.records == []


class Buffering(httpx.AsyncBaseTransport):
    """A proxy that keeps the bodies of responses back until they are complete, and perhaps their headers."""

    def __init__(self, inner: httpx.AsyncBaseTransport, *, headers: bool) -> None:
        self.inner = inner
        self.headers = headers

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self.inner.handle_async_request(request)
        if self.headers:
            return httpx.Response(response.status_code, content=await response.aread())
        return httpx.Response(response.status_code, stream=BufferedStream(response))


class BufferedStream(httpx.AsyncByteStream):
    """A body that comes at once when it is complete."""

    def __init__(self, inner: httpx.Response) -> None:
        self.inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield await self.inner.aread()

    async def aclose(self) -> None:
        await self.inner.aclose()


@pytest.mark.parametrize("headers", [False, True])
async def test_changes_come_by_a_proxy_that_keeps_watches_back_until_they_end(
    stage: Stage, autojump_clock: MockClock, headers: bool
) -> None:
    stage.asked = Asked(Buffering(stage.cluster.transport(), headers=headers), stage.plan)
    async with stage.following():
        for number in range(20):
            await settle(5)
            await stage.cluster.create(widget(f"w{number}"))
            await settle(160)
            assert stage.seen.events[-1] == ("ADDED", f"w{number}")
        assert [params["limit"] for _, params in stage.asked.lists].count("500") == 1


class Cutting(httpx.AsyncBaseTransport):
    """A load balancer that cuts off each watch after some seconds."""

    def __init__(self, inner: httpx.AsyncBaseTransport, seconds: float) -> None:
        self.inner = inner
        self.seconds = seconds

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self.inner.handle_async_request(request)
        if not request.url.params.get("watch"):
            return response
        return httpx.Response(response.status_code, stream=CutStream(response.stream, self.seconds))


class CutStream(httpx.AsyncByteStream):
    """A stream that breaks after some seconds."""

    def __init__(self, inner: Any, seconds: float) -> None:
        self.inner = inner
        self.seconds = seconds

    async def __aiter__(self) -> AsyncIterator[bytes]:
        parts = aiter(self.inner)
        deadline = trio.current_time() + self.seconds
        while True:
            part = None
            with trio.move_on_at(deadline):
                part = await anext(parts)
            if part is None:
                raise httpx.RemoteProtocolError("cut off")
            yield part

    async def aclose(self) -> None:
        await self.inner.aclose()


async def test_a_quiet_stream_that_a_load_balancer_cuts_off_is_no_trouble(
    stage: Stage, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    stage.asked = Asked(Cutting(stage.cluster.transport(), 50), stage.plan)
    async with stage.following() as reflector:
        for _ in range(60):
            await settle(60)
            assert reflector.status.trouble is None
        await stage.cluster.create(widget("a"))
        await settle(1)
        assert stage.seen.events == [("ADDED", "a")]
        assert max(gaps(stage.asked.watches)) < 51
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_stream_that_breaks_soon_is_a_trouble(
    stage: Stage, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    stage.asked = Asked(Cutting(stage.cluster.transport(), 5), stage.plan)
    async with stage.following():
        await settle(600)
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert 2 <= len(warnings) <= 10
    assert "cut off" in warnings[0].getMessage()


async def test_a_few_warnings_are_enough_for_a_long_trouble(
    stage: Stage, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.INFO)
    stage.plan.add(Fault.status(403, message="go away"), watch=False, until=trio.current_time() + 3600)
    async with stage.following():
        await settle(3700)
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert 2 <= len(warnings) <= 20
    assert "go away" in warnings[0].getMessage()
    assert WIDGETS in warnings[0].getMessage()
    assert any("begins" in record.getMessage() for record in caplog.records if record.levelno == logging.INFO)


async def test_it_ends_by_cancellation_only(stage: Stage, autojump_clock: MockClock) -> None:
    for code in (400, 401, 403, 404, 405, 409, 410, 422, 429, 500, 503):
        stage.plan.add(Fault.status(code), watch=True, times=1)
        stage.plan.add(Fault.status(code), watch=False, times=1)
    async with stage.following() as reflector:
        await settle(2000)
        assert reflector.status.trouble is None
        await stage.cluster.create(widget("a"))
        await settle(1)
        assert ("ADDED", "a") in stage.seen.events


async def test_a_server_that_says_when_it_is_available_is_not_kept_waiting(
    stage: Stage, autojump_clock: MockClock
) -> None:
    stage.plan.add(Fault.refuse(), watch=True, until=trio.current_time() + 200)
    stage.plan.add(Fault.status(429, retry_after=1), watch=True, times=3)
    async with stage.following():
        await settle(300)
        assert all(1 <= gap <= 6.25 for gap in gaps(stage.asked.watches)[-3:])


@pytest.mark.parametrize("fault", [None, Fault.stall(), Fault.status(503)])
async def test_a_reflector_that_is_restarted_lists_again_at_once(
    stage: Stage, autojump_clock: MockClock, fault: Fault | None
) -> None:
    await stage.cluster.create(widget("a"))
    if fault is not None:
        stage.plan.add(fault, verb="list", times=1)
    async with trio.open_nursery() as nursery:
        info = trioperator.ConnectionInfo(server="http://embedded")
        async with open_client(lambda: info, settings=stage.settings, transport=stage.asked) as client:
            reflector = Reflector(client, WIDGETS, stage.seen)
            nursery.start_soon(reflector.serve)
            await settle()
            before = len(stage.asked.lists)
            reflector.restart(client.selecting({"labelSelector": "a=b"}, forms=(None, None)))
            await settle()
            (again,) = stage.asked.lists[before:]
            assert again[1]["labelSelector"] == "a=b"
            assert stage.seen.lists[-1] == set()
            await stage.cluster.create({**widget("b"), "metadata": {"name": "b", "labels": {"a": "b"}}})
            await settle()
            assert stage.seen.events[-1] == ("ADDED", "b")
            nursery.cancel_scope.cancel()


@pytest.fixture
def streaming(stage: Stage) -> Stage:
    """Let the first list be a part of the watch."""
    stage.settings.watching.initial_streaming = True
    return stage


async def test_all_objects_come_by_the_watch_if_the_settings_say_so(
    streaming: Stage, autojump_clock: MockClock
) -> None:
    for name in ("a", "b"):
        await streaming.cluster.create(widget(name))
    async with streaming.following() as reflector:
        assert streaming.seen.events == [(None, "a"), (None, "b")]
        assert streaming.seen.lists == [{"a", "b"}]
        await streaming.cluster.create(widget("c"))
        await settle(2000)
        assert streaming.seen.events[2:] == [("ADDED", "c")]
        assert not reflector.status.trouble
    assert not streaming.asked.lists
    first, *others = [params for _, params in streaming.asked.watches]
    assert first["sendInitialEvents"] == "true"
    assert "resourceVersion" not in first
    assert all("resourceVersion" in params and "sendInitialEvents" not in params for params in others)


@pytest.mark.parametrize(
    "fault",
    [Fault.status(422), Fault.status(400), Fault.close(lines=1), Fault.error_event(422)],
)
async def test_pages_are_listed_if_the_server_cannot_stream_them(
    streaming: Stage, autojump_clock: MockClock, fault: Fault
) -> None:
    for name in ("a", "b"):
        await streaming.cluster.create(widget(name))
    streaming.plan.add(fault, watch=True, times=1)
    async with streaming.following() as reflector:
        await settle(10)
        assert streaming.seen.lists == [{"a", "b"}]
        assert len(streaming.asked.lists) == 1
        assert not reflector.status.trouble


@pytest.mark.parametrize(
    "fault",
    [
        Fault.status(403),
        Fault.break_off(lines=1),
        Fault.half_line(lines=1),
        Fault.garbage(lines=1),
        *(Fault.error_event(code, lines=1) for code in (403, 410, 429, 500, 504)),
    ],
)
async def test_pages_are_listed_if_streams_never_bring_all_objects(
    streaming: Stage, autojump_clock: MockClock, fault: Fault
) -> None:
    for name in ("a", "b"):
        await streaming.cluster.create(widget(name))
    streaming.plan.add(fault, path="sendInitialEvents")
    async with streaming.following() as reflector:
        await settle(10)
        assert streaming.seen.lists == [{"a", "b"}]
        assert not reflector.status.trouble


@pytest.mark.parametrize("fault", [Fault.status(400), Fault.error_event(410)])
async def test_it_has_not_started_before_what_is_listed_in_place_of_a_stream(
    streaming: Stage, autojump_clock: MockClock, fault: Fault
) -> None:
    await streaming.cluster.create(widget("a"))
    streaming.plan.add(fault, watch=True, times=1)
    streaming.plan.add(Fault.delay(before=3), verb="list", resource="widgets")
    async with streaming.following() as reflector:
        assert streaming.seen.lists == [{"a"}]
        assert reflector.status.tried.is_set()


async def test_a_server_that_does_not_know_streamed_lists_is_asked_for_pages(
    streaming: Stage, autojump_clock: MockClock
) -> None:
    bookmark = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}\n'
    await streaming.cluster.create(widget("a"))
    streaming.plan.add(Fault.answer(200, bookmark), watch=True, times=1)
    async with streaming.following():
        await settle(10)
        assert streaming.seen.lists == [{"a"}]
        assert len(streaming.asked.lists) == 1


async def test_a_list_after_the_first_one_comes_in_pages(streaming: Stage, autojump_clock: MockClock) -> None:
    await streaming.cluster.create(widget("a"))
    async with streaming.following():
        streaming.plan.add(Fault.error_event(410), watch=True, times=1)
        await settle(1000)
        assert streaming.seen.lists == [{"a"}, {"a"}]
        assert len(streaming.asked.lists) == 1


@pytest.mark.parametrize("streams", [False, True])
async def test_objects_of_other_shards_are_passed_over_if_the_server_sends_them(
    stage: Stage, autojump_clock: MockClock, streams: bool
) -> None:
    stage.settings.watching.initial_streaming = streams
    half = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
    own = set()
    async with open_client(
        lambda: trioperator.ConnectionInfo(server="http://embedded"), settings=stage.settings, transport=stage.asked
    ) as client:
        for number in range(10):
            made = await stage.cluster.create(widget(f"w{number}"))
            own |= {f"w{number}"} if hash_text(made["metadata"]["uid"]) < 2**63 else set()
        assert 0 < len(own) < 10
        async with trio.open_nursery() as nursery:
            selecting = client.selecting({"shardSelector": half}, forms=(None, None))
            await nursery.start(Reflector(selecting, WIDGETS, stage.seen).serve)
            assert stage.seen.lists == [own]
            for number in range(10):
                await stage.cluster.patch("widgets", f"w{number}", {"spec": {"size": 2}})
                await stage.cluster.delete("widgets", f"w{number}")
            await settle()
            assert {name for _, name in stage.seen.events} == own
            nursery.cancel_scope.cancel()
    assert {params["shardSelector"] for _, params in (*stage.asked.lists, *stage.asked.watches)} == {half}
