"""Random histories of replicas that divide the objects: joins, stops, kills, cut networks, and changes, pauses and
pokes of objects all the while.

Each object has one owner at a time, and when all is quiet, each has been handled in its newest state, whether or not
the API server divides the objects.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import random
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, Bench, settle, widget
from trioperator._concurrency.clock import wall_now
from trioperator.apiserver import Cluster
from trioperator.errors import TrioperatorError
from trioperator.testing import Fault, FaultPlan, FaultyTransport

#: How many seeds are tried: more of them in `nox -s soak`.
SEEDS: Final = int(os.environ.get("TRIOPERATOR_SEEDS", "4"))
SHARDS: Final = 8
PAUSED: Final = "trioperator.dev/paused"
POKED: Final = "trioperator.dev/reconcile-requested-at"
# Seconds until everything is owned and handled again, whatever has happened: requests that stall take 300 of them.
QUIET: Final = 400.0


@dataclasses.dataclass
class World:
    """A cluster, and what handlers have seen of its objects."""

    cluster: Cluster
    rng: random.Random
    handling: dict[str, Replica] = dataclasses.field(default_factory=dict)  # by uid
    watching: dict[str, Replica] = dataclasses.field(default_factory=dict)  # by uid
    handled: dict[str, int] = dataclasses.field(default_factory=dict)  # the newest size, by uid
    seen: dict[str, int] = dataclasses.field(default_factory=dict)  # the newest size in events, by uid
    deleted: set[str] = dataclasses.field(default_factory=set)
    resumed: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def begin(self, owners: dict[str, Replica], uid: str, replica: Replica) -> None:
        """Note who does something for an object. One that was killed does nothing any more."""
        before = owners.get(uid)
        assert before is None or before is replica or before.is_dead, f"{before} and {replica} both own {uid}"
        owners[uid] = replica

    def end(self, owners: dict[str, Replica], uid: str, replica: Replica) -> None:
        if owners.get(uid) is replica:
            del owners[uid]


@dataclasses.dataclass(eq=False)
class Replica:
    """One replica of the operator."""

    name: str
    world: World
    plan: FaultPlan = dataclasses.field(default_factory=FaultPlan)
    scope: trio.CancelScope = dataclasses.field(default_factory=trio.CancelScope)
    stop: trio.Event = dataclasses.field(default_factory=trio.Event)
    is_dead: bool = False
    is_started: bool = False

    def __str__(self) -> str:
        return self.name

    async def run(self) -> None:
        """Run until it is stopped or killed. If no request succeeds at its start, it ends, and is started again."""
        with self.scope:
            while not self.stop.is_set():
                try:
                    await self.run_once()
                except* TrioperatorError:
                    assert not self.is_started
                    await trio.sleep(10)

    async def run_once(self) -> None:
        settings = trioperator.OperatorSettings()
        settings.leadership.identity = self.name
        settings.posting.enabled = False
        bench = Bench(self.world.cluster, trioperator.OperatorRegistry(), settings)
        self.register(bench.registry)
        transport = FaultyTransport(self.world.cluster.transport(), self.plan)
        async with bench.running(transport=transport, shards=SHARDS) as stop:
            self.is_started = True
            await self.stop.wait()
            stop()

    def register(self, registry: trioperator.OperatorRegistry) -> None:
        world, on = self.world, trioperator.on
        gold: dict[str, Any] = {"labels": {"tier": "gold"}, "registry": registry}

        @on.resume("widgets", **gold)
        @on.create("widgets", **gold)
        @on.update("widgets", **gold)
        async def handle(uid: str, spec: Any, **_: Any) -> None:
            world.begin(world.handling, uid, self)
            try:
                await trio.sleep(world.rng.choice([0, 0, 0.2, 2]))
                world.handled[uid] = spec["size"]
            finally:
                world.end(world.handling, uid, self)

        @on.delete("widgets", **gold)
        async def delete(uid: str, **_: Any) -> None:
            world.begin(world.handling, uid, self)
            try:
                await trio.sleep(world.rng.choice([0, 1]))
                world.deleted.add(uid)
            finally:
                world.end(world.handling, uid, self)

        @on.event("widgets", **gold)
        async def event(uid: str, spec: Any, type: Any, **_: Any) -> None:
            if type != "DELETED":
                world.seen[uid] = spec["size"]

        @trioperator.daemon("widgets", cancellation_timeout=1, **gold)
        async def watch(uid: str, stopped: Any, **_: Any) -> None:
            world.begin(world.watching, uid, self)
            try:
                await stopped.wait()
                await trio.sleep(world.rng.choice([0, 0.5]))
            finally:
                world.end(world.watching, uid, self)

    async def kill(self) -> None:
        """End as by SIGKILL: nothing more is sent."""
        self.is_dead = True
        self.plan.clear()
        self.plan.add(Fault.refuse())
        self.scope.cancel()
        await settle()


class History:
    """A random history, and what has to be true in the end."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(cluster, self.rng)
        self.replicas: list[Replica] = []
        self.count = 0
        self.gone: set[str] = set()
        self.gone_gold: set[str] = set()

    async def live(self) -> None:
        await self.world.cluster.apply(CRD)
        async with trio.open_nursery() as nursery:
            for _ in range(self.rng.randint(0, 10)):
                await self.create()
            await self.join(nursery)
            for _ in range(self.rng.randint(10, 30)):
                await self.rng.choice(
                    [
                        self.create,
                        self.change,
                        self.change,
                        self.relabel,
                        self.delete,
                        self.pause,
                        self.poke,
                        self.disturb,
                        self.disturb,
                    ]
                )()
                if self.rng.random() < 0.3:
                    await self.move(nursery)
                await settle(self.rng.choice([0, 0.1, 1, 5, 20]))
            for replica in self.replicas:
                replica.plan.clear()
            for obj in await self.world.cluster.list("widgets"):
                await self.annotate(obj["metadata"]["name"], PAUSED, None)
            await settle(QUIET)
            await self.verify()
            for replica in self.replicas:
                replica.stop.set()

    # What happens to objects.

    async def create(self) -> None:
        made = widget(f"w{self.count}")
        made["metadata"]["labels"] = {"tier": "silver" if self.rng.random() < 0.2 else "gold"}
        await self.world.cluster.create(made)
        self.count += 1

    async def change(self) -> None:
        if name := await self.choose():
            size = self.rng.randint(2, 10**9)
            await self.world.cluster.patch("widgets", name, {"spec": {"size": size}})

    async def relabel(self) -> None:
        if name := await self.choose():
            patch = {"metadata": {"labels": {"tier": self.rng.choice(["gold", "gold", "silver"])}}}
            await self.world.cluster.patch("widgets", name, patch)

    async def delete(self) -> None:
        if name := await self.choose():
            meta = (await self.world.cluster.get("widgets", name))["metadata"]
            self.gone.add(meta["uid"])
            if meta["labels"]["tier"] == "gold" and meta.get(
                "finalizers"
            ):  # else it has come back, and is gone at once
                self.gone_gold.add(meta["uid"])
            await self.world.cluster.delete("widgets", name)

    async def pause(self) -> None:
        """Pause an object, or let it go on."""
        if name := await self.choose():
            await self.annotate(name, PAUSED, self.rng.choice(["true", "true", None]))

    async def poke(self) -> None:
        if name := await self.choose():
            await self.annotate(name, POKED, str(trio.current_time()))

    async def annotate(self, name: str, annotation: str, value: str | None) -> None:
        await self.world.cluster.patch("widgets", name, {"metadata": {"annotations": {annotation: value}}})

    async def choose(self) -> str | None:
        found = [obj["metadata"] for obj in await self.world.cluster.list("widgets")]
        names = [meta["name"] for meta in found if "deletionTimestamp" not in meta]
        return self.rng.choice(names) if names else None

    # What happens to replicas.

    async def move(self, nursery: trio.Nursery) -> None:
        """Let a replica join, stop, or be killed; one stays at least."""
        if len(self.replicas) < 2 or (len(self.replicas) < 5 and self.rng.random() < 0.5):
            await self.join(nursery)
            return
        replica = self.replicas.pop(self.rng.randrange(len(self.replicas)))
        if self.rng.random() < 0.5:
            await replica.kill()
        else:
            replica.plan.clear()
            replica.stop.set()

    async def join(self, nursery: trio.Nursery) -> None:
        replica = Replica(f"r{self.rng.randrange(10**6)}", self.world)
        self.replicas.append(replica)
        nursery.start_soon(replica.run)

    async def disturb(self) -> None:
        """Cut a replica off for a while, or let some of its requests go wrong."""
        if self.replicas:
            plan = self.rng.choice(self.replicas).plan
            if self.rng.random() < 0.4:
                plan.clear()
                return
            until = trio.current_time() + self.rng.choice([1, 10, 40])
            fault = self.rng.choice([Fault.stall(), Fault.refuse(), Fault.status(503)])
            plan.add(fault, until=until)
            if self.rng.random() < 0.3:
                watches = self.rng.choice([Fault.error_event(410), Fault.break_off(), Fault.lag(3)])
                plan.add(watches, watch=True, times=2)

    # What has to be true in the end.

    async def verify(self) -> None:
        world = self.world
        found = await world.cluster.list("widgets")
        assert not self.gone & {obj["metadata"]["uid"] for obj in found}, "its finalizer is removed"
        gold = [obj for obj in found if obj["metadata"]["labels"]["tier"] == "gold"]
        assert all(obj["metadata"].get("finalizers") for obj in gold)
        assert not [obj for obj in found if obj not in gold and obj["metadata"].get("finalizers")], "they have left"
        objects = {obj["metadata"]["uid"]: obj["spec"]["size"] for obj in gold}
        assert {uid: world.handled.get(uid) for uid in objects} == objects
        assert {uid: world.seen.get(uid) for uid in objects} == objects
        running = {uid for uid, replica in world.watching.items() if not replica.is_dead}
        assert running == objects.keys()
        assert {world.watching[uid] for uid in objects} <= set(self.replicas)
        assert self.gone_gold & world.handled.keys() <= world.deleted


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("divides", [True, False], ids=["divided", "whole"])
async def test_each_object_has_one_owner_at_a_time_and_is_handled(
    seed: int, divides: bool, autojump_clock: MockClock
) -> None:
    cluster = Cluster(clock=wall_now, seed=seed, shard_selectors=divides)
    await History(cluster, seed).live()
