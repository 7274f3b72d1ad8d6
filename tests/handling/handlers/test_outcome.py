"""Outcomes of attempts: errors, retries and limits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.handling.factory import event_handler, handler
from trioperator._handling.handlers.handler import ErrorsMode
from trioperator._handling.handlers.outcome import (
    Outcome,
    check_limits,
    classify_error,
    describe_delay,
    describe_with_type,
)
from trioperator.errors import HandlerRetriesError, HandlerTimeoutError, PermanentError, TemporaryError


def decide(error: Exception, *, retry: int = 0, runtime: float = 0.0, backoff: float = 60.0, **options: Any) -> Outcome:
    return classify_error(handler(**options), error, retry=retry, runtime=runtime, backoff=backoff)


# ------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize("delay", [0, 1, 10.5, 60])
def test_a_temporary_error_is_retried_after_its_delay(delay: float) -> None:
    error = TemporaryError("x", delay=delay)
    assert decide(error, backoff=5) == Outcome(final=False, error=error, delay=delay)


def test_a_temporary_error_needs_no_message_and_no_delay() -> None:
    assert decide(TemporaryError()).delay == 60
    assert decide(TemporaryError(delay=None)).delay == 0
    assert decide(TemporaryError(delay=5)).delay == 5


@pytest.mark.parametrize("mode", [None, *ErrorsMode])
def test_temporary_and_permanent_errors_ignore_the_errors_mode(mode: ErrorsMode | None) -> None:
    permanent = PermanentError("x")
    assert decide(permanent, errors=mode) == Outcome(final=True, error=permanent)
    assert not decide(TemporaryError("x"), errors=mode).final


@pytest.mark.parametrize("error", [ValueError("x"), HandlerRetriesError("x"), HandlerTimeoutError("x")])
def test_a_permanent_error_fails_the_handler(error: Exception) -> None:
    outcome = decide(error, errors=ErrorsMode.PERMANENT)
    assert outcome == Outcome(final=True, error=error)
    assert not outcome.succeeded


def test_an_ignored_error_is_a_success_without_a_result() -> None:
    outcome = decide(ValueError("x"), errors=ErrorsMode.IGNORED)
    assert outcome == Outcome(final=True)
    assert outcome.succeeded


def test_an_arbitrary_error_is_temporary_by_default() -> None:
    error = ValueError("x")
    assert decide(error, backoff=7) == Outcome(final=False, error=error, delay=7)
    assert decide(error, backoff=7, errors=ErrorsMode.TEMPORARY) == Outcome(final=False, error=error, delay=7)


def test_arbitrary_errors_of_event_handlers_are_ignored() -> None:
    assert classify_error(event_handler(), ValueError("x"), retry=0, runtime=0, backoff=1).succeeded


@pytest.mark.parametrize("own", [0, 1, 30])
def test_the_backoff_of_the_handler_overrides_the_default(own: float) -> None:
    assert classify_error(handler(backoff=own), ValueError("x"), retry=0, runtime=0, backoff=60).delay == own
    assert classify_error(handler(backoff=own), TemporaryError("x", delay=3), retry=0, runtime=0, backoff=60).delay == 3


# ------------------------------------------------------------------------------------------------ limits


def test_the_last_retry_fails_at_once() -> None:
    error = ValueError("the reason")
    assert not decide(error, retries=3, retry=1).final
    outcome = decide(error, retries=3, retry=2)
    assert outcome.final
    assert isinstance(outcome.error, HandlerRetriesError)
    assert outcome.error.__cause__ is error
    assert "3 retries" in str(outcome.error)
    assert "the reason" in str(outcome.error)


def test_a_retry_that_would_come_too_late_fails_at_once() -> None:
    error = TemporaryError("the reason", delay=10)
    assert not decide(error, timeout=100, runtime=89.9).final
    outcome = decide(error, timeout=100, runtime=90)
    assert outcome.final
    assert isinstance(outcome.error, HandlerTimeoutError)
    assert outcome.error.__cause__ is error
    assert "90 seconds" in str(outcome.error)
    assert "the reason" in str(outcome.error)


def test_limits_do_not_affect_ignored_and_permanent_errors() -> None:
    assert decide(ValueError("x"), errors=ErrorsMode.IGNORED, retries=1, timeout=0).succeeded
    permanent = PermanentError("x")
    assert decide(permanent, retries=1, timeout=0).error is permanent


@pytest.mark.parametrize(
    ("options", "retry", "runtime", "expected"),
    [
        ({}, 10**6, 10.0**9, None),
        ({"timeout": 10}, 0, 9.9, None),
        ({"timeout": 10}, 0, 10.0, HandlerTimeoutError),
        ({"timeout": 0}, 0, 0.0, HandlerTimeoutError),
        ({"retries": 3}, 2, 0.0, None),
        ({"retries": 3}, 3, 0.0, HandlerRetriesError),
        ({"retries": 0}, 0, 0.0, HandlerRetriesError),
        ({"timeout": 10, "retries": 3}, 3, 10.0, HandlerTimeoutError),
    ],
)
def test_an_attempt_beyond_the_limits_fails(
    options: Any, retry: int, runtime: float, expected: type[Exception] | None
) -> None:
    outcome = check_limits(handler(**options), retry=retry, runtime=runtime)
    if expected is None:
        assert outcome is None
    else:
        assert outcome is not None
        assert outcome.final
        assert type(outcome.error) is expected


_SECONDS = st.floats(0, 1000)
_LIMITS = st.fixed_dictionaries({"timeout": st.none() | _SECONDS, "retries": st.none() | st.integers(0, 9)})
_ERRORS = st.builds(lambda delay: TemporaryError("x", delay=delay), st.none() | _SECONDS) | st.just(ValueError("x"))


@given(_LIMITS, _ERRORS, st.integers(0, 9), _SECONDS, _SECONDS)
def test_a_retry_is_within_the_limits_when_it_is_due(
    limits: Any, error: Exception, retry: int, runtime: float, backoff: float
) -> None:
    limited = handler(**limits)
    outcome = classify_error(limited, error, retry=retry, runtime=runtime, backoff=backoff)
    if not outcome.final:
        assert check_limits(limited, retry=retry + 1, runtime=runtime + outcome.delay) is None
        assert outcome.error is error
    else:
        assert isinstance(outcome.error, HandlerTimeoutError | HandlerRetriesError)
        assert check_limits(limited, retry=retry + 1, runtime=runtime + (getattr(error, "delay", backoff) or 0))


def test_only_a_final_outcome_without_an_error_is_a_success() -> None:
    assert Outcome(final=True, result=1).succeeded
    assert not Outcome(final=True, error=ValueError()).succeeded
    assert not Outcome(final=False, error=ValueError()).succeeded
    assert not Outcome(final=False).succeeded


# ------------------------------------------------------------------------------------------ descriptions


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("bad"), "ValueError: bad"),
        (KeyError("size"), "KeyError: 'size'"),
        (ValueError(), "ValueError()"),
        (ExceptionGroup("two", [ValueError(), KeyError()]), "ExceptionGroup: two (2 sub-exceptions)"),
        (TemporaryError("not yet"), "not yet"),
        (PermanentError("never"), "never"),
    ],
)
def test_an_arbitrary_error_is_described_with_its_type(error: Exception, expected: str) -> None:
    assert describe_with_type(error) == expected


def test_the_last_error_of_exceeded_limits_has_its_type() -> None:
    outcome = decide(KeyError("size"), retries=1)
    assert str(outcome.error) == "Handler 'fn' has exceeded 1 retries. The last error: KeyError: 'size'"


@pytest.mark.parametrize(("seconds", "expected"), [(2.5, "in 2.5 seconds"), (0, "at once"), (-1, "at once")])
def test_a_delay_is_described(seconds: float, expected: str) -> None:
    assert describe_delay(seconds) == expected
