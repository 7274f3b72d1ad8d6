"""Timers: when they are called, and what is stored. In virtual time."""

from __future__ import annotations

import datetime
import itertools
import math
import zoneinfo
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.opaque import OpaqueTransport
from tests.runtime.conftest import Bench, settle, widget
from tests.runtime.daemons.ticks import Ticks
from trioperator import on
from trioperator._concurrency.clock import wall_now
from trioperator.errors import PausedError

RECURSIVE: dict[str, Any] = {}
RECURSIVE["again"] = RECURSIVE


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


async def test_an_hour_of_ticks(bench: Bench, autojump_clock: MockClock, ticks: Ticks) -> None:
    @trioperator.timer("widgets", interval=1, registry=bench.registry)
    async def tick(**_: Any) -> None:
        ticks.note()

    async with bench.running():
        await ticks.create(bench)
        await settle(3600)
    assert ticks.times == list(range(3601))
    assert bench.writes() == ["PATCH main"]


async def test_daemons_and_timers_do_not_wait_for_the_window_in_which_changes_are_batched(
    bench: Bench, autojump_clock: MockClock, ticks: Ticks
) -> None:
    bench.settings.queueing.batch_window = 10

    @trioperator.timer("widgets", interval=5, registry=bench.registry)
    async def tick(patch: trioperator.Patch, **_: Any) -> None:
        ticks.note()
        patch.status["ticks"] = len(ticks.times)

    @trioperator.daemon("widgets", registry=bench.registry)
    async def work(patch: trioperator.Patch, stopped: trioperator.DaemonStopped, **_: Any) -> None:
        began = trio.current_time()
        patch.status["state"] = "working"
        await patch.store()
        assert trio.current_time() == began
        await stopped.wait()

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(30)
        assert 5 <= len(ticks.times) <= 7  # the first one is spread
        assert (await bench.cluster.get("widgets", "w"))["status"] == {"ticks": len(ticks.times), "state": "working"}
        deleted = trio.current_time()
        await bench.cluster.delete("widgets", "w")
        await bench.cluster.wait_deleted("widgets", "w")
        assert trio.current_time() - deleted <= 10  # the deletion is a change


async def test_a_patch_that_changes_nothing_hides_no_change_where_versions_are_no_numbers(
    bench: Bench, autojump_clock: MockClock
) -> None:
    handled: list[str] = []

    @trioperator.daemon("widgets", registry=bench.registry)
    async def work(patch: trioperator.Patch, stopped: trioperator.DaemonStopped, **_: Any) -> None:
        for _again in range(2):
            patch.status["phase"] = "Ready"
            await patch.store()
            await trio.sleep(10)
        await stopped.wait()

    @on.update("widgets", registry=bench.registry)
    async def update(spec: Any, **_: Any) -> None:
        handled.append(spec["color"])

    async with bench.running(transport=OpaqueTransport(bench.cluster.transport())):
        await bench.cluster.create(widget(color="red"))
        await settle(11)
        await bench.cluster.patch("widgets", "w", {"spec": {"color": "green"}})
        await settle(60)
    assert handled == ["green"]


async def test_ticks_without_patches_need_no_reconcile(bench: Bench, autojump_clock: MockClock, ticks: Ticks) -> None:
    events: list[Any] = []

    @trioperator.timer("widgets", interval=10, finalizer=False, registry=bench.registry)
    async def tick(**_: Any) -> None:
        ticks.note()

    @on.event("widgets", registry=bench.registry)
    async def event(type: str | None, **_: Any) -> None:
        events.append(type)

    async with bench.running():
        await ticks.create(bench)
        await settle(1000)
        bench.cluster.requests.clear()
        await settle(1000)
        assert bench.cluster.requests.verbs().keys() <= {"watch"}
    assert len(ticks.times) == 201
    assert events == ["ADDED"]


async def test_an_interval_counts_from_the_end_of_a_call(bench: Bench, autojump_clock: MockClock, ticks: Ticks) -> None:
    @trioperator.timer("widgets", interval=10, registry=bench.registry)
    async def tick(**_: Any) -> None:
        ticks.note()
        await trio.sleep(3)

    async with bench.running():
        await ticks.create(bench)
        await settle(50)
    assert ticks.times == [0, 13, 26, 39]


async def test_a_sharp_timer_keeps_to_its_grid_and_leaves_out_what_would_overlap(
    bench: Bench, autojump_clock: MockClock, ticks: Ticks
) -> None:
    lengths = iter([3, 9.5, 10, 25, 0])

    @trioperator.timer("widgets", interval=10, sharp=True, registry=bench.registry)
    async def tick(**_: Any) -> None:
        ticks.note()
        await trio.sleep(next(lengths, 0))

    async with bench.running():
        await ticks.create(bench)
        await settle(95)
    assert ticks.times == [0, 10, 20, 40, 70, 80, 90]


async def test_a_timer_with_nothing_is_called_once(bench: Bench, autojump_clock: MockClock, ticks: Ticks) -> None:
    @trioperator.timer("widgets", registry=bench.registry)
    async def tick(**_: Any) -> None:
        ticks.note()

    async with bench.running():
        await ticks.create(bench)
        await settle(1000)
        assert "finalizers" not in (await bench.cluster.get("widgets", "w"))["metadata"]
    assert ticks.times == [0]


async def test_an_initial_delay_postpones_the_first_call(bench: Bench, autojump_clock: MockClock, ticks: Ticks) -> None:
    @trioperator.timer("widgets", interval=10, initial_delay=lambda spec, **_: spec["delay"], registry=bench.registry)
    async def tick(**_: Any) -> None:
        ticks.note()

    async with bench.running():
        await ticks.create(bench, delay=25)
        await settle(50)
    assert ticks.times == [25, 35, 45]


@pytest.mark.parametrize(("delay", "idle", "expected"), [(60, 100, [100, 110, 120]), (60, 40, [60, 70, 80])])
async def test_an_initial_delay_and_an_idle_time_pass_at_once(
    bench: Bench, autojump_clock: MockClock, ticks: Ticks, delay: float, idle: float, expected: list[float]
) -> None:
    @trioperator.timer("widgets", initial_delay=delay, idle=idle, interval=10, registry=bench.registry)
    async def tick(**_: Any) -> None:
        ticks.note()

    async with bench.running():
        await ticks.create(bench)
        await settle(expected[-1] + 5)
    assert ticks.times == expected


# ------------------------------------------------------------------------------------------- idling


async def test_an_idle_timer_is_called_once_after_each_change(
    bench: Bench, autojump_clock: MockClock, ticks: Ticks
) -> None:
    @trioperator.timer("widgets", idle=10, registry=bench.registry)
    async def tick(**_: Any) -> None:
        ticks.note()

    async with bench.running():
        await ticks.create(bench)
        await settle(5)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(100)
        assert ticks.times == [15]
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 3}})
        await settle(5)
        await bench.cluster.patch("widgets", "w", {"metadata": {"labels": {"a": "b"}}})
        await settle(100)
    assert ticks.times == [15, 120]


async def test_an_idle_timer_with_an_interval_stops_at_a_change_and_idles_again(
    bench: Bench, autojump_clock: MockClock, ticks: Ticks
) -> None:
    @trioperator.timer("widgets", idle=10, interval=3, registry=bench.registry)
    async def tick(**_: Any) -> None:
        ticks.note()

    async with bench.running():
        await ticks.create(bench)
        await settle(20)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(20)
    assert ticks.times == [10, 13, 16, 19, 30, 33, 36, 39]


async def test_a_status_or_the_operators_own_changes_do_not_disturb_idling(
    bench: Bench, autojump_clock: MockClock, ticks: Ticks
) -> None:
    @trioperator.timer("widgets", idle=10, interval=3, registry=bench.registry)
    async def tick(patch: trioperator.Patch, retry: int, **_: Any) -> int:
        ticks.note()
        patch.spec["ticks"] = len(ticks.times)
        patch.fns.append(lambda body: body["spec"].setdefault("list", []).append(1))
        return len(ticks.times)

    @on.create("widgets", registry=bench.registry)
    async def create(patch: trioperator.Patch, **_: Any) -> None:
        await trio.sleep(5)
        patch.spec["created"] = True

    async with bench.running():
        await ticks.create(bench)
        await settle(12)
        await bench.cluster.patch("widgets", "w", {"status": {"a": "b"}}, subresource="status")
        await settle(10)
        assert (await bench.cluster.get("widgets", "w"))["spec"] == {
            "size": 1,
            "created": True,
            "ticks": len(ticks.times),
            "list": [1] * len(ticks.times),
        }
    assert ticks.times == [10, 13, 16, 19, 22]


async def test_a_change_by_others_that_an_own_write_brings_along_disturbs_idling(
    bench: Bench, autojump_clock: MockClock, ticks: Ticks
) -> None:
    @trioperator.timer("widgets", idle=10, interval=3, registry=bench.registry)
    async def tick(**_: Any) -> int:
        ticks.note()
        if len(ticks.times) == 2:  # the event of this is older than the response to our own patch
            await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        return len(ticks.times)

    async with bench.running():
        await ticks.create(bench)
        await settle(30)
    assert ticks.times == [10, 13, 23, 26, 29]


# ------------------------------------------------------------------------------------------- errors


async def test_errors_take_the_place_of_the_interval(bench: Bench, autojump_clock: MockClock, ticks: Ticks) -> None:
    seen: list[Any] = []

    @trioperator.timer("widgets", interval=10, backoff=5, registry=bench.registry)
    async def tick(retry: int, runtime: datetime.timedelta, **_: Any) -> None:
        ticks.note()
        seen.append((retry, runtime.total_seconds()))
        if retry < 2:
            raise ValueError
        if retry < 3:
            raise trioperator.TemporaryError(delay=1)

    async with bench.running():
        await ticks.create(bench)
        await settle(30)
    assert ticks.times == [0, 5, 10, 11, 21, 26]
    assert seen == [(0, 0), (1, 5), (2, 10), (3, 11), (0, 0), (1, 5)]


async def test_a_permanent_error_ends_a_timer(bench: Bench, autojump_clock: MockClock, ticks: Ticks) -> None:
    @trioperator.timer("widgets", interval=10, registry=bench.registry)
    async def tick(**_: Any) -> None:
        ticks.note()
        if len(ticks.times) == 3:
            raise trioperator.PermanentError("enough")

    async with bench.running():
        await ticks.create(bench)
        await settle(1000)
        assert "finalizers" not in (await bench.cluster.get("widgets", "w"))["metadata"]
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1000)
    assert ticks.times == [0, 10, 20]


async def test_a_sharp_timer_returns_to_its_grid_after_errors(
    bench: Bench, autojump_clock: MockClock, ticks: Ticks
) -> None:
    @trioperator.timer("widgets", interval=10, sharp=True, backoff=4, registry=bench.registry)
    async def tick(retry: int, **_: Any) -> None:
        ticks.note()
        if len(ticks.times) in (2, 3):
            raise ValueError

    async with bench.running():
        await ticks.create(bench)
        await settle(35)
    assert ticks.times == [0, 10, 14, 18, 20, 30]


async def test_ignored_errors_do_not_disturb_a_timer(bench: Bench, autojump_clock: MockClock, ticks: Ticks) -> None:
    @trioperator.timer("widgets", interval=10, errors=trioperator.ErrorsMode.IGNORED, registry=bench.registry)
    async def tick(**_: Any) -> None:
        ticks.note()
        raise ValueError

    async with bench.running():
        await ticks.create(bench)
        await settle(25)
    assert ticks.times == [0, 10, 20]


# ------------------------------------------------------------------------------------------- results, ends


async def test_results_and_patches_are_stored_after_each_call(
    bench: Bench, autojump_clock: MockClock, ticks: Ticks
) -> None:
    @trioperator.timer("widgets", id="tick", interval=10, registry=bench.registry)
    async def tick(patch: trioperator.Patch, **_: Any) -> int:
        ticks.note()
        patch.spec["size"] = len(ticks.times)
        return len(ticks.times)

    async with bench.running():
        await ticks.create(bench)
        for number in range(1, 4):
            await settle(5)
            body = await bench.cluster.get("widgets", "w")
            assert (body["spec"], body["status"]) == ({"size": number}, {"tick": number})
            await settle(5)


@pytest.mark.parametrize("result", [object(), RECURSIVE], ids=["object", "recursive"])
async def test_what_is_no_json_keeps_no_handler_from_going_on(
    bench: Bench, autojump_clock: MockClock, ticks: Ticks, result: object
) -> None:
    created: list[str] = []

    @trioperator.timer("widgets", interval=10, registry=bench.registry)
    async def tick(**_: Any) -> object:
        ticks.note()
        return result

    @on.create("widgets", registry=bench.registry)
    async def create(name: str, **_: Any) -> object:
        created.append(name)
        return result

    async with bench.running():
        await ticks.create(bench)
        await settle(25)
        assert ticks.times == [0, 10, 20]
        assert created == ["w"]
        await bench.cluster.delete("widgets", "w")
        await settle()
        assert await bench.cluster.list("widgets") == []


@pytest.mark.parametrize("options", [{"interval": 10}, {"cron": "* * * * *"}])
@pytest.mark.parametrize("delay", [math.inf, 1e12])
async def test_an_endless_initial_delay_is_waited_for(
    bench: Bench,
    autojump_clock: MockClock,
    ticks: Ticks,
    *,
    options: dict[str, Any],
    delay: float,
    caplog: pytest.LogCaptureFixture,
) -> None:
    @trioperator.timer("widgets", initial_delay=lambda **_: delay, registry=bench.registry, **options)
    async def tick(**_: Any) -> None:
        ticks.note()

    async with bench.running():
        await ticks.create(bench)
        await settle(3600)
        await bench.cluster.delete("widgets", "w")
        await settle()
        assert await bench.cluster.list("widgets") == []
    assert ticks.times == []
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_timer_ends_at_once_between_calls_and_may_end_a_call(
    bench: Bench, autojump_clock: MockClock, ticks: Ticks
) -> None:
    reasons: list[Any] = []

    @trioperator.timer("widgets", interval=1000, registry=bench.registry)
    async def tick(stopped: trioperator.DaemonStopped, **_: Any) -> None:
        ticks.note()
        await trio.sleep(10)
        reasons.append(stopped.reason)

    async with bench.running():
        await ticks.create(bench)
        await settle(500)
        await bench.cluster.delete("widgets", "w")
        await settle()
        assert not await bench.cluster.list("widgets")
        await ticks.create(bench)
        await settle(5)
        await bench.cluster.delete("widgets", "w")
        await settle(4)
        assert await bench.cluster.list("widgets")
        await settle(2)
        assert not await bench.cluster.list("widgets")
    assert reasons == [
        None,
        trioperator.DaemonStoppingReason.RESOURCE_DELETED,
    ]


async def test_a_timer_is_stopped_and_started_by_its_filters(
    bench: Bench, autojump_clock: MockClock, ticks: Ticks
) -> None:
    @trioperator.timer("widgets", interval=10, field="spec.on", value=True, registry=bench.registry)
    async def tick(**_: Any) -> None:
        ticks.note()

    async with bench.running():
        await ticks.create(bench, on=True)
        await settle(15)
        await bench.cluster.patch("widgets", "w", {"spec": {"on": False}})
        await settle(100)
        await bench.cluster.patch("widgets", "w", {"spec": {"on": True}})
        await settle(15)
    assert ticks.times == [0, 10, 115, 125]


async def test_a_timer_at_work_ends_when_the_operator_stops(
    bench: Bench, autojump_clock: MockClock, ticks: Ticks
) -> None:
    @trioperator.timer("widgets", id="slow", interval=10, registry=bench.registry)
    async def slow(**_: Any) -> str:
        await trio.sleep(4)
        return "done"

    @trioperator.timer("widgets", id="stuck", interval=10, registry=bench.registry)
    async def stuck(**_: Any) -> None:
        await trio.sleep_forever()

    async with bench.running():
        await ticks.create(bench)
        await settle(1)
        stopped = trio.current_time()
    assert trio.current_time() == stopped + 5
    assert (await bench.cluster.get("widgets", "w"))["status"] == {"slow": "done"}


async def test_sync_timers_are_called_in_virtual_time(bench: Bench, autojump_clock: MockClock, ticks: Ticks) -> None:
    @trioperator.timer("widgets", interval=600, sharp=True, registry=bench.registry)
    def tick(**_: Any) -> None:
        trio.from_thread.run_sync(ticks.note)

    async with bench.running():
        await ticks.create(bench)
        await settle(3601)
    assert ticks.times == [0, 600, 1200, 1800, 2400, 3000, 3600]


# ------------------------------------------------------------------------------------------- many objects


@pytest.mark.parametrize(("setting", "width"), [(10, 10), (1000, 60), (0, 0)])
async def test_first_calls_for_objects_that_were_there_are_spread(
    bench: Bench, autojump_clock: MockClock, setting: float, width: float
) -> None:
    bench.settings.background.spread = setting
    calls: dict[str, list[float]] = {}

    @trioperator.timer("widgets", interval=60, finalizer=False, registry=bench.registry)
    async def tick(name: str, **_: Any) -> None:
        calls.setdefault(name, []).append(trio.current_time() - began)

    for number in range(100):
        await bench.cluster.create(widget(f"w{number}"))
    began = trio.current_time()
    async with bench.running():
        await bench.cluster.create(widget("new"))
        await settle(130)
    first = sorted(times[0] for name, times in calls.items() if name != "new")
    assert calls["new"][0] == 0
    assert len(first) == 100
    assert first[0] <= width / 10
    assert width * 0.9 <= first[-1] <= width
    assert all(b - a == pytest.approx(60) for times in calls.values() for a, b in itertools.pairwise(times))


@pytest.mark.parametrize("indexed", [False, True])
async def test_a_timer_that_begins_later_is_called_at_once_though_its_object_was_there(
    bench: Bench, autojump_clock: MockClock, ticks: Ticks, *, indexed: bool
) -> None:
    @trioperator.timer("widgets", interval=60, labels={"on": "yes"}, registry=bench.registry)
    async def tick(**_: Any) -> None:
        ticks.note()

    if indexed:

        @on.index("widgets", registry=bench.registry)
        async def names(name: str) -> str:
            return name

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(100)
        ticks.began = trio.current_time()
        await bench.cluster.patch("widgets", "w", {"metadata": {"labels": {"on": "yes"}}})
        await settle(70)
    assert ticks.times == [0, 60]


# ------------------------------------------------------------------------------------------- cron


@pytest.mark.parametrize("timezone", [None, "Europe/Berlin", zoneinfo.ZoneInfo("Asia/Kathmandu")])
async def test_a_cron_timer_is_called_by_the_clock(
    bench: Bench, autojump_clock: MockClock, timezone: str | zoneinfo.ZoneInfo | None
) -> None:
    moments: list[datetime.datetime] = []

    @trioperator.timer("widgets", cron="30 3,15 * * *", timezone=timezone, registry=bench.registry)
    async def tick(**_: Any) -> None:
        zone = datetime.UTC if timezone is None else zoneinfo.ZoneInfo(str(timezone))
        moments.append(wall_now().astimezone(zone))
        await trio.sleep(90)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(40 * 3600)
    assert len(moments) in (3, 4)  # by the time at which the test began
    assert {(m.hour, m.minute) for m in moments} == {(3, 30), (15, 30)}


async def test_what_is_due_while_a_call_is_at_work_is_left_out(
    bench: Bench, autojump_clock: MockClock, ticks: Ticks
) -> None:
    @trioperator.timer("widgets", cron="*/5 * * * *", registry=bench.registry)
    async def tick(**_: Any) -> None:
        ticks.note()
        if len(ticks.times) == 1:
            await trio.sleep(11 * 60)

    async with bench.running():
        await ticks.create(bench)
        await settle(3600)
    gaps = [round(b - a) for a, b in itertools.pairwise(ticks.times)]
    assert gaps == [900, *[300] * (len(gaps) - 1)]
    assert len(gaps) >= 8


async def test_an_initial_delay_postpones_a_cron_timer(bench: Bench, autojump_clock: MockClock, ticks: Ticks) -> None:
    @trioperator.timer("widgets", cron="* * * * *", initial_delay=600, registry=bench.registry)
    async def tick(**_: Any) -> None:
        ticks.note()

    async with bench.running():
        await ticks.create(bench)
        await settle(900)
    assert 600 <= ticks.times[0] <= 660
    assert len(ticks.times) in (4, 5, 6)


async def test_a_timer_that_is_refused_a_write_tries_again_a_second_later_and_loses_no_retry(
    bench: Bench, autojump_clock: MockClock, ticks: Ticks
) -> None:
    retries: list[int] = []

    @trioperator.timer("widgets", interval=10, retries=2, registry=bench.registry)
    async def tick(retry: int, **_: Any) -> None:
        ticks.note()
        retries.append(retry)
        if len(retries) <= 3:
            raise PausedError("the operator is paused")

    async with bench.running():
        await ticks.create(bench)
        await settle(15)
    assert ticks.times == [0, 1, 2, 3, 13]
    assert retries == [0, 0, 0, 0, 0]


async def test_a_timer_that_waits_after_a_refused_write_ends_at_once_with_a_stop(
    bench: Bench, autojump_clock: MockClock, ticks: Ticks
) -> None:
    @trioperator.timer("widgets", interval=10, registry=bench.registry)
    async def tick(**_: Any) -> None:
        ticks.note()
        if len(ticks.times) <= 3:
            raise PausedError("the operator is paused")

    async with bench.running():
        await ticks.create(bench)
        await settle(0.5)
        began = trio.current_time()
    assert trio.current_time() == began
    assert ticks.times == [0]
