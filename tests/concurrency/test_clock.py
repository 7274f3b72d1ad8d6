"""Tests for :mod:`trioperator._concurrency.clock`."""

from __future__ import annotations

import datetime
import time

import pytest
import trio
from trio.testing import MockClock

from trioperator._concurrency import clock
from trioperator._concurrency.clock import (
    BootClock,
    find_wall_shift,
    make_clock,
    steady_now,
    wall_now,
    wall_starts_at,
)
from trioperator._coordination.pauses import Pauses
from trioperator.errors import PausedError

START = datetime.datetime(2030, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


async def test_wall_time_is_the_real_time_in_utc() -> None:
    before = datetime.datetime.now(datetime.UTC)
    now = wall_now()
    assert before - datetime.timedelta(seconds=1) <= now <= before + datetime.timedelta(seconds=60)
    assert now.tzinfo is datetime.UTC


async def test_wall_time_passes_as_virtual_time_does(autojump_clock: MockClock) -> None:
    before = wall_now()
    await trio.sleep(3600)
    assert wall_now() - before == datetime.timedelta(hours=1)


async def test_wall_time_stands_still_while_virtual_time_does(mock_clock: MockClock) -> None:
    assert wall_now() == wall_now()
    before = wall_now()
    mock_clock.jump(5)
    assert wall_now() - before == datetime.timedelta(seconds=5)


def test_a_run_starts_at_a_given_time() -> None:
    async def main() -> tuple[datetime.datetime, datetime.datetime]:
        before = wall_now()
        await trio.sleep(60)
        return before, wall_now()

    with wall_starts_at(START):
        for _ in range(2):  # each run anew
            before, after = trio.run(main, clock=MockClock(autojump_threshold=0))
            assert (before, after) == (START, START + datetime.timedelta(minutes=1))


def test_the_given_time_ends_with_the_block() -> None:
    async def main() -> datetime.datetime:
        return wall_now()

    with wall_starts_at(START):
        pass
    assert trio.run(main) < START


def test_a_start_in_another_time_zone_is_the_same_moment() -> None:
    async def main() -> datetime.datetime:
        return wall_now()

    east = START.astimezone(datetime.timezone(datetime.timedelta(hours=5)))
    with wall_starts_at(east):
        assert trio.run(main, clock=MockClock()) == START


def shift_system_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Set the clock of the system, as NTP does, or as it is when a suspended machine is resumed."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + seconds)


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0])
async def test_the_wall_time_follows_when_the_system_time_is_set(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = wall_now()
    shift_system_time(monkeypatch, seconds)
    assert (wall_now() - before).total_seconds() == pytest.approx(seconds, abs=60)


async def test_under_a_mock_clock_the_wall_time_passes_with_it_alone(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = wall_now()
    shift_system_time(monkeypatch, 3600)
    await trio.sleep(5)
    assert (wall_now() - before).total_seconds() == pytest.approx(5)


def test_a_lease_is_over_when_a_suspended_machine_wakes() -> None:
    suspended = 0.0

    async def main() -> None:
        nonlocal suspended
        pauses = Pauses()
        pauses.resume("lease", until=trio.current_time() + 10)
        pauses.check_write()
        suspended = 3600.0
        with pytest.raises(PausedError):
            pauses.check_write()
        with trio.move_on_at(trio.current_time() - 1800) as scope:
            await trio.sleep_forever()
        assert scope.cancelled_caught

    trio.run(main, clock=BootClock(lambda: time.monotonic() + suspended))


def test_operators_run_by_a_clock_that_counts_suspension_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = make_clock()
    assert (clock is not None) == hasattr(time, "CLOCK_BOOTTIME")

    async def main() -> float:
        before = trio.current_time()
        await trio.sleep(0.01)
        return trio.current_time() - before

    assert 0.01 <= trio.run(main, clock=clock) < 10

    def fail(_: int) -> float:
        raise OSError

    monkeypatch.setattr(time, "clock_gettime", fail)
    assert make_clock() is None
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    assert make_clock() is None


async def test_steady_time_is_wall_time_that_nobody_sets(mock_clock: MockClock) -> None:
    before = steady_now()
    assert before == wall_now()
    assert find_wall_shift() == 0
    clocks = clock.find_clocks()
    assert clocks.virtual is not None
    clocks.virtual -= 3600
    mock_clock.jump(5)
    assert steady_now() - before == datetime.timedelta(seconds=5)
    assert find_wall_shift() == -3600
    assert clock.find_clocks().find_moment() == (trio.current_time(), steady_now(), -3600)


async def test_steady_time_is_the_real_time_where_that_is_not_set() -> None:
    assert abs(steady_now() - wall_now()) < datetime.timedelta(seconds=1)
    assert find_wall_shift() == 0
