"""Cron schedules of timers."""

from __future__ import annotations

import datetime
import itertools
import zoneinfo
from typing import Any

import pytest

from trioperator._handling.handlers.schedule import Schedule, parse_schedule

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


def moments(schedule: Schedule, start: str, count: int) -> list[str]:
    moment: datetime.datetime | None = datetime.datetime.fromisoformat(start)
    found = []
    for _ in range(count):
        assert moment is not None
        moment = schedule.next_after(moment)
        assert moment is not None
        found.append(moment.isoformat())
    return found


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*/20 * * * *", ["2026-01-31T22:20:00+00:00", "2026-01-31T22:40:00+00:00", "2026-01-31T23:00:00+00:00"]),
        ("30 8 * * MON-FRI", ["2026-02-02T08:30:00+00:00", "2026-02-03T08:30:00+00:00", "2026-02-04T08:30:00+00:00"]),
        ("0 0 L * *", ["2026-02-28T00:00:00+00:00", "2026-03-31T00:00:00+00:00", "2026-04-30T00:00:00+00:00"]),
        ("@hourly", ["2026-01-31T23:00:00+00:00", "2026-02-01T00:00:00+00:00", "2026-02-01T01:00:00+00:00"]),
        (" @Daily ", ["2026-02-01T00:00:00+00:00", "2026-02-02T00:00:00+00:00", "2026-02-03T00:00:00+00:00"]),
    ],
)
def test_a_schedule_returns_one_time_after_another(expression: str, expected: list[str]) -> None:
    assert moments(parse_schedule(expression), "2026-01-31T22:00:00+00:00", 3) == expected


def test_a_scheduled_time_is_not_its_own_successor() -> None:
    assert moments(parse_schedule("0 * * * *"), "2026-01-31T22:00:00.000001+00:00", 1) == ["2026-01-31T23:00:00+00:00"]
    assert moments(parse_schedule("0 * * * *"), "2026-01-31T22:00:00+00:00", 1) == ["2026-01-31T23:00:00+00:00"]


@pytest.mark.parametrize("timezone", ["Europe/Berlin", BERLIN])
def test_daylight_saving_neither_skips_nor_repeats_fixed_hours(timezone: str | datetime.tzinfo) -> None:
    schedule = parse_schedule("30 2 * * *", timezone)
    assert moments(schedule, "2026-03-28T12:00:00+00:00", 2) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]
    assert moments(schedule, "2026-10-24T12:00:00+00:00", 2) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]


def test_intervals_continue_across_daylight_saving() -> None:
    found = moments(parse_schedule("*/30 * * * *", BERLIN), "2026-10-24T23:00:00+00:00", 8)
    instants = [datetime.datetime.fromisoformat(text) for text in found]
    assert all(b - a == datetime.timedelta(minutes=30) for a, b in itertools.pairwise(instants))


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("* * * *", "Wrong number of fields"),
        ("61 * * * *", "Bad minute"),
        ("* * * * NEVER", "Bad day-of-week"),
        ("", "Wrong number of fields"),
        ("@fortnightly", "Wrong number of fields"),
    ],
)
def test_an_invalid_cron_expression_is_rejected(expression: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"is not a cron expression .{why}.*five fields"):
        parse_schedule(expression)


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 4,6 *"])
def test_a_date_that_never_comes_is_rejected(expression: str) -> None:
    with pytest.raises(ValueError, match="cron expression"):
        parse_schedule(expression)


def test_what_is_too_long_is_rejected_and_not_quoted() -> None:
    with pytest.raises(ValueError, match="at most 1000 characters, not 400008"):
        parse_schedule(f"{'0,' * 200_000}0 * * * *"[:-1])
    with pytest.raises(ValueError, match="Unknown time zone") as caught:
        parse_schedule("* * * * *", "Europe/" * 100_000)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("timezone", ["Europe/Atlantis", "../etc", "", "Europe"])
def test_an_unknown_time_zone_is_rejected(timezone: str) -> None:
    with pytest.raises(ValueError, match=r"Unknown time zone .*Europe/Berlin.*tzdata"):
        parse_schedule("* * * * *", timezone)


def test_a_time_zone_of_a_wrong_type_is_rejected() -> None:
    timezone: Any = 5
    with pytest.raises(TypeError, match=r"time zone .*Europe/Berlin.* not 5\."):
        parse_schedule("* * * * *", timezone)


def test_the_next_time_is_never_in_the_past_within_the_hour_that_comes_twice() -> None:
    schedule = parse_schedule("30 2 * * *", "Europe/Berlin")
    second_coming = datetime.datetime(2024, 10, 27, 1, 10, tzinfo=datetime.UTC)  # 02:10 for the second time
    following = schedule.next_after(second_coming)
    assert following == datetime.datetime(2024, 10, 28, 1, 30, tzinfo=datetime.UTC)


@pytest.mark.parametrize("timezone", ["UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo"])
def test_there_is_no_time_after_the_end_of_the_calendar(timezone: str) -> None:
    end = datetime.datetime.max.replace(tzinfo=datetime.UTC)
    assert parse_schedule("* * * * *", timezone).next_after(end) is None
