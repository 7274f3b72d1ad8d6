"""Activities: called one after another, each until it has ended."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from trioperator._handling.arguments.cause import ActivityCause
from trioperator._handling.calls.invoke import Invoker
from trioperator._handling.calls.thread_limiter import ThreadLimiter
from trioperator._handling.handlers.handler import Activity
from trioperator._logs import get_logger
from trioperator._runtime.activities import run_activity
from trioperator.errors import ActivityError

on = trioperator.on
ErrorsMode = trioperator.ErrorsMode


class Start:
    """Run the startup handlers of a registry."""

    def __init__(self) -> None:
        self.registry = trioperator.OperatorRegistry()
        self.settings = trioperator.OperatorSettings()
        self.memo = trioperator.Memo()
        self.times: list[float] = []

    async def run(self, activity: Activity = Activity.STARTUP, *, deadline: float = math.inf) -> dict[str, Any]:
        cause = ActivityCause(
            activity=activity, settings=self.settings, memo=self.memo, logger=get_logger("activities")
        )
        invoker = Invoker(limiter=ThreadLimiter(2), backoff=60)
        return await run_activity(self.registry.activities(activity), cause, invoker, deadline=deadline)

    def failing(self, make: Callable[[], Exception], *, times: int, **options: Any) -> None:
        """Add a handler that fails so many times."""

        @on.startup(id="failing", registry=self.registry, **options)
        async def failing(retry: int, **_: Any) -> str:
            self.times.append(trio.current_time())
            if retry < times:
                raise make()
            return "well"

    @property
    def gaps(self) -> list[Any]:
        return [pytest.approx(b - a) for a, b in itertools.pairwise(self.times)]


@pytest.fixture
def start() -> Start:
    return Start()


async def test_no_handlers_no_results(start: Start) -> None:
    assert await start.run() == {}


async def test_handlers_are_called_in_order_and_their_results_kept(start: Start, autojump_clock: MockClock) -> None:
    calls: list[str] = []

    @on.startup(id="one", registry=start.registry)
    async def one(settings: Any, memo: Any, activity: Any, **_: Any) -> int:
        await trio.sleep(5)
        calls.append("one")
        settings.queueing.worker_limit = 7
        memo.seen = str(activity)
        return 1

    @on.cleanup(id="other", registry=start.registry)
    async def other(**_: Any) -> None:
        raise AssertionError

    @on.startup(id="two", registry=start.registry, param="p")
    async def two(memo: Any, param: Any, **_: Any) -> Any:
        calls.append("two")
        return memo.seen, param

    assert await start.run() == {"one": 1, "two": ("startup", "p")}
    assert calls == ["one", "two"]
    assert start.settings.queueing.worker_limit == 7


async def test_sync_handlers_run_too(start: Start) -> None:
    @on.startup(id="sync", registry=start.registry)
    def sync(**_: Any) -> str:
        return "done"

    assert await start.run() == {"sync": "done"}


async def test_arbitrary_errors_are_retried_after_the_back_off(start: Start, autojump_clock: MockClock) -> None:
    start.failing(lambda: ValueError("boo"), times=2)
    assert await start.run() == {"failing": "well"}
    assert start.gaps == [60, 60]


async def test_the_back_off_is_the_handlers_own(start: Start, autojump_clock: MockClock) -> None:
    start.failing(lambda: ValueError("boo"), times=2, backoff=7)
    await start.run()
    assert start.gaps == [7, 7]


async def test_temporary_errors_are_retried_after_their_delay(start: Start, autojump_clock: MockClock) -> None:
    start.failing(lambda: trioperator.TemporaryError("not yet", delay=3), times=2)
    await start.run()
    assert start.gaps == [3, 3]


async def test_a_permanent_error_fails_the_activity_and_the_others_are_still_called(start: Start) -> None:
    called: list[str] = []
    start.failing(lambda: trioperator.PermanentError("never"), times=1)

    @on.startup(id="after", registry=start.registry)
    async def after(**_: Any) -> None:
        called.append("after")

    with pytest.raises(ActivityError, match=r"startup.*failing: never"):
        await start.run()
    assert called == ["after"]


async def test_an_activity_that_uses_asyncio_fails_at_once_with_a_hint(start: Start) -> None:
    @on.startup(id="foreign", registry=start.registry)
    async def foreign(**_: Any) -> None:
        start.times.append(trio.current_time())
        await asyncio.sleep(1)

    with pytest.raises(ActivityError, match=r"foreign: It uses asyncio.*use trio\.sleep\(\) instead") as caught:
        await start.run()
    assert len(start.times) == 1
    assert isinstance(caught.value.failures["foreign"], trioperator.PermanentError)


async def test_an_ignored_error_of_an_activity_that_uses_asyncio_stays_ignored(start: Start) -> None:
    @on.startup(id="foreign", registry=start.registry, errors=ErrorsMode.IGNORED)
    async def foreign(**_: Any) -> None:
        await asyncio.sleep(1)

    assert await start.run() == {"foreign": None}


async def test_errors_are_permanent_where_they_are_declared_so(start: Start) -> None:
    start.failing(lambda: ValueError("boo"), times=1, errors=ErrorsMode.PERMANENT)
    with pytest.raises(ActivityError, match="failing: ValueError: boo"):
        await start.run()
    assert len(start.times) == 1


async def test_errors_are_ignored_where_they_are_declared_so(start: Start) -> None:
    start.failing(lambda: ValueError("boo"), times=1, errors=ErrorsMode.IGNORED)
    assert await start.run() == {"failing": None}
    assert len(start.times) == 1


async def test_retries_are_limited(start: Start, autojump_clock: MockClock) -> None:
    start.failing(lambda: ValueError("boo"), times=9, retries=3, backoff=1)
    with pytest.raises(ActivityError, match="3 retries"):
        await start.run()
    assert len(start.times) == 3


async def test_retries_are_limited_by_default(start: Start, autojump_clock: MockClock) -> None:
    start.failing(lambda: ValueError("boo"), times=99)
    with pytest.raises(ActivityError, match=r"10 retries.*boo"):
        await start.run()
    assert start.gaps == [60] * 9


@pytest.mark.parametrize("how", ["setting", "timeout"])
async def test_retries_are_endless_where_it_is_wanted(start: Start, autojump_clock: MockClock, how: str) -> None:
    options: dict[str, Any] = {"timeout": math.inf} if how == "timeout" else {}
    start.failing(lambda: ValueError("boo"), times=1000, **options)
    if how == "setting":
        start.settings.execution.activity_retries = None
    assert await start.run() == {"failing": "well"}
    assert len(start.times) == 1001


async def test_a_startup_handler_can_change_the_limit_for_itself(start: Start, autojump_clock: MockClock) -> None:
    @on.startup(id="configure", registry=start.registry)
    async def configure(settings: trioperator.OperatorSettings, **_: Any) -> None:
        settings.execution.activity_retries = 3
        start.times.append(trio.current_time())
        raise ValueError("boo")

    with pytest.raises(ActivityError, match="3 retries"):
        await start.run()
    assert len(start.times) == 3


async def test_a_probe_makes_one_attempt_by_default(start: Start, autojump_clock: MockClock) -> None:
    @on.probe(id="once", registry=start.registry)
    async def once(**_: Any) -> None:
        start.times.append(trio.current_time())
        raise trioperator.TemporaryError("boo", delay=1)

    @on.probe(id="twice", registry=start.registry, retries=2)
    async def twice(**_: Any) -> None:
        start.times.append(trio.current_time())
        raise trioperator.TemporaryError("boo", delay=1)

    with pytest.raises(ActivityError, match=r"once: .*boo; twice: .*boo"):
        await start.run(Activity.PROBE)
    assert start.gaps == [0, 1]


@pytest.mark.parametrize(
    ("delay", "attempts"), [(4, 3), (9, 2), (30, 1), (math.inf, 1)], ids=["soon", "once", "late", "never"]
)
async def test_a_retry_after_the_deadline_is_given_up_at_once(
    start: Start, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, delay: float, attempts: int
) -> None:
    start.failing(lambda: trioperator.TemporaryError("not yet", delay=delay), times=9)
    called: list[float] = []

    @on.startup(id="after", registry=start.registry)
    async def after(**_: Any) -> None:
        called.append(trio.current_time())

    with pytest.raises(ActivityError, match="failing: not yet"):
        await start.run(deadline=trio.current_time() + 10)
    assert len(start.times) == attempts
    assert called == [start.times[-1]]
    assert "Activity 'failing' is given up: it would be retried in" in caplog.text


async def test_time_is_limited(start: Start, autojump_clock: MockClock) -> None:
    start.failing(lambda: ValueError("boo"), times=99, timeout=35, backoff=10)
    with pytest.raises(ActivityError, match="timed out"):
        await start.run()
    assert start.gaps == [10, 10, 10]


async def test_several_failures_are_all_named(start: Start) -> None:
    for id in ("one", "two"):

        @on.startup(id=id, registry=start.registry)
        async def fail(**_: Any) -> None:
            raise trioperator.PermanentError("no")

    with pytest.raises(ActivityError, match="one: no; two: no") as caught:
        await start.run()
    assert {name: type(error) for name, error in caught.value.failures.items()} == {
        "one": trioperator.PermanentError,
        "two": trioperator.PermanentError,
    }


async def test_cancellation_passes(start: Start, autojump_clock: MockClock) -> None:
    start.failing(lambda: ValueError("boo"), times=99)
    with trio.move_on_after(100) as scope:
        await start.run()
    assert scope.cancelled_caught
    assert len(start.times) == 2
