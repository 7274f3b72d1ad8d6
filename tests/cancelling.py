"""Cancellation at each step of a task, as a checkpoint that nobody thinks of is where something is left behind."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable

import trio


class _CancelAt(trio.abc.Instrument):
    """Cancels a scope at a step of a task, whose next checkpoint raises then."""

    def __init__(self, step: int) -> None:
        self.left = step
        self.scope = trio.CancelScope()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task.name == "to be cancelled":
            self.left -= 1
            if self.left == 0:
                self.scope.cancel()


async def cancel_at_each_step(fn: Callable[[], Awaitable[object]]) -> AsyncIterator[bool]:
    """Call the function again and again, and cancel it one step later each time, until it is not cancelled.

    Yields after each call whether it was cancelled.
    """
    for step in itertools.count(1):
        instrument = _CancelAt(step)

        async def call(scope: trio.CancelScope) -> None:
            with scope:
                await fn()

        trio.lowlevel.add_instrument(instrument)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call, instrument.scope, name="to be cancelled")
        finally:
            trio.lowlevel.remove_instrument(instrument)
        yield instrument.scope.cancelled_caught
        if instrument.left > 0:
            return
