"""Lives of operators whose handlers look up an index of a kind that they own and map, whatever happens to its watch."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.reconciling.conftest import config_map
from tests.runtime.conftest import Bench, widget
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on

# With 250, it takes minutes: for those who look for more.
LIVES = int(os.environ.get("TRIOPERATOR_LIVES", "6"))
STEPS = 40
WATCHES = [
    Fault.break_off(lines=2),
    Fault.lag(0.2),
    Fault.lag(3),
    Fault.error_event(410, lines=1),
    Fault.close(lines=1),
    Fault.duplicate(),
    Fault.stall(),
    Fault.status(410),
    Fault.status(500),
]
REQUESTS = [Fault.delay(after=0.05), Fault.delay(before=0.05), Fault.status(500), Fault.delay(after=0.3)]


class Life:
    """An operator, random handlers, and what happens to it: by a seed."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench = bench
        self.random = random.Random(seed)
        self.plan = FaultPlan(seed=seed)
        self.seen: dict[str, list[tuple[str, str]]] = {}
        self.teams: set[str] = set()
        owned: list[list[Any]] = [[], ["configmaps"], [trioperator.Owned("configmaps", labels={"c": "d"})]]
        self.owns: list[Any] = self.random.choice(owned)
        on.index("configmaps", id="known", labels={"known": "yes"}, registry=bench.registry)(self.choose_index())
        on.reconcile("widgets", owns=self.owns, watches={"configmaps": find_widgets}, registry=bench.registry)(
            self.reconcile
        )
        if self.random.random() < 0.5:
            on.event("configmaps", registry=bench.registry)(do_nothing)
        if self.random.random() < 0.25:
            bench.settings.leadership.shards = 3
            bench.settings.leadership.namespace = "default"

    def choose_index(self) -> Callable[..., Any]:
        slow, bad = self.random.choice([(False, False), (True, False), (False, True)])

        async def index(name: str, namespace: str) -> dict[tuple[str, str], int]:
            if slow:
                await trio.sleep(self.random.choice([0, 0.01, 0.5, 3]))
            if bad and self.random.random() < 0.3:
                raise trioperator.TemporaryError("not yet", delay=self.random.choice([0.1, 1, 7]))
            return {(namespace, name): 1}

        def index_in_a_thread(name: str, namespace: str) -> dict[tuple[str, str], int]:
            return {(namespace, name): 1}

        return self.random.choice([index, index, index_in_a_thread])

    async def reconcile(self, name: str, known: trioperator.Index[tuple[str, str], int]) -> list[Any]:
        found = self.seen[name] = sorted(known)
        if self.random.random() < 0.2:
            await trio.sleep(self.random.choice([0.01, 1]))
        return [config_map(f"child-{name}", found=str(found))] if self.owns else []

    async def live(self) -> None:
        for _ in range(STEPS):
            if self.random.random() < 0.15:
                fault = self.random.choice(REQUESTS)
                self.plan.add(fault, times=2, resource="configmaps", verb=["patch", "list"])
            if self.random.random() < 0.25:
                self.plan.add(self.random.choice(WATCHES), watch=True, times=1, resource="configmaps")
            with contextlib.suppress(trioperator.ApiError):
                await self.random.choice([self.create, self.delete, self.change, self.touch, self.found])()
            await trio.sleep(self.random.choice([0, 0, 0.01, 0.05, 0.2, 1, 5, 40]))
        self.plan.clear()
        await trio.sleep(1500)

    def choose(self) -> tuple[str, str]:
        return f"s{self.random.randrange(5)}", self.random.choice(["default", *sorted(self.teams)])

    async def create(self) -> None:
        name, namespace = self.choose()
        labels = {"known": self.random.choice(["yes", "yes", "no"])}
        await self.bench.cluster.create({**config_map(name), "metadata": {"name": name, "labels": labels}}, namespace)

    async def delete(self) -> None:
        await self.bench.cluster.delete("configmaps", *self.choose())

    async def change(self) -> None:
        labels = {"known": self.random.choice(["yes", "no"])}
        name, namespace = self.choose()
        await self.bench.cluster.patch("configmaps", name, {"metadata": {"labels": labels}}, namespace)

    async def touch(self) -> None:
        await self.bench.cluster.patch("widgets", "w", {"spec": {"size": self.random.random()}})

    async def found(self) -> None:
        team = self.random.choice(["team-a", "team-b"])
        if team in self.teams:
            self.teams.discard(team)
            await self.bench.cluster.delete("namespaces", team)
        else:
            await self.bench.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}})
            self.teams.add(team)


def find_widgets(labels: Any, known: Any) -> list[tuple[str, str]]:
    return [("default", "w"), ("default", "v")] if labels.get("known") == "yes" else []


async def do_nothing() -> None:
    pass


@pytest.mark.parametrize("seed", range(LIVES))
async def test_handlers_have_seen_the_last_state_of_an_index(
    bench: Bench, autojump_clock: MockClock, seed: int
) -> None:
    life = Life(bench, seed)
    scope: dict[str, Any] = life.random.choice([{}, {"namespaces": ["default", "team-*"]}])
    for name in ("w", "v"):
        await bench.cluster.create(widget(name))
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), life.plan), **scope):
        await life.live()
        found = [each["metadata"] for each in await bench.cluster.list("configmaps")]
        known = sorted((m["namespace"], m["name"]) for m in found if m.get("labels", {}).get("known") == "yes")
        assert life.seen == {"w": known, "v": known}
        for name in ("w", "v") if life.owns else ():
            assert (await bench.cluster.get("configmaps", f"child-{name}"))["data"] == {"found": str(known)}
