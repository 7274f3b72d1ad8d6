"""Tests for :mod:`trioperator.testing.adjustable_clock`."""

from __future__ import annotations

import trio

from trioperator.testing.adjustable_clock import AdjustableClock


def test_waits_end_when_the_clock_is_advanced() -> None:
    clock = AdjustableClock()

    async def main() -> float:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 3600)
            await trio.testing.wait_all_tasks_blocked()
            clock.adjust(advance=3600)
        return trio.current_time()

    assert 3600 <= trio.run(main, clock=clock) < 3660


def test_time_goes_on_from_where_it_was_at_another_rate() -> None:
    clock = AdjustableClock()
    before = clock.current_time()
    clock.adjust(rate=60)
    assert before <= clock.current_time() < before + 3600
    deadline = clock.current_time() + 120
    assert 0 < clock.deadline_to_sleep_time(deadline) <= 2
    clock.adjust(advance=10)
    assert clock.rate == 60
