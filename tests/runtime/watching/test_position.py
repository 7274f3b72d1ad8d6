"""Tests for :mod:`trioperator._runtime.watching.position`: where a watch goes on, and when that is doubted."""

from __future__ import annotations

import pytest

from trioperator._runtime.watching.position import Position


def test_a_watch_goes_on_from_the_newest_version() -> None:
    assert Position().version is None
    position = Position()
    position.begin("5", 0.0)
    position.advance("7")
    assert (position.version, position.newest) == ("7", "7")


def test_after_a_list_is_needed_the_newest_version_is_still_known() -> None:
    position = Position()
    position.begin("5", 0.0)
    position.lose()
    assert position.version is None
    assert position.newest == "5"


@pytest.mark.parametrize(
    ("newest", "version", "restored"),
    [("7", "5", True), ("7", "7", False), ("7", "10", False), ("7", "0", False), ("7", "", False), ("x", "5", False)],
)
def test_a_version_that_is_older_than_the_newest_shows_a_restore(newest: str, version: str, restored: bool) -> None:
    position = Position()
    position.begin(newest, 0.0)
    assert position.is_restored(version) is restored


def test_after_a_restore_one_list_is_taken_as_it_is() -> None:
    position = Position()
    position.begin("7", 0.0)
    position.distrust()
    assert not position.is_restored("5")
    assert position.take_distrust()
    assert not position.take_distrust()


def test_a_list_ends_a_doubt() -> None:
    position = Position()
    position.doubt(10.0)
    assert position.doubted_at == 10.0
    position.begin("5", 0.0)
    assert position.doubted_at is None


def test_silence_of_several_watches_in_a_row_is_suspicious() -> None:
    position = Position()
    position.begin("5", 0.0)
    for now in (80.0, 160.0, 240.0):
        position.listen(now, is_quiet=True)
        assert position.doubted_at is None
    position.listen(320.0, is_quiet=True)
    assert position.doubted_at is not None
    assert position.doubted_at < 320.0  # who has checked in the meantime need not be asked again
    position.trust(320.0)
    position.listen(600.0, is_quiet=True)
    assert position.doubted_at is None


def test_what_is_heard_ends_the_silence() -> None:
    position = Position()
    position.begin("5", 0.0)
    position.listen(300.0, is_quiet=False)
    position.listen(599.0, is_quiet=True)
    assert position.doubted_at is None


@pytest.mark.parametrize(
    ("newest", "version", "restored"),
    [("5", "8", True), ("5", "9", False), ("5", "0", False), ("5", "x", False), ("x", "8", False), ("10", "9", True)],
)
def test_a_version_that_is_older_than_an_own_write_shows_a_restore(newest: str, version: str, restored: bool) -> None:
    position = Position(seen=newest)
    assert position.is_before(9) is (newest == "5")
    assert position.is_restored(version, written=9) is restored
