"""Outcomes of handler attempts: success, failure or a retry after a delay. Pure."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from trioperator._handling.handlers.handler import ErrorsMode, Handler
from trioperator.errors import (
    ConfigError,
    HandlerRetriesError,
    HandlerTimeoutError,
    PermanentError,
    TemporaryError,
    TrioperatorError,
    UnfinishedSubhandlersError,
)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of one attempt of a handler.

    After a ``final`` outcome there is no further attempt; otherwise the next one is due in ``delay`` seconds.
    A final outcome with an error is a failure. An ignored error is a success without a result. Attempts that await
    sub-handlers or were ``interrupted`` do not count as retries.
    """

    final: bool
    result: Any = None
    error: BaseException | None = None
    delay: float = 0.0
    awaits_subhandlers: bool = False
    interrupted: bool = False

    @property
    def succeeded(self) -> bool:
        """Whether the handler has succeeded."""
        return self.final and self.error is None


def name_outcome(outcome: Outcome | None) -> str:
    """Return the result of a call in one word, for statistics and records; without an outcome, it was cancelled."""
    if outcome is None:
        return "cancelled"
    if outcome.final and outcome.error is None:
        return "succeeded"
    if outcome.interrupted:
        return "interrupted"
    if outcome.awaits_subhandlers:
        return "unfinished"
    return "failed" if outcome.final else "retried"


def check_limits(handler: Handler, *, retry: int, runtime: float) -> Outcome | None:
    """Return the failure of a handler whose time or retries are used up, None if another attempt may be made.

    *retry* counts the attempts made; *runtime* is in seconds since the first one began.
    """
    if handler.timeout is not None and runtime >= handler.timeout:
        return Outcome(final=True, error=_timed_out(handler, runtime))
    if handler.retries is not None and retry >= handler.retries:
        return Outcome(final=True, error=_retried_out(handler, retry))
    return None


def classify_error(handler: Handler, error: BaseException, *, retry: int, runtime: float, backoff: float) -> Outcome:
    """Return the outcome of an attempt that raised *error*.

    *retry* counts the attempts before this one; *runtime* is in seconds since the first one began; *backoff* is the
    default delay after an arbitrary exception. The handler fails now if its time or retries will be used up when the
    next attempt is due (as in Kopf since 1.40).
    """
    mode = handler.errors or handler.default_errors
    if isinstance(error, PermanentError | ConfigError):  # a configuration error does not go away by itself
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
    return "" if cause is None else f" The last error: {describe_with_type(cause)}"


def describe(error: BaseException) -> str:
    """Return the message of an exception, else its repr, else the name of its class; always valid UTF-8."""
    text = ""
    for convert in (str, repr):
        with contextlib.suppress(Exception):  # users' __str__ and __repr__ may raise
            text = text or convert(error)
    return (text or type(error).__name__).encode("utf-8", "backslashreplace").decode()


def describe_with_type(error: BaseException) -> str:
    """Return the class and the message of an exception, such as ``KeyError: 'size'``.

    The framework's own errors, those that handlers raise among them, speak for themselves: return their message only.
    """
    text, name = describe(error), type(error).__name__
    return text if isinstance(error, TrioperatorError) or text.startswith(name) else f"{name}: {text}"


def describe_delay(seconds: float) -> str:
    """Return when a handler is tried again, for its log."""
    return f"in {seconds:g} seconds" if seconds > 0 else "at once"
