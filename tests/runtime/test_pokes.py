"""Tests for :mod:`trioperator._runtime.pokes`: each value of the annotation reconciles once, also over restarts."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, Bench, settle, widget
from tests.runtime.pausing import POKED, World, crd_with_conditions, make_settled
from trioperator import on
from trioperator.apiserver import Cluster
from trioperator.testing import Fault

RECORD = "trioperator.dev/last-handled-reconcile-at"


@pytest.fixture
async def world(cluster: Cluster) -> World:
    await cluster.apply(crd_with_conditions())
    return World(cluster)


async def test_each_value_calls_reconcile_handlers_and_timers_once(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        counts = []
        for value in ("1", "2", "2", "1"):
            mark = len(world.calls)
            await world.annotate({POKED: value})
            await settle(0.5)
            counts.append([world.calls[mark:].count(each) for each in ("reconcile", "timer")])
        assert counts == [[1, 1], [1, 1], [0, 0], [1, 1]]


async def test_timers_that_wait_for_an_idle_object_are_called(cluster: Cluster, autojump_clock: MockClock) -> None:
    await cluster.apply(CRD)
    registry, calls = trioperator.OperatorRegistry(), list[float]()

    @trioperator.timer("widgets", idle=60, registry=registry)
    async def tick(**_: Any) -> None:
        calls.append(trio.current_time())

    async with Bench(cluster, registry, trioperator.OperatorSettings()).running():
        await cluster.create(widget())
        await settle(10)
        for value in ("1", "1", "2"):
            await cluster.patch("widgets", "w", {"metadata": {"annotations": {POKED: value}}})
            await settle(1)
            assert len(calls) == 1, "the next call waits for a change"
        await cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1)
        await cluster.patch("widgets", "w", {"metadata": {"annotations": {POKED: "3"}}})
        await settle(1)
        assert len(calls) == 2


async def test_a_hundred_pokes_in_a_second_write_nothing(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        mark, before = len(world.calls), len(world.writes())
        for number in range(100):
            await world.annotate({POKED: f"{number}"})
            await settle(0.01)
        await settle(5)
        assert world.calls[mark:].count("reconcile") <= 100
        assert world.writes()[before:] == []
        await world.annotate({POKED: "once more"})
        mark = len(world.calls)
        await settle(1)
        assert world.calls[mark:].count("reconcile") == 1


async def test_pokes_of_a_paused_object_are_one_afterwards(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        await world.pause()
        async with world.quiet():
            for number in range(100):
                await world.annotate({POKED: f"{number}"})
        mark = len(world.calls)
        await world.unpause()
        await settle(5)
        assert world.calls[mark:].count("reconcile") == 1


async def test_a_poke_is_no_change_and_writes_nothing(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        mark, before = len(world.calls), len(world.writes())
        await world.annotate({POKED: "1"})
        await settle(60)
        assert "update" not in world.calls[mark:]
        assert world.writes()[before:] == []


async def test_it_ends_the_backoff_of_a_reconcile_handler(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[float] = []

    @on.reconcile("widgets", registry=bench.registry, backoff=600)
    async def reconcile(**_: Any) -> None:
        calls.append(trio.current_time())
        raise RuntimeError("not yet")

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(5)
        await bench.cluster.patch("widgets", "w", {"metadata": {"annotations": {POKED: "now"}}})
        await settle(5)
        assert len(calls) == 2
        await settle(600)
        assert len(calls) == 3  # the next one is due when it was


async def test_it_ends_the_backoff_after_an_error_of_the_server(world: World, autojump_clock: MockClock) -> None:
    settings = world.settings("one")
    settings.networking.error_backoffs = ()
    async with world.running_operator(settings=settings):
        await make_settled(world)
        world.plan.add(Fault.status(500), verb="patch", resource="widgets")
        await world.edit(2)
        await settle(300)
        world.plan.clear()
        await world.annotate({POKED: "1"})
        await settle(1)
        assert (await world.get())["status"]["size"] == 2


async def test_one_while_a_handler_is_at_work_counts_afterwards(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        world.fail.add("update")
        world.slow["update"] = 10
        await world.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(5)
        await world.annotate({POKED: "1"})
        await settle(8)
        world.fail.clear()
        await settle(10)
        assert (await world.get())["status"]["size"] == 2


async def test_a_value_counts_once_over_a_restart(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        world.fail.add("update")
        await world.edit(2)
        await world.annotate({POKED: "1"})
        await settle(1)
        assert world.calls.count("update") == 2
        assert (await world.get())["metadata"]["annotations"][RECORD] == "1"
    async with world.running_operator():
        await settle(10)
        assert world.calls.count("update") == 2  # it waits for its retry
        world.fail.clear()
        await settle(60)
        assert (await world.get())["status"]["size"] == 2
        assert RECORD not in (await world.get())["metadata"]["annotations"]


async def test_a_value_of_the_time_when_the_operator_was_down_counts(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        world.fail.add("update")
        await world.edit(2)
    world.fail.clear()
    await world.annotate({POKED: "1"})
    async with world.running_operator():
        await settle(1)
        assert (await world.get())["status"]["size"] == 2


async def test_a_value_of_any_length_leaves_room_for_the_progress_of_handlers(
    world: World, autojump_clock: MockClock
) -> None:
    value = "x" * 150_000  # twice that is more than all annotations may take
    async with world.running_operator():
        await make_settled(world)
        world.fail.add("update")
        await world.edit(2)
        await world.annotate({POKED: value})
        await settle(1)
        assert len((await world.get())["metadata"]["annotations"][RECORD]) == 32
    before = world.calls.count("update")
    async with world.running_operator():
        await settle(10)
        assert world.calls.count("update") == before  # it counts once
        await world.annotate({POKED: f"{value}2"})
        await settle(1)
        assert world.calls.count("update") == before + 1


async def test_an_old_value_does_not_count_for_a_later_failure_over_a_restart(
    world: World, autojump_clock: MockClock
) -> None:
    async with world.running_operator():
        await make_settled(world)
        await world.annotate({POKED: "old"})
        await settle(1)
        world.fail.add("update")
        await world.edit(2)
        before = world.calls.count("update")
    async with world.running_operator():
        await settle(10)
        assert world.calls.count("update") == before


async def test_the_annotation_can_have_another_name_or_none(cluster: Cluster, autojump_clock: MockClock) -> None:
    await cluster.apply(CRD)
    for name, count in (("example.org/now", 2), (None, 1)):
        calls: list[str] = []
        registry, settings = trioperator.OperatorRegistry(), trioperator.OperatorSettings()
        settings.pausing.poke_annotation = name

        @on.reconcile("widgets", registry=registry)
        async def reconcile(name: str, calls: list[str] = calls, **_: Any) -> None:
            calls.append(name)

        async with Bench(cluster, registry, settings).running():
            await cluster.create(widget())
            await settle(1)
            await cluster.patch("widgets", "w", {"metadata": {"annotations": {POKED: "x"}}})
            await settle(1)
            await cluster.patch("widgets", "w", {"metadata": {"annotations": {"example.org/now": "x"}}})
            await settle(1)
            await cluster.delete("widgets", "w")
        assert len(calls) == count if name else calls
