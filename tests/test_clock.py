"""Wall time: real, or virtual where Trio's clock is."""

from __future__ import annotations

import datetime
import time

import pytest
import trio
from trio.testing import MockClock

from trioperator.clock import wall_now, wall_starts_at

START = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


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


def test_runs_with_a_mock_clock_can_start_at_any_time() -> None:
    async def main() -> datetime.datetime:
        assert wall_now() == START
        await trio.sleep(60)
        return wall_now()

    with wall_starts_at(START):
        assert trio.run(main, clock=MockClock(autojump_threshold=0)) == START + datetime.timedelta(seconds=60)


async def test_the_wall_time_is_aware_and_in_utc() -> None:
    assert wall_now().tzinfo is datetime.UTC
    assert abs(wall_now().timestamp() - time.time()) < 60
