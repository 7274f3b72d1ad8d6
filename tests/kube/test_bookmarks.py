"""Tests for :mod:`trioperator._kube.bookmarks`: for how long a watch may be silent."""

from __future__ import annotations

import pytest

from trioperator._kube.bookmarks import Bookmarks

PATH = "/apis/example.com/v1/widgets"


def test_a_watch_may_be_silent_for_a_bit_more_than_a_minute_at_random() -> None:
    found = {Bookmarks().choose_patience(PATH) for _ in range(100)}
    assert len(found) > 90
    assert all(75 <= seconds <= 86 for seconds in found)


@pytest.mark.parametrize(
    ("intervals", "seconds"),
    [([60.0], None), ([120.0], 150.0), ([600.0, 120.0, 400.0], 150.0), ([200.0, 30.0], None)],
)
def test_it_may_be_silent_for_longer_where_bookmarks_are_rare(intervals: list[float], seconds: float | None) -> None:
    bookmarks = Bookmarks()
    for interval in intervals:
        bookmarks.record(PATH, interval)
    found = bookmarks.choose_patience("/apis/example.com/v2/gadgets")
    assert found == seconds or (seconds is None and 75 <= found <= 86)


@pytest.mark.parametrize("path", ["/api/v1/pods", "/apis/other.example.com/v1/widgets"])
def test_other_servers_have_habits_of_their_own(path: str) -> None:
    bookmarks = Bookmarks()
    bookmarks.record(PATH, 400.0)
    assert bookmarks.choose_patience(path) <= 86
