"""Tests for :mod:`trioperator._concurrency.core_tasks`: which ends of tasks count, and for whom."""

from __future__ import annotations

import pytest
import trio

from trioperator._concurrency.core_tasks import CoreTasks, keep


async def end() -> None:
    await trio.lowlevel.checkpoint()


async def fail() -> None:
    raise ValueError("no")


async def serve(*, task_status: trio.TaskStatus[str]) -> None:
    task_status.started("here")
    await trio.sleep_forever()


async def test_a_task_that_returns_has_ended_for_good_and_cancelled_ones_are_forgotten() -> None:
    core = CoreTasks()
    with core.active():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep, "a", end)
            assert await nursery.start(keep, "b", serve) == "here"
            nursery.start_soon(keep, "c", trio.sleep_forever)
            await trio.testing.wait_all_tasks_blocked()
            assert core.report() == {"a": True, "b": False, "c": False}
            nursery.start_soon(keep, "a", trio.sleep_forever)  # another one of the name changes nothing
            await trio.testing.wait_all_tasks_blocked()
            assert core.report()["a"]
            nursery.cancel_scope.cancel()
    assert core.report() == {"a": True}


async def test_an_error_is_raised_and_leaves_nothing() -> None:
    core = CoreTasks()
    with core.active(), pytest.raises(ValueError, match="no"):
        await keep("a", fail)
    assert core.report() == {}


async def test_operators_in_one_program_have_core_tasks_of_their_own() -> None:
    first, second = CoreTasks(), CoreTasks()
    with first.active():
        await keep("a", end)
        with second.active():
            await keep("b", end)
        await keep("c", end)
    await keep("d", end)  # outside of operators
    assert (first.report(), second.report()) == ({"a": True, "c": True}, {"b": True})
