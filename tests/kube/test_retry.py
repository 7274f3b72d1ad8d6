"""Which failed requests are retried, and when."""

from __future__ import annotations

import pytest

from trioperator.errors import ApiError, ConnectionLostError, ServerError, TooManyRequestsError
from trioperator.kube.retry import adjust_delay, is_retryable, iterate_backoffs
from trioperator.kube.transport import TransportError

LOST = TransportError("x", reached=True)
NOT_REACHED = TransportError("x", reached=False)
UNTRUSTED = TransportError("x", reached=False, final=True)
SERVER_ERROR = ApiError.of("x", status=500)
TOO_MANY = ApiError.of("x", status=429, retry_after=7)


@pytest.mark.parametrize("method", ["GET", "PATCH", "PUT", "DELETE"])
@pytest.mark.parametrize("error", [LOST, NOT_REACHED, SERVER_ERROR, TOO_MANY, ConnectionLostError("x")])
def test_idempotent_methods_are_retried_after_any_temporary_error(method: str, error: Exception) -> None:
    assert is_retryable(method, error)


@pytest.mark.parametrize(
    ("error", "retryable"),
    [(LOST, False), (ConnectionLostError("x"), False), (SERVER_ERROR, False), (NOT_REACHED, True), (TOO_MANY, True)],
)
def test_a_post_is_retried_only_if_the_server_has_not_processed_it(error: Exception, retryable: bool) -> None:
    assert is_retryable("POST", error) == retryable


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_final_error_is_not_retried(method: str) -> None:
    assert not is_retryable(method, UNTRUSTED)


def test_errors_are_of_the_expected_classes() -> None:
    assert isinstance(SERVER_ERROR, ServerError)
    assert isinstance(TOO_MANY, TooManyRequestsError)


@pytest.mark.parametrize(
    ("delay", "error", "enforce", "adjusted"),
    [
        (1, TOO_MANY, False, 7),
        (9, TOO_MANY, False, 9),
        (9, TOO_MANY, True, 7),
        (9, SERVER_ERROR, True, 9),
        (9, LOST, True, 9),
    ],
)
def test_retry_after_is_a_lower_bound_or_if_enforced_the_delay(
    delay: float, error: Exception, enforce: bool, adjusted: float
) -> None:
    assert adjust_delay(delay, error, enforce=enforce) == adjusted


def test_backoffs_are_a_number_or_something_to_iterate_over() -> None:
    assert list(iterate_backoffs((1, 2.5))) == [1, 2.5]
    assert list(iterate_backoffs(3)) == [3]
    assert list(iterate_backoffs(None)) == []
    assert list(iterate_backoffs(())) == []
