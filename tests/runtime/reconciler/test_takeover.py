"""Tests for :mod:`trioperator._runtime.reconciler.takeover`: what another operator has handled is not handled again."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.opaque import OpaqueTransport
from tests.runtime.conftest import CRD, PLAIN_CRD, Bench, settle, widget
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport

#: Seconds by which each event of a standby's watch is late.
LAG = 8.0


@dataclasses.dataclass(eq=False)
class Replica:
    """One of two replicas, and what it has handled."""

    bench: Bench
    handled: list[str]
    plan: FaultPlan


def make_replica(cluster: Cluster, name: str, *, shards: int = 1) -> Replica:
    registry, settings = trioperator.OperatorRegistry(), trioperator.OperatorSettings()
    settings.leadership.enabled = shards == 1
    settings.leadership.shards = shards
    settings.leadership.identity = name
    settings.peering.standalone = True
    settings.posting.enabled = False
    replica = Replica(Bench(cluster, registry, settings), [], FaultPlan())

    @trioperator.on.create("widgets", registry=registry)
    async def create(name: str, **_: Any) -> None:
        await trio.sleep(3 if name.startswith("slow") else 0)
        replica.handled.append(f"create {name}")

    @trioperator.on.update("widgets", registry=registry)
    async def update(name: str, spec: trioperator.Spec, **_: Any) -> None:
        replica.handled.append(f"update {name} {spec['size']}")

    @trioperator.on.delete("widgets", registry=registry, optional=True)
    async def delete(name: str, **_: Any) -> None:
        replica.handled.append(f"delete {name}")

    return replica


@pytest.fixture
async def cluster(cluster: Cluster) -> Cluster:
    await cluster.apply(CRD)
    return cluster


@pytest.mark.parametrize("shards", [1, 3])
async def test_a_replica_whose_watch_is_late_does_not_handle_again_what_the_one_before_has_handled(
    shards: int, cluster: Cluster, autojump_clock: MockClock
) -> None:
    first, second = make_replica(cluster, "a", shards=shards), make_replica(cluster, "b", shards=shards)
    second.plan.add(Fault.lag(LAG), watch=True, resource="widgets")
    async with first.bench.running() as stop:
        await cluster.create(widget("updated"))
        await cluster.create(widget("deleted"))
        await settle(5)
        async with second.bench.running(transport=FaultyTransport(cluster.transport(), second.plan)):
            await settle(20)
            before = [*first.handled, *second.handled]
            assert sorted(before) == ["create deleted", "create updated"]
            first.handled.clear()
            second.handled.clear()
            for number in range(4):
                await cluster.create(widget(f"created-{number}"))
            await cluster.patch("widgets", "updated", {"spec": {"size": 2}})
            await cluster.delete("widgets", "deleted")
            await settle(0.5)
            stop()
            await settle(200)
            handled = [*first.handled, *second.handled]
            expected = [f"create created-{number}" for number in range(4)] + ["delete deleted", "update updated 2"]
            if shards == 1:
                assert sorted(handled) == expected
            else:  # what belongs to a shard of the late one is handled there, late
                assert sorted(call for call in handled if call != "delete deleted") == [
                    call for call in expected if call != "delete deleted"
                ]
            await cluster.patch("widgets", "updated", {"spec": {"size": 3}})
            await settle(60)
            assert "update updated 3" in second.handled


@pytest.mark.parametrize("shards", [1, 3])
async def test_a_replica_whose_first_list_is_late_does_not_handle_again_what_the_one_before_has_handled(
    shards: int, autojump_clock: MockClock
) -> None:
    cluster = Cluster(shard_selectors=False)
    await cluster.apply(CRD)
    first, second = make_replica(cluster, "a", shards=shards), make_replica(cluster, "b", shards=shards)
    second.plan.add(Fault.delay(after=20), verb="list", resource="widgets", times=2)
    second.plan.add(Fault.lag(LAG), watch=True, resource="widgets")
    names = [f"slow-{number}" for number in range(5)]
    async with first.bench.running() as stop:
        for name in names:
            await cluster.create(widget(name))
        await settle(0.5)
        async with second.bench.running(transport=FaultyTransport(cluster.transport(), second.plan)):
            assert sorted(first.handled) == [f"create {name}" for name in names]
            stop()
            await settle(60)
            assert len(first.handled) == len(names)
            assert not second.handled
            await cluster.patch("widgets", names[0], {"spec": {"size": 2}})
            await settle(60)
            assert second.handled == [f"update {names[0]} 2"]


async def test_a_replica_whose_watch_is_late_does_not_handle_again_what_was_handled_if_versions_are_no_numbers(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    first, second = make_replica(cluster, "a"), make_replica(cluster, "b")
    second.plan.add(Fault.lag(LAG), watch=True, resource="widgets")
    async with first.bench.running(transport=OpaqueTransport(cluster.transport())) as stop:
        await cluster.create(widget("old"))
        await settle(5)
        transport = OpaqueTransport(FaultyTransport(cluster.transport(), second.plan))
        async with second.bench.running(transport=transport):
            await settle(20)
            await cluster.create(widget("new"))
            await cluster.patch("widgets", "old", {"spec": {"size": 2}})
            await settle(0.5)
            stop()
            await settle(60)
            assert sorted([*first.handled, *second.handled]) == ["create new", "create old", "update old 2"]
            await cluster.patch("widgets", "new", {"spec": {"size": 2}})
            await settle(60)
    assert second.handled == ["update new 2"]


async def test_a_takeover_costs_one_request_for_each_kind_with_changes_and_none_for_what_comes_after_it(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    await cluster.apply(PLAIN_CRD)
    await cluster.create(widget("g", kind="Gadget"))
    first, second = make_replica(cluster, "a"), make_replica(cluster, "b")

    @trioperator.index("gadgets", registry=second.bench.registry)
    def gadgets(name: str, **_: Any) -> dict[str, str]:
        return {name: name}

    async with first.bench.running() as stop:
        for number in range(5):
            await cluster.create(widget(f"old-{number}"))
        async with second.bench.running():
            await settle(5)
            cluster.requests.clear()
            stop()
            await settle(5)
            (request,) = cluster.requests.select(resource="widgets")
            assert request.verb == "list"
            assert not cluster.requests.select(resource="gadgets")
            cluster.requests.clear()
            await cluster.create(widget("new"))
            await cluster.patch("widgets", "new", {"spec": {"size": 2}})
            await settle(5)
            assert {request.verb for request in cluster.requests.select(resource="widgets")} == {"patch"}
            assert len(cluster.requests.select(resource="widgets")) == len(second.handled)


async def test_objects_whose_version_cannot_be_found_are_read_before_their_next_change_is_handled(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    first, second = make_replica(cluster, "a"), make_replica(cluster, "b")
    second.plan.add(Fault.lag(LAG), watch=True, resource="widgets")
    transport = FaultyTransport(cluster.transport(), second.plan)
    async with first.bench.running() as stop, second.bench.running(transport=transport):
        await settle(5)
        await cluster.create(widget("w"))
        await settle(0.5)
        second.plan.add(Fault.status(403), verb="list", resource="widgets")
        stop()
        await settle(60)
        assert (first.handled, second.handled) == (["create w"], [])
        await cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(20)
        assert second.handled == ["update w 2"]


async def test_an_operator_without_others_takes_nothing_over(cluster: Cluster, autojump_clock: MockClock) -> None:
    operator = make_replica(cluster, "a")
    operator.bench.settings.leadership.enabled = False
    await cluster.create(widget("w"))
    async with operator.bench.running():
        await settle(5)
        requests = cluster.requests.select(resource="widgets")
        assert [request.verb for request in requests] == ["list", "watch", "patch"]


@pytest.mark.parametrize("shards", [1, 3])
async def test_an_object_that_is_gone_before_its_late_watch_says_so_is_left_alone(
    shards: int, cluster: Cluster, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    first, second = make_replica(cluster, "a", shards=shards), make_replica(cluster, "b", shards=shards)
    second.plan.add(Fault.lag(20), watch=True, resource="widgets")
    transport = FaultyTransport(cluster.transport(), second.plan)
    async with first.bench.running() as stop, second.bench.running(transport=transport):
        await cluster.create(widget("w"))
        await settle(60)
        first.handled.clear()
        second.handled.clear()
        await cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1)
        stop()
        await settle(10)
        cluster.requests.clear()
        await cluster.delete("widgets", "w")
        await settle(100)
    assert [*first.handled, *second.handled] in (["update w 2", "delete w"], ["delete w"])
    reads = [r for r in cluster.requests.select(resource="widgets", name="w") if r.verb != "delete"]
    assert len(reads) == (shards == 1), "what is listed after a shard is acquired need not be read again"
    assert "could not be handled" not in caplog.text


def make_timed_replica(cluster: Cluster, name: str) -> Replica:
    registry, settings = trioperator.OperatorRegistry(), trioperator.OperatorSettings()
    settings.leadership.enabled = True
    settings.leadership.identity = name
    settings.peering.standalone = True
    settings.posting.enabled = False
    replica = Replica(Bench(cluster, registry, settings), [], FaultPlan())

    @trioperator.timer("widgets", interval=1, registry=registry)
    async def tick(uid: str, patch: trioperator.Patch, **_: Any) -> None:
        replica.handled.append(uid)
        patch.status["uid"] = uid

    return replica


async def test_timers_on_a_state_that_is_late_write_nothing_to_the_successor_of_their_object(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    first, second = (make_timed_replica(cluster, name) for name in "ab")
    second.plan.add(Fault.lag(20), watch=True, resource="widgets")
    transport = FaultyTransport(cluster.transport(), second.plan)
    async with first.bench.running() as stop:
        before = await cluster.create(widget("w"))
        async with second.bench.running(transport=transport):
            await settle(5)
            await cluster.delete("widgets", "w")
            await settle(1)
            after = await cluster.create(widget("w"))
            stop()
            written = set()
            for _ in range(200):
                await settle(0.5)
                written.add((await cluster.get("widgets", "w")).get("status", {}).get("uid"))
    assert before["metadata"]["uid"] in second.handled, "it cannot know better"
    assert written - {None} == {after["metadata"]["uid"]}
