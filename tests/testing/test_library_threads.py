"""Tests for :mod:`trioperator.testing.library_threads`: time stands still while threads of libraries work."""

from __future__ import annotations

import asyncio
import threading

import anyio.lowlevel
import anyio.to_thread
import pytest
import trio
from trio.testing import MockClock

from trioperator._concurrency.threads import run_in_thread
from trioperator.apiserver import Cluster
from trioperator.testing.library_clients import routed_libraries
from trioperator.testing.library_routes import routing_to


async def test_threads_of_anyio_stop_the_clock(cluster: Cluster, autojump_clock: MockClock) -> None:
    await anyio.lowlevel.checkpoint()  # its backend is imported by the first use
    seen, scope = threading.Event(), trio.CancelScope()

    async def look_late() -> None:
        with scope:
            await trio.sleep(5)
            seen.set()

    with routed_libraries(), routing_to(cluster.transport()):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(look_late)
            await trio.testing.wait_all_tasks_blocked()
            assert not await anyio.to_thread.run_sync(seen.wait, 0.05)
            scope.cancel()


async def test_threads_of_anyio_in_other_loops_are_left_alone(cluster: Cluster) -> None:
    with routed_libraries(), routing_to(cluster.transport()):
        found = await run_in_thread(
            lambda: asyncio.run(anyio.to_thread.run_sync(threading.get_ident)), limiter=trio.CapacityLimiter(1)
        )
    assert found != threading.get_ident()


async def test_errors_are_raised(cluster: Cluster) -> None:
    await anyio.lowlevel.checkpoint()
    with routed_libraries(), routing_to(cluster.transport()), pytest.raises(ZeroDivisionError):
        await anyio.to_thread.run_sync(lambda: 1 / 0)
