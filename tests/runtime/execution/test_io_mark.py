"""Marks in calls: what counts as I/O, and what does not."""

from __future__ import annotations

import time

import trio

from trioperator._runtime.execution.io_mark import IoMark


async def test_a_task_that_computes_does_no_io() -> None:
    mark = IoMark()
    sum(number for number in range(10_000))
    assert not mark.is_past()


async def test_a_task_that_has_let_others_run_may_have_done_io() -> None:
    mark = IoMark()
    await trio.lowlevel.checkpoint()
    assert mark.is_past()


async def test_a_task_that_has_blocked_its_thread_may_have_done_io() -> None:
    mark = IoMark()
    time.sleep(0.003)  # noqa: ASYNC251 -- on purpose
    assert mark.is_past()


async def test_the_task_counts_in_which_the_mark_was_made() -> None:
    async with trio.open_nursery() as nursery:
        mark = IoMark()
        assert not mark.is_past()
        nursery.start_soon(trio.lowlevel.checkpoint)
    assert mark.is_past()
