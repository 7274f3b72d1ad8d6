"""Failures of calls: which error decides on the outcome, and what is logged of it."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import trio

from tests.handling.factory import event_handler, handler, invoke, raising
from trioperator._handling.calls.failures import find_deciding_error, split_cancellation
from trioperator._handling.handlers.handler import ErrorsMode
from trioperator._handling.handlers.outcome import Outcome
from trioperator._logs import get_logger
from trioperator.errors import PermanentError, TemporaryError, UnfinishedSubhandlersError


@pytest.mark.parametrize(
    ("errors", "decisive"),
    [
        ([ValueError("v")], 0),
        ([ValueError("v"), TemporaryError("t", delay=1)], 1),
        ([TemporaryError("t", delay=1), PermanentError("p")], 1),
        ([ValueError("v"), ExceptionGroup("inner", [KeyError("k"), PermanentError("p")])], (1, 1)),
        ([ExceptionGroup("inner", [ValueError("v")])], (0, 0)),
    ],
)
async def test_the_deciding_error_of_a_group_is_used(errors: list[Exception], decisive: Any) -> None:
    expected: Any = errors[decisive] if isinstance(decisive, int) else errors[decisive[0]]
    if isinstance(decisive, tuple):
        expected = expected.exceptions[decisive[1]]
    assert (await invoke(raising(ExceptionGroup("outer", errors), sync=False))).error is expected


async def test_a_group_of_arbitrary_errors_stays_together() -> None:
    group = ExceptionGroup("outer", [ValueError("v"), KeyError("k")])
    assert (await invoke(raising(group, sync=False))).error is group


async def test_an_error_in_a_handlers_nursery_is_an_error_of_the_handler() -> None:
    async def child() -> None:
        raise TemporaryError("from a child", delay=3)

    async def fn() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)
            nursery.start_soon(trio.sleep_forever)

    outcome = await invoke(fn)
    assert (str(outcome.error), outcome.delay) == ("from a child", 3)


async def test_the_consequence_of_an_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("oops")
    await invoke(raising(error, sync=False), errors=ErrorsMode.PERMANENT)
    await invoke(raising(error, sync=False), errors=ErrorsMode.IGNORED)
    await invoke(event_handler(raising(error, sync=False)))
    await invoke(raising(error, sync=False), backoff=2.5)
    await invoke(raising(error, sync=False), retries=1)
    fates = [record.getMessage().split(" and ")[1].split(":")[0] for record in caplog.records]
    assert fates == [
        "will stop now",
        "will ignore it",
        "will ignore it",
        "will try again in 2.5 seconds",
        "will stop now",
    ]


def test_subhandlers_that_are_due_first_decide_where_nothing_else_is_wrong() -> None:
    later, sooner = (UnfinishedSubhandlersError("unfinished", delay=delay) for delay in (5, 1))
    assert find_deciding_error(ExceptionGroup("g", [later, sooner])) is sooner
    assert find_deciding_error(ExceptionGroup("g", [sooner, wrong := ValueError("v")])) is wrong


def test_nothing_decides_on_what_ends_the_process() -> None:
    assert find_deciding_error(KeyboardInterrupt()) is None
    assert find_deciding_error(BaseExceptionGroup("g", [ValueError("v"), SystemExit(1)])) is None


async def catch_a_cancellation() -> trio.Cancelled:
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as cancelled:
            return cancelled
    raise AssertionError


async def invoke_uncancelled(raised: BaseException) -> Outcome:
    """Call a handler that raises this. A cancellation that goes on would end the test, as if it had passed."""
    try:
        return await invoke(raising(raised, sync=False))
    except (trio.Cancelled, BaseExceptionGroup) as error:
        raise AssertionError("it ends the caller") from error


async def test_a_cancellation_of_something_else_is_an_error_of_the_handler() -> None:
    cancelled = await catch_a_cancellation()
    for raised in (cancelled, BaseExceptionGroup("g", [cancelled])):
        outcome = await invoke_uncancelled(raised)
        assert not outcome.final
        assert "belongs to another task" in str(outcome.error)


async def test_what_a_handler_raises_beside_a_cancellation_of_something_else_decides() -> None:
    cancelled = await catch_a_cancellation()
    group = BaseExceptionGroup("g", [cancelled, PermanentError("p")])
    assert str((await invoke_uncancelled(group)).error) == "p"


async def test_errors_beside_a_cancellation_are_logged_and_the_cancellation_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    split = functools.partial(split_cancellation, handler(), logger=get_logger("trioperator.tests"))
    left: list[object] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as cancelled:
            left += [split(BaseExceptionGroup("g", [cancelled, ValueError("v")])), split(cancelled)]
            raise
    assert left[1] is None
    assert isinstance(left[0], BaseExceptionGroup)
    assert [type(error) for error in left[0].exceptions] == [trio.Cancelled]
    assert "failed while it was cancelled" in caplog.text
