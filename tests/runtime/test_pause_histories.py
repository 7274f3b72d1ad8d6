"""One object in random histories: it is paused, poked, edited and fought over, while its operator is restarted."""

from __future__ import annotations

import contextlib
import datetime
import os
import random
from collections.abc import Callable
from typing import Any, Final

import httpx
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, widget
from tests.runtime.pausing import PAUSED, POKED, config_map, crd_with_conditions
from trioperator import on
from trioperator._concurrency.clock import wall_now
from trioperator.apiserver import Cluster
from trioperator.errors import NotFoundError
from trioperator.testing import Fault, FaultPlan, FaultyTransport

SEEDS: Final = int(os.environ.get("TRIOPERATOR_SEEDS", "6"))
WIDGET: Final = "/apis/example.com/v1/namespaces/default/widgets/w"
CHILD: Final = "/api/v1/namespaces/default/configmaps/w"
# Seconds after which a pause is in effect, whatever was at work: a retry, a request that was not answered, a takeover.
IN_EFFECT: Final = 90.0
WRITTEN: Final = ("widgets.example.com", "configmaps")


class Replica:
    """A replica of the operator, with the faults of its connection."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.plan = FaultPlan()
        self.scope = trio.CancelScope()
        self.stop: Callable[[], None] = lambda: None


class History:
    """What happens to one object, its operator and those who fight with it."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.rng = random.Random(seed)
        self.replicas: list[Replica] = []
        self.number = 0
        self.size = 1
        self.fails = False
        self.fighters: set[str] = set()
        self.calls: list[tuple[float, str]] = []
        self.log: list[str] = []

    # The operator.

    def make_registry(self) -> trioperator.OperatorRegistry:
        registry = trioperator.OperatorRegistry()

        @on.create("widgets", registry=registry)
        @on.update("widgets", registry=registry)
        async def change(spec: Any, patch: trioperator.Patch, **_: Any) -> None:
            self.note("change")
            patch.status["size"] = spec["size"]

        @on.update("widgets", field="spec.size", registry=registry)
        async def resize(**_: Any) -> None:
            self.note("resize")
            if self.fails:
                raise trioperator.TemporaryError("not yet", delay=60)

        @on.reconcile("widgets", owns=["configmaps"], registry=registry)
        async def provide(name: str, spec: Any, patch: trioperator.Patch, **_: Any) -> Any:
            self.note("reconcile")
            if self.fails:
                raise trioperator.TemporaryError("not yet", delay=60)
            patch.metadata.labels["team"] = "ours"
            return config_map(name, spec["size"])

        @on.timer("widgets", interval=30, registry=registry)
        async def tick(patch: trioperator.Patch, **_: Any) -> None:
            self.note("timer")
            patch.status["ticks"] = len(self.calls)

        @on.daemon("widgets", registry=registry)
        async def daemon(stopped: trioperator.DaemonStopped, **_: Any) -> None:
            await stopped.wait()

        return registry

    def note(self, name: str) -> None:
        self.calls.append((trio.current_time(), name))

    async def add_replica(self) -> None:
        self.number += 1
        replica = Replica(f"r{self.number}")
        self.replicas.append(replica)
        await self.nursery.start(self.operate, replica)

    async def operate(self, replica: Replica, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        settings = trioperator.OperatorSettings()
        settings.leadership.identity, settings.leadership.enabled = replica.name, True
        bench = Bench(self.cluster, self.make_registry(), settings)
        transport = FaultyTransport(self.cluster.transport(), replica.plan)
        ended = trio.Event()
        with replica.scope:
            async with bench.running(transport=transport) as stop:

                def end() -> None:
                    stop()
                    ended.set()

                replica.stop = end
                task_status.started()
                await ended.wait()

    # What happens.

    async def live(self) -> None:
        await self.cluster.apply(crd_with_conditions())
        async with httpx.AsyncClient(transport=self.cluster.transport()) as self.client, trio.open_nursery() as nursery:
            self.nursery = nursery
            await self.add_replica()
            await self.add_replica()
            await self.cluster.create(widget())
            nursery.start_soon(self.fight)
            for _ in range(self.rng.randint(6, 20)):
                await self.step()
            await self.finish()
            await self.verify()
            nursery.cancel_scope.cancel()

    async def step(self) -> None:
        events = [
            *(self.edit, self.pause, self.pause_for_a_while, self.unpause, self.poke, self.toggle_failure),
            *(self.toggle_fighter, self.lose_child, self.restart, self.crash, self.cut_off),
        ]
        event = self.rng.choice(events)
        self.log.append(f"{trio.current_time():.1f} {event.__name__}")
        await event()
        await trio.sleep(self.rng.choice([0.0, 0.01, 0.3, 2, 20, 100, 150]))

    async def annotate(self, annotations: dict[str, str | None]) -> None:
        await self.cluster.patch("widgets", "w", {"metadata": {"annotations": annotations}})

    async def edit(self) -> None:
        self.size += 1
        await self.cluster.patch("widgets", "w", {"spec": {"size": self.size}})

    async def pause(self) -> None:
        await self.annotate({PAUSED: "true"})
        await self.watch_over_the_pause(self.rng.choice([1, IN_EFFECT + 100]))

    async def pause_for_a_while(self) -> None:
        seconds = self.rng.choice([5, IN_EFFECT + 100])
        until = wall_now() + datetime.timedelta(seconds=seconds)
        await self.annotate({PAUSED: f"until={until.isoformat(timespec='seconds')}"})
        await self.watch_over_the_pause(seconds - 2)

    async def watch_over_the_pause(self, seconds: float) -> None:
        """Let other things happen in a pause, of which nothing may come once it is in effect."""
        begun = trio.current_time()
        before: tuple[int, int] | None = None
        while trio.current_time() < begun + seconds:
            await trio.sleep(self.rng.choice([0.1, 5, 30]))
            if before is None and trio.current_time() >= begun + IN_EFFECT:
                before = len(self.writes()), len(self.calls)
            event = self.rng.choice(
                [self.edit, self.poke, self.toggle_fighter, self.lose_child, self.restart, self.crash, self.cut_off]
            )
            self.log.append(f"{trio.current_time():.1f} paused: {event.__name__}")
            await event()
        if before is not None and trio.current_time() < begun + seconds + 1:
            writes, calls = before
            assert self.writes()[writes:] == [], self.log
            assert self.calls[calls:] == [], self.log

    async def unpause(self) -> None:
        await self.annotate({PAUSED: None})

    async def poke(self) -> None:
        self.number += 1
        await self.annotate({POKED: f"p{self.number}"})

    async def toggle_failure(self) -> None:
        self.fails = not self.fails

    async def toggle_fighter(self) -> None:
        self.fighters ^= {self.rng.choice(["label", "child"])}

    async def lose_child(self) -> None:
        with contextlib.suppress(NotFoundError, LookupError):
            await self.cluster.delete("configmaps", "w")

    async def restart(self) -> None:
        self.replicas.pop(self.rng.randrange(2)).stop()
        await self.add_replica()

    async def crash(self) -> None:
        replica = self.replicas.pop(self.rng.randrange(2))
        replica.plan.add(Fault.refuse())
        replica.scope.cancel()
        await self.add_replica()

    async def cut_off(self) -> None:
        """Let the Lease be lost, of one replica, or let all its requests hang."""
        only_leases, until = self.rng.random() < 0.5, trio.current_time() + 40
        fault = self.rng.choice([Fault.stall(), Fault.status(503)])
        plan = self.rng.choice(self.replicas).plan
        if only_leases:
            plan.add(fault, until=until, resource="leases")
        else:
            plan.add(fault, until=until)

    async def fight(self) -> None:
        while True:
            await trio.sleep(0.5)
            if "label" in self.fighters:
                await self.undo(WIDGET, {"metadata": {"labels": {"team": "theirs"}}})
            if "child" in self.fighters:
                await self.undo(CHILD, {"data": {"size": "theirs"}})

    async def undo(self, path: str, patch: dict[str, Any]) -> None:
        headers = {"Content-Type": "application/merge-patch+json", "User-Agent": "stomper"}
        await self.client.patch(f"http://cluster{path}?fieldManager=stomper", json=patch, headers=headers)

    # What has to be true.

    def writes(self) -> list[str]:
        """Return the writes of operators to the object and its child."""
        return [
            f"{each.verb} {each.path.partition('?')[0]}"
            for each in self.cluster.requests
            if each.verb in ("create", "patch", "update", "delete")
            and each.resource in WRITTEN
            and each.user_agent != "stomper"
        ]

    async def finish(self) -> None:
        self.fighters.clear()
        self.fails = False
        for replica in self.replicas:
            replica.plan.clear()
        await self.unpause()
        await trio.sleep(900)
        self.log.append(f"{trio.current_time():.1f} the last poke")
        self.mark = len(self.calls)
        await self.poke()
        await trio.sleep(100)

    async def verify(self) -> None:
        found = await self.cluster.get("widgets", "w")
        conditions = {each["type"]: each["status"] for each in found["status"].get("conditions", [])}
        assert found["status"]["size"] == self.size, self.log
        assert found["metadata"]["labels"]["team"] == "ours", self.log
        assert (await self.cluster.get("configmaps", "w"))["data"]["size"] == str(self.size), self.log
        assert "Paused" not in conditions, self.log
        assert conditions.get("Contended", "False") == "False", self.log
        assert (conditions["Ready"], conditions["Applied"]) == ("True", "True"), self.log
        [ready] = [each for each in found["status"]["conditions"] if each["type"] == "Ready"]
        assert ready["observedGeneration"] == found["metadata"]["generation"], self.log
        names = [name for _, name in self.calls[self.mark :]]  # a poke is no change
        assert names.count("reconcile") == 1, self.log
        assert not {"change", "resize"} & set(names), self.log


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_nothing_is_done_in_pauses_and_all_of_it_in_the_end(seed: int, autojump_clock: MockClock) -> None:
    await History(Cluster(clock=wall_now, seed=seed), seed).live()
