"""Tests for :mod:`trioperator.apiserver.reading.column_values`: ages and durations as kubectl formats them."""

from __future__ import annotations

import datetime
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.reading.column_values import age, find, human_duration, since


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (429, "7m9s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (18_060, "5h1m"),
        (28_800, "8h"),
        (172_799, "47h"),
        (172_800, "2d"),
        (180_000, "2d2h"),
        (691_200, "8d"),
        (63_072_000, "2y"),
        (63_158_400, "2y1d"),
        (315_360_000, "10y"),
    ],
)
def test_durations_have_two_or_three_digits(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


def test_ages_are_formatted_durations() -> None:
    now = datetime.datetime(2020, 1, 1, 0, 5, tzinfo=datetime.UTC)
    assert since("2020-01-01T00:00:00Z", now) == "5m"
    assert since(None, now) == "<unknown>"


def test_the_age_of_an_object_is_that_since_its_creation() -> None:
    now = datetime.datetime(2020, 1, 1, 3, 4, tzinfo=datetime.UTC)
    assert age({"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"}}, now) == "3h4m"
    assert age({"metadata": {}}, now) == "<unknown>"


@given(st.integers(0, 8 * 365 * 86_400 - 1))
def test_a_duration_is_truncated_by_less_than_its_smallest_shown_unit(seconds: int) -> None:
    units = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "y": 365 * 86_400}
    parts = re.findall(r"(\d+)([smhdy])", human_duration(seconds))
    shown = sum(int(number) * units[unit] for number, unit in parts)
    assert 0 <= seconds - shown < units[parts[-1][1]]


@pytest.mark.parametrize(
    ("path", "value"),
    [("a", {"b": 1, "c": None}), ("a.b", 1), ("a.c", None), ("a.c.d", None), ("a.b.c", None), ("x.y", None)],
)
def test_a_value_is_found_by_its_path(path: str, value: Any) -> None:
    assert find({"a": {"b": 1, "c": None}}, path) == value
