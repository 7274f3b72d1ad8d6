"""Handlers that are retried while the clock of the system is set: in memory, delays keep their lengths."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator import on
from trioperator._concurrency import clock

HOUR = 3600


def set_clock(seconds: float) -> None:
    """Set the clock of the system forward, or back."""
    clocks = clock.find_clocks()
    assert clocks.virtual is not None
    clocks.virtual += seconds


@pytest.mark.parametrize("seconds", [-HOUR, HOUR])
async def test_retries_are_due_after_their_delays_when_the_clock_is_set(
    seconds: float, bench: Bench, autojump_clock: MockClock
) -> None:
    began, calls = trio.current_time(), list[tuple[str, int]]()

    def note(name: str) -> None:
        calls.append((name, round(trio.current_time() - began)))

    @on.create("widgets", registry=bench.registry)
    async def create(retry: int, **_: Any) -> None:
        note("create")
        if retry < 2:
            raise trioperator.TemporaryError("not yet", delay=10)

    @on.create("widgets", registry=bench.registry)
    async def parent(retry: int, **_: Any) -> None:
        @trioperator.subhandler(id="sub")
        async def sub(retry: int, **_: Any) -> None:
            note("sub")
            if retry < 2:
                raise trioperator.TemporaryError("not yet", delay=10)

    @trioperator.daemon("widgets", registry=bench.registry)
    async def daemon(retry: int, **_: Any) -> None:
        note("daemon")
        if retry < 2:
            raise trioperator.TemporaryError("not yet", delay=10)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(5)
        set_clock(seconds)
        await bench.cluster.patch("widgets", "w", {"metadata": {"labels": {"changed": "yes"}}})
        await settle(100)
    assert sorted(calls) == [(name, at) for name in ("create", "daemon", "sub") for at in (0, 10, 20)]


@pytest.mark.parametrize("seconds", [-HOUR, HOUR])
async def test_the_time_of_a_handler_is_what_has_passed_when_the_clock_is_set(
    seconds: float, bench: Bench, autojump_clock: MockClock
) -> None:
    times: list[tuple[int, datetime.timedelta]] = []

    @on.create("widgets", registry=bench.registry, timeout=25)
    async def create(retry: int, started: datetime.datetime, runtime: datetime.timedelta, **_: Any) -> None:
        times.append((round(runtime.total_seconds()), clock.wall_now() - started - runtime))
        raise trioperator.TemporaryError("not yet", delay=10)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(5)
        set_clock(seconds)
        await settle(100)
    assert times == [(seconds, datetime.timedelta()) for seconds in (0, 10, 20)]


async def test_what_is_stored_is_wall_time(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[float] = []

    @on.create("widgets", registry=bench.registry)
    async def create(retry: int, **_: Any) -> None:
        calls.append(trio.current_time())
        if retry < 3:
            raise trioperator.TemporaryError("not yet", delay=100)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(5)
        set_clock(-HOUR)
        await settle(100)
        assert len(calls) == 2
    clock.find_clocks().steady -= HOUR  # as of a process that begins now
    async with bench.running():
        await settle(200)
    assert [round(after - before) for before, after in itertools.pairwise(calls)] == [100, 100, 100]


async def test_a_retry_is_not_late_when_the_clock_is_set_back_between_two_runs(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[tuple[float, int]] = []

    @on.create("widgets", registry=bench.registry, timeout=250)
    async def create(retry: int, runtime: datetime.timedelta, **_: Any) -> None:
        calls.append((trio.current_time(), round(runtime.total_seconds())))
        raise trioperator.TemporaryError("not yet", delay=100)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(150)
    set_clock(-HOUR)
    clock.find_clocks().steady -= HOUR  # as of a process that begins now
    async with bench.running():
        restarted = trio.current_time()
        await settle(300)
    assert [(round(at - restarted), runtime) for at, runtime in calls[2:]] == [(100, 200)]
