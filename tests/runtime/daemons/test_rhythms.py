"""Timers whose interval or cron expression is a function of the object. In virtual time."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from tests.runtime.daemons.ticks import Ticks
from trioperator._concurrency.clock import wall_now


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


async def change(bench: Bench, **spec: Any) -> None:
    await bench.cluster.patch("widgets", "w", {"spec": spec})


async def test_an_interval_depends_on_the_object_and_follows_its_changes(
    bench: Bench, autojump_clock: MockClock, ticks: Ticks
) -> None:
    @trioperator.timer("widgets", interval=lambda spec, **_: spec["every"], registry=bench.registry)
    async def tick(**_: Any) -> None:
        ticks.note()

    async with bench.running():
        await ticks.create(bench, every=10)
        await settle(25)
        await change(bench, every=100)  # 5 seconds after the call at 20
        await settle(100)
        await change(bench, every=3)  # 5 seconds after the call at 120: that is over already
        await settle(7)
    assert ticks.times == [0, 10, 20, 120, 125, 128, 131]


async def test_a_sharp_interval_of_the_object_keeps_to_its_grid(
    bench: Bench, autojump_clock: MockClock, ticks: Ticks
) -> None:
    @trioperator.timer("widgets", interval=lambda spec, **_: spec["every"], sharp=True, registry=bench.registry)
    async def tick(**_: Any) -> None:
        ticks.note()
        await trio.sleep(4)

    async with bench.running():
        await ticks.create(bench, every=10)
        await settle(25)
        await change(bench, every=20)
        await settle(40)
    assert ticks.times == [0, 10, 20, 40, 60]


async def test_a_timer_without_an_interval_for_now_waits_for_one(
    bench: Bench, autojump_clock: MockClock, ticks: Ticks
) -> None:
    @trioperator.timer("widgets", interval=lambda spec, **_: spec.get("every"), registry=bench.registry)
    async def tick(**_: Any) -> None:
        ticks.note()

    async with bench.running():
        await ticks.create(bench)
        await settle(100)
        await change(bench, every=10)
        await settle(15)
        await change(bench, every=None)
        await settle(1000)
    assert ticks.times == [100, 110]


async def test_a_cron_expression_depends_on_the_object_and_follows_its_changes(
    bench: Bench, autojump_clock: MockClock
) -> None:
    times: list[str] = []

    @trioperator.timer(
        "widgets", cron=lambda spec, **_: spec.get("at"), timezone="Europe/Berlin", registry=bench.registry
    )
    async def tick(**_: Any) -> None:
        times.append(f"{wall_now():%a %H:%M}")

    async with bench.running():
        await bench.cluster.create(widget(at="0 3 * * *"))
        await settle(2 * 86400)
        assert len(times) == 2
        hours = {text[4:] for text in times}
        assert hours in ({"01:00"}, {"02:00"})
        times.clear()
        await change(bench, at="*/20 * * * *")  # earlier than what was due
        await settle(3600)
        assert [text[-2:] for text in sorted(times, key=lambda text: text[-2:])] == ["00", "20", "40"]
        times.clear()
        await change(bench, at=None)
        await settle(3 * 86400)
        await change(bench, at="@hourly")  # what would have been due meanwhile is not caught up with
        await settle(3600)
    assert len(times) == 1


@pytest.mark.parametrize("cron", ["0 12 * * *", lambda **_: "0 12 * * *"])
async def test_a_time_zone_depends_on_the_object(
    cron: Any, bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    times: list[str] = []

    @trioperator.timer("widgets", cron=cron, timezone=lambda spec, **_: spec.get("zone"), registry=bench.registry)
    async def tick(**_: Any) -> None:
        times.append(f"{wall_now():%H:%M}")

    async with bench.running():
        await bench.cluster.create(widget(zone="Asia/Tokyo"))
        await settle(86400)
        await change(bench, zone="Asia/Kolkata")
        await settle(86400)
        await change(bench, zone=None)
        await settle(86400)
        assert {*times} == {"03:00", "06:30", "12:00"}
        times.clear()
        await change(bench, zone="Mars/Base")
        await settle(3600)
    assert not times
    assert "The function timezone= of Timer 'test_a_time_zone" in caplog.text
    assert "Unknown time zone 'Mars/Base'" in caplog.text


async def test_other_changes_of_the_object_do_not_move_what_is_due(
    bench: Bench, autojump_clock: MockClock, ticks: Ticks
) -> None:
    @trioperator.timer("widgets", interval=lambda spec, **_: spec["every"], registry=bench.registry)
    async def tick(**_: Any) -> str:
        ticks.note()
        return f"{len(ticks.times)}"  # is stored, and so changes the object

    async with bench.running():
        await ticks.create(bench, every=10)
        for number in range(9):
            await settle(4)
            await change(bench, other=number)
    assert ticks.times == [0, 10, 20, 30]


async def test_retries_of_a_call_are_not_hurried_by_changes(
    bench: Bench, autojump_clock: MockClock, ticks: Ticks
) -> None:
    @trioperator.timer("widgets", interval=lambda **_: 100, registry=bench.registry)
    async def tick(retry: int, **_: Any) -> None:
        ticks.note()
        if len(ticks.times) == 1:
            raise trioperator.TemporaryError("not yet", delay=50)

    async with bench.running():
        await ticks.create(bench)
        await settle(10)
        await change(bench, other=1)
        await settle(90)
    assert ticks.times == [0, 50]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"interval": lambda spec, **_: spec["wrong"]}, "has returned 'x': it must be a number of seconds"),
        ({"interval": lambda **_: 0}, "has returned 0: it must be a number of seconds, more than 0"),
        ({"interval": lambda **_: True}, "has returned True: it must be a number"),
        ({"interval": lambda **_: 10**400}, "it must be a number of seconds, more than 0"),
        ({"interval": lambda spec, **_: spec["missing"]}, "The function interval= of Timer 'tick'"),
        ({"cron": lambda spec, **_: spec["wrong"]}, "has returned 'x': 'x' is not a cron expression"),
        ({"cron": lambda **_: 5}, "has returned 5: it must be a string such as"),
        ({"cron": lambda **_: "0 0 30 2 *"}, "is not a cron expression (Bad day-of-month)"),
    ],
)
async def test_what_a_function_must_not_return_is_logged_once_about_the_object_and_asked_for_again(
    bench: Bench,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, Any],
    message: str,
) -> None:
    @trioperator.timer("widgets", id="tick", registry=bench.registry, **options)
    async def tick(**_: Any) -> None:
        raise AssertionError("It must not be called.")

    async with bench.running():
        await bench.cluster.create(widget(wrong="x"))
        await settle(1000)
        await change(bench, other=1)
        await settle(10)
        errors = [record for record in caplog.records if record.levelname == "ERROR"]
        assert len(errors) == 1
        assert message in errors[0].getMessage()
        assert "It is not called until that is mended." in errors[0].getMessage()
        assert getattr(errors[0], "k8s_ref", {}).get("name") == "w"


@pytest.mark.parametrize("option", ["interval", "cron", "timezone"])
async def test_what_is_wrong_is_quoted_in_part(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, option: str
) -> None:
    options: dict[str, Any] = {"cron": "@hourly"} if option == "timezone" else {}
    options[option] = lambda spec, **_: spec["wrong"]

    @trioperator.timer("widgets", registry=bench.registry, **options)
    async def tick(**_: Any) -> None: ...

    async with bench.running():
        await bench.cluster.create(widget(wrong="x" * 100_000))
        await settle(10)
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert len(errors[0]) < 800


async def test_a_function_that_failed_is_asked_again_in_time_and_when_the_object_changes(
    bench: Bench, autojump_clock: MockClock, ticks: Ticks
) -> None:
    bench.settings.execution.default_backoff = 30
    known: list[float] = []

    def find(spec: Any, **_: Any) -> float:
        return float(spec["every"]) if "every" in spec else known[0]

    @trioperator.timer("widgets", interval=find, registry=bench.registry)
    async def tick(**_: Any) -> None:
        ticks.note()

    async with bench.running():
        await ticks.create(bench)
        await settle(10)
        known.append(100.0)
        await settle(25)  # after the backoff
        await change(bench, every="x")
        await settle(5)
        await change(bench, every=7)
        await settle(5)
    assert ticks.times == [30, 40]


async def test_idle_timers_wait_for_quiet_whatever_their_interval_is(
    bench: Bench, autojump_clock: MockClock, ticks: Ticks
) -> None:
    @trioperator.timer("widgets", interval=lambda spec, **_: spec["every"], idle=30, registry=bench.registry)
    async def tick(**_: Any) -> None:
        ticks.note()

    async with bench.running():
        await ticks.create(bench, every=10)
        await settle(45)
        await change(bench, every=20)
        await settle(55)
    assert ticks.times == [30, 40, 75, 95]


async def test_a_timer_that_waits_for_a_rhythm_ends_with_its_object(bench: Bench, autojump_clock: MockClock) -> None:
    @trioperator.timer("widgets", cron=lambda **_: None, registry=bench.registry)
    async def tick(**_: Any) -> None: ...

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
        await bench.cluster.delete("widgets", "w")
        await settle(1)
        assert await bench.cluster.find("widgets", "w") is None
