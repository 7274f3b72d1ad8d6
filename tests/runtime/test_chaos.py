"""Everything goes wrong at once: handlers that fail, clients that interfere, a network and a server with faults, and an
operator that is stopped and killed. When all that is over, nothing may be lost, left behind or repeated for ever.

Every seed is a life of one object. A failing one is named in the assertion: run it alone by calling ``live(seed)``.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.lives.world import CLUSTERS_PEERING, peering, peering_definition
from tests.runtime.conftest import Bench, settle, widget
from tests.runtime.life import Life
from trioperator._concurrency.clock import wall_now
from trioperator.testing import Fault, FaultPlan, FaultyTransport, deterministic

on = trioperator.on

# How many lives each test lives. `nox -s soak` has more.
SEEDS = int(os.environ.get("TRIOPERATOR_SEEDS", "8"))


async def live(seed: int, **how: bool) -> None:
    """Live the life of a seed, always in the same way."""
    with deterministic(seed):
        await Life(seed, **how).live()


@pytest.mark.parametrize("batch", range(4))
async def test_whatever_happens_nothing_is_lost_or_left_behind(batch: int, autojump_clock: MockClock) -> None:
    for seed in range(batch * SEEDS, batch * SEEDS + SEEDS):
        await live(seed, restarting=False, reverting=False)


@pytest.mark.parametrize("batch", range(4))
async def test_nothing_is_lost_when_the_operator_is_restarted_amid_all_this(
    batch: int, autojump_clock: MockClock
) -> None:
    for seed in range(batch * SEEDS, batch * SEEDS + SEEDS):
        await live(seed, restarting=True, reverting=False)


async def test_nothing_is_lost_when_others_change_their_minds(autojump_clock: MockClock) -> None:
    for seed in range(40, 40 + 2 * SEEDS):
        await live(seed, restarting=False, reverting=True)


@pytest.mark.parametrize("restarting", [False, True])
async def test_nothing_is_lost_in_parts_that_are_interrupted(restarting: bool, autojump_clock: MockClock) -> None:
    for seed in range(12):
        await live(seed, restarting=restarting, reverting=False, parted=True)


class Elsewhere(trioperator.ProgressStorage):
    """A storage of a user's, which outlives operators."""

    def __init__(self) -> None:
        self.records: dict[str, Any] = {}

    def fetch(self, *, key: str, **_: Any) -> Any:
        return self.records.get(key)

    def store(self, *, key: str, record: Any, **_: Any) -> None:
        self.records[key] = record

    def purge(self, *, key: str, **_: Any) -> None:
        self.records.pop(key, None)


@pytest.mark.parametrize("storage", [None, Elsewhere()])
async def test_a_change_amid_the_handling_is_seen_by_all_even_after_a_restart(
    bench: Bench, storage: trioperator.ProgressStorage | None, autojump_clock: MockClock
) -> None:
    bench.settings.persistence.progress_storage = storage
    last_seen: dict[str, Any] = {}
    ready = False

    @on.create("widgets", id="first", registry=bench.registry)
    @on.update("widgets", id="first", registry=bench.registry)
    async def first(spec: Any, **_: Any) -> None:
        last_seen["first"] = spec["size"]

    @on.create("widgets", id="second", registry=bench.registry)
    @on.update("widgets", id="second", registry=bench.registry)
    async def second(spec: Any, **_: Any) -> None:
        if not ready:
            raise trioperator.TemporaryError("not yet", delay=10)
        last_seen["second"] = spec["size"]

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(1)
    await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
    ready = True
    async with bench.running():
        await settle(60)
    assert last_seen == {"first": 2, "second": 2}


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_handler_that_has_failed_for_good_sees_a_correction_amid_the_handling(
    bench: Bench, is_restarted: bool, autojump_clock: MockClock
) -> None:
    seen: list[int] = []
    ready = False

    @on.update("widgets", id="first", registry=bench.registry)
    async def first(spec: Any, **_: Any) -> None:
        seen.append(spec["size"])
        if spec["size"] < 0:
            raise trioperator.PermanentError("it must not be negative")

    @on.create("widgets", id="second", registry=bench.registry)
    @on.update("widgets", id="second", registry=bench.registry)
    async def second(**_: Any) -> None:
        if not ready:
            raise trioperator.TemporaryError("not yet", delay=10)

    ready = True
    await bench.cluster.create(widget(size=1))
    async with bench.running() as stop:
        await settle(1)
        ready = False
        await bench.cluster.patch("widgets", "w", {"spec": {"size": -1}})
        await settle(5)
        if is_restarted:
            stop()
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        ready = True
        await settle(60)
    async with bench.running():
        await settle(60)
    assert seen == [-1, 2]


async def test_a_handler_that_has_seen_a_change_sees_that_it_is_taken_back(
    bench: Bench, autojump_clock: MockClock
) -> None:
    last_seen: dict[str, Any] = {}

    @on.create("widgets", id="first", registry=bench.registry)
    @on.update("widgets", id="first", registry=bench.registry)
    async def first(spec: Any, **_: Any) -> None:
        last_seen["first"] = spec["size"]

    @on.update("widgets", id="second", registry=bench.registry)
    async def second(spec: Any, **_: Any) -> None:
        if spec["size"] == 2:
            raise trioperator.TemporaryError("not yet", delay=10)

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 1}})
        await settle(60)
    assert last_seen == {"first": 1}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("ends", ["temporarily", "interrupted", "unfinished", "stopped"])
async def test_a_handler_that_was_called_for_a_change_and_is_to_be_called_again_sees_that_it_is_taken_back(
    bench: Bench, ends: str, restarts: bool, autojump_clock: MockClock
) -> None:
    calls: list[tuple[int | None, int]] = []

    @on.update("widgets", registry=bench.registry, on_change="cancel" if ends == "interrupted" else "finish")
    async def resize(old: Any, spec: Any, **_: Any) -> None:
        calls.append((old["spec"]["size"], spec["size"]))

        @trioperator.subhandler()
        async def wait(**_: Any) -> None:
            if ends == "unfinished" and spec["size"] == 2:
                raise trioperator.TemporaryError("not yet", delay=10)

        if spec["size"] == 2:
            await trio.sleep(5)
            if ends == "temporarily":
                raise trioperator.TemporaryError("not yet", delay=10)
            if ends in ("interrupted", "stopped"):
                await trio.sleep_forever()

    async with bench.running() as stop:
        await bench.cluster.create(widget(size=1))
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(10)
        if restarts and ends != "interrupted":  # else it goes on until the operator stops
            stop()
            await settle(30)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 1}})
        await settle(1)
    async with bench.running():
        await settle(1)
        assert calls == [(1, 2), (2, 1)]
        left = await bench.cluster.get("widgets", "w")
        assert "trioperator.dev/seen-configuration" not in left["metadata"]["annotations"]
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 3}})
        await settle(60)
    assert calls == [(1, 2), (2, 1), (1, 3)]


async def test_a_change_is_taken_back_for_a_handler_that_had_stored_something_when_its_operator_was_killed(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[tuple[int | None, int]] = []

    @on.update("widgets", registry=bench.registry)
    async def resize(old: Any, spec: Any, patch: trioperator.Patch, **_: Any) -> None:
        calls.append((old["spec"]["size"], spec["size"]))
        if spec["size"] == 2:
            patch.status["phase"] = "Resizing"
            await patch.store()
            await trio.sleep_forever()

    await bench.cluster.create(widget(size=1))
    faults = FaultPlan()
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), faults)):
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(10)
        faults.add(Fault.refuse())  # whatever it wants to store at its end
    await bench.cluster.patch("widgets", "w", {"spec": {"size": 1}})
    async with bench.running():
        await settle(1)
    assert calls == [(1, 2), (2, 1)]
    left = await bench.cluster.get("widgets", "w")
    assert "trioperator.dev/seen-configuration" not in left["metadata"]["annotations"]


async def test_a_change_after_a_failed_one_is_handled_once(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[tuple[int | None, int]] = []

    @on.update("widgets", registry=bench.registry)
    async def resize(old: Any, spec: Any, **_: Any) -> None:
        calls.append((old["spec"]["size"], spec["size"]))
        if spec["size"] == 2:
            raise trioperator.TemporaryError("not yet", delay=10)

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(5)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 3}})
        await settle(60)
    async with bench.running():
        await settle(60)
    assert calls == [(1, 2), (1, 3)]


async def test_a_change_that_is_taken_back_and_comes_again_is_handled_after_a_restart_too(
    bench: Bench, autojump_clock: MockClock
) -> None:
    last_seen: dict[str, int] = {}
    ready = {"first", "second"}

    def declare(id: str) -> None:
        @on.create("widgets", id=id, registry=bench.registry)
        @on.update("widgets", id=id, registry=bench.registry)
        async def handle(spec: Any, **_: Any) -> None:
            if id not in ready:
                raise trioperator.TemporaryError("not yet", delay=10)
            last_seen[id] = spec["size"]

    declare("first")
    declare("second")
    await bench.cluster.create(widget(size=1))
    async with bench.running():
        await settle(1)
        ready.remove("second")
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1)
        ready.remove("first")
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 1}})
        await settle(1)
    assert last_seen == {"first": 2, "second": 1}
    await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
    ready |= {"first", "second"}
    async with bench.running():
        await settle(60)
    assert last_seen == {"first": 2, "second": 2}
    left = await bench.cluster.get("widgets", "w")
    assert "trioperator.dev/seen-configuration" not in left["metadata"]["annotations"]


async def test_what_two_handlers_have_seen_is_taken_back_for_both_after_a_restart_too(
    bench: Bench, autojump_clock: MockClock
) -> None:
    last_seen: dict[str, int] = {}
    ready = {"first"}

    def declare(id: str) -> None:
        @on.create("widgets", id=id, registry=bench.registry)
        @on.update("widgets", id=id, registry=bench.registry)
        async def handle(spec: Any, **_: Any) -> None:
            if id not in ready:
                raise trioperator.TemporaryError("not yet", delay=2)
            last_seen[id] = spec["size"]

    for id in ("first", "second", "third"):
        declare(id)
    await bench.cluster.create(widget(size=1))
    async with bench.running():
        await settle(1)
        ready.add("second")
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(5)
    assert last_seen == {"first": 1, "second": 2}
    await bench.cluster.patch("widgets", "w", {"spec": {"size": 1}})
    ready.add("third")
    async with bench.running():
        await settle(60)
    assert last_seen == {"first": 1, "second": 1, "third": 1}


async def test_a_change_that_only_the_later_handlers_have_seen_is_taken_back_for_them_too(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen: dict[str, list[int]] = {"first": [], "second": []}

    @on.update("widgets", id="first", registry=bench.registry)
    async def first(spec: Any, **_: Any) -> None:
        seen["first"].append(spec["size"])
        await trio.sleep(5)

    @on.update("widgets", id="second", registry=bench.registry)
    async def second(spec: Any, **_: Any) -> None:
        seen["second"].append(spec["size"])
        await trio.sleep(5)

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(1)
        for size, seconds in ((2, 3), (3, 5), (2, 60)):  # the last one while the second handler has the one before
            await bench.cluster.patch("widgets", "w", {"spec": {"size": size}})
            await settle(seconds)
    assert seen["first"][-1] == 2
    assert seen["second"][:1] == [3]
    assert seen["second"][-1] == 2


async def test_a_change_that_is_taken_back_while_the_operator_is_paused_is_taken_back_for_who_has_seen_it(
    bench: Bench, autojump_clock: MockClock
) -> None:
    last_seen: dict[str, Any] = {}

    @on.create("widgets", id="first", registry=bench.registry)
    @on.update("widgets", id="first", registry=bench.registry)
    async def first(spec: Any, **_: Any) -> None:
        last_seen["first"] = spec["size"]

    @on.update("widgets", id="second", registry=bench.registry)
    async def second(spec: Any, **_: Any) -> None:
        if spec["size"] == 2:
            raise trioperator.TemporaryError("not yet", delay=10)

    await bench.cluster.apply(peering_definition(*CLUSTERS_PEERING))
    await bench.cluster.create(peering(CLUSTERS_PEERING[0], None))
    bench.settings.peering.standalone, bench.settings.peering.mandatory = False, True
    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1)
        boss = {"priority": 1000, "lifetime": 30, "lastseen": wall_now().isoformat()}
        await bench.cluster.patch(CLUSTERS_PEERING[1], "default", {"status": {"boss": boss}})
        await settle(10)
        assert last_seen == {"first": 2}
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 1}})
        await settle(60)
        assert last_seen == {"first": 1}
        left = await bench.cluster.get("widgets", "w")
        assert "trioperator.dev/first" not in left["metadata"]["annotations"]
