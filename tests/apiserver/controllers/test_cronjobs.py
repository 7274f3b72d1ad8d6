"""Tests for :mod:`trioperator.apiserver.controllers.cronjobs`: a Job at each time of the schedule."""

from __future__ import annotations

import datetime
import zoneinfo
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.apiserver.controllers.objects import Object, workload
from trioperator.apiserver import Cluster
from trioperator.apiserver.controllers.cronjobs import Interval, Schedule
from trioperator.apiserver.controllers.templates import parse_time

Z = datetime.UTC


@pytest.mark.parametrize(
    ("text", "begin", "expected"),
    [
        ("* * * * *", (2024, 1, 1, 0, 0), (2024, 1, 1, 0, 1)),
        ("*/15 * * * *", (2024, 1, 1, 0, 50), (2024, 1, 1, 1, 0)),
        ("5,35 8-10/2 * * *", (2024, 1, 1, 8, 35), (2024, 1, 1, 10, 5)),
        ("0 0 29 2 *", (2024, 3, 1, 0, 0), (2028, 2, 29, 0, 0)),
        ("0 12 * * mon-fri", (2024, 1, 5, 12, 0), (2024, 1, 8, 12, 0)),
        ("0 0 13 * 5", (2024, 1, 1, 0, 0), (2024, 1, 5, 0, 0)),
        ("0 0 * * 7", (2024, 1, 1, 0, 0), (2024, 1, 7, 0, 0)),
        ("30 6 ? JAN,jul ?", (2024, 1, 31, 7, 0), (2024, 7, 1, 6, 30)),
        ("10/20 * * * *", (2024, 1, 1, 0, 31), (2024, 1, 1, 0, 50)),
        ("@monthly", (2024, 1, 15, 0, 0), (2024, 2, 1, 0, 0)),
        ("@Hourly", (2024, 1, 15, 0, 0), (2024, 1, 15, 1, 0)),
    ],
)
def test_a_schedule_has_a_next_and_a_previous_time(
    text: str, begin: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    moment = datetime.datetime(*begin, tzinfo=Z)  # type: ignore[arg-type,misc]
    following = datetime.datetime(*expected, tzinfo=Z)  # type: ignore[arg-type,misc]
    schedule = Schedule.parse(text)
    assert schedule.next_after(moment) == following
    assert schedule.last_until(following) == following
    last = schedule.last_until(following - datetime.timedelta(milliseconds=1))
    assert last is not None
    assert last <= moment


@pytest.mark.parametrize(
    ("text", "day", "expected"),
    [
        ("30 2 * * *", (2024, 3, 31), ["03:00+02:00"]),
        ("30 2 * * *", (2024, 10, 27), ["02:30+02:00"]),
        ("30 * * * *", (2024, 3, 31), ["01:30+01:00", "03:30+02:00"]),
        ("30 * * * *", (2024, 10, 27), ["02:30+02:00", "02:30+01:00"]),
    ],
)
def test_no_time_is_skipped_or_repeated_when_clocks_change(
    text: str, day: tuple[int, ...], expected: list[str]
) -> None:
    schedule, zone = Schedule.parse(text), zoneinfo.ZoneInfo("Europe/Berlin")
    begin = datetime.datetime(*day, tzinfo=Z)  # type: ignore[arg-type,misc]
    found = []
    for minute in range(120):
        moment = (begin + datetime.timedelta(minutes=minute)).astimezone(zone)
        following = schedule.next_after(moment)
        assert following is not None
        assert following.timestamp() > moment.timestamp()
        last = schedule.last_until(moment)
        if last is not None and last.timestamp() > begin.timestamp():
            found.append(last.isoformat()[11:16] + last.isoformat()[19:])
    assert list(dict.fromkeys(found)) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "* * * *", "60 * * * *", "* * 0 * *", "* * * * x", "*/0 * * * *", "5-1 * * * *"),
        "0 0 31 2 *",  # it never comes
        "0 * * * * *",
        "@every 1h",
    ],
)
def test_invalid_schedules_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Schedule.parse(text)


def cron_job(schedule: str, **options: Any) -> Object:
    notes = options.pop("notes", None)
    spec = workload("Job", group="batch", restartPolicy="Never", notes=notes)["spec"]
    made = {"schedule": schedule, "jobTemplate": {"spec": spec}, **options}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": made}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("@every 1h30m", 5400), ("@every 1.5s", 1), ("@every 90.9s", 90), ("@every 10ms", 1), ("@every -5m", 1)],
)
def test_an_interval_is_whole_seconds_after_the_last_time(text: str, seconds: int) -> None:
    start = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
    step, second = datetime.timedelta(seconds=seconds), datetime.timedelta(seconds=1)
    interval = Interval.parse(text, start)
    assert (interval.last_until(start), interval.next_after(start)) == (None, start + step)
    assert interval.last_until(start + 3 * step - second / 2) == (start + 2 * step)
    assert interval.next_after(start + 3 * step) == start + 4 * step


async def count_jobs(cluster: Cluster, minutes: int) -> int:
    """Return how many Jobs are created within these minutes."""
    seen = set()
    for _ in range(minutes * 4):
        await trio.sleep(15)
        seen |= {obj["metadata"]["name"] for obj in await cluster.list("jobs")}
    return len(seen)


async def test_a_cron_job_creates_jobs_on_schedule(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await trio.sleep(900 - cluster.api.state.now().timestamp() % 600)  # in the middle between two times
        await cluster.create(cron_job("*/10 * * * *"))
        assert await count_jobs(cluster, 60) == 6
        jobs = await cluster.list("jobs")
        status = (await cluster.get("cj", "c"))["status"]
    assert len(jobs) == 3  # of those that have succeeded, by default
    newest = max(jobs, key=lambda obj: str(obj["metadata"]["creationTimestamp"]))
    moment = newest["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
    assert status["lastScheduleTime"] == moment
    number = int(datetime.datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()) // 60
    assert newest["metadata"]["name"] == f"c-{number}"
    assert status["lastSuccessfulTime"] == newest["status"]["completionTime"]
    assert "active" not in status


async def test_a_cron_job_with_an_interval_creates_jobs_from_its_creation_on(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        created = await cluster.create(cron_job("@every 7m"))
        assert await count_jobs(cluster, 22) == 3
        status = (await cluster.get("cj", "c"))["status"]
    began, last = created["metadata"]["creationTimestamp"], status["lastScheduleTime"]
    assert parse_time(last) - parse_time(began) == datetime.timedelta(minutes=21)


@pytest.mark.parametrize(("policy", "together", "in_all"), [("Allow", 6, 10), ("Forbid", 1, 2), ("Replace", 1, 10)])
async def test_the_concurrency_policy_decides_whether_jobs_overlap(
    cluster: Cluster, autojump_clock: MockClock, policy: str, together: int, in_all: int
) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await trio.sleep(61 - cluster.api.state.now().timestamp() % 60)  # a second after a full minute
        await cluster.create(cron_job("* * * * *", concurrencyPolicy=policy, notes={"runs_for": "330"}))
        seen: set[str] = set()
        most = 0
        for _ in range(43):
            await trio.sleep(15)
            active = (await cluster.get("cj", "c"))["status"].get("active", [])
            seen |= {item["name"] for item in active}
            most = max(most, len(active))
    assert (most, len(seen)) == (together, in_all)


async def test_a_suspended_cron_job_creates_no_jobs(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(cron_job("* * * * *", suspend=True))
        assert await count_jobs(cluster, 10) == 0


async def test_a_schedule_that_never_comes_is_an_event(
    cluster: Cluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster.open_controllers("workloads", "pods"):
        await cluster.create(cron_job("0 0 31 2 *"))
        assert await count_jobs(cluster, 10) == 0
        [event] = [event for event in await cluster.list("events") if event["reason"] == "InvalidSchedule"]
        assert (event["type"], event["involvedObject"]["name"]) == ("Warning", "c")
    assert "not understood" in caplog.text


async def test_only_the_last_missed_time_of_a_cron_job_is_made_up_for(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    minute = (cluster.api.state.now().minute + 30) % 60  # nothing is due while the controllers are there
    await cluster.create(cron_job(f"{minute} * * * *"))
    await trio.sleep(30 * 24 * 3600)
    async with cluster.open_controllers("workloads", "pods"):
        await trio.sleep(30)
        assert len(await cluster.list("jobs")) == 1
