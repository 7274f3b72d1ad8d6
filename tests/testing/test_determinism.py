"""Tests for :mod:`trioperator.testing.determinism`: operators in virtual time run the same way each time."""

from __future__ import annotations

import functools
import importlib
import os
import random
import sys
import types
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, widget
from trioperator._concurrency.clock import wall_now
from trioperator.apiserver import Cluster
from trioperator.testing import determinism, deterministic

# For a whole day: TRIOPERATOR_TEST_HOURS=24.
HOURS = float(os.environ.get("TRIOPERATOR_TEST_HOURS", "0.5"))
OBJECTS = 100

Trace = list[tuple[Any, ...]]


async def operate(cluster: Cluster, calls: Trace) -> None:
    """Run an operator with one timer per minute for each object, and record its calls."""
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


def test_an_operator_with_timers_runs_the_same_way_each_time() -> None:
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


def scheduler_state() -> tuple[Any, ...]:
    scheduler = determinism._find_scheduler()
    return scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r.getstate()


def test_after_it_the_order_of_tasks_is_as_random_as_before() -> None:
    before = scheduler_state()
    order_of_tasks(1)
    assert scheduler_state() == before


def test_a_part_of_a_run_can_be_deterministic() -> None:
    async def main() -> list[list[int]]:
        orders = []
        for seed in (1, 1, 2):
            order: list[int] = []
            with deterministic(seed):
                async with trio.open_nursery() as nursery:
                    for number in range(20):
                        nursery.start_soon(note, number, order)
            orders.append(order)
        return orders

    async def note(number: int, order: list[int]) -> None:
        await trio.lowlevel.checkpoint()
        order.append(number)

    first, second, third = trio.run(main)
    assert first == second != third


# Trio's scheduler has no public seed. If these two attributes go, deterministic() says so, and this test fails first:
# look in trio/_core/_run.py for what sorts and shuffles the batch of runnable tasks now.
@pytest.mark.parametrize("name", ["_ALLOW_DETERMINISTIC_SCHEDULING", "_r"])
def test_trio_has_the_scheduler_that_can_be_seeded(name: str) -> None:
    assert hasattr(importlib.import_module("trio._core._run"), name)


@pytest.mark.parametrize("name", ["_ALLOW_DETERMINISTIC_SCHEDULING", "_r"])
def test_another_scheduler_of_trio_is_an_error_that_names_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, "trio._core._run", types.SimpleNamespace(**{name: None}))
    (missing,) = {"_ALLOW_DETERMINISTIC_SCHEDULING", "_r"} - {name}
    with (
        pytest.raises(RuntimeError, match=f"of Trio {trio.__version__}, which has no trio._core._run.{missing}: use"),
        deterministic(),
    ):
        pass


def test_trio_without_that_module_is_the_same_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trio._core._run", None)
    with pytest.raises(RuntimeError, match=r"has no trio\._core\._run: use another version of Trio"), deterministic():
        pass


def test_wall_time_starts_at_the_same_time_in_each_run() -> None:
    async def main() -> str:
        await trio.sleep(60)
        return wall_now().isoformat()

    with deterministic():
        assert trio.run(main, clock=MockClock(autojump_threshold=0)) == "2024-01-01T00:00:00+00:00"
    assert trio.run(main, clock=MockClock(autojump_threshold=0)) > "2024-01-02"


def test_after_it_random_numbers_are_as_random_as_before() -> None:
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
