"""Reports of what has become of a call: in the log, as an Event of the object, and as a condition in its status."""

from __future__ import annotations

from typing import Final

import trio

from trioperator._handling.arguments.conditions import Conditions
from trioperator._handling.arguments.context import current_recorder
from trioperator._handling.arguments.reconciling import ReconcileCause, ReconcileHandler
from trioperator._handling.handlers.children import Desired
from trioperator._handling.handlers.outcome import Outcome, describe_delay, describe_with_type
from trioperator._model.patch import Patch
from trioperator._reconciling.failures import reason_of
from trioperator._reconciling.schedules import HandlerSchedule
from trioperator.errors import TemporaryError, TrioperatorError
from trioperator.helpers import events

# Seconds for which the same error is not logged again: the first attempts follow each other closely.
_QUIET: Final = 5.0
# Characters of the message of a condition, and children that it names.
_MAX_MESSAGE: Final = 2000
_MAX_NAMED: Final = 5


def log_failure(
    handler: ReconcileHandler, outcome: Outcome, *, schedule: HandlerSchedule, cause: ReconcileCause
) -> None:
    """Log that the children could not be made what a handler has returned; the same error not too often."""
    error = outcome.error
    assert error is not None
    fate = "when something changes" if outcome.final else describe_delay(outcome.delay)
    log = cause.logger.error if is_news(schedule, error, outcome) else cause.logger.debug
    unexpected = not isinstance(error, TrioperatorError)
    log(
        "The children of %s are not as desired: %s (will try again %s)",
        handler,
        describe_with_type(error),
        fate,
        exc_info=error if unexpected else None,
    )


def is_news(schedule: HandlerSchedule, error: BaseException, outcome: Outcome) -> bool:
    """Check whether an error is to be logged: it is another one than before, or that was a while ago; note that."""
    text, now = describe_with_type(error), trio.current_time()
    before, since = schedule.logged
    if text == before and now - since < _QUIET and not outcome.final:
        return False
    schedule.logged = text, now
    return True


def post_failure(cause: ReconcileCause, error: BaseException) -> None:
    """Post an Event of the object about an error, unless a handler has asked to be called again."""
    if not isinstance(error, TemporaryError) and current_recorder.get(None) is not None:
        events.warn(cause.raw, reason=reason_of(error), message=describe_with_type(error))


def set_condition(
    handler: ReconcileHandler, outcome: Outcome, *, schedule: HandlerSchedule, cause: ReconcileCause, patch: Patch
) -> None:
    """Set the condition of a handler that has one: whether its children are what it has returned."""
    desired = outcome.result
    if not handler.condition or (outcome.error is None and (not isinstance(desired, Desired) or desired.keep)):
        return
    conditions = Conditions(cause.body, patch)
    if outcome.error is not None:
        message = describe_with_type(outcome.error)[:_MAX_MESSAGE]
        conditions.set(handler.condition, False, reason=reason_of(outcome.error), message=message)
    elif schedule.missing:
        more = len(schedule.missing) - _MAX_NAMED
        named = ", ".join(map(str, schedule.missing[:_MAX_NAMED]))
        message = f"Not there yet: {named}{f' and {more} more' if more > 0 else ''}"
        conditions.set(handler.condition, False, reason="Progressing", message=message)
    else:
        conditions.set(handler.condition, True, reason="Applied")
