"""Cells of tables that are computed."""

from __future__ import annotations

import datetime

import pytest

from trioperator.apiserver.tables import age, human_duration


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
def test_durations_are_short(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


def test_ages_are_durations() -> None:
    now = datetime.datetime(2020, 1, 1, 0, 5, tzinfo=datetime.UTC)
    assert age("2020-01-01T00:00:00Z", now) == "5m"
    assert age(None, now) == "<unknown>"
