"""An event that can be set and waited for again and again."""

from __future__ import annotations

import trio
from trio.testing import Sequencer, assert_checkpoints, wait_all_tasks_blocked

from trioperator._concurrency.pulse import Pulse


async def test_a_wait_returns_when_the_pulse_is_set(autojump_clock: object) -> None:
    pulse = Pulse()

    async def set_later() -> None:
        await trio.sleep(1)
        pulse.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(set_later)
        await pulse.wait()
        assert trio.current_time() == 1


async def test_a_signal_before_the_wait_is_kept() -> None:
    pulse = Pulse()
    pulse.set()
    with trio.fail_after(1), assert_checkpoints():
        await pulse.wait()


async def test_a_wait_resets_the_pulse(autojump_clock: object) -> None:
    pulse = Pulse()
    pulse.set()
    pulse.set()  # adds up with the first one
    await pulse.wait()
    with trio.move_on_after(1) as scope:
        await pulse.wait()
    assert scope.cancelled_caught


async def test_all_tasks_that_wait_are_woken() -> None:
    pulse = Pulse()
    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(pulse.wait)
            await wait_all_tasks_blocked()
            pulse.set()


async def test_a_task_that_wakes_late_leaves_the_next_signal_to_others() -> None:
    pulse, order = Pulse(), Sequencer()

    async def wait(step: int) -> None:
        await pulse.wait()
        async with order(step):
            pass

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, 0)
        nursery.start_soon(wait, 1)
        await wait_all_tasks_blocked()
        pulse.set()
        await wait_all_tasks_blocked()
        pulse.set()
    with trio.fail_after(1):
        await pulse.wait()


async def test_a_cancelled_wait_leaves_the_signal_in_place() -> None:
    pulse = Pulse()
    pulse.set()
    with trio.CancelScope() as scope:
        scope.cancel()
        await pulse.wait()
    assert scope.cancelled_caught
    with trio.fail_after(1):
        await pulse.wait()


async def test_a_signal_after_a_wait_that_timed_out_is_kept(autojump_clock: object) -> None:
    pulse = Pulse()
    with trio.move_on_after(1):
        await pulse.wait()
    pulse.set()
    with trio.fail_after(1):
        await pulse.wait()


async def test_clearing_drops_a_signal(autojump_clock: object) -> None:
    pulse = Pulse()
    pulse.set()
    pulse.clear()
    with trio.move_on_after(1) as scope:
        await pulse.wait()
    assert scope.cancelled_caught


async def test_clearing_loses_no_task_that_waits() -> None:
    pulse = Pulse()
    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pulse.wait)
            await wait_all_tasks_blocked()
            pulse.clear()
            pulse.set()
