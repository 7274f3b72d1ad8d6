"""Errors of reconciles: their backoff, and what is logged of them."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from tests.runtime.objects import cached
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.reconciler.error_backoff import ErrorBackoff
from trioperator._runtime.result import DONE, RequeueAt
from trioperator.errors import ApiError, ConfigError, PausedError, UserCodeError
from trioperator.settings import OperatorSettings


@pytest.fixture
def state() -> ObjectState:
    return cached()[2]


def make(*delays: float) -> ErrorBackoff:
    settings = OperatorSettings().queueing
    settings.error_delays = delays
    return ErrorBackoff(settings)


async def test_errors_in_a_row_have_the_delays_of_the_settings_and_the_last_one_is_repeated(
    state: ObjectState, autojump_clock: MockClock
) -> None:
    errors, now = make(1, 5), trio.current_time()
    results = [errors.back_off(state, ValueError("v")) for _ in range(3)]
    assert results == [RequeueAt(now + delay) for delay in (1, 5, 5)]
    assert errors.count(state) == 3
    errors.forget(state)
    assert errors.count(state) == 0
    assert errors.back_off(state, ValueError("v")) == RequeueAt(now + 1)


async def test_without_delays_an_object_waits_for_its_next_change(
    state: ObjectState, caplog: pytest.LogCaptureFixture
) -> None:
    assert make().back_off(state, ValueError("v")) is DONE
    assert "It is handled again when it changes." in caplog.text


@pytest.mark.parametrize(("changed", "expected"), [(10, 11), (49.5, 50)])
async def test_a_change_during_a_backoff_waits_as_after_a_first_error_and_counts_errors_from_zero(
    changed: float, expected: float, state: ObjectState, autojump_clock: MockClock
) -> None:
    errors, began = make(1, 50), trio.current_time()
    errors.back_off(state, ValueError("v"))
    errors.back_off(state, ValueError("v"))
    await trio.sleep(changed)
    assert errors.find_wait(state) == RequeueAt(began + expected)
    assert errors.find_wait(state) is None
    assert errors.back_off(state, ValueError("v")) == RequeueAt(trio.current_time() + 1)


async def test_an_object_whose_backoff_is_over_does_not_wait(state: ObjectState, autojump_clock: MockClock) -> None:
    errors = make(1)
    errors.back_off(state, ValueError("v"))
    await trio.sleep(1)
    assert errors.find_wait(state) is None
    assert errors.count(state) == 1


@pytest.mark.parametrize(
    ("error", "level", "text"),
    [
        (ConfigError("wrong"), "ERROR", "The object could not be handled: wrong. It is tried again in 1 seconds."),
        (ValueError("v"), "ERROR", "The object could not be handled. It is tried again in 1 seconds."),
        (UserCodeError("A filter", ValueError("v")), "ERROR", "The object could not be handled: A filter has failed: "),
        (PausedError("others"), "DEBUG", "The object is left as it is: others"),
        (ApiError.of("w", status=404, reason="NotFound"), "DEBUG", "The object is not found, and is gone as a rule: "),
    ],
)
async def test_an_error_is_logged_as_what_it_is(
    state: ObjectState, error: Exception, level: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    make(1).back_off(state, error)
    (record,) = caplog.records
    assert record.levelname == level
    assert text in record.getMessage()


async def test_an_object_that_only_lacks_its_record_is_said_to_be_handled(
    state: ObjectState, caplog: pytest.LogCaptureFixture
) -> None:
    error = ApiError.of("annotations: Too long", status=422, reason="Invalid")
    assert isinstance(make(1).back_off(state, error, is_handled=True), RequeueAt)
    assert caplog.messages == [
        "The object is handled, but that could not be recorded on it: HTTP 422 Invalid: annotations: Too long."
        " It is tried again in 1 seconds."
    ]


async def test_an_object_that_is_not_found_twice_in_a_row_is_an_error(
    state: ObjectState, caplog: pytest.LogCaptureFixture
) -> None:
    errors, error = make(1), ApiError.of("w", status=404, reason="NotFound")
    for _ in range(2):
        errors.back_off(state, error)
    assert [record.levelname for record in caplog.records if record.levelname == "ERROR"] == ["ERROR"]
