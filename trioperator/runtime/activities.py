"""Activities: the handlers that are called at the start, at the end, and for probes."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import trio

from trioperator.clock import wall_now
from trioperator.errors import ActivityError
from trioperator.handling.cause import ActivityCause
from trioperator.handling.handler import ActivityHandler
from trioperator.handling.invoke import Attempt, Invoker
from trioperator.handling.outcome import Outcome, describe

__all__ = ["run_activity"]


async def run_activity(handlers: Sequence[ActivityHandler], cause: ActivityCause, invoker: Invoker) -> dict[str, Any]:
    """Call *handlers* one after another, each until it has ended, and give their results by handler id.

    Raises ActivityError when any has failed for good; the others are still called.
    """
    results: dict[str, Any] = {}
    failures: dict[str, BaseException] = {}
    for handler in handlers:
        outcome = await _run_to_the_end(handler, cause, invoker)
        if outcome.error is not None:
            failures[handler.id] = outcome.error
        else:
            results[handler.id] = outcome.result
    if failures:
        described = "; ".join(f"{name}: {describe(error)}" for name, error in failures.items())
        raise ActivityError(f"The {cause.activity} handlers have failed: {described}", failures=failures)
    return results


async def _run_to_the_end(handler: ActivityHandler, cause: ActivityCause, invoker: Invoker) -> Outcome:
    started: datetime.datetime = wall_now()
    retry = 0
    while True:
        attempt = Attempt(retry=retry, started=started)
        outcome = await invoker.invoke(handler, cause.kwargs, attempt=attempt, logger=cause.logger)
        if outcome.final:
            return outcome
        retry += 1
        await trio.sleep(outcome.delay)
