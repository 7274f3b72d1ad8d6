"""Supervisor of an operator: the tree of its tasks, as rings that are nested in one function.

::

    supervise()
    ├─ signals                     first signal: stop in order; second: end at once
    ├─ watchdog                    reports functions that block the event loop
    ├─ startup activities          before anything talks to the API server
    ├─ session                     connections and credentials: login activities
    │  └─ support                  (stops last)    timeouts, credentials, probes, webhooks, elections, events
    │     └─ workers               (stops third)   reconciles of objects, for each shard that is owned
    │        │  └─ companions      (stops second)  daemons and timers
    │        └─ intake             (stops first)   scopes: reflectors of resource kinds
    └─ cleanup activities          after everything else

Tasks start from top to bottom, and stop from bottom to top. Stopping in order takes at most ``settings.process.grace``
seconds, whatever handlers do.

When the operator is paused, all below support stops in the same order, and starts again: as a standby, which watches
but handles nothing until the pause is over.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator

import trio

from trioperator._handling.handlers.filters import describe_split_name
from trioperator._handling.handlers.handler import Activity
from trioperator._kube.api_client import ApiClient
from trioperator._logs import get_logger
from trioperator._model.exception_groups import unwrap_group
from trioperator._runtime.cache.kind import Memory
from trioperator._runtime.watchdog import Watchdog
from trioperator._supervisor.assembly import Operator, build_operator, check_webhooks
from trioperator._supervisor.endpoints import Endpoints
from trioperator._supervisor.intake import Intake
from trioperator._supervisor.plan import Plan
from trioperator._supervisor.sharding import open_workers
from trioperator._supervisor.signals import handle_signals
from trioperator._supervisor.support import open_support

_logger = get_logger("trioperator.supervisor")


async def supervise(plan: Plan, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Run an operator until it is stopped by a signal, its stop flag or cancellation.

    It has started when all objects are listed. Raises the error that has kept it from starting or running.
    """
    plan.registry.check()
    for handler in (*plan.registry.resource_handlers(), *plan.registry.admission_handlers()):
        if problem := describe_split_name(handler):
            _logger.warning("%s", problem)
    operator = build_operator(plan)
    try:
        await _run(operator, task_status)
    except BaseExceptionGroup as group:
        error = unwrap_group(group)
        raise error from error.__cause__  # without the exception groups of the nurseries
    finally:
        if not isinstance(sys.exception(), Exception):  # an error is what the caller reports, as the last line
            _logger.info("The operator has stopped.")
    if operator.stop.everything.cancel_called:
        raise KeyboardInterrupt("The operator was stopped again before it had stopped in order.")


async def _run(operator: Operator, task_status: trio.TaskStatus[None]) -> None:
    """Nest the rings of the operator.

    Each of them is a nursery with what is started in it before the block, and how it stops after it.
    """
    # The rings are @asynccontextmanager functions that yield within their nurseries. That is sound for these, and only
    # for these: the decorator enters and leaves the function in the same task, around one block, and throws into it
    # what the block raises, cancellation included. A ring must not cancel itself before it yields: as a context manager
    # cannot skip its block, all that a stop may interrupt happens within a ring, or in a function of its own.
    stop, memories = operator.stop, dict[str, Memory]()
    async with _open_surroundings(operator), _open_activities(operator):
        client = await _log_in(operator)
        if client is None:
            return
        async with open_support(operator, client) as admission:  # stops last
            intake = Intake(operator, admission, task_status)
            while not stop.requested.is_set():
                async with (
                    open_workers(operator, client, admission, memories) as workers,  # stop third; companions second
                    intake.open() as nursery,  # stops first
                ):
                    await intake.watch(nursery, workers)  # until a stop or a pause
                memories = workers.manager.remember(memories)  # for the time after a pause
        if stop.failure is not None:
            raise stop.failure


@contextlib.asynccontextmanager
async def _open_surroundings(operator: Operator) -> AsyncIterator[None]:
    """Handle signals, and serve health, metrics and the live view, until everything else has ended."""
    plan, stop = operator.plan, operator.stop
    signals = handle_signals(stop, describe=operator.work.describe) if plan.handle_signals else contextlib.nullcontext()
    endpoints = Endpoints(plan, operator.health, operator.inspector, root=trio.lowlevel.current_task())
    with signals, operator.core.active():
        async with trio.open_nursery() as nursery:
            await nursery.start(Watchdog(plan.settings).serve, name="watchdog")
            await nursery.start(endpoints.serve, name="endpoints")
            if plan.stop_flag is not None:
                nursery.start_soon(stop.request_on, plan.stop_flag)
            with stop.everything:
                async with contextlib.aclosing(operator.session):
                    yield
            nursery.cancel_scope.cancel(reason="the operator has ended")


@contextlib.asynccontextmanager
async def _open_activities(operator: Operator) -> AsyncIterator[None]:
    """Call the startup handlers before the block, unless a stop is requested, and the cleanup handlers after it."""
    try:
        with operator.stop.starting():
            await operator.activities.run(Activity.STARTUP)
        yield
    finally:
        await _clean_up(operator)


async def _clean_up(operator: Operator) -> None:
    """Call the cleanup handlers within what is left of the grace.

    That begins now if no stop was requested: as after an error, or cancellation from outside.
    """
    stop, cleaning = operator.stop, operator.stop.cleaning
    cleaning.deadline = trio.current_time() + stop.remaining
    with cleaning:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(operator.work.report, name="report")
            await operator.activities.run(Activity.CLEANUP, deadline=cleaning.deadline)
            nursery.cancel_scope.cancel(reason="the operator has cleaned up")
    if cleaning.cancelled_caught and operator.plan.registry.activities(Activity.CLEANUP):
        why = "by the second signal" if stop.everything.cancel_called else "the grace period is over"
        _logger.warning("The cleanup handlers were cancelled: %s.", why)


async def _log_in(operator: Operator) -> ApiClient | None:
    """Return the connected client; None if a stop is requested first. Raises ConfigError, LoginError."""
    if operator.stop.requested.is_set():
        return None
    if operator.plan.registry.webhook_handlers():
        check_webhooks(operator.plan)
    client = None
    with operator.stop.starting():
        client = await operator.session.open()
    return None if operator.stop.requested.is_set() else client
