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


def test_watches_after_silent_ones_end_sooner_and_ever_more_of_them() -> None:
    bookmarks = Bookmarks()

    def count_short() -> int:
        count = 0
        while bookmarks.choose_duration(PATH, 400.0, patience=None) < 400:
            count += 1
        return count

    assert count_short() == 0
    counts = []
    for _ in range(7):
        bookmarks.note_silence(PATH)
        counts.append(count_short())
    assert counts == [1, 2, 4, 8, 16, 32, 32]
    bookmarks.note_silence(PATH)
    assert bookmarks.choose_duration("/api/v1/pods", 400.0, patience=None) == 400.0
    found = {bookmarks.choose_duration(PATH, 400.0, patience=None) for _ in range(10)}
    assert all(60 <= seconds <= 67 for seconds in found)
    assert bookmarks.choose_duration(PATH, 400.0, patience=10.0) == 8.0
    assert bookmarks.choose_duration(PATH, 30.0, patience=None) == 30.0
