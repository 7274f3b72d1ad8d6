"""Tests for :mod:`trioperator._supervisor.sharding`.

Replicas share the objects, and each object is handled by one at a time.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, PLAIN_CRD, Bench, settle, widget
from trioperator._concurrency.clock import wall_now
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport

SHARDS = 4


@dataclasses.dataclass(eq=False)
class Replica:
    """One replica, and what it does."""

    name: str
    bench: Bench
    calls: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    running: set[str] = dataclasses.field(default_factory=set)
    stopped: list[trioperator.DaemonStoppingReason | None] = dataclasses.field(default_factory=list)
    plan: FaultPlan = dataclasses.field(default_factory=FaultPlan)
    scope: trio.CancelScope = dataclasses.field(default_factory=trio.CancelScope)
    stop: trio.Event = dataclasses.field(default_factory=trio.Event)

    async def run(self) -> None:
        transport = FaultyTransport(self.bench.cluster.transport(), self.plan)
        with self.scope:
            async with self.bench.running(transport=transport, shards=SHARDS) as stop:
                await self.stop.wait()
                stop()

    async def crash(self) -> None:
        """End as by SIGKILL: nothing more is sent."""
        self.plan.add(Fault.refuse())
        self.scope.cancel()
        await settle()


def make_replica(cluster: Cluster, name: str) -> Replica:
    settings = trioperator.OperatorSettings()
    settings.leadership.identity = name
    settings.posting.enabled = False
    return Replica(name, Bench(cluster, trioperator.OperatorRegistry(), settings))


def add_handlers(replica: Replica) -> None:
    registry = replica.bench.registry

    @trioperator.on.resume("widgets", registry=registry)
    async def resume(name: str, **_: Any) -> None:
        replica.calls[f"resume {name}"] += 1

    @trioperator.on.create("widgets", registry=registry)
    async def create(name: str, **_: Any) -> None:
        replica.calls[f"create {name}"] += 1

    @trioperator.on.update("widgets", registry=registry)
    async def update(name: str, spec: trioperator.Spec, **_: Any) -> None:
        replica.calls[f"update {name} {spec['size']}"] += 1

    @trioperator.on.delete("widgets", registry=registry)
    async def delete(name: str, **_: Any) -> None:
        replica.calls[f"delete {name}"] += 1

    @trioperator.on.event("widgets", registry=registry)
    async def event(name: str, type: str | None, **_: Any) -> None:
        replica.calls[f"event {name} {type}"] += 1

    @trioperator.daemon("widgets", registry=registry, cancellation_timeout=1)
    async def watch(name: str, stopped: trioperator.DaemonStopped, patch: trioperator.Patch, **_: Any) -> None:
        replica.running.add(name)
        try:
            await stopped.wait()
            replica.stopped.append(stopped.reason)
            patch.status["left"] = replica.name
        finally:
            replica.running.discard(name)


@contextlib.asynccontextmanager
async def running(*replicas: Replica) -> AsyncIterator[trio.Nursery]:
    async with trio.open_nursery() as nursery:
        for replica in replicas:
            nursery.start_soon(replica.run)
            await settle(1)
        yield nursery
        for replica in replicas:
            replica.stop.set()


@pytest.fixture(params=[True, False], ids=["divided", "whole"])
async def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Return a cluster that divides the objects, or leaves that to its clients."""
    cluster = Cluster(clock=wall_now, seed=0, shard_selectors=request.param)
    await cluster.apply(CRD)
    await cluster.apply(PLAIN_CRD)
    return cluster


NAMES = [f"w{number}" for number in range(12)]


def total(replicas: list[Replica]) -> collections.Counter[str]:
    return sum((replica.calls for replica in replicas), collections.Counter())


async def test_each_object_is_handled_by_one_replica(cluster: Cluster, autojump_clock: MockClock) -> None:
    made = [make_replica(cluster, name) for name in "abc"]
    for replica in made:
        add_handlers(replica)
    async with running(*made):
        await settle(5)
        for name in NAMES:
            await cluster.create(widget(name))
        await settle(2)
        for name in NAMES:
            await cluster.patch("widgets", name, {"spec": {"size": 2}})
        await settle(2)
        counted = total(made)
        assert {key: counted[key] for key in counted if key.startswith(("create", "update", "resume"))} == {
            key: 1 for name in NAMES for key in (f"create {name}", f"update {name} 2")
        }
        assert sorted(name for replica in made for name in replica.running) == sorted(NAMES)
        assert all(replica.running for replica in made)
        for replica in made:
            assert {key.split()[1] for key in replica.calls} == replica.running
        for name in NAMES:
            await cluster.delete("widgets", name)
        await settle(5)
        assert {key: count for key, count in total(made).items() if key.startswith("delete")} == {
            f"delete {name}": 1 for name in NAMES
        }
        assert not await cluster.list("widgets")


async def test_a_shard_that_is_released_is_drained_before_another_replica_handles_its_objects(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    first, second = make_replica(cluster, "a"), make_replica(cluster, "b")
    add_handlers(first)
    add_handlers(second)
    async with running(first) as nursery:
        for name in NAMES:
            await cluster.create(widget(name))
        await settle(5)
        assert first.running == set(NAMES)
        nursery.start_soon(second.run)
        for _ in range(100):
            await settle(0.1)
            assert not first.running & second.running
        moved = set(second.running)
        assert moved
        assert first.running == set(NAMES) - moved
        assert {call for call in second.calls if call.startswith("resume")} == {f"resume {name}" for name in moved}
        assert {call for call in second.calls if call.startswith("event")} >= {f"event {name} None" for name in moved}
        for name in moved:  # what the daemons wanted stored at their end
            assert (await cluster.get("widgets", name))["status"]["left"] == "a"
        assert all(trioperator.DaemonStoppingReason.OPERATOR_PAUSING in reason for reason in first.stopped if reason)
        second.stop.set()
        await settle(5)
        assert first.running == set(NAMES)
        assert not [call for call in first.calls if call.startswith("resume")]  # it has handled them before
        assert not [call for call in total([first, second]) if call.startswith("update")]


async def test_the_objects_of_a_replica_without_a_network_are_handled_by_others_after_it_has_stopped(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    first, second = make_replica(cluster, "a"), make_replica(cluster, "b")
    add_handlers(first)
    add_handlers(second)
    async with running(first, second):
        for name in NAMES:
            await cluster.create(widget(name))
        await settle(10)
        assert first.running
        first.plan.add(Fault.stall())
        for _ in range(200):
            await settle(0.1)
            assert not first.running & second.running
        assert not first.running
        assert second.running == set(NAMES)
        for name in NAMES:
            await cluster.patch("widgets", name, {"spec": {"size": 3}})
        await settle(1)
        first.plan.clear()
        await settle(60)
        assert first.running
        assert first.running | second.running == set(NAMES)
        counted = total([first, second])
        assert all(counted[f"{call} {name}"] == 1 for name in NAMES for call in ("create",))
        assert all(counted[f"update {name} 3"] == 1 for name in NAMES)


async def test_indices_have_the_objects_of_all_replicas(cluster: Cluster, autojump_clock: MockClock) -> None:
    made = [make_replica(cluster, name) for name in "ab"]
    seen: dict[str, set[str]] = {}

    def add(replica: Replica) -> None:
        @trioperator.index("widgets", registry=replica.bench.registry)
        async def sizes(name: str, spec: trioperator.Spec, **_: Any) -> dict[str, int]:
            return {name: spec["size"]}

        @trioperator.on.create("gadgets", registry=replica.bench.registry)
        async def create(sizes: trioperator.Index[str, int], **_: Any) -> None:
            seen[replica.name] = {f"{name} {size}" for name, found in sizes.items() for size in found}

    for replica in made:
        add(replica)
    for name in NAMES:
        await cluster.create(widget(name))
    async with running(*made):
        await settle(5)
        for name in NAMES[1:]:
            await cluster.patch("widgets", name, {"spec": {"size": 2}})
        await cluster.delete("widgets", NAMES[0])
        await settle(1)
        for name in NAMES:
            await cluster.create(widget(name, kind="Gadget"))
        await settle(2)
        assert set(seen) == {"a", "b"}
        for values in seen.values():
            assert values == {f"{name} 2" for name in NAMES[1:]}


async def test_what_another_replica_has_handled_is_not_handled_again_where_the_watch_lags_behind(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    made = [make_replica(cluster, name) for name in "ab"]
    go = trio.Event()

    def add(replica: Replica) -> None:
        @trioperator.on.create("widgets", registry=replica.bench.registry)
        async def create(name: str, **_: Any) -> None:
            await go.wait()
            replica.calls[name] += 1

    for replica in made:
        add(replica)
    made[1].plan.add(Fault.silence(lines=len(NAMES)), resource="widgets", verb="watch")
    async with running(*made):
        await settle(5)
        for name in NAMES:
            await cluster.create(widget(name))
        await settle(1)
        go.set()
        await settle(1)
        made[0].stop.set()
        await settle(10)
        assert made[0].calls.keys() | made[1].calls.keys() == set(NAMES)
        assert not made[0].calls.keys() & made[1].calls.keys()
        await cluster.patch("widgets", "w0", {"spec": {"size": 2}})


async def test_a_thousand_objects_are_each_handled_once_through_kills_and_joins(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    names = (f"r{number}" for number in range(100))
    done: collections.Counter[str] = collections.Counter()

    def add(replica: Replica) -> None:
        @trioperator.on.create("widgets", registry=replica.bench.registry)
        async def create(name: str, **_: Any) -> None:
            done[name] += 1

    async with trio.open_nursery() as nursery:
        alive: list[Replica] = []

        async def join() -> None:
            alive.append(make_replica(cluster, next(names)))
            add(alive[-1])
            nursery.start_soon(alive[-1].run)
            await settle(1)

        for _ in range(3):
            await join()
        await settle(4)
        for batch in range(5):
            for number in range(200):
                await cluster.create(widget(f"w{batch}-{number}"))
            await settle(0.3)
            match batch:
                case 0 | 2:
                    await alive.pop(0).crash()
                case 1 | 3:
                    await join()
            await settle(3)
        await settle(17)
        assert len(done) == 1000
        assert set(done.values()) == {1}
        for replica in alive:
            replica.stop.set()
