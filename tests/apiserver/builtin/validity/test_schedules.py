"""Schedules of CronJobs: valid and invalid ones, as tried on the real server."""

from __future__ import annotations

import pytest

from trioperator.apiserver.builtin.validity.schedules import check_schedule


@pytest.mark.parametrize(
    "schedule",
    [
        "* * * * *",
        "? ? ? ? ?",
        "* * * JAN mon",
        "* * * jan-feb 0-6",
        "1,2,,3 * * * *",
        ", * * * *",
        "5/10 * * * *",
        "*-5 * * * *",
        "+5 * * * *",
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
        ("99 * * * *", "end of range (99) above maximum (59): 99"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("*/5/5 * * * *", "too many slashes: */5/5"),
        ("a * * * *", 'failed to parse int from a: strconv.Atoi: parsing "a": invalid syntax'),
        ("9" * 5000 + " * * * *", "value out of range"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("@foo", "unrecognized descriptor: @foo"),
        ("@every x", 'failed to parse duration @every x: time: invalid duration "x"'),
        ("TZ=UTC * * * * *", "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"),
        ("TZ=Nope * * * * *", "provided bad location Nope: unknown time zone Nope"),
    ],
)
def test_invalid_schedules(schedule: str, problem: str) -> None:
    first, *_ = check_schedule(schedule, "spec.schedule")
    assert first.message.endswith(problem)
    assert first.message.startswith("Invalid value: ")


def test_an_empty_schedule_is_missing() -> None:
    (cause,) = check_schedule("", "spec.schedule")
    assert cause.reason == "FieldValueRequired"
