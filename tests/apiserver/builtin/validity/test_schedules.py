"""Schedules of CronJobs: valid and invalid ones, as tried on the real server."""

from __future__ import annotations

import zoneinfo

import pytest

from trioperator.apiserver.builtin.validity.schedules import check_schedule, check_time_zone


@pytest.mark.parametrize(
    "schedule",
    [
        "* * * * *",
        "? ? ? ? ?",
        "* * * JAN mon",
        "* * * jan-feb 0-6",
        "5/10 * * * *",
        "* * 31 2 *",
        "@daily",
        "@every 1h30m",
    ],
)
def test_valid_schedules(schedule: str) -> None:
    assert list(check_schedule(schedule, "spec.schedule")) == []


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        ("99 * * * *", "Bad minute: 99"),
        ("* * 0 * *", "Bad day-of-month: 0"),
        ("*/0 * * * *", "Bad minute: */0"),
        ("5-1 * * * *", "Bad minute: 5-1"),
        ("a * * * *", "Bad minute: a"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("@foo", "unrecognized descriptor: @foo"),
        ("@every x", 'failed to parse duration @every x: time: invalid duration "x"'),
        ("TZ=UTC * * * * *", "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"),
    ],
)
def test_invalid_schedules(schedule: str, problem: str) -> None:
    first, *_ = check_schedule(schedule, "spec.schedule")
    assert first.message.endswith(problem)
    assert first.message.startswith("Invalid value: ")


def test_an_empty_schedule_is_missing() -> None:
    (cause,) = check_schedule("", "spec.schedule")
    assert cause.reason == "FieldValueRequired"


def test_without_time_zones_on_the_system_none_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    (cause,) = check_time_zone("Mars/X", "spec.timeZone")
    assert cause.message.endswith("unknown time zone Mars/X")
    monkeypatch.setattr(zoneinfo, "ZoneInfo", find_none)
    assert list(check_time_zone("Europe/Berlin", "spec.timeZone")) == []


def find_none(name: str) -> None:
    raise zoneinfo.ZoneInfoNotFoundError(name)
