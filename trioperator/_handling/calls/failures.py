"""Failures of calls: which exception of a handler decides on its outcome, what that is, and what the log says."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import trio

from trioperator._handling.calls.asyncio_advice import asyncio_advice
from trioperator._handling.calls.interruption import InterruptedAttempt, Interruption
from trioperator._handling.guard import trim_error
from trioperator._handling.handlers.handler import Activity, ActivityHandler, Handler
from trioperator._handling.handlers.outcome import (
    Outcome,
    classify_error,
    describe,
    describe_delay,
    describe_with_type,
)
from trioperator._handling.reviews.admission import AdmissionHandler
from trioperator._model.exception_groups import iterate_leaves
from trioperator.errors import (
    HandlerRetriesError,
    HandlerTimeoutError,
    PermanentError,
    TemporaryError,
    UnfinishedSubhandlersError,
    UserCodeError,
)

if TYPE_CHECKING:
    from trioperator._logs import Logger

# Not failures of a handler: cancellation, and exceptions that end a coroutine or the process.
_PASS_THROUGH = (trio.Cancelled, GeneratorExit, KeyboardInterrupt, SystemExit)
# Errors in the code, which another attempt would meet again.
_PROGRAMMING_ERRORS = (AttributeError, ImportError, NameError, NotImplementedError, SyntaxError, TypeError)
_STRAY: Final = "trio.Cancelled was raised, although nothing cancels the handler: it belongs to another task or scope."


def is_interrupted(raised: BaseException, interruption: Interruption) -> bool:
    """Check whether a call was ended by its interruption, whatever the function made of its cancellation."""
    return isinstance(raised, InterruptedAttempt) or (interruption.cancelled_caught and isinstance(raised, Exception))


def report_interruption(handler: Handler, raised: BaseException, interruption: Interruption, logger: Logger) -> None:
    """Log that a call was interrupted, and what it raised meanwhile."""
    logger.info("%s is interrupted: %s.", handler, interruption.reason)
    if not isinstance(raised, InterruptedAttempt):
        logger.error("%s failed while it was cancelled: %s", handler, raised, exc_info=raised)


def split_cancellation(
    handler: Handler, raised: BaseException, logger: Logger
) -> BaseExceptionGroup[trio.Cancelled] | None:
    """Log the errors that a handler raised while it was cancelled, and return the cancellation without them."""
    if not isinstance(raised, BaseExceptionGroup):
        return None
    cancelled, others = raised.split(trio.Cancelled)
    if cancelled is None or others is None or others.subgroup(_PASS_THROUGH) is not None:
        return None
    logger.error("%s failed while it was cancelled: %s", handler, others, exc_info=others)
    return cancelled


def find_deciding_error(raised: BaseException) -> BaseException | None:
    """Return the error that decides on the outcome: of an exception group, the most specific one.

    Return None for cancellation and for exceptions that end the process. Cancellation of something else, such as that
    of a task whose result is shared, is an error: it would end the workers, silently.
    """
    raised = _without_strays(raised)
    if type(raised).__name__ == "CancelledError" and type(raised).__module__ == "asyncio.exceptions":
        return RuntimeError("Cancelled by asyncio.").with_traceback(raised.__traceback__)
    if not isinstance(raised, BaseExceptionGroup):
        return None if isinstance(raised, _PASS_THROUGH) else raised
    if raised.subgroup(_PASS_THROUGH) is not None:
        return None
    leaves = list(iterate_leaves(raised))
    waiting = [leaf for leaf in leaves if isinstance(leaf, UnfinishedSubhandlersError)]
    leaves = [leaf for leaf in leaves if leaf not in waiting]
    if not leaves:
        return min(waiting, key=lambda error: error.delay or 0.0)
    for kind in (PermanentError, TemporaryError):
        for leaf in leaves:
            if isinstance(leaf, kind):
                return leaf
    return leaves[0] if len(leaves) == 1 else raised


def _without_strays(raised: BaseException) -> BaseException:
    """Return what was raised without cancellation if nothing cancels the current task; if nothing is left, an error."""
    leaves = iterate_leaves(raised) if isinstance(raised, BaseExceptionGroup) else (raised,)
    if not any(isinstance(leaf, trio.Cancelled) for leaf in leaves) or trio.current_effective_deadline() == -math.inf:
        return raised
    others = raised.split(trio.Cancelled)[1] if isinstance(raised, BaseExceptionGroup) else None
    return RuntimeError(_STRAY).with_traceback(raised.__traceback__) if others is None else others


def classify_failure(handler: Handler, error: BaseException, *, retry: int, runtime: float, backoff: float) -> Outcome:
    """Return the outcome of an attempt. Activities that use asyncio fail at once: the operator would never start.

    So do startup handlers with errors of the programmer, unless they say otherwise by ``errors=``.
    """
    outcome = classify_error(handler, error, retry=retry, runtime=runtime, backoff=backoff)
    if outcome.final or not isinstance(handler, ActivityHandler):
        return outcome
    if handler.activity is Activity.STARTUP and handler.errors is None and isinstance(error, _PROGRAMMING_ERRORS):
        return Outcome(final=True, error=error)
    advice = asyncio_advice(error)
    if not advice:
        return outcome
    refused = PermanentError(f"It uses asyncio, and this operator runs on Trio: {advice}")
    refused.__cause__ = error
    return Outcome(final=True, error=refused)


def _is_denial(error: BaseException) -> bool:
    """Check whether an error of an admission handler is its verdict, rather than a failure."""
    is_failure = isinstance(error, HandlerTimeoutError | HandlerRetriesError)
    return isinstance(error, PermanentError | TemporaryError) and not is_failure


def _describe_next(outcome: Outcome, end: str | None) -> str:
    """Describe what happens after an attempt that was not final."""
    return f"will not try again, as {end}" if end else f"will try again {describe_delay(outcome.delay)}"


def report_failure(
    handler: Handler, error: BaseException, outcome: Outcome, logger: Logger, *, end: str | None = None
) -> None:
    """Log the error of an attempt, and what becomes of the handler. No other attempt follows if it is at its *end*."""
    if outcome.awaits_subhandlers:
        logger.debug("%s has unfinished sub-handlers, and will be called again when they are due.", handler)
        return
    if isinstance(handler, AdmissionHandler) and _is_denial(error):
        # A denial is the handler's purpose, and the client is told. Post no Event: the object may not even exist.
        logger.bind(k8s_skip=True).info("%s has denied the write: %s", handler, describe(error))
        return
    if isinstance(error, TemporaryError) and not outcome.final:
        logger.error("%s failed temporarily: %s (%s)", handler, describe(error), _describe_next(outcome, end))
        return
    if isinstance(error, PermanentError | TemporaryError):
        logger.error("%s failed permanently: %s", handler, describe(outcome.error or error))
        return
    if not outcome.final:
        fate = _describe_next(outcome, end)
    elif outcome.error is None:
        fate = "will ignore it"
    else:
        fate = "will stop now"
    shown = (error.__cause__ if isinstance(error, UserCodeError) else None) or error  # a filter of a sub-handler
    shown.__traceback__ = trim_error(shown)
    logger.error("%s failed with an exception and %s: %s", handler, fate, describe_with_type(error), exc_info=shown)
    advice = asyncio_advice(error)
    if advice:
        logger.error("%s uses asyncio, and this operator runs on Trio: %s", handler, advice)
