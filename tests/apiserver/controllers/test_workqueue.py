"""Tests for :mod:`trioperator.apiserver.controllers.workqueue`: items are taken when they are due."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from trioperator.apiserver.controllers.workqueue import WorkQueue


async def test_items_are_processed_when_they_are_due(autojump_clock: MockClock) -> None:
    agenda: WorkQueue[str] = WorkQueue()
    for item, after in {"late": 20.0, "now": 0.0, "soon": 10.0, "also now": 0.0}.items():
        agenda.add(item, after=after)
    taken = [(await agenda.take(), trio.current_time()) for _ in range(4)]
    assert taken == [("now", 0), ("also now", 0), ("soon", 10), ("late", 20)]


async def test_an_item_that_is_added_twice_is_due_once_at_the_earlier_time(autojump_clock: MockClock) -> None:
    agenda: WorkQueue[str] = WorkQueue()
    for after in (20, 5, 10):
        agenda.add("a", after=after)
    agenda.add("b", after=30)
    taken = [(await agenda.take(), trio.current_time()) for _ in range(2)]
    assert taken == [("a", 5), ("b", 30)]


async def test_an_item_that_is_added_during_a_wait_is_processed(autojump_clock: MockClock) -> None:
    agenda: WorkQueue[str] = WorkQueue()
    agenda.add("late", after=100)

    async def add() -> None:
        await trio.sleep(3)
        agenda.add("a")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(add)
        assert (await agenda.take(), trio.current_time()) == ("a", 3)
