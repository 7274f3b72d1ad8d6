"""The watchdog: functions that block the event loop are reported while they do, with object, handler and stack."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pathlib
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator._handling import guard
from trioperator._runtime.watchdog import Watchdog, _Loop, _Rounds

on = trioperator.on
LIMIT = 0.1


@pytest.fixture
def bench(bench: Bench) -> Bench:
    bench.settings.execution.blocking_limit = LIMIT
    return bench


class Blocker:
    """A function that blocks until the watchdog reports it, once; then it does nothing."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.done = trio.Event()
        self.patience = 30.0
        self.caplog = caplog

    def block(self) -> bool:
        if not self.done.is_set():
            began, before = time.monotonic(), len(reports(self.caplog))
            while len(reports(self.caplog)) == before and time.monotonic() < began + self.patience:
                time.sleep(LIMIT / 10)
            self.done.set()
        return True

    async def ended(self, expected: int) -> None:
        """Wait until it has blocked, and the watchdog could report that."""
        await self.done.wait()
        while len(reports(self.caplog)) < expected:  # noqa: ASYNC110 -- the records come from a thread
            await trio.sleep(LIMIT / 10)
        await trio.sleep(LIMIT)


@pytest.fixture
async def blocker(caplog: pytest.LogCaptureFixture) -> Blocker:
    return Blocker(caplog)


@pytest.fixture
async def unreported(blocker: Blocker) -> Blocker:
    blocker.patience = 4 * LIMIT
    return blocker


async def run(bench: Bench, blocker: Blocker, name: str = "w", expected: int = 2) -> None:
    """Run an operator that handles an object until the function has blocked, and the watchdog could report it."""
    with trio.fail_after(60):
        async with bench.running():
            await bench.cluster.create(widget(name))
            await blocker.ended(expected)


def reports(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if "the event loop for" in record.getMessage()]


def functions(record: logging.LogRecord) -> list[str]:
    assert record.exc_info is not None
    return [frame.name for frame in traceback.extract_tb(record.exc_info[2])]


async def test_a_handler_that_blocks_is_reported_with_its_object_and_stack(
    bench: Bench, blocker: Blocker, caplog: pytest.LogCaptureFixture
) -> None:
    async def load() -> None:
        blocker.block()

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        await load()

    await run(bench, blocker, "blocked")
    during, after = reports(caplog)
    assert during.levelname == after.levelname == "WARNING"
    assert during.getMessage().startswith("Handler 'create' blocks the event loop for more than 0.1 seconds")
    assert after.getMessage().startswith("Handler 'create' has blocked the event loop for about 0.")
    assert during.__dict__["k8s_ref"]["name"] == after.__dict__["k8s_ref"]["name"] == "blocked"
    assert functions(during) == ["create", "load", "block"]
    assert during.created < after.created


async def test_a_child_task_of_a_handler_that_blocks_is_reported_with_the_handler(
    bench: Bench, blocker: Blocker, caplog: pytest.LogCaptureFixture
) -> None:
    async def child() -> None:
        await trio.lowlevel.checkpoint()
        blocker.block()

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        async with trio.open_nursery() as outer, trio.open_nursery() as inner:
            outer.start_soon(trio.sleep, 0)
            inner.start_soon(child)

    await run(bench, blocker)
    during, _ = reports(caplog)
    assert during.getMessage().startswith("Handler 'create' blocks the event loop")
    assert during.__dict__["k8s_ref"]["name"] == "w"
    assert functions(during) == ["child", "block"]


async def test_a_filter_that_blocks_is_reported_with_its_handler_and_object(
    bench: Bench, blocker: Blocker, caplog: pytest.LogCaptureFixture
) -> None:
    def when(**_: Any) -> bool:
        return blocker.block()

    @on.create("widgets", id="create", when=when, registry=bench.registry)
    async def create(**_: Any) -> None: ...

    await run(bench, blocker)
    during, _ = reports(caplog)
    assert during.getMessage().startswith("A filter of Handler 'create' blocks the event loop")
    assert during.__dict__["k8s_ref"]["name"] == "w"
    assert functions(during) == ["when", "block"]


async def test_daemons_and_activities_that_block_are_reported(
    bench: Bench, blocker: Blocker, caplog: pytest.LogCaptureFixture
) -> None:
    first = Blocker(caplog)

    @on.startup(id="startup", registry=bench.registry)
    async def startup(**_: Any) -> None:
        first.block()
        await trio.sleep(LIMIT)

    @on.daemon("widgets", id="daemon", registry=bench.registry)
    async def daemon(**_: Any) -> None:
        blocker.block()

    await run(bench, blocker, expected=4)
    assert [record.getMessage().partition(" ")[0] for record in reports(caplog)] == [
        "Activity",
        "Activity",
        "Daemon",
        "Daemon",
    ]


async def test_a_sync_handler_blocks_nothing(
    bench: Bench, unreported: Blocker, caplog: pytest.LogCaptureFixture
) -> None:
    @on.create("widgets", id="create", registry=bench.registry)
    def create(**_: Any) -> None:
        time.sleep(4 * LIMIT)
        trio.from_thread.run_sync(unreported.done.set)

    await run(bench, unreported, expected=0)
    assert reports(caplog) == []


async def test_what_blocks_outside_of_the_operator_is_none_of_its_warnings(
    bench: Bench, unreported: Blocker, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench.running():
        unreported.block()
        await trio.sleep(2 * LIMIT)
    assert [record for record in reports(caplog) if record.levelno > logging.DEBUG] == []


async def test_of_two_operators_the_one_whose_handler_blocks_reports_it(
    bench: Bench, blocker: Blocker, caplog: pytest.LogCaptureFixture
) -> None:
    other = trioperator.OperatorRegistry()

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        blocker.block()

    @on.create("gadgets", id="other", registry=other)
    async def never(**_: Any) -> None: ...

    async with bench.running(registry=other, settings=bench.settings.copy(), name="other"):
        await run(bench, blocker, name="blocked")
    warnings = [record for record in reports(caplog) if record.levelno > logging.DEBUG]
    assert len(warnings) == 2
    assert not any("operator=" in record.getMessage() for record in warnings)


@pytest.mark.parametrize("in_startup", [True, False])
async def test_it_can_be_switched_off(
    in_startup: bool, bench: Bench, unreported: Blocker, caplog: pytest.LogCaptureFixture
) -> None:
    if not in_startup:
        bench.settings.execution.blocking_limit = None

    @on.startup(registry=bench.registry)
    async def configure(settings: trioperator.OperatorSettings, **_: Any) -> None:
        settings.execution.blocking_limit = None

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        unreported.block()

    await run(bench, unreported, expected=0)
    assert reports(caplog) == []


async def test_an_error_of_the_watchdog_ends_only_the_watchdog(
    bench: Bench, unreported: Blocker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: object) -> None:
        raise LookupError("nothing to see")

    monkeypatch.setattr("trioperator._runtime.watchdog._Loop.find_running", fail)

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        unreported.block()

    caplog.set_level(logging.INFO)
    async with bench.running():
        await bench.cluster.create(widget())
        await unreported.ended(0)
        with trio.fail_after(30):
            while "does not go on" not in caplog.text:  # noqa: ASYNC110 -- the records come from a thread
                await trio.sleep(LIMIT / 10)
    assert "Handler 'create' succeeded" in caplog.text


async def test_the_end_is_reported_while_nothing_else_wakes_up_the_loop(blocker: Blocker) -> None:
    settings = trioperator.OperatorSettings()
    settings.execution.blocking_limit = LIMIT
    ended, token = trio.Event(), trio.lowlevel.current_trio_token()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "A function of mine has blocked the event loop for about 0." in record.getMessage():
                token.run_sync_soon(ended.set)

    async def block() -> None:
        guard.call("A function of {}", "mine", blocker.block)

    with trio.fail_after(60), handling(Handler()):
        async with trio.open_nursery() as nursery:
            await nursery.start(Watchdog(settings).serve)
            nursery.start_soon(block)
            await ended.wait()
            nursery.cancel_scope.cancel(reason="reported")


@contextlib.contextmanager
def handling(handler: logging.Handler) -> Iterator[None]:
    logger = logging.getLogger("trioperator")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts the switches of threads")
@pytest.mark.parametrize("limit", [LIMIT, None])
async def test_the_thread_sleeps_as_long_as_the_loop_is_idle(bench: Bench, limit: float | None) -> None:
    bench.settings.execution.blocking_limit = limit
    async with bench.running():
        await trio.sleep(10 * LIMIT)  # for what goes on after the start
        before = switches()
        await trio.sleep(20 * LIMIT)  # each of 80 looks would be a switch
        assert switches() - before < 20  # what wakes up the loop lets it look a few times


async def test_rounds_that_begin_while_the_thread_looks_wake_it_up_once_later() -> None:
    rounds = _Rounds()

    class Busy(_Loop):
        def is_waiting(self) -> bool:
            rounds.after_io_wait(0)
            return False

    class Idle(_Loop):
        def is_waiting(self) -> bool:
            return True

    task = trio.lowlevel.current_task()
    for _ in range(10):
        assert rounds.pause(0, Busy(task))
    assert rounds.pause(0, Idle(task))
    with trio.move_on_after(0.3) as timeout:
        await trio.to_thread.run_sync(rounds.pause, 0, Idle(task), abandon_on_cancel=True)
    rounds.close()
    assert timeout.cancelled_caught


def switches() -> int:
    """Return how often the thread of the watchdog has gone to sleep."""
    (thread,) = (thread for thread in threading.enumerate() if "watchdog" in thread.name)
    lines = pathlib.Path(f"/proc/self/task/{thread.native_id}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("voluntary_ctxt_switches")).split()[1])


def watchdogs() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "watchdog" in thread.name]


async def test_the_thread_lives_as_long_as_the_operator(bench: Bench) -> None:
    async with bench.running():
        assert len(watchdogs()) == 1
    with trio.fail_after(10):
        while watchdogs():  # noqa: ASYNC110 -- no event tells that a thread has ended
            await trio.sleep(0.01)


async def test_there_is_no_thread_under_a_mock_clock(bench: Bench, autojump_clock: MockClock) -> None:
    async with bench.running():
        await settle(1)
        assert watchdogs() == []


async def test_an_asyncio_run_in_an_async_handler_is_reported(
    bench: Bench, blocker: Blocker, caplog: pytest.LogCaptureFixture
) -> None:
    async def foreign() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(30):
                while not reports(caplog):  # noqa: ASYNC110 -- the records come from a thread
                    await asyncio.sleep(LIMIT / 10)
        blocker.done.set()

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        if not blocker.done.is_set():
            asyncio.run(foreign())

    await run(bench, blocker)
    assert functions(reports(caplog)[0])[0] == "create"


@pytest.mark.parametrize("fails", [True, False])
async def test_a_handler_that_blocks_fails_where_that_is_wanted(
    fails: bool, bench: Bench, blocker: Blocker, caplog: pytest.LogCaptureFixture
) -> None:
    bench.settings.execution.blocking_fails = fails

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        blocker.block()

    caplog.set_level(logging.INFO)
    await run(bench, blocker)
    failed = (
        "Handler 'create' failed permanently: Handler 'create' has blocked the event loop for more than 0.1 seconds."
    )
    assert (failed in caplog.text) is fails
    assert ("Handler 'create' succeeded" in caplog.text) is not fails
