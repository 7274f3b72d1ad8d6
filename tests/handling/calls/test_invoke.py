"""Invocation of handlers."""

from __future__ import annotations

import asyncio
import contextvars
import datetime
import functools
import logging
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
import trio
import trio.lowlevel
import trio.testing
from trio.testing import MockClock

from tests.handling.factory import handler, invoke, raising
from trioperator._concurrency.clock import wall_now
from trioperator._concurrency.threads import call_trio
from trioperator._handling.arguments.cause import ATTEMPT_KWARGS
from trioperator._handling.calls.interruption import Interruption
from trioperator._handling.calls.invoke import Attempt, Invoker, RunningCall
from trioperator._handling.calls.thread_limiter import ThreadLimiter
from trioperator._handling.handlers.handler import ErrorsMode, Handler
from trioperator._handling.handlers.outcome import Outcome
from trioperator._kube.connection import load_connection
from trioperator._logs import Logger, get_logger
from trioperator.errors import (
    ConfigError,
    HandlerRetriesError,
    HandlerTimeoutError,
    PausedError,
    PermanentError,
    TemporaryError,
)

# ----------------------------------------------------------------------------------------------- results


async def test_an_async_function_is_called_in_trio() -> None:
    async def fn(spec: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return spec

    assert await invoke(fn, {"spec": 5, "name": "w"}) == Outcome(final=True, result=5)


async def test_a_sync_function_is_called_in_a_thread_with_the_context() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("value")
    here = threading.get_ident()

    def fn(spec: Any) -> Any:
        return spec, variable.get(), threading.get_ident() == here

    assert (await invoke(fn, {"spec": 5})).result == (5, "value", False)


async def test_a_sync_function_may_call_back_into_trio() -> None:
    async def double(number: int) -> int:
        await trio.lowlevel.checkpoint()
        return 2 * number

    assert (await invoke(lambda: trio.from_thread.run(double, 4))).result == 8


async def test_as_many_sync_functions_run_at_once_as_there_are_threads() -> None:
    invoker = Invoker(limiter=ThreadLimiter(2), backoff=1)
    called: list[int] = []
    both = trio.Event()
    release = threading.Event()

    def note() -> None:
        called.append(1)
        if len(called) == 2:
            both.set()

    def wait() -> None:
        trio.from_thread.run_sync(note)
        release.wait()

    async def call() -> None:
        attempt = Attempt(retry=0, started=wall_now())
        logger = get_logger("trioperator.tests")
        await invoker.invoke(handler(wait), {}, attempt=attempt, logger=logger)

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(call)
        await both.wait()
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert len(called) == 2
        release.set()


async def test_an_attempt_adds_exactly_the_arguments_that_are_known_of_it() -> None:
    async def fn(**kwargs: Any) -> Any:
        return set(kwargs)

    assert (await invoke(fn)).result == ATTEMPT_KWARGS - {"client"}  # there is none here


@pytest.mark.parametrize("retry", [0, 3])
async def test_a_function_gets_the_arguments_of_its_attempt(retry: int) -> None:
    async def fn(param: Any, retry: int, started: datetime.datetime, runtime: datetime.timedelta) -> Any:
        assert started.tzinfo is not None
        return param, retry, round(runtime.total_seconds())

    assert (await invoke(fn, retry=retry, ago=30, param="p")).result == ("p", retry, 30)


async def test_an_only_attempt_begins_with_its_call(autojump_clock: MockClock) -> None:
    async def fn(started: datetime.datetime, runtime: datetime.timedelta) -> Any:
        return started, runtime

    await trio.sleep(5)
    invoker, logger = Invoker(limiter=ThreadLimiter(2), backoff=1), get_logger("trioperator.tests")
    outcome = await invoker.invoke(handler(fn), {}, attempt=Attempt(retry=0, started=None), logger=logger)
    assert outcome.result == (wall_now(), datetime.timedelta())

    async def hang() -> None:
        await trio.sleep(60)

    outcome = await invoker.invoke(handler(hang, timeout=10), {}, attempt=Attempt(retry=0, started=None), logger=logger)
    assert isinstance(outcome.error, HandlerTimeoutError)


async def test_arguments_of_the_cause_override_those_of_the_attempt() -> None:
    async def fn(**kwargs: Any) -> Any:
        return kwargs["param"]

    assert (await invoke(fn, {"param": "of an index"}, param="own")).result == "of an index"


async def test_functions_of_all_shapes_are_called() -> None:
    class Thing:
        async def method(self, spec: Any) -> Any:
            return spec

        def __call__(self, spec: Any) -> Any:
            return spec

    async def extra(item: Any, *, spec: Any) -> Any:
        return item, spec

    @functools.wraps(extra)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return extra("wrapped", *args, **kwargs)

    @functools.wraps(extra)
    def answering(**kwargs: Any) -> Any:
        return "no coroutine"

    shapes: list[tuple[Any, Any]] = [
        (Thing().method, 1),
        (Thing(), 1),
        (functools.partial(extra, "x"), ("x", 1)),
        (functools.partial(extra, item="x"), ("x", 1)),
        (lambda spec: extra("lambda", spec=spec), ("lambda", 1)),
        (wrapper, ("wrapped", 1)),
        (answering, "no coroutine"),
    ]
    for fn, expected in shapes:
        assert (await invoke(fn, {"spec": 1})).result == expected


async def test_anyio_works_in_handlers() -> None:
    async def fn() -> Any:
        send, receive = anyio.create_memory_object_stream[int](1)
        async with send, receive, anyio.create_task_group() as group:
            group.start_soon(send.send, 5)
            with anyio.fail_after(60):
                await anyio.lowlevel.checkpoint()
                return await receive.receive() + await anyio.to_thread.run_sync(lambda: 1)

    assert (await invoke(fn)).result == 6


async def test_asyncio_may_be_run_in_a_thread() -> None:
    async def answer() -> int:
        await asyncio.sleep(0)
        return 5

    assert (await invoke(lambda: asyncio.run(answer()))).result == 5


async def test_a_success_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await invoke(lambda: None, id="my-id")
    assert [record.getMessage() for record in caplog.records if record.name == "trioperator.tests"] == [
        "Handler 'my-id' is invoked.",
        "Handler 'my-id' succeeded.",
    ]


# ------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize(
    ("error", "level", "text"),
    [
        (
            TemporaryError("not yet", delay=5),
            "ERROR",
            "Handler 'fn' failed temporarily: not yet (will try again in 5 seconds)",
        ),
        (
            TemporaryError(delay=5),
            "ERROR",
            "Handler 'fn' failed temporarily: TemporaryError('') (will try again in 5 seconds)",
        ),
        (TemporaryError("now", delay=0), "ERROR", "Handler 'fn' failed temporarily: now (will try again at once)"),
        (PermanentError("never"), "ERROR", "Handler 'fn' failed permanently: never"),
        (
            ValueError("oops"),
            "ERROR",
            "Handler 'fn' failed with an exception and will try again in 60 seconds: ValueError: oops",
        ),
        (
            KeyError("x"),
            "ERROR",
            "Handler 'fn' failed with an exception and will try again in 60 seconds: KeyError: 'x'",
        ),
    ],
)
async def test_errors_become_outcomes_and_are_logged(
    error: Exception, level: str, text: str, sync: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    outcome = await invoke(raising(error, sync=sync))
    assert outcome.error is error
    assert outcome.final is isinstance(error, PermanentError)
    [record] = [record for record in caplog.records if record.name == "trioperator.tests"]
    assert record.levelname == level
    assert record.getMessage().startswith(text)
    assert bool(record.exc_info) is not isinstance(error, TemporaryError | PermanentError)


async def test_an_attempt_beyond_the_limits_calls_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def never() -> None:
        raise AssertionError

    assert isinstance((await invoke(never, retries=2, retry=2)).error, HandlerRetriesError)
    assert isinstance((await invoke(never, timeout=10, ago=11)).error, HandlerTimeoutError)
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["Handler 'fn' failed permanently"] * 2


@pytest.mark.parametrize("sync", [True, False])
async def test_wrong_arguments_are_errors_of_the_handler(sync: bool) -> None:
    async def async_fn(spec: Any) -> None: ...

    def fn(spec: Any) -> None: ...

    outcome = await invoke(fn if sync else async_fn)
    assert isinstance(outcome.error, TypeError)


async def test_stop_iteration_is_an_error_like_others() -> None:
    assert (await invoke(raising(StopIteration(), sync=True))).error is not None
    assert (await invoke(raising(StopIteration(), sync=False))).error is not None
    assert (await invoke(raising(StopAsyncIteration(), sync=False))).error is not None


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
async def test_exceptions_that_end_the_process_propagate(error: BaseException, sync: bool) -> None:
    with pytest.raises(type(error)):
        await invoke(raising(error, sync=sync))


class Odd(BaseException):
    """Error that is not an ``Exception``, as in some extension modules."""


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class MuteTemporary(TemporaryError):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("error", [Odd("odd"), BaseExceptionGroup("g", [Odd("odd")]), Mute(), ValueError("\udcff")])
async def test_odd_errors_are_errors_of_the_handler(
    error: BaseException, sync: bool, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = await invoke(raising(error, sync=sync), backoff=2)
    assert (outcome.final, outcome.delay) == (False, 2)
    assert (await invoke(raising(error, sync=sync), retries=1)).final
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "Handler 'fn' failed with an exception and will try again in 2 seconds",
        "Handler 'fn' failed with an exception and will stop now",
    ]


async def test_a_temporary_error_without_a_text_keeps_its_delay(caplog: pytest.LogCaptureFixture) -> None:
    outcome = await invoke(raising(MuteTemporary(delay=7), sync=False), retries=2)
    assert (outcome.final, outcome.delay) == (False, 7)
    assert "MuteTemporary" in caplog.text


# -------------------------------------------------------------------------------------------- tracebacks


def deep() -> None:
    raise ValueError("deep")


async def async_deep() -> None:
    await trio.lowlevel.checkpoint()
    raise ValueError("deep")


async def in_nursery() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(async_deep)


def decorated(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def decorator() -> Any:
        return fn()

    return decorator


@pytest.mark.parametrize(
    ("fn", "first"),
    [
        (deep, "deep"),
        (async_deep, "async_deep"),
        (functools.partial(deep), "deep"),
        (functools.partial(async_deep), "async_deep"),
        (lambda: deep(), "<lambda>"),
        (decorated(deep), "decorator"),
        (in_nursery, "async_deep"),
    ],
)
async def test_a_traceback_begins_in_user_code(fn: Any, first: str, caplog: pytest.LogCaptureFixture) -> None:
    await invoke(fn)
    [record] = caplog.records
    assert record.exc_info is not None
    frames = traceback.extract_tb(record.exc_info[2])
    assert (frames[0].filename, frames[0].name) == (__file__, first)


async def test_a_traceback_of_an_error_of_the_framework_ends_in_user_code(caplog: pytest.LogCaptureFixture) -> None:
    async def fn() -> None:
        load_connection(["/dev/null/kubeconfig"])

    await invoke(fn)
    [record] = caplog.records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ConfigError)
    assert [frame.name for frame in traceback.extract_tb(record.exc_info[2])] == ["fn"]


async def test_a_traceback_of_a_wrong_call_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    async def fn(spec: Any) -> None: ...

    await invoke(fn)
    [record] = caplog.records
    assert record.exc_info is not None
    assert traceback.extract_tb(record.exc_info[2])
    assert "spec" in record.getMessage()


# ---------------------------------------------------------------------------------------------- timeouts


async def test_an_async_attempt_is_cancelled_on_timeout(autojump_clock: MockClock) -> None:
    ends: list[float] = []

    async def fn() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ends.append(trio.current_time())

    began = trio.current_time()
    outcome = await invoke(fn, timeout=100, ago=40, retry=1)
    assert isinstance(outcome.error, HandlerTimeoutError)
    assert outcome.final
    assert [round(end - began) for end in ends] == [60]


async def test_an_async_attempt_that_ends_in_time_is_not_cancelled(autojump_clock: MockClock) -> None:
    async def fn() -> str:
        await trio.sleep(59)
        return "done"

    assert (await invoke(fn, timeout=100, ago=40)).result == "done"


async def test_a_coroutine_of_a_sync_function_is_cancelled_on_timeout() -> None:
    forever = lambda: trio.sleep_forever()  # noqa: ASYNC105, E731
    assert isinstance((await invoke(forever, timeout=0.05)).error, HandlerTimeoutError)


async def test_an_error_while_being_cancelled_on_timeout_is_not_retried(autojump_clock: MockClock) -> None:
    async def fn() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("on the way out")

    outcome = await invoke(fn, timeout=100)
    assert outcome.final
    assert isinstance(outcome.error, HandlerTimeoutError)


async def test_a_handlers_own_timeout_is_an_error_like_others(autojump_clock: MockClock) -> None:
    async def fn() -> None:
        with trio.fail_after(10):
            await trio.sleep_forever()

    outcome = await invoke(fn, timeout=100)
    assert not outcome.final
    assert isinstance(outcome.error, trio.TooSlowError)


async def test_the_outcome_of_a_sync_attempt_is_determined_when_it_returns(mock_clock: MockClock) -> None:
    def slow() -> str:
        trio.from_thread.run_sync(mock_clock.jump, 20)
        return "late"

    def failing() -> None:
        trio.from_thread.run_sync(mock_clock.jump, 20)
        raise ValueError("late")

    assert (await invoke(slow, timeout=10)).result == "late"
    outcome = await invoke(failing, timeout=10)
    assert outcome.final
    assert isinstance(outcome.error, HandlerTimeoutError)


# ------------------------------------------------------------------------------------------ cancellation


async def test_cancellation_propagates_through_an_async_function(autojump_clock: MockClock) -> None:
    reached: list[str] = []

    async def fn() -> None:
        await trio.sleep_forever()

    with trio.move_on_after(5) as scope:
        await invoke(fn, errors=ErrorsMode.IGNORED, timeout=100)
        reached.append("after")
    assert scope.cancelled_caught
    assert not reached


async def test_a_group_of_cancellations_is_not_a_failure(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def fn() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled as cancelled:
            raise BaseExceptionGroup("all of them", [cancelled]) from None

    with trio.move_on_after(5) as scope:
        await invoke(fn)
    assert scope.cancelled_caught
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_exceptions_that_end_the_process_propagate_with_a_cancellation(autojump_clock: MockClock) -> None:
    async def fn() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled as cancelled:
            raise BaseExceptionGroup("both", [cancelled, SystemExit(3)]) from None

    with pytest.RaisesGroup(SystemExit), trio.move_on_after(5):
        await invoke(fn)


async def test_cancellation_abandons_a_thread_which_can_check_for_it() -> None:
    cancelled_seen = threading.Event()
    started = trio.Event()

    def fn() -> None:
        trio.from_thread.run_sync(started.set)
        try:
            while True:
                trio.from_thread.check_cancelled()
                time.sleep(0.001)
        finally:
            cancelled_seen.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(invoke, fn)
        await started.wait()
        nursery.cancel_scope.cancel()
    with trio.fail_after(60):
        await trio.to_thread.run_sync(cancelled_seen.wait)


async def test_cancellation_abandons_a_thread_that_does_not_check_for_it(caplog: pytest.LogCaptureFixture) -> None:
    release = threading.Event()
    started = trio.Event()
    token = trio.lowlevel.current_trio_token()

    ended: list[bool] = []

    def fn() -> None:
        token.run_sync_soon(started.set)
        ended.append(release.wait(5))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(invoke, fn)
        await started.wait()
        nursery.cancel_scope.cancel()
    assert not ended
    assert "Handler 'fn' is still running in a thread, which is abandoned." in caplog.text
    release.set()


async def test_a_thread_that_awaits_something_on_trio_ends_and_is_not_called_abandoned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun, ended = trio.Event(), threading.Event()

    async def wait() -> None:
        begun.set()
        await trio.sleep_forever()

    def fn() -> None:
        try:
            call_trio(wait)
        finally:
            ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(invoke, fn)
        await begun.wait()
        nursery.cancel_scope.cancel()
    assert await trio.to_thread.run_sync(ended.wait, 10)
    assert "abandoned" not in caplog.text


@pytest.mark.parametrize("grouped", [False, True])
async def test_a_handler_whose_write_is_refused_as_others_have_taken_over_is_interrupted_and_has_not_failed(
    caplog: pytest.LogCaptureFixture, grouped: bool
) -> None:
    async def fn() -> None:
        error = PausedError("the operator is paused")
        raise ExceptionGroup("writes", [error]) if grouped else error

    caplog.set_level("INFO")
    invoker = Invoker(limiter=ThreadLimiter(1), backoff=1).fenced(lambda: None)
    attempt, logger = Attempt(0, wall_now()), get_logger("trioperator.tests")
    outcome = await invoker.invoke(handler(fn, retries=1), {}, attempt=attempt, logger=logger)
    assert outcome == Outcome(final=False, interrupted=True, delay=1)
    assert [record.getMessage() for record in caplog.records] == [
        "Handler 'fn' is interrupted: the operator is paused."
    ]


async def test_a_thread_that_has_never_begun_is_not_called_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    limiter = ThreadLimiter(1)
    invoker = Invoker(limiter=limiter, backoff=1)
    await limiter.acquire(limiter.slot(handler(lambda: None)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            lambda: invoker.invoke(
                handler(lambda: None), {}, attempt=Attempt(0, wall_now()), logger=get_logger("trioperator.tests")
            )
        )
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert "abandoned" not in caplog.text


async def test_calls_in_progress_are_known(autojump_clock: MockClock) -> None:
    running: dict[Attempt, RunningCall] = {}
    invoker = Invoker(limiter=ThreadLimiter(1), backoff=1, running=running)
    seen: list[tuple[str, str]] = []

    async def fn() -> None:
        seen.extend((str(call.handler), call.logger.name) for call in running.values())
        raise PermanentError("no")

    logger = get_logger("trioperator.tests")
    await invoker.invoke(handler(fn), {}, attempt=Attempt(0, wall_now()), logger=logger)
    assert seen == [("Handler 'fn'", "trioperator.tests")]
    assert running == {}


async def test_errors_of_a_cancelled_function_are_its_outcome(autojump_clock: MockClock) -> None:
    outcomes: list[Outcome] = []

    async def fn() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise PermanentError("on the way out")

    with trio.move_on_after(5):
        outcomes.append(await invoke(fn))
    assert str(outcomes[0].error) == "on the way out"


async def test_an_asyncio_cancellation_is_an_error_of_the_handler() -> None:
    def fn() -> None:
        raise asyncio.CancelledError

    outcome = await invoke(fn)
    assert not outcome.final
    assert "asyncio" in str(outcome.error)


# --------------------------------------------------------------------------------------------- observers


class Observer:
    """An observer that records what it is notified of, and makes calls interruptible by *interruption*."""

    def __init__(self, interruption: Interruption | None = None) -> None:
        self.interruption = interruption
        self.seen: list[object] = []

    def begin(self, handler: Handler, attempt: Attempt, logger: Logger) -> Attempt:
        self.seen.append(handler.id)
        return msgspec.structs.replace(attempt, interruption=self.interruption)

    def end(self, handler: Handler, attempt: Attempt, logger: Logger, *, outcome: Outcome | None) -> None:
        assert attempt.interruption is self.interruption
        self.seen.append(outcome)


def observed(observer: Observer) -> Invoker:
    return Invoker(limiter=ThreadLimiter(1), backoff=1.0, observer=observer)


async def call(observer: Observer, fn: Any, **options: Any) -> Outcome:
    attempt = Attempt(0, wall_now())
    return await observed(observer).invoke(handler(fn, **options), {}, attempt=attempt, logger=get_logger("tests"))


async def test_an_observer_is_notified_of_each_outcome(autojump_clock: MockClock) -> None:
    observer = Observer()
    outcomes = [
        await call(observer, lambda: 5),
        await call(observer, raising(ValueError("v"), sync=False)),
        await call(observer, lambda: 5, retries=0),  # it is refused
    ]
    assert observer.seen == [item for outcome in outcomes for item in ("fn", outcome)]
    assert [outcome.final for outcome in outcomes] == [True, False, True]


async def test_an_observer_is_notified_of_a_cancelled_call(autojump_clock: MockClock) -> None:
    observer = Observer()
    with trio.move_on_after(1):
        await call(observer, trio.sleep_forever)
    assert observer.seen == ["fn", None]


async def test_an_observer_may_make_a_call_interruptible(autojump_clock: MockClock) -> None:
    interruption = Interruption()
    observer = Observer(interruption)

    async def fn() -> None:
        interruption.interrupt("somebody wants that")
        await trio.sleep_forever()

    outcome = await call(observer, fn)
    assert outcome.interrupted
    assert observer.seen == ["fn", outcome]
