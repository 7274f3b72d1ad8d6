"""Reports of what has become of a call: in the log, as an Event of the object, and as a condition in its status."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import trio

from trioperator._handling.arguments.conditions import Conditions
from trioperator._handling.arguments.context import current_recorder
from trioperator._handling.arguments.reconciling import ReconcileCause, ReconcileHandler
from trioperator._handling.handlers.children import Desired
from trioperator._handling.handlers.outcome import Outcome, describe_delay, describe_with_type
from trioperator._model.patch import Patch
from trioperator._reconciling.failures import reason_of
from trioperator._reconciling.schedules import ChildKey, HandlerSchedule, Report
from trioperator.errors import TemporaryError, TrioperatorError
from trioperator.helpers import events

# Seconds for which the same error is not logged again: the first attempts follow each other closely.
_QUIET: Final = 5.0
# Limits of the message of a condition: characters, and children that it names.
_MAX_MESSAGE: Final = 2000
_MAX_NAMED: Final = 5


def log_failure(
    handler: ReconcileHandler, outcome: Outcome, *, schedule: HandlerSchedule, cause: ReconcileCause, end: str | None
) -> None:
    """Log that the children could not be made what a handler has returned; the same error not too often.

    No other call follows if the object is at its *end*.
    """
    error = outcome.error
    assert error is not None
    when = "when something changes" if outcome.final else describe_delay(outcome.delay)
    fate = f"will not try again, as {end}" if end else f"will try again {when}"
    log = cause.logger.error if is_news(schedule, error, outcome) else cause.logger.debug
    unexpected = not isinstance(error, TrioperatorError)
    log(
        "The children of %s are not as desired: %s (%s)",
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


def make_report(outcome: Outcome, schedule: HandlerSchedule) -> Report | None:
    """Return what has become of a call; None if it has said nothing of children."""
    desired = outcome.result
    if outcome.error is not None:
        outlook: Literal["failed", "retrying"] = "failed" if outcome.final else "retrying"
        return Report(outlook, reason_of(outcome.error), describe_with_type(outcome.error)[:_MAX_MESSAGE])
    if not isinstance(desired, Desired) or desired.keep:
        return None
    if schedule.children.missing:
        return Report("progressing", "Progressing", f"Not there yet: {_name_some(schedule.children.missing)}")
    if schedule.children.unready:
        return Report("progressing", "Applied", f"Not ready yet: {_name_some(schedule.children.unready)}")
    return Report("done", "Applied")


def _name_some(keys: Sequence[ChildKey]) -> str:
    more = len(keys) - _MAX_NAMED
    return f"{', '.join(map(str, keys[:_MAX_NAMED]))}{f' and {more} more' if more > 0 else ''}"


def set_condition(handler: ReconcileHandler, report: Report | None, *, cause: ReconcileCause, patch: Patch) -> None:
    """Set the condition of a handler that has one: whether its children are what it has returned."""
    if not handler.condition or report is None:
        return
    message = "" if report.is_applied else report.message
    reason = "Applied" if report.is_applied else report.reason
    Conditions(cause.body, patch).set(handler.condition, report.is_applied, reason=reason, message=message)
