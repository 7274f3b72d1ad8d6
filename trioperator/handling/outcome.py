"""Outcomes: how one attempt of a handler has ended, and what follows from that. Pure."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from trioperator.errors import (
    ConfigError,
    HandlerRetriesError,
    HandlerTimeoutError,
    PermanentError,
    TemporaryError,
    UnfinishedSubhandlersError,
)
from trioperator.handling.handler import ErrorsMode, Handler

__all__ = ["Outcome", "check_limits", "classify_error", "describe"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Tell how an attempt has ended.

    ``final`` says that there will be no other attempt; else the next one is due in ``delay`` seconds.
    A final outcome with an error is a failure; an ignored error is a success without a result. An attempt that only
    ``waits`` for sub-handlers does not count as one, nor does one that was ``interrupted``.
    """

    final: bool
    result: Any = None
    error: BaseException | None = None
    delay: float = 0.0
    awaits_subhandlers: bool = False
    interrupted: bool = False

    @property
    def succeeded(self) -> bool:
        """Tell whether the handler has ended well."""
        return self.final and self.error is None


def check_limits(handler: Handler, *, retry: int, runtime: float) -> Outcome | None:
    """Refuse an attempt for which there is no time or no retry left.

    *retry* counts the attempts made; *runtime* is in seconds since the first one began.
    """
    if handler.timeout is not None and runtime >= handler.timeout:
        return Outcome(final=True, error=_timed_out(handler, runtime))
    if handler.retries is not None and retry >= handler.retries:
        return Outcome(final=True, error=_retried_out(handler, retry))
    return None


def classify_error(handler: Handler, error: BaseException, *, retry: int, runtime: float, backoff: float) -> Outcome:
    """Decide what an exception of the handler means.

    *retry* counts the attempts before this one; *runtime* is in seconds since the first one began; *backoff* is the
    default delay after an arbitrary exception. An attempt that could not be made any more when it is due fails the
    handler now (as in Kopf since 1.40).
    """
    mode = handler.errors or handler.default_errors
    if isinstance(error, PermanentError | ConfigError):  # a wrong setting stays wrong
        return Outcome(final=True, error=error)
    if isinstance(error, UnfinishedSubhandlersError):
        return Outcome(final=False, delay=error.delay or 0.0, awaits_subhandlers=True)
    if isinstance(error, TemporaryError):
        delay = error.delay or 0.0
    elif mode is ErrorsMode.IGNORED:
        return Outcome(final=True)
    elif mode is ErrorsMode.PERMANENT:
        return Outcome(final=True, error=error)
    else:
        delay = backoff if handler.backoff is None else handler.backoff
    if handler.timeout is not None and runtime + delay >= handler.timeout:
        return Outcome(final=True, error=_timed_out(handler, runtime, cause=error))
    if handler.retries is not None and retry + 1 >= handler.retries:
        return Outcome(final=True, error=_retried_out(handler, retry + 1, cause=error))
    return Outcome(final=False, error=error, delay=delay)


def _timed_out(handler: Handler, runtime: float, cause: BaseException | None = None) -> HandlerTimeoutError:
    error = HandlerTimeoutError(f"{handler} has timed out after {runtime:g} seconds.{_last_error(cause)}")
    error.__cause__ = cause
    return error


def _retried_out(handler: Handler, retries: int, cause: BaseException | None = None) -> HandlerRetriesError:
    error = HandlerRetriesError(f"{handler} has exceeded {retries} retries.{_last_error(cause)}")
    error.__cause__ = cause
    return error


def _last_error(cause: BaseException | None) -> str:
    return "" if cause is None else f" The last error: {describe(cause)}"


def describe(error: BaseException) -> str:
    """Tell what an exception says: its text, else its representation, else its class. Gives what can be stored."""
    text = ""
    for tell in (str, repr):
        with contextlib.suppress(Exception):  # somebody's __str__ and __repr__
            text = text or tell(error)
    return (text or type(error).__name__).encode("utf-8", "backslashreplace").decode()
