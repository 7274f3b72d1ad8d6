"""Deadlines of many things, kept by one task."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from trioperator._concurrency.timeouts import Timeouts


class Wait:
    """Something with a deadline; when it was told to look at it."""

    def __init__(self, timeouts: Timeouts) -> None:
        self.deadline = float("inf")
        self.looked: list[float] = []
        timeouts.add(self)

    def expire(self) -> None:
        self.looked.append(trio.current_time())


async def test_what_is_late_expires_at_its_deadline(autojump_clock: MockClock) -> None:
    timeouts = Timeouts()
    first, second, third = (Wait(timeouts) for _ in range(3))
    timeouts.set(first, 20)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timeouts.serve)
        await trio.sleep(5)
        timeouts.set(second, 10)
        timeouts.set(third, 15)
        timeouts.discard(third)
        await trio.sleep(100)
        assert (first.looked[0], second.looked[0], third.looked) == (20, 10, [])
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("others", [float("inf"), 60.0])
async def test_deadlines_that_move_on_do_not_wake_the_task(others: float, autojump_clock: MockClock) -> None:
    timeouts, rounds = Timeouts(), list[float]()
    wait = Wait(timeouts)

    class Rounds(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            if task.name == "timeouts":
                rounds.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(timeouts.serve, name="timeouts")
        await wait_all_tasks_blocked()
        trio.lowlevel.add_instrument(instrument := Rounds())
        for _ in range(1000):
            timeouts.set(wait, trio.current_time() + 30)
            timeouts.set(wait, trio.current_time() + others)
            await trio.sleep(0.05)
        timeouts.set(wait, float("inf"))
        await trio.sleep(1000)
        trio.lowlevel.remove_instrument(instrument)
        assert rounds == pytest.approx([0, 30, 30, 60], abs=0.1)
        assert wait.looked == []
        nursery.cancel_scope.cancel()


async def test_all_look_at_their_deadlines_when_nothing_keeps_them_any_longer(autojump_clock: MockClock) -> None:
    timeouts = Timeouts()
    limited, unlimited = Wait(timeouts), Wait(timeouts)
    timeouts.set(limited, 1000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timeouts.serve)
        await wait_all_tasks_blocked()
        assert timeouts.is_served
        nursery.cancel_scope.cancel()
    assert not timeouts.is_served
    assert limited.looked == unlimited.looked == [0]
