"""Operators in virtual time go the same way each time."""

from __future__ import annotations

import functools
import os
import random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, widget
from trioperator.apiserver import Cluster
from trioperator.clock import wall_now
from trioperator.testing import deterministic

# For a whole day: TRIOPERATOR_TEST_HOURS=24.
HOURS = float(os.environ.get("TRIOPERATOR_TEST_HOURS", "0.5"))
OBJECTS = 100

Trace = list[tuple[Any, ...]]


async def operate(cluster: Cluster, calls: Trace) -> None:
    """Run an operator with a timer per minute for each object; note its calls."""
    registry = trioperator.OperatorRegistry()

    @trioperator.timer("widgets", interval=60, registry=registry)
    async def tick(name: str, patch: trioperator.Patch, **_: Any) -> None:
        calls.append((trio.current_time(), name))
        if len(calls) % 1000 == 0:
            patch.status["ticks"] = len(calls)

    await cluster.apply(CRD)
    for number in range(OBJECTS):
        await cluster.create(widget(f"w{number}"))
    run = functools.partial(
        trioperator.operator,
        registry=registry,
        transport=cluster.transport(),
        connection=trioperator.ConnectionInfo(server="http://cluster"),
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(run)
        await trio.sleep(HOURS * 3600 - 1)
        nursery.cancel_scope.cancel()


def trace(seed: int) -> tuple[Trace, Trace]:
    """Return the calls and the requests of a run."""
    cluster, calls = Cluster(clock=wall_now, seed=0), Trace()
    with deterministic(seed):
        trio.run(operate, cluster, calls, clock=MockClock(autojump_threshold=0))
    requests: Trace = [
        (item.time, item.verb, item.path, tuple(item.query.items()), item.status, item.size)
        for item in cluster.requests
    ]
    return calls, requests


def test_an_operator_with_timers_goes_the_same_way_each_time() -> None:
    calls, requests = trace(1)
    assert len(calls) == OBJECTS * 60 * HOURS
    assert (calls, requests) == trace(1)


def order_of_tasks(seed: int) -> list[int]:
    async def main() -> list[int]:
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(note, number)
        return order

    async def note(number: int) -> None:
        await trio.lowlevel.checkpoint()
        order.append(number)

    order: list[int] = []
    with deterministic(seed):
        return trio.run(main)


def test_the_seed_decides_the_order_of_tasks() -> None:
    assert order_of_tasks(1) == order_of_tasks(1)
    assert len({tuple(order_of_tasks(seed)) for seed in range(10)}) > 5


def test_after_it_the_order_of_tasks_is_as_random_as_before() -> None:
    scheduler: Any = trio._core._run
    before = scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r.getstate()
    order_of_tasks(1)
    assert (scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r.getstate()) == before


def test_time_begins_at_the_same_moment_each_time() -> None:
    async def main() -> str:
        await trio.sleep(60)
        return wall_now().isoformat()

    with deterministic():
        assert trio.run(main, clock=MockClock(autojump_threshold=0)) == "2024-01-01T00:00:00+00:00"
    assert trio.run(main, clock=MockClock(autojump_threshold=0)) > "2024-01-02"


def test_after_it_chance_is_as_it_was_before() -> None:
    random.seed(5)
    expected = [random.random() for _ in range(2)]
    random.seed(5)
    found = [random.random()]
    with deterministic():
        inside = random.random()
    found.append(random.random())
    assert found == expected
    assert inside not in found
    with deterministic():
        assert random.random() == inside


@pytest.mark.parametrize("deterministic", [3, 4], indirect=True)
async def test_the_fixture_takes_a_seed(deterministic: int, autojump_clock: MockClock) -> None:
    number = random.random()
    random.seed(deterministic)
    assert random.random() == number
    assert wall_now().isoformat() == "2024-01-01T00:00:00+00:00"
