"""Objects that enter and leave the selector that is inferred from handlers' filters: random histories against a model.

Whatever happens to objects and to the operator, when all is quiet it is as the labels say: daemons run for those that
match, and only these have finalizers; handlers have seen the newest state of those that match; and nothing was called
deleted that was not. With two streams, daemons require another label than the other handlers.
"""

from __future__ import annotations

import collections
import contextlib
import os
import random
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator.errors import ApiError
from trioperator.testing import Fault, FaultPlan, FaultyTransport

SEEDS: Final = int(os.environ.get("TRIOPERATOR_SEEDS", "25"))
NAMES: Final = ("a", "b", "c", "d")
TIERS: Final = ("gold", "silver", None)
APPS: Final = ("web", None)
PAUSED: Final = "trioperator.dev/paused"
FAULTS: Final = (
    Fault.status(503),
    Fault.refuse(),
    Fault.break_off(),
    Fault.status(410),
    Fault.error_event(410),
    Fault.silence(),
)

on = trioperator.on


class History:
    """A random history of a few objects and an operator, with what handlers have seen of it."""

    def __init__(self, bench: Bench, seed: int, *, has_streams: bool = False) -> None:
        self.bench = bench
        self.has_streams = has_streams
        self.rng = random.Random(seed)
        self.plan = FaultPlan()
        self.running: collections.Counter[str] = collections.Counter()
        self.handled: dict[str, int] = {}  # the newest size that a handler was given, by uid
        self.called_deleted: set[str] = set()
        self.deleted: set[str] = set()
        self.slow = self.rng.random() < 0.3
        bench.settings.watching.client_timeout = self.rng.choice([None, 5, 20])
        bench.settings.watching.initial_streaming = self.rng.random() < 0.3
        bench.settings.peering.standalone = True
        if not has_streams and self.rng.random() < 0.3:
            bench.settings.leadership.shards = 2
        self.register(bench.registry)

    def register(self, registry: trioperator.OperatorRegistry) -> None:
        """Declare handlers, all of them for gold ones; with two streams, daemons for the web."""
        gold: dict[str, Any] = {"labels": {"tier": "gold"}, "registry": registry}
        web: dict[str, Any] = {"labels": {"app": "web"}, "registry": registry} if self.has_streams else gold
        kinds = "all" if self.has_streams else self.rng.choice(["changes", "daemons", "all", "all"])
        self.changes_finalize = self.daemons_finalize = False
        if kinds != "daemons":

            @on.resume("widgets", **gold)
            @on.create("widgets", **gold)
            @on.update("widgets", **gold)
            async def handle(uid: str, spec: Any, retry: int, **_: Any) -> None:
                if self.slow:
                    await trio.sleep(self.rng.choice([0, 3, 8]))
                if retry == 0 and self.rng.random() < 0.2:
                    raise trioperator.TemporaryError("not yet", delay=5)
                self.handled[uid] = spec["size"]

            optional = self.rng.random() < 0.3

            @on.delete("widgets", optional=optional, **gold)
            async def delete(uid: str, **_: Any) -> None:
                self.called_deleted.add(uid)

            self.changes_finalize = not optional

        if kinds != "changes":
            self.daemons_finalize = finalizer = self.rng.random() < 0.7

            @trioperator.daemon("widgets", finalizer=finalizer, **web)
            async def daemon(uid: str, stopped: Any, **_: Any) -> None:
                self.running[uid] += 1
                try:
                    await stopped.wait()
                    if "RESOURCE_DELETED" in str(stopped.reason):
                        self.called_deleted.add(uid)
                    await trio.sleep(2 if self.slow else 0)
                finally:
                    self.running[uid] -= 1

        if self.rng.random() < 0.3:
            on.index("widgets", id="sizes", **gold)(lambda uid, spec, **_: {uid: spec["size"]})
        if self.rng.random() < 0.5:

            @on.event("widgets", **gold)
            async def event(uid: str, type: Any, **_: Any) -> None:
                if type == "DELETED":
                    self.called_deleted.add(uid)

        self.has_changes, self.has_daemons = kinds != "daemons", kinds != "changes"

    async def live(self) -> None:
        """Live through it, and wait until all is quiet."""
        for _ in range(self.rng.randint(1, 3)):
            async with self.bench.running(transport=FaultyTransport(self.bench.cluster.transport(), self.plan)):
                for _ in range(self.rng.randint(3, 12)):
                    await self.act()
                    await settle(self.rng.choice([0, 0, 0.3, 5, 30]))
                self.plan.clear()
                if self.rng.random() < 0.5:
                    for name in NAMES:
                        await self.resume(name)
                    await settle(300)
                    await self.verify()
            for _ in range(self.rng.randint(0, 6)):
                await self.rng.choice([self.act, self.relabel])()

    async def relabel(self) -> None:
        """Let an object enter or leave."""
        await self.label(self.rng.choice(NAMES))

    async def act(self) -> None:
        """Let something happen to an object, or to the network."""
        name = self.rng.choice(NAMES)
        deeds = [self.label] * 5 + [self.resize, self.create] * 2 + [self.delete, self.trouble, self.forget, self.gap]
        deeds += [self.pause, self.resume]
        with contextlib.suppress(ApiError, LookupError):
            await self.rng.choice(deeds)(name)

    async def create(self, name: str) -> None:
        made = widget(name, size=self.rng.randint(1, 9))
        made["metadata"]["labels"] = {key: value for key, value in self.choose_labels().items() if value}
        if await self.bench.cluster.find("widgets", name) is None:
            await self.bench.cluster.create(made)

    async def label(self, name: str) -> None:
        await self.patch(name, {"metadata": {"labels": self.choose_labels()}})

    def choose_labels(self) -> dict[str, str | None]:
        """Choose labels. With two streams, an object can leave one of them and enter the other by the same change."""
        tier = self.rng.choice(TIERS)
        return {"tier": tier, "app": self.rng.choice(APPS)} if self.has_streams else {"tier": tier}

    async def resize(self, name: str) -> None:
        await self.patch(name, {"spec": {"size": self.rng.randint(1, 99)}})

    async def pause(self, name: str) -> None:
        """Pause an object: it may leave and enter meanwhile, and its finalizer stays until it goes on."""
        await self.patch(name, {"metadata": {"annotations": {PAUSED: "yes"}}})

    async def resume(self, name: str) -> None:
        await self.patch(name, {"metadata": {"annotations": {PAUSED: None}}})

    async def patch(self, name: str, patch: dict[str, Any]) -> None:
        if await self.bench.cluster.find("widgets", name) is not None:
            await self.bench.cluster.patch("widgets", name, patch)

    async def delete(self, name: str) -> None:
        found = await self.bench.cluster.find("widgets", name)
        if found is not None:
            self.deleted.add(found["metadata"]["uid"])
            await self.bench.cluster.delete("widgets", name)

    async def trouble(self, name: str) -> None:
        fault, until = self.rng.choice(FAULTS), trio.current_time() + self.rng.choice([0, 2, 20])
        if self.rng.random() < 0.5:
            self.plan.add(fault, path="/widgets", watch=True, until=until)
        else:
            self.plan.add(fault, path="/widgets", until=until)

    async def gap(self, name: str) -> None:
        """Let things happen between two watches that the server forgets."""
        self.plan.add(Fault.refuse(), path="/widgets", watch=True, until=trio.current_time() + 30)
        await settle(21)
        for _ in range(3):
            await self.rng.choice([self.label, self.delete, self.create])(self.rng.choice(NAMES))
        self.bench.cluster.compact()

    async def forget(self, name: str) -> None:
        self.bench.cluster.compact()

    async def verify(self) -> None:
        """Verify that all is as the labels say."""
        objects = [obj for name in NAMES if (obj := await self.bench.cluster.find("widgets", name))]
        by_uid = {obj["metadata"]["uid"]: obj for obj in objects}
        labels = {uid: obj["metadata"].get("labels", {}) for uid, obj in by_uid.items()}
        matching = {uid for uid in by_uid if labels[uid].get("tier") == "gold"}
        spawning = {uid for uid in by_uid if labels[uid].get("app") == "web"} if self.has_streams else matching
        if self.has_daemons:
            assert {uid for uid, count in self.running.items() if count} == spawning
            assert max(self.running.values(), default=0) <= 1
        if self.has_changes:
            assert {uid: self.handled.get(uid) for uid in matching} == {
                uid: by_uid[uid]["spec"]["size"] for uid in matching
            }
        finalized = {uid for uid, obj in by_uid.items() if obj["metadata"].get("finalizers")}
        wanted = (matching if self.changes_finalize else set()) | (spawning if self.daemons_finalize else set())
        assert finalized == wanted
        assert self.called_deleted <= self.deleted
        assert self.deleted.isdisjoint(by_uid)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("has_streams", [False, True], ids=["one stream", "two streams"])
async def test_entering_and_leaving_a_selector_is_matching_and_not_matching_filters(
    bench: Bench, autojump_clock: MockClock, seed: int, has_streams: bool
) -> None:
    history = History(bench, seed, has_streams=has_streams)
    await history.live()
    async with bench.running():
        for name in NAMES:
            await history.resume(name)
        await settle(400)
        await history.verify()
        selectors = {
            dict(request.query).get("labelSelector")
            for request in bench.cluster.requests
            if "watch" in dict(request.query) and request.path.endswith("/widgets") and request.user_agent
        }
    if not has_streams:
        assert selectors == {"tier=gold"}
    else:
        assert {"app=web", "tier=gold"} <= selectors <= {"app=web", "tier=gold", None}
