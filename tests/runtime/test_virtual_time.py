"""Operators in virtual time: it stands still while users' sync functions work."""

from __future__ import annotations

import time
from typing import Any

import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, widget

WORK = 0.05  # seconds of real time


async def test_time_does_not_jump_while_a_sync_handler_works(bench: Bench, autojump_clock: MockClock) -> None:
    times: list[float] = []
    ended = trio.Event()

    @trioperator.on.create("widgets", registry=bench.registry)
    def handle(**_: Any) -> None:
        times.append(trio.from_thread.run_sync(trio.current_time))
        time.sleep(WORK)
        times.append(trio.from_thread.run_sync(trio.current_time))
        trio.from_thread.run_sync(ended.set)

    async with bench.running():
        began = trio.current_time()
        await bench.cluster.create(widget())
        with trio.fail_after(3600):
            await ended.wait()
    assert times == [began, began]


async def test_a_sync_handler_that_sleeps_in_trio_sleeps_in_virtual_time(
    bench: Bench, autojump_clock: MockClock
) -> None:
    times: list[float] = []
    ended = trio.Event()

    @trioperator.on.create("widgets", registry=bench.registry)
    def handle(**_: Any) -> None:
        trio.from_thread.run(trio.sleep, 600)
        times.append(trio.from_thread.run_sync(trio.current_time))
        trio.from_thread.run_sync(ended.set)

    async with bench.running():
        began = trio.current_time()
        await bench.cluster.create(widget())
        with trio.fail_after(3600):
            await ended.wait()
    assert times == [began + 600]


async def test_time_does_not_jump_while_a_filter_works(bench: Bench, autojump_clock: MockClock) -> None:
    times: list[float] = []
    ended = trio.Event()

    def wanted(**_: Any) -> bool:
        time.sleep(WORK)
        return True

    @trioperator.on.create("widgets", when=wanted, registry=bench.registry)
    async def handle(**_: Any) -> None:
        times.append(trio.current_time())
        ended.set()

    async with bench.running():
        began = trio.current_time()
        await bench.cluster.create(widget())
        with trio.fail_after(3600):
            await ended.wait()
    assert times == [began]


async def test_a_sync_daemon_waits_in_virtual_time_and_works_in_none(bench: Bench, autojump_clock: MockClock) -> None:
    times: list[float] = []

    @trioperator.daemon("widgets", registry=bench.registry)
    def beat(stopped: Any, **_: Any) -> None:
        while not stopped.wait(10):
            times.append(trio.from_thread.run_sync(trio.current_time))
            time.sleep(WORK / 10)
            times.append(trio.from_thread.run_sync(trio.current_time))

    async with bench.running():
        began = trio.current_time()
        await bench.cluster.create(widget())
        await trio.sleep(65)
    assert times == [began + seconds for seconds in (10, 20, 30, 40, 50, 60) for _ in range(2)]


async def test_sync_timers_tick_at_their_times(bench: Bench, autojump_clock: MockClock) -> None:
    times: list[float] = []

    @trioperator.timer("widgets", interval=60, sharp=True, registry=bench.registry)
    def tick(**_: Any) -> None:
        time.sleep(WORK / 10)
        times.append(trio.from_thread.run_sync(trio.current_time))

    async with bench.running():
        began = trio.current_time()
        await bench.cluster.create(widget())
        await trio.sleep(605)
    assert times == [began + 60 * count for count in range(11)]
