"""Tests for :mod:`trioperator._recorder.recorder`: operators that post events, in virtual time."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, Bench, settle, widget
from trioperator._kube.api_client import ApiClient, open_client
from trioperator._recorder.correlator import COMBINED
from trioperator._recorder.recorder import MAX_QUEUED, EventRecorder
from trioperator.apiserver import Cluster
from trioperator.errors import PausedError
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on
REFERENCE = {"apiVersion": "example.com/v1", "kind": "Widget", "namespace": "default", "name": "w", "uid": "u-1"}


@pytest.fixture
async def bench(cluster: Cluster) -> Bench:
    await cluster.apply(CRD)
    return Bench(cluster, trioperator.OperatorRegistry(), trioperator.OperatorSettings())


class Recording:
    """A recorder of its own on a cluster."""

    def __init__(self, cluster: Cluster, recorder: EventRecorder) -> None:
        self.cluster = cluster
        self.recorder = recorder

    def record(self, message: str = "hello", *, reason: str = "Greeting", **reference: Any) -> None:
        self.recorder.record({**REFERENCE, **reference}, type="Normal", reason=reason, message=message)

    async def events(self) -> list[tuple[str, int]]:
        await settle()
        return [(event.get("message", ""), event["count"]) for event in await self.cluster.list("events")]

    def requests(self) -> int:
        return sum("/events" in request.path for request in self.cluster.requests if request.method != "GET")


@contextlib.asynccontextmanager
async def recording(
    cluster: Cluster, *, transport: httpx.AsyncBaseTransport | None = None, fence: Any = None
) -> AsyncIterator[Recording]:
    info = trioperator.ConnectionInfo(server="http://embedded")
    settings = trioperator.OperatorSettings()
    connection = transport or cluster.transport()
    async with open_client(lambda: info, settings=settings, transport=connection) as client:
        used: ApiClient = client if fence is None else client.fenced(fence)
        recorder = EventRecorder(used, settings, identity="me")
        with recorder.active():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(recorder.serve)
                yield Recording(cluster, recorder)
                nursery.cancel_scope.cancel(reason="the test has ended")


async def test_events_are_posted_from_async_handlers_threads_and_subhandlers(
    bench: Bench, autojump_clock: MockClock
) -> None:
    bench.settings.posting.loggers = False

    @on.create("widgets", registry=bench.registry)
    async def create(body: trioperator.Body, **_: Any) -> None:
        trioperator.event(body, type="Special", reason="Async", message="from a task")

        @trioperator.subhandler(id="sub")
        def sub(body: trioperator.Body, **_: Any) -> None:
            trioperator.info(body, reason="Sub", message="from a thread")

    @on.event("widgets", registry=bench.registry)
    def look(body: trioperator.Body, type: str, **_: Any) -> None:
        if type == "ADDED":
            try:
                raise ValueError("the text")
            except ValueError:
                trioperator.exception([body], message="It failed:")

    async with bench.running():
        created = await bench.cluster.create(widget())
        await settle(10)
    events = {event["reason"]: event for event in await bench.cluster.list("events")}
    assert {reason: (event["type"], event["message"]) for reason, event in events.items()} == {
        "Async": ("Special", "from a task"),
        "Sub": ("Normal", "from a thread"),
        "ValueError": ("Error", "It failed: the text"),
    }
    assert all(event["involvedObject"]["uid"] == created["metadata"]["uid"] for event in events.values())


async def test_messages_of_object_loggers_are_posted_by_default(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    @on.create("widgets", id="create", registry=bench.registry)
    def create(logger: trioperator.Logger, **_: Any) -> None:
        assert isinstance(logger, trioperator.ObjectLogger)
        logger.debug("too low")
        logger.info("about %s", "this")
        logger.warning("a pair", key="value")

    @on.event("widgets", registry=bench.registry)
    async def look(logger: trioperator.Logger, **_: Any) -> None:
        assert isinstance(logger, trioperator.LocalObjectLogger)
        logger.error("not posted: event handlers are called too often")

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
    events = await bench.cluster.list("events")
    assert {event["reason"] for event in events} == {"Logging"}
    assert sorted((event["type"], event["message"]) for event in events) == [
        ("Normal", "Creation is processed: 1 succeeded; 0 failed."),
        ("Normal", "Handler 'create' succeeded."),
        ("Normal", "about this"),
        ("Warning", "a pair key=value"),
    ]


async def test_what_a_filter_of_the_standard_library_drops_is_not_posted(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    objects = logging.getLogger("trioperator.objects")

    def without_successes(record: logging.LogRecord) -> bool:
        return "succeeded" not in record.getMessage()

    @on.startup(registry=bench.registry)
    async def configure(**_: Any) -> None:
        objects.addFilter(without_successes)

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(logger: trioperator.Logger, **_: Any) -> None:
        logger.info("kept")

    try:
        async with bench.running():
            await bench.cluster.create(widget())
            await settle(10)
    finally:
        objects.removeFilter(without_successes)
    assert [event["message"] for event in await bench.cluster.list("events")] == ["kept"]


@pytest.mark.parametrize(
    ("setting", "value", "messages"),
    [
        ("loggers", False, {"explicit"}),
        ("enabled", False, set()),
        ("level", logging.ERROR, {"explicit"}),
        ("level", logging.WARNING, {"explicit", "warned", "logged"}),
    ],
)
async def test_settings_say_what_is_posted(
    bench: Bench, autojump_clock: MockClock, setting: str, value: Any, messages: set[str]
) -> None:
    setattr(bench.settings.posting, setting, value)
    if setting == "loggers":
        messages = messages | {"warned", "informed"}

    @on.create("widgets", registry=bench.registry)
    async def create(body: trioperator.Body, logger: trioperator.Logger, **_: Any) -> None:
        trioperator.event(body, type="Normal", reason="R", message="explicit")
        trioperator.info(body, reason="R", message="informed")
        trioperator.warn(body, reason="R", message="warned")
        logger.warning("logged")

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
    assert {event["message"] for event in await bench.cluster.list("events")} == messages


async def test_nothing_is_posted_about_events(bench: Bench, autojump_clock: MockClock) -> None:
    @on.create("v1", "events", registry=bench.registry)
    async def create(body: trioperator.Body, **_: Any) -> None:
        trioperator.info(body, reason="R", message="an event about an event")

    async with bench.running():
        event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"}}
        await bench.cluster.create({**event, "involvedObject": {"namespace": "default"}})
        await settle(10)
        handled = await bench.cluster.get("events", "e", namespace="default")
    assert "annotations" in handled["metadata"]
    assert len(await bench.cluster.list("events")) == 1


async def test_the_messages_of_two_operators_in_one_process_are_posted_once(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    @on.create("widgets", registry=bench.registry)
    async def create(logger: trioperator.Logger, **_: Any) -> None:
        logger.info("once")

    other = trioperator.OperatorRegistry()
    on.event("widgets", registry=other)(lambda **_: None)
    async with bench.running(), bench.running(registry=other):
        await bench.cluster.create(widget())
        await settle(10)
    assert [event["count"] for event in await bench.cluster.list("events") if event["message"] == "once"] == [1]


async def test_what_is_recorded_last_is_posted_before_the_operator_ends(
    bench: Bench, autojump_clock: MockClock
) -> None:
    started = trio.Event()
    plan = FaultPlan()
    plan.add(Fault.delay(before=2), verb="create", resource="events")

    @trioperator.daemon("widgets", registry=bench.registry)
    async def run(body: trioperator.Body, stopped: trioperator.DaemonStopped, **_: Any) -> None:
        started.set()
        await stopped.wait()
        trioperator.info(body, reason="Bye", message="the last words")

    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget())
        await started.wait()
    assert "the last words" in {event["message"] for event in await bench.cluster.list("events")}


async def test_an_operator_that_cannot_post_stops_within_its_grace(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    plan = FaultPlan()
    plan.add(Fault.stall(), verb="create", resource="events")

    @on.create("widgets", registry=bench.registry)
    async def create(body: trioperator.Body, **_: Any) -> None:
        trioperator.info(body, reason="R", message="never posted")

    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)) as stop:
        await bench.cluster.create(widget())
        await settle(1)
        begin = trio.current_time()
        stop()
    assert trio.current_time() - begin <= 5.5
    assert "events were dropped, and are not posted" in caplog.text


async def test_an_operator_that_has_lost_its_leadership_posts_nothing(bench: Bench, autojump_clock: MockClock) -> None:
    bench.settings.leadership.enabled = True
    bench.settings.networking.error_backoffs = ()
    plan = FaultPlan()
    ended: list[float] = []

    @trioperator.daemon("widgets", registry=bench.registry)
    async def run(body: trioperator.Body, **_: Any) -> None:
        trioperator.info(body, reason="Early", message="as the leader")
        try:
            await trio.sleep_forever()
        finally:
            trioperator.info(body, reason="Late", message="as nobody")
            ended.append(trio.current_time())

    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget())
        await settle(20)
        plan.add(Fault.refuse(), resource="leases.coordination.k8s.io")
        await settle(60)
        assert ended
    assert {event["reason"] for event in await bench.cluster.list("events")} == {"Early"}


async def test_nothing_is_requested_if_nothing_is_recorded(bench: Bench, autojump_clock: MockClock) -> None:
    bench.settings.posting.loggers = False
    on.create("widgets", registry=bench.registry)(lambda **_: None)
    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1000)
    assert not any("/events" in request.path for request in bench.cluster.requests)


async def test_equal_events_update_one(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with recording(cluster) as recorded:
        for _ in range(3):
            recorded.record()
            await trio.sleep(10)
        assert await recorded.events() == [("hello", 3)]
        event = (await cluster.list("events"))[0]
        assert event["series"]["count"] == 3
        assert event["firstTimestamp"] < event["lastTimestamp"]
        assert recorded.requests() == 3


async def test_what_is_queued_and_happens_again_is_posted_once(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with recording(cluster) as recorded:
        for _ in range(1000):
            recorded.record()
        assert await recorded.events() == [("hello", 1000)]
        assert recorded.requests() == 1
        for number in range(30):
            recorded.record(reason=f"Reason{number}")
        await settle()
        assert recorded.requests() == 25  # of the burst, they have used one


async def test_similar_events_are_combined(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with recording(cluster) as recorded:
        for number in range(15):
            recorded.record(f"message {number}")
            await trio.sleep(1)
        events = await recorded.events()
    assert sorted(events) == sorted([(f"message {n}", 1) for n in range(9)] + [(COMBINED + "message 14", 6)])


async def test_an_object_has_25_requests_and_one_in_five_minutes(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with recording(cluster) as recorded:
        for number in range(100):
            recorded.record(reason=f"Reason{number}")
            await settle()
        assert recorded.requests() == 25
        await trio.sleep(3000)
        for number in range(100):
            recorded.record(reason=f"Reason{100 + number}")
            await settle()
        assert recorded.requests() == 35
        recorded.record(name="other", uid="u-2")
        await settle()
        assert recorded.requests() == 36


async def test_an_event_that_has_expired_is_created_again(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with recording(cluster) as recorded:
        recorded.record()
        assert len(await recorded.events()) == 1
        for event in await cluster.list("events"):
            await cluster.delete("events", event["metadata"]["name"], namespace="default")
        recorded.record()
        assert await recorded.events() == [("hello", 2)]


async def test_the_event_of_a_cluster_scoped_object_is_in_the_default_namespace(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    async with recording(cluster) as recorded:
        recorded.record(namespace=None)
        await settle()
        event = (await cluster.list("events"))[0]
    assert event["metadata"]["namespace"] == "default"
    assert "namespace" not in event["involvedObject"]


async def test_a_full_queue_drops_and_reports(
    cluster: Cluster,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trioperator._recorder.recorder.MAX_QUEUED", 50)
    async with recording(cluster) as recorded:
        for number in range(60):
            recorded.record(name=f"w{number}", uid=f"u{number}")
        assert recorded.recorder.dropped == 10
        await settle()
        assert recorded.requests() == 50
        assert "10 events were dropped, and are not posted." in caplog.text
        recorded.record(name="w59", uid="u59")
        await settle()
        assert recorded.requests() == 51


async def test_log_messages_leave_room_for_events(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with recording(cluster) as recorded:
        for number in range(MAX_QUEUED):
            recorded.record(reason="Logging", name=f"w{number}", uid=f"u{number}")
        assert recorded.recorder.dropped == MAX_QUEUED // 2
        recorded.record(name="x", uid="x")
        assert recorded.recorder.dropped == MAX_QUEUED // 2


@pytest.mark.parametrize("status", [400, 422, 500])
async def test_an_event_that_is_rejected_is_logged_and_dropped(
    cluster: Cluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    plan = FaultPlan()
    plan.add(Fault.status(status), times=1, verb="create", resource="events")
    async with recording(cluster, transport=FaultyTransport(cluster.transport(), plan)) as recorded:
        recorded.record()
        recorded.record(name="other", uid="u-2")
        assert await recorded.events() == [("hello", 1)]
        recorded.record()
        assert sorted(await recorded.events()) == [("hello", 1), ("hello", 1)]
    assert f"Failed to post an event. Ignoring and continuing. HTTP {status}" in caplog.text


async def test_posting_is_not_tried_for_a_while_where_it_is_forbidden(
    cluster: Cluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    plan = FaultPlan()
    rule = plan.add(Fault.status(403), verb="create", resource="events", namespace="default")
    transport = FaultyTransport(cluster.transport(), plan)
    async with recording(cluster, transport=transport) as recorded:
        for number in range(10):
            recorded.record(name=str(number), uid=str(number))
        await settle()
        assert rule.hits == 1
        await trio.sleep(61)
        recorded.record(name="later", uid="later")
        await settle()
        assert rule.hits == 2
        recorded.record(namespace="kube-system")
        assert len(await recorded.events()) == 1
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.getMessage()[:55] for record in warnings] == [
        "No events are posted in the namespace 'default'; the ne"
    ]


async def test_events_that_cannot_be_updated_are_created(
    cluster: Cluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    plan = FaultPlan()
    plan.add(Fault.status(403), verb="patch", resource="events")
    transport = FaultyTransport(cluster.transport(), plan)
    async with recording(cluster, transport=transport) as recorded:
        for _ in range(3):
            recorded.record()
            await settle()
        assert sorted(await recorded.events()) == [("hello", 1), ("hello", 2), ("hello", 3)]
    assert caplog.text.count("cannot be updated") == 1


@pytest.mark.parametrize("seconds", [0, 100])
async def test_events_are_updated_again_when_that_is_no_longer_forbidden(
    seconds: float, cluster: Cluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    plan = FaultPlan()
    rule = plan.add(Fault.status(403), verb="patch", resource="events", times=None if seconds else 1)
    transport = FaultyTransport(cluster.transport(), plan)
    async with recording(cluster, transport=transport) as recorded:
        for _ in range(2):
            recorded.record()
            await settle()
        await trio.sleep(seconds)
        recorded.record()
        await settle()
        assert rule.hits == (2 if seconds else 1)
        plan.remove(rule)
        await trio.sleep(61)
        count = len(await recorded.events())
        recorded.record()
        assert len(await recorded.events()) == count
    assert caplog.text.count("cannot be updated") == 1


async def test_an_event_is_retried_while_the_api_server_is_unreachable(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    plan = FaultPlan()
    plan.add(Fault.refuse(), times=3, verb="create", resource="events")
    async with recording(cluster, transport=FaultyTransport(cluster.transport(), plan)) as recorded:
        recorded.record()
        await trio.sleep(10)
        assert await recorded.events() == [("hello", 1)]


async def test_a_paused_operator_posts_nothing(cluster: Cluster, autojump_clock: MockClock) -> None:
    def fence() -> None:
        raise PausedError("the operator is paused")

    async with recording(cluster, fence=fence) as recorded:
        recorded.record()
        recorded.record(name="other")
        assert await recorded.events() == []
        assert recorded.requests() == 0


async def test_a_thread_never_waits_and_its_queue_is_limited(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with recording(cluster) as recorded:

        def flood() -> None:
            for number in range(3 * MAX_QUEUED):
                recorded.record(reason=f"R{number}")

        thread = threading.Thread(target=flood)
        thread.start()
        thread.join()  # the task does not run meanwhile
        assert recorded.recorder.dropped == 2 * MAX_QUEUED
        await settle()
        assert recorded.requests() == 25


async def test_what_comes_after_the_end_is_ignored(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with recording(cluster) as recorded:
        pass
    recorded.record()
    assert await recorded.events() == []


async def test_anything_can_be_recorded(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with recording(cluster) as recorded:
        recorded.recorder.record({}, type="", reason="", message="\ud800\x00")
        recorded.recorder.record({"name": 1, "namespace": []}, type="T", reason="R", message="", backoffs="x")  # type: ignore[arg-type]
        recorded.record("the last one")
        assert ("the last one", 1) in await recorded.events()


@pytest.mark.parametrize("body", [b"null", b'{"metadata": {}}', b"[", b""])
async def test_a_response_about_an_event_that_cannot_be_read_is_one_warning(
    cluster: Cluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    plan = FaultPlan()
    plan.add(Fault.answer(200, body), times=1, verb="create", resource="events")
    async with recording(cluster, transport=FaultyTransport(cluster.transport(), plan)) as recorded:
        recorded.record()
        recorded.record(name="other", uid="u-2")
        assert await recorded.events() == [("hello", 1)]
    assert "The response about an event cannot be read; it may be posted: " in caplog.text
    assert "Traceback" not in caplog.text
