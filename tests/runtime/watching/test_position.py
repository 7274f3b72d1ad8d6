"""Tests for :mod:`trioperator._runtime.watching.position`: where a watch goes on, and when that is doubted."""

from __future__ import annotations

import pytest

from trioperator._runtime.watching.position import Position


def test_a_watch_goes_on_from_the_newest_version() -> None:
    position = Position()
    assert position.version is None
    position.begin("5")
    position.advance("7")
    assert (position.version, position.newest) == ("7", "7")


def test_after_a_list_is_needed_the_newest_version_is_still_known() -> None:
    position = Position()
    position.begin("5")
    position.lose()
    assert position.version is None
    assert position.newest == "5"


@pytest.mark.parametrize(
    ("newest", "version", "restored"),
    [("7", "5", True), ("7", "7", False), ("7", "10", False), ("7", "0", False), ("7", "", False), ("x", "5", False)],
)
def test_a_version_that_is_older_than_the_newest_shows_a_restore(newest: str, version: str, restored: bool) -> None:
    position = Position()
    position.begin(newest)
    assert position.is_restored(version) is restored


def test_after_a_restore_one_list_is_taken_as_it_is() -> None:
    position = Position()
    position.begin("7")
    position.distrust()
    assert not position.is_restored("5")
    assert position.take_distrust()
    assert not position.take_distrust()


def test_a_list_ends_a_doubt() -> None:
    position = Position()
    position.doubt(10.0)
    assert position.doubted_at == 10.0
    position.begin("5")
    assert position.doubted_at is None
