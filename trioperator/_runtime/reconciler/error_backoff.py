"""Errors of reconciles: how they are logged, and how long their objects wait for the next attempt."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import trio

from trioperator._handling.handlers.outcome import describe
from trioperator._kube.error_response import describe_failure
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.result import DONE, RequeueAt, Result
from trioperator.errors import NotFoundError, PausedError, TrioperatorError, UserCodeError
from trioperator.settings import QueueingSettings


class LastError(NamedTuple):
    """The error after which something is tried again: of a handler, or None; in which *retry*; what it is.

    Neither the error itself nor its frames are kept.
    """

    handler: str | None
    retry: int
    error: str
    message: str


class _Failed(NamedTuple):
    number: int
    not_before: float
    error: str
    message: str


class ErrorBackoff:
    """Errors in a row of the reconciles of each object, with the delays of the settings.

    ``failures`` are how many there were, when to try again, and the last one. Most objects have none: that is known at
    a glance.
    """

    def __init__(self, settings: QueueingSettings) -> None:
        self._settings = settings
        self.failures: dict[ObjectState, _Failed] = {}

    def count(self, state: ObjectState) -> int:
        """Return how many reconciles of an object have failed in a row."""
        return self.failures[state].number if state in self.failures else 0

    def find_last(self, state: ObjectState) -> LastError | None:
        """Return the error after which an object is reconciled again; None if there is none."""
        if state not in self.failures:
            return None
        failed = self.failures[state]
        return LastError(None, failed.number - 1, failed.error, failed.message)

    def back_off(self, state: ObjectState, error: Exception, *, is_handled: bool = False) -> Result:
        """Report an error, and return when the object is to be reconciled again.

        With *is_handled*, all that is missing is the record that the object is handled.
        """
        failures = self.count(state) + 1
        delays = list(itertools.islice(self._settings.error_delays, failures))
        not_before = trio.current_time() + delays[-1] if delays else 0.0
        self.failures[state] = _Failed(failures, not_before, type(error).__name__, describe(error))
        fate = f"It is tried again in {delays[-1]:g} seconds." if delays else "It is handled again when it changes."
        if is_handled:
            text = "The object is handled, but that could not be recorded on it: %s. %s"
            state.make_logger().error(text, describe_failure(error), fate)
        else:
            _report(state, error, fate, is_first=failures == 1)
        return RequeueAt(not_before) if delays else DONE

    def find_wait(self, state: ObjectState) -> RequeueAt | None:
        """Return until when an object waits that is reconciled before that time, as it has changed.

        It still waits, as the error may be the server's, but no longer than after a first error: the change may be what
        helps, or a deletion. Errors after it are counted from zero.
        """
        now = trio.current_time()
        if state not in self.failures or self.failures[state].not_before <= now:
            return None
        return RequeueAt(min(self.failures.pop(state).not_before, now + next(iter(self._settings.error_delays))))

    def forget(self, state: ObjectState) -> None:
        """Forget the errors of an object: a reconcile has ended without one, or is to be tried now."""
        self.failures.pop(state, None)


def _report(state: ObjectState, error: Exception, fate: str, *, is_first: bool) -> None:
    logger = state.make_logger()
    if isinstance(error, PausedError):
        # As a rule, the operator is draining now. But the lease may also have been renewed at the last moment.
        logger.debug("The object is left as it is: %s", error)
    elif isinstance(error, NotFoundError) and is_first:
        # If it is gone, the watch will tell: servers also respond so for kinds that they do not serve at the moment.
        logger.debug("The object is not found, and is gone as a rule: %s. %s", error, fate)
    elif isinstance(error, TrioperatorError):
        cause = error.__cause__ if isinstance(error, UserCodeError) else None
        logger.error("The object could not be handled: %s. %s", describe_failure(error), fate, exc_info=cause)
    else:
        logger.error("The object could not be handled. %s", fate, exc_info=error)
