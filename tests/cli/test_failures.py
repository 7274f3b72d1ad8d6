"""Tests for :mod:`trioperator.cli.failures`."""

from __future__ import annotations

import logging

import pytest

from trioperator._logs import get_logger
from trioperator._model.resource import InvalidNameError
from trioperator._supervisor.signals import INTERRUPTED
from trioperator.cli.failures import FAILURE, USAGE_ERROR, report_failure
from trioperator.cli.loading import LoadingError
from trioperator.errors import ActivityError, ApiError, ConfigError, LoginError


@pytest.mark.parametrize(
    ("error", "code", "messages"),
    [
        (ConfigError("bad"), USAGE_ERROR, ["bad"]),
        (InvalidNameError("bad"), USAGE_ERROR, ["bad"]),
        (LoginError("bad"), FAILURE, ["bad"]),
        (ActivityError("bad"), FAILURE, ["bad"]),
        (ActivityError(), FAILURE, ["ActivityError"]),
        (ApiError.of("bad", status=403, reason="Forbidden"), FAILURE, ["HTTP 403 Forbidden: bad"]),
        (ExceptionGroup("g", [ConfigError("bad")]), USAGE_ERROR, ["bad"]),
        (ExceptionGroup("g", [ExceptionGroup("h", [ConfigError("a")]), ConfigError("b")]), USAGE_ERROR, ["a", "b"]),
        (ExceptionGroup("g", [ConfigError("a"), LoginError("b")]), FAILURE, ["a", "b"]),
    ],
)
def test_errors_of_the_framework_are_one_line_each(
    error: BaseException, code: int, messages: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert report_failure(error, get_logger("x")) == code
    assert caplog.messages == messages
    assert all(record.levelno == logging.ERROR and not record.exc_info for record in caplog.records)


@pytest.mark.parametrize("error", [ValueError("bad"), ExceptionGroup("g", [ConfigError("a"), ValueError("bad")])])
def test_unexpected_errors_have_a_traceback(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    assert report_failure(error, get_logger("x")) == FAILURE
    [record] = caplog.records
    assert record.levelno == logging.CRITICAL
    assert record.exc_info
    assert record.exc_info[1] is error


def test_errors_in_user_code_have_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    cause = ValueError("bad")
    error = LoadingError("cannot load")
    error.__cause__ = cause
    assert report_failure(error, get_logger("x")) == USAGE_ERROR
    [record] = caplog.records
    assert record.getMessage() == "cannot load"
    assert record.exc_info
    assert record.exc_info[1] is cause


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BaseExceptionGroup("g", [ValueError(), KeyboardInterrupt()])])
def test_an_interrupt_has_its_own_exit_code(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    assert report_failure(error, get_logger("x")) == INTERRUPTED
    assert not caplog.records[0].exc_info


@pytest.mark.parametrize("error", [SystemExit(3), BaseExceptionGroup("g", [SystemExit(3), SystemExit(4)])])
def test_the_exit_code_of_a_handler_that_ends_the_process_is_kept(error: BaseException) -> None:
    with pytest.raises(SystemExit) as caught:
        report_failure(error, get_logger("x"))
    assert caught.value.code == 3
