"""Activities: the handlers that are called at the start, for logging in, at the end, and for probes."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from typing import Any

import msgspec
import trio

from trioperator._concurrency.clock import steady_now
from trioperator._handling.arguments.cause import ActivityCause
from trioperator._handling.calls.invoke import Attempt, Invoker
from trioperator._handling.handlers.handler import Activity, ActivityHandler
from trioperator._handling.handlers.outcome import Outcome, describe_with_type
from trioperator.errors import ActivityError
from trioperator.settings import OperatorSettings


async def run_activity(
    handlers: Sequence[ActivityHandler], cause: ActivityCause, invoker: Invoker, *, deadline: float = math.inf
) -> dict[str, Any]:
    """Call *handlers* one after another, each until it has ended, and return their results by handler id.

    A handler whose next attempt would be due after *deadline*, on Trio's clock, has failed. Raises ActivityError when
    any has failed; the others are still called.
    """
    results: dict[str, Any] = {}
    failures: dict[str, BaseException] = {}
    for handler in handlers:
        outcome = await _run_to_the_end(handler, cause, invoker, deadline=deadline)
        if outcome.error is not None:
            failures[handler.id] = outcome.error
        else:
            results[handler.id] = outcome.result
    if failures:
        described = "; ".join(f"{name}: {describe_with_type(error)}" for name, error in failures.items())
        raise ActivityError(f"The {cause.activity} handlers have failed: {described}", failures=failures)
    return results


async def _run_to_the_end(
    handler: ActivityHandler, cause: ActivityCause, invoker: Invoker, *, deadline: float
) -> Outcome:
    started: datetime.datetime = steady_now()
    retry = 0
    while True:
        attempt = Attempt(retry=retry, started=started)
        bounded = _limit_retries(handler, cause.settings)  # which the handler itself may have changed
        outcome = await invoker.invoke(bounded, cause.kwargs, attempt=attempt, logger=cause.logger)
        if outcome.final:
            return outcome
        left = deadline - trio.current_time()
        if outcome.delay >= left < math.inf:
            cause.logger.error(
                "%s is given up: it would be retried in %g seconds, and the operator ends in %.1f seconds.",
                handler,
                outcome.delay,
                left,
            )
            return outcome
        retry += 1
        await trio.sleep(outcome.delay)


def _limit_retries(handler: ActivityHandler, settings: OperatorSettings) -> ActivityHandler:
    """Return the handler with the default limit of attempts, if it has no limit of its own.

    A probe makes one attempt: its retry is the next probe.
    """
    if handler.retries is not None or handler.timeout is not None:
        return handler
    retries = 1 if handler.activity is Activity.PROBE else settings.execution.activity_retries
    return msgspec.structs.replace(handler, retries=retries)
