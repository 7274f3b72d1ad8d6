"""Tests for :mod:`trioperator._model.pause`."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator._model.pause import Pause, find_annotation, format_pause, parse_pause

DECEMBER = datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC)
REASONS = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=20)


@pytest.mark.parametrize(
    ("value", "pause"),
    [
        ("true", Pause()),
        (" True ", Pause()),
        ("false", None),
        ("until=2026-12-01T00:00Z", Pause(DECEMBER)),
        ("until=2026-12-01T01:00:00+01:00 reason=DBA at work", Pause(DECEMBER, "DBA at work")),
        ("until=2026-12-01T00:00Z   reason=until=never", Pause(DECEMBER, "until=never")),
        ("reason=DBA at work", Pause(reason="DBA at work")),
        ("reason=", Pause()),
    ],
)
def test_values_are_read(value: str, pause: Pause | None) -> None:
    assert parse_pause(value) == pause


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "''"),
        ("yes", "'yes'"),
        ("until=tomorrow", "a time"),
        ("until=2026-12-01T00:00", "time zone"),
        ("until=2026-12-01", "time zone"),
        ("until=9999-12-31T23:59:59-23:00", "a time"),
        ("for=2h", "'for=2h'"),
        ("until=2026-12-01T00:00Z DBA", "it must be"),
        ("x" * 5000, "…"),
    ],
)
def test_what_cannot_be_read_is_a_pause_without_an_end(value: str, problem: str) -> None:
    pause = parse_pause(value)
    assert pause is not None
    assert pause.until is None
    assert problem.replace("a time", "its time must be") in pause.problem
    assert len(pause.problem) < 250


def test_a_reason_is_as_long_as_people_read() -> None:
    pause = parse_pause(f"reason={'y' * 200_000}")
    assert pause is not None
    assert (len(pause.reason), pause.reason[-2:]) == (1000, "y…")


@given(st.text())
def test_nothing_that_anybody_writes_raises(value: str) -> None:
    parse_pause(value)


@given(st.none() | st.datetimes(datetime.datetime(2000, 1, 1), timezones=st.just(datetime.UTC)), REASONS)
def test_what_is_written_is_read(until: datetime.datetime | None, reason: str) -> None:
    until = until and until.replace(microsecond=0)
    pause = Pause(until, reason)
    assert parse_pause(format_pause(pause)) == pause


def test_a_pause_ends_at_its_time() -> None:
    pause, second = Pause(DECEMBER), datetime.timedelta(seconds=1)
    assert [pause.is_over(DECEMBER - second), pause.is_over(DECEMBER), Pause().is_over(DECEMBER)] == [
        False,
        True,
        False,
    ]


def test_the_annotation_is_found_by_its_name() -> None:
    body = {"metadata": {"annotations": {"example.com/hold": "true"}}}
    assert find_annotation(body, "example.com/hold") == "true"
    assert find_annotation(body, "example.com/other") is None
    assert find_annotation(body, None) is None
    assert find_annotation({}, "example.com/hold") is None
    assert find_annotation({"metadata": {"annotations": {"a": 5}}}, "a") is None


def test_it_is_described() -> None:
    assert str(Pause()) == "paused"
    assert str(Pause(DECEMBER, "DBA at work").mute()) == "paused until 2026-12-01T00:00:00Z"
    assert str(Pause(DECEMBER, "DBA at work")) == "paused until 2026-12-01T00:00:00Z: DBA at work"
