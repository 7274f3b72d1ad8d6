"""Intake, as a ring of the task tree: what watches, and lets objects be handled, until a stop, a pause or an error.

It stops first. Whatever ends it, what is running is drained afterwards, so an error is kept until all has stopped.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import trio

from trioperator._logs import get_logger
from trioperator._model.exception_groups import unwrap_group
from trioperator._supervisor.assembly import Operator
from trioperator._supervisor.sharding import Workers
from trioperator.errors import ApiError, ConnectionLostError

if TYPE_CHECKING:
    from trioperator._webhooks.service import Admission

# Delay before another attempt to start again after a pause, in seconds.
_RESTART_DELAY = 5.0

_logger = get_logger("trioperator.supervisor")


class Intake:
    """The intake of an operator, which is opened again after each pause. Sets *task_status* when it is ready."""

    def __init__(self, operator: Operator, admission: Admission | None, task_status: trio.TaskStatus[None]) -> None:
        self._operator = operator
        self._admission = admission
        self._task_status = task_status
        self._not_before = -math.inf  # on Trio's clock

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[trio.Nursery]:
        """Open the nursery of what watches, which is cancelled when a stop is requested. No error leaves the block."""
        stop, pauses = self._operator.stop, self._operator.pauses
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stop.cancel_when_requested, nursery.cancel_scope)
                yield nursery
                nursery.cancel_scope.cancel(reason="it is started again later")
        except Exception as error:  # noqa: BLE001 -- it is raised when everything has stopped
            only = unwrap_group(error)
            stop.fail(only if isinstance(only, Exception) else error)
        if not stop.requested.is_set():
            pauses.report()  # only now, as no more objects come in

    async def watch(self, nursery: trio.Nursery, workers: Workers) -> None:
        """Watch, and handle objects while the operator is active, until it is paused or stops.

        A pause ends it at any time after objects have begun to be handled, as in the middle of the first lists. Those
        that have come by then are drained, and what is watched after that is watched as a standby.
        """
        pauses, is_restart = self._operator.pauses, self._operator.inspector.ready
        await trio.sleep_until(self._not_before)
        try:
            is_active = await self._list(nursery, workers)
        except Exception as error:
            only = unwrap_group(error)
            is_temporary = is_restart and isinstance(only, ApiError | ConnectionLostError)
            if self._operator.stop.requested.is_set() or not is_temporary:
                raise
            _logger.warning("Starting again after a pause in %g s, as it failed: %s", _RESTART_DELAY, only)
            self._not_before = trio.current_time() + _RESTART_DELAY
            return
        self._announce()
        if not is_active:
            pauses.report()
            await pauses.wait_active()
            await self._activate(nursery, workers)
        await trio.sleep_forever()

    async def _list(self, nursery: trio.Nursery, workers: Workers) -> bool:
        """Watch until all is listed. Returns whether the operator was active, so that each kind is handled since."""
        is_active = not self._operator.pauses.reasons
        if is_active:
            await self._activate(nursery, workers)
        await nursery.start(workers.manager.serve)
        if self._admission is not None:
            await self._admission.wait_configured()
        workers.listed.set()
        return is_active

    async def _activate(self, nursery: trio.Nursery, workers: Workers) -> None:
        """Let objects be handled, until the operator is paused."""
        # No checkpoint lies between the last look at the pauses and this: the next pause ends the period.
        self._operator.pauses.begin(workers.period)
        nursery.start_soon(_cancel_when, workers.period.paused, nursery.cancel_scope, name="wait for a pause")
        await workers.begin()

    def _announce(self) -> None:
        """Log, once, that the operator is ready, and what it does not handle."""
        operator = self._operator
        if operator.inspector.ready:
            return
        operator.inspector.announce()
        problems = operator.health.problems
        if problems:
            _logger.warning("The operator is ready. It does not handle everything: %s", " ".join(problems))
        else:
            _logger.info("The operator is ready.")
        self._task_status.started()
        if operator.plan.ready_flag is not None:
            operator.plan.ready_flag.set()


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel(reason="the operator is paused")
