"""Tests for :mod:`trioperator.apiserver.controllers.schedules`: the times of cron expressions."""

from __future__ import annotations

import datetime
import zoneinfo

import pytest

from trioperator.apiserver.controllers.schedules import Schedule

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
