"""Tests for :mod:`trioperator._coordination.peering`: operators pause in favour of others, as Kopf's do."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.coordination.peers import Operator, peering, peering_crd
from tests.runtime.conftest import CRD, settle, widget
from tests.runtime.daemons.test_wall_clock import set_clock
from tests.runtime.restoring import Memory, Switch
from trioperator._concurrency.clock import wall_now
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport


@pytest.fixture
async def cluster(cluster: Cluster) -> Cluster:
    await cluster.apply(CRD)
    await cluster.apply(peering_crd())
    await cluster.apply(peering_crd(clusterwide=False))
    return cluster


async def records(cluster: Cluster, name: str = "default") -> dict[str, Any]:
    found: dict[str, Any] = (await cluster.get("clusterkopfpeerings", name)).get("status") or {}
    return {identity: record["priority"] for identity, record in found.items()}


async def test_an_operator_pauses_while_one_with_a_higher_priority_runs_and_resumes_where_it_was(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    await cluster.create(peering())
    low, high = Operator(cluster), Operator(cluster, priority=10)
    async with low.bench.running():
        await cluster.create(widget())
        await settle(1)
        assert low.handled == ["create w"]
        assert low.running == {"w"}
        async with high.bench.running():
            await settle(1)
            assert not low.running
            assert high.running == {"w"}
            await cluster.patch("widgets", "w", {"spec": {"size": 2}})
            await settle(200)  # keep-alives keep the pause
            assert low.handled == ["create w"]
            assert high.handled == ["resume w", "update w"]
        await settle(1)
        assert low.running == {"w"}
        await cluster.patch("widgets", "w", {"spec": {"size": 3}})
        await settle(1)
    assert low.handled == ["create w", "update w again"]  # no second resume, and the same memo


async def test_records_are_kept_alive_and_removed_on_exit(cluster: Cluster, autojump_clock: MockClock) -> None:
    await cluster.create(peering())
    operator = Operator(cluster, priority=7)
    async with operator.bench.running(identity="me"):
        await settle(1)
        first = (await cluster.get("clusterkopfpeerings", "default"))["status"]["me"]
        assert first["priority"] == 7
        assert first["lifetime"] == 60
        cluster.requests.clear()
        await settle(600)
        renewals = cluster.requests.select(verb="patch", resource="clusterkopfpeerings")
        assert 600 / 55 <= len(renewals) <= 600 / 50 + 1
        assert (await cluster.get("clusterkopfpeerings", "default"))["status"]["me"]["lastseen"] != first["lastseen"]
    assert await records(cluster) == {}


async def test_an_operator_that_stops_before_the_response_to_its_first_record_leaves_none(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    await cluster.create(peering())
    plan = FaultPlan()
    plan.add(Fault.delay(after=1), method="PATCH", resource="clusterkopfpeerings", times=1)
    operator = Operator(cluster)
    async with operator.bench.running(identity="me", transport=FaultyTransport(cluster.transport(), plan)):
        await trio.sleep(0.5)
        assert set(await records(cluster)) == {"me"}
    assert await records(cluster) == {}


async def test_a_record_that_others_remove_is_written_again_at_once(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    await cluster.create(peering())
    async with Operator(cluster).bench.running(identity="me"):
        await settle(5)
        cluster.requests.clear()
        await cluster.patch("clusterkopfpeerings", "default", {"status": {"me": None}})
        await settle(1)
        assert set(await records(cluster)) == {"me"}
        await settle(40)
        assert len(cluster.requests.select(verb="patch", resource="clusterkopfpeerings")) == 1


async def test_operators_whose_clocks_differ_do_not_remove_and_write_a_record_in_turn(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    await cluster.create(peering())
    plan = FaultPlan()

    async def remove() -> None:  # as an operator does whose clock is ahead
        await trio.sleep(0.1)
        await cluster.patch("clusterkopfpeerings", "default", {"status": {"me": None}})

    async with trio.open_nursery() as nursery:
        hook = Fault.call(lambda: nursery.start_soon(remove))
        plan.add(hook, resource="clusterkopfpeerings", verb="patch")
        async with Operator(cluster).bench.running(identity="me", transport=FaultyTransport(cluster.transport(), plan)):
            await settle(600)
        plan.clear()
    writes = cluster.requests.select(verb="patch", resource="clusterkopfpeerings")
    assert 600 / 55 <= len(writes) <= 2 * 600 / 50 + 2


async def test_an_operator_resumes_when_a_peer_has_died(cluster: Cluster, autojump_clock: MockClock) -> None:
    await cluster.create(peering())
    low, high = Operator(cluster), Operator(cluster, priority=10)
    plan = FaultPlan()
    async with low.bench.running(), trio.open_nursery() as nursery:

        async def die() -> None:
            async with high.bench.running(transport=FaultyTransport(cluster.transport(), plan), identity="high"):
                await settle(5)
                plan.add(Fault.refuse())
                nursery.cancel_scope.cancel()

        await cluster.create(widget())
        nursery.start_soon(die)
        await settle(4)
        assert not low.running
        await trio.sleep_forever()
    assert await records(cluster) == {"high": 10}  # no time was left to see it die
    async with low.bench.running():
        await settle(1)
        assert not low.running
        await settle(60)
        assert low.running == {"w"}
        assert "high" not in await records(cluster)  # dead records are removed


async def test_an_operator_that_shows_late_that_it_is_alive_keeps_its_record(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    await cluster.create(peering())
    low, high, lag = Operator(cluster), Operator(cluster, priority=10), FaultPlan()
    lag.add(Fault.lag(1), watch=True, resource="clusterkopfpeerings")
    async with low.bench.running(transport=FaultyTransport(cluster.transport(), lag)):
        seen = wall_now() - datetime.timedelta(seconds=100)  # it was killed, and was not there for a while
        record = {"priority": 10, "lifetime": 102, "lastseen": seen.isoformat()}
        await settle(1)
        await cluster.patch("clusterkopfpeerings", "default", {"status": {"high": record}})
        await settle(0.5)
        async with high.bench.running(identity="high"):
            await settle(5)
            await cluster.create(widget())
            await settle(25)
            assert "high" in await records(cluster)
            assert low.handled == []
    assert high.handled == ["create w"]


async def announce(cluster: Cluster, *, ahead: float = 0) -> None:
    """Write the record of an operator with a higher priority, whose clock is ahead, or behind."""
    seen = wall_now() + datetime.timedelta(seconds=ahead)
    record = {"priority": 10, "lifetime": 60, "lastseen": seen.isoformat()}
    await cluster.patch("clusterkopfpeerings", "default", {"status": {"high": record}})


@pytest.mark.parametrize("seconds", [-3600, 600])
async def test_an_operator_stays_paused_for_one_that_is_alive_when_the_clock_is_set(
    cluster: Cluster, autojump_clock: MockClock, seconds: int
) -> None:
    await cluster.create(peering())
    low, high = Operator(cluster), Operator(cluster, priority=10)
    async with low.bench.running(identity="low"), high.bench.running(identity="high"):
        await settle(20)
        set_clock(seconds)
        await settle(1)
        await cluster.create(widget())
        await settle(300)
        assert set(await records(cluster)) == {"low", "high"}
        assert low.handled == []
    assert high.handled == ["create w"]


@pytest.mark.parametrize("is_early", [False, True], ids=["seen before it is set", "seen first after that"])
async def test_a_clock_that_is_set_back_does_not_keep_a_dead_operator_alive(
    cluster: Cluster, autojump_clock: MockClock, is_early: bool
) -> None:
    await cluster.create(peering())
    low = Operator(cluster)
    await announce(cluster, ahead=0 if is_early else 3600)
    async with low.bench.running(identity="low"):
        await cluster.create(widget())
        await settle(10)
        if is_early:
            set_clock(-3600)
        await settle(40)
        assert low.handled == []
        await settle(20)
        assert low.handled == ["create w"]


async def test_an_operator_whose_clock_is_behind_is_not_taken_for_dead_for_long(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    await cluster.create(peering())
    low = Operator(cluster)
    await announce(cluster, ahead=-600)
    async with low.bench.running(identity="low"):
        await settle(5)
        assert set(await records(cluster)) == {"low"}
        await announce(cluster, ahead=-600)  # as operators do whose records are removed
        await settle(1)
        await cluster.create(widget())
        for _ in range(5):
            await settle(50)
            assert set(await records(cluster)) == {"low", "high"}
            await announce(cluster, ahead=-600)
        assert low.handled == []
        await settle(65)
        assert low.handled == ["create w"]


async def test_operators_with_the_same_priority_all_pause(cluster: Cluster, autojump_clock: MockClock) -> None:
    await cluster.create(peering())
    one, other = Operator(cluster), Operator(cluster)
    async with one.bench.running(identity="a"), other.bench.running(identity="b"):
        await cluster.create(widget())
        await settle(100)
        assert not one.handled
        assert not other.handled


async def test_with_a_tie_break_one_of_them_goes_on(cluster: Cluster, autojump_clock: MockClock) -> None:
    await cluster.create(peering())
    one, other = Operator(cluster, tie_break=True), Operator(cluster, tie_break=True)
    async with one.bench.running(identity="b"), other.bench.running(identity="a"):
        await cluster.create(widget())
        await settle(100)
        assert other.handled == ["create w"]
        assert not one.handled


async def test_operators_that_divide_the_objects_by_selectors_work_at_the_same_time(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    await cluster.create(peering())
    halves = "'0x0000000000000000', '0x8000000000000000'", "'0x8000000000000000', '0x10000000000000000'"
    operators = [Operator(cluster), Operator(cluster)]
    for operator, half in zip(operators, halves, strict=True):
        selectors = operator.bench.settings.watching.shard_selectors
        selectors["widgets"] = f"shardRange(object.metadata.uid, {half})"
    names = {f"w{number}" for number in range(10)}
    one, other = operators
    async with one.bench.running(identity="a"), other.bench.running(identity="b"):
        for name in names:
            await cluster.create(widget(name))
        await settle(100)
        assert sorted(one.handled + other.handled) == sorted(f"create {name}" for name in names)
        assert one.running | other.running == names
        assert 0 < len(one.running) < len(names)


@pytest.mark.parametrize("priority", [0, 5])
@pytest.mark.parametrize("shards", [1, 2])
async def test_replicas_that_share_a_lease_do_not_pause_for_one_another(
    cluster: Cluster, autojump_clock: MockClock, shards: int, priority: int
) -> None:
    await cluster.create(peering())
    replicas = Operator(cluster), Operator(cluster, priority=priority)
    for replica in replicas:
        replica.bench.settings.leadership.enabled, replica.bench.settings.leadership.shards = shards == 1, shards
    one, other = replicas
    async with one.bench.running(identity="one"), other.bench.running(identity="other"):
        await trio.sleep(60)
        for number in range(8):
            await cluster.create(widget(f"w{number}"))
        await trio.sleep(60)
        assert sorted(one.handled + other.handled) == [f"create w{number}" for number in range(8)]
        assert bool(other.handled) is (shards > 1)
        await cluster.patch("clusterkopfpeerings", "default", {"status": {"kopf": {"priority": 10}}})
        await trio.sleep(1)
        assert not one.running | other.running


async def test_a_standalone_operator_takes_no_part(cluster: Cluster, autojump_clock: MockClock) -> None:
    await cluster.create(peering())
    alone, high = Operator(cluster), Operator(cluster, priority=10)
    async with alone.bench.running(standalone=True), high.bench.running(identity="high"):
        await settle(1)
        assert await records(cluster) == {"high": 10}
        await cluster.create(widget())
        await settle(1)
        assert alone.running == {"w"}


async def test_without_a_peering_object_an_operator_is_standalone_until_there_is_one(
    cluster: Cluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    low, high = Operator(cluster), Operator(cluster, priority=1)
    async with low.bench.running(), high.bench.running():
        await cluster.create(widget())
        await settle(1)
        assert "Default peering object is not found, falling back to the standalone mode." in caplog.text
        assert low.running == high.running == {"w"}
        await cluster.create(peering())
        await settle(1)
        assert not low.running
        assert high.running == {"w"}
        caplog.clear()
        await cluster.delete("clusterkopfpeerings", "default")
        await settle(1)
        assert low.running == {"w"}
        assert caplog.text.count("The peering object 'default' is gone, falling back to the standalone mode.") == 2


async def test_with_a_mandatory_peering_an_operator_pauses_while_the_object_does_not_exist(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    operator = Operator(cluster)
    async with operator.bench.running(peering_name="mine", priority=5, identity="me"):
        await cluster.create(widget())
        await settle(100)
        assert not operator.handled
        await cluster.create(peering("mine"))
        await settle(1)
        assert operator.handled == ["resume w", "create w"] or operator.handled == ["create w"]
        assert await records(cluster, "mine") == {"me": 5}
        await cluster.delete("clusterkopfpeerings", "mine")
        await settle(1)
        assert not operator.running
        await cluster.create(peering("mine"))
        await settle(1)
        assert operator.running == {"w"}


async def test_with_a_mandatory_peering_an_operator_waits_for_the_definition_of_peerings(
    autojump_clock: MockClock,
) -> None:
    bare = Cluster()
    await bare.apply(CRD)
    operator = Operator(bare)
    async with operator.bench.running(peering_name="default"):
        await bare.create(widget())
        await settle(10)
        assert not operator.running
        await bare.apply(peering_crd())
        await bare.create(peering())
        await settle(100)
        assert operator.running == {"w"}


async def test_the_old_group_of_peerings_is_found(autojump_clock: MockClock) -> None:
    bare = Cluster()
    await bare.apply(CRD)
    await bare.apply(peering_crd(group="zalando.org"))
    await bare.create(peering(group="zalando.org"))
    async with Operator(bare).bench.running(identity="me"):
        await settle(1)
        assert "me" in (await bare.get("clusterkopfpeerings", "default"))["status"]


async def test_operators_of_namespaces_have_a_peering_in_each(cluster: Cluster, autojump_clock: MockClock) -> None:
    for namespace in ("team-a", "team-b"):
        await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        await cluster.create(peering(namespace=namespace))
    low, high = Operator(cluster), Operator(cluster, priority=3)
    async with low.bench.running(namespaces=["team-*"], identity="low"):
        await settle(1)
        for namespace in ("team-a", "team-b"):
            found = await cluster.get("kopfpeerings", "default", namespace=namespace)
            assert list(found["status"]) == ["low"]
        async with high.bench.running(namespace="team-b"):
            await cluster.create({**widget(), "metadata": {"name": "w", "namespace": "team-b"}})
            await settle(1)
            assert high.running == {"w"}
            assert not low.running
        await settle(1)
        assert low.running == {"w"}


async def test_records_that_cannot_be_written_are_tried_again(
    cluster: Cluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create(peering())
    operator, plan = Operator(cluster), FaultPlan()
    plan.add(Fault.status(403), resource="clusterkopfpeerings", verb="patch", times=3)
    transport = FaultyTransport(cluster.transport(), plan)
    async with operator.bench.running(identity="me", transport=transport):
        await settle(60)
        assert await records(cluster) == {"me": 0}
    assert "cannot show that it is alive" in caplog.text


async def test_a_keep_alive_without_a_response_is_tried_again_before_the_record_ends(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    await cluster.create(peering())
    await cluster.create(widget())
    low, high, plan = Operator(cluster), Operator(cluster, priority=10), FaultPlan()
    plan.add(Fault.stall(), resource="clusterkopfpeerings", verb="patch", skip=1, times=1)
    async with high.bench.running(transport=FaultyTransport(cluster.transport(), plan)), low.bench.running():
        for _ in range(200):
            await settle(1)
            assert (high.running, low.running) == ({"w"}, set())


@pytest.mark.parametrize("lifetime", [2, 10, 60])
async def test_an_operator_that_cannot_show_that_it_is_alive_pauses_before_others_take_over(
    lifetime: float, cluster: Cluster, autojump_clock: MockClock
) -> None:
    await cluster.create(peering())
    await cluster.create(widget())
    low, plan = Operator(cluster), FaultPlan()
    high = Operator(cluster, priority=10, lifetime=lifetime)
    async with high.bench.running(transport=FaultyTransport(cluster.transport(), plan)), low.bench.running():
        await settle(3 * lifetime)
        assert (high.running, low.running) == ({"w"}, set())
        plan.add(Fault.stall(), resource="clusterkopfpeerings", verb="patch")
        while not low.running:
            await settle(0.25)
            assert not (high.running and low.running)
        await settle(lifetime)
        assert (high.running, low.running) == (set(), {"w"})
        plan.clear()
        await settle(2 * lifetime)
        assert (high.running, low.running) == ({"w"}, set())


@pytest.mark.parametrize("attempt", range(6))  # tasks that are due at the same time run in any order
async def test_an_operator_that_was_suspended_for_longer_than_its_record_lives_changes_nothing_when_it_wakes(
    attempt: int, cluster: Cluster, mock_clock: MockClock
) -> None:
    await cluster.create(peering())
    await cluster.create(widget())
    operator, plan, ticks = Operator(cluster), FaultPlan(), list[float]()

    @trioperator.timer("widgets", registry=operator.bench.registry, interval=5)
    async def tick(**_: Any) -> None:
        ticks.append(trio.current_time())

    async with trio.open_nursery() as nursery:

        async def operate() -> None:
            async with operator.bench.running(transport=FaultyTransport(cluster.transport(), plan)):
                await trio.sleep_forever()

        nursery.start_soon(operate)
        for _ in range(48):
            await settle()
            mock_clock.jump(0.25)
        await settle()
        assert len(ticks) >= 2
        plan.add(Fault.stall(), resource="clusterkopfpeerings", verb="patch")
        ticks.clear()
        mock_clock.jump(120)
        await settle()
        assert not ticks
        assert not operator.running
        plan.clear()
        for _ in range(80):
            await settle()
            mock_clock.jump(0.25)
        assert ticks
        nursery.cancel_scope.cancel()


async def test_a_replica_with_shards_that_cannot_show_that_it_is_alive_gives_them_back(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    await cluster.create(peering())
    await cluster.create(widget())
    operator, plan = Operator(cluster), FaultPlan()
    async with operator.bench.running(transport=FaultyTransport(cluster.transport(), plan), shards=2):
        await settle(5)
        assert operator.running == {"w"}
        plan.add(Fault.stall(), resource="clusterkopfpeerings", verb="patch")
        await settle(60)
        assert not operator.running
        leases = await cluster.list("leases.coordination.k8s.io", "default")
        assert {
            lease["spec"].get("holderIdentity") for lease in leases if "members" not in lease["metadata"]["name"]
        } == {""}
        plan.clear()
        await settle(60)
        assert operator.running == {"w"}


def record(priority: int, *, lifetime: float) -> dict[str, Any]:
    return {"priority": priority, "lifetime": lifetime, "lastseen": wall_now().isoformat()}


async def test_an_operator_pauses_in_time_though_removing_a_dead_peer_gets_no_response(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    await cluster.create(peering())
    await cluster.create(widget())
    operator, plan = Operator(cluster), FaultPlan()
    async with operator.bench.running(transport=FaultyTransport(cluster.transport(), plan)):
        await settle(5)
        assert operator.running == {"w"}
        plan.add(Fault.stall(), resource="clusterkopfpeerings", verb="patch")
        await cluster.patch("clusterkopfpeerings", "default", {"status": {"dead": record(-1, lifetime=0)}})
        await settle(60)
        assert not operator.running
        plan.clear()
        await settle(60)
        assert operator.running == {"w"}


async def test_an_operator_resumes_in_time_though_removing_another_dead_peer_gets_no_response(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    await cluster.create(peering())
    await cluster.create(widget())
    operator, plan = Operator(cluster), FaultPlan()
    async with operator.bench.running(transport=FaultyTransport(cluster.transport(), plan)):
        await settle(5)
        plan.add(Fault.stall(), resource="clusterkopfpeerings", verb="patch", times=1)
        others = {"dead": record(-1, lifetime=0), "dying": record(10, lifetime=20)}
        await cluster.patch("clusterkopfpeerings", "default", {"status": others})
        await settle(10)
        assert not operator.running
        await settle(15)
        assert operator.running == {"w"}


@pytest.mark.parametrize("fault", [Fault.silence(), Fault.lag(100)], ids=["silent", "late"])
async def test_a_peer_is_not_taken_for_dead_because_its_keep_alives_are_not_seen(
    cluster: Cluster, autojump_clock: MockClock, fault: Fault
) -> None:
    await cluster.create(peering())
    await cluster.create(widget())
    low, high, plan = Operator(cluster), Operator(cluster, priority=10), FaultPlan()
    plan.add(fault, resource="clusterkopfpeerings", watch=True)
    async with high.bench.running(), low.bench.running(transport=FaultyTransport(cluster.transport(), plan)):
        for _ in range(300):
            await settle(1)
            assert not low.running
            assert high.running == {"w"}


async def test_a_peer_is_not_taken_for_dead_when_etcd_was_restored_and_no_watch_has_shown_it(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    await cluster.create(peering())
    await cluster.create(widget())
    low, high, plan = Operator(cluster), Operator(cluster, priority=10), FaultPlan()
    plan.add(Fault.silence(), resource="clusterkopfpeerings", watch=True)
    async with high.bench.running(), low.bench.running(transport=FaultyTransport(cluster.transport(), plan)):
        await settle(5)
        backup = cluster.snapshot()
        await settle(100)
        await cluster.restore(backup)
        for _ in range(200):
            await settle(1)
            assert not low.running
    assert len(cluster.requests.select(verb="patch", resource="clusterkopfpeerings")) <= 30  # of two in 305 s


async def test_a_peer_that_a_restored_etcd_has_not_heard_of_is_not_taken_for_gone(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    await cluster.create(peering())
    await cluster.create(widget())
    low, high, plan = Operator(cluster), Operator(cluster, priority=10), FaultPlan()
    plan.add(Fault.silence(), resource="clusterkopfpeerings", watch=True)  # it learns late that its record is gone
    async with low.bench.running(identity="low"):
        await settle(5)
        backup = cluster.snapshot()
        async with high.bench.running(identity="high", transport=FaultyTransport(cluster.transport(), plan)):
            await settle(70)
            await cluster.restore(backup)
            await settle(1)
            assert set(await records(cluster)) == {"low"}
            for _ in range(100):
                await settle(1)
                assert not low.running
            assert set(await records(cluster)) == {"low", "high"}
        await settle(1)
        assert low.running == {"w"}


async def test_a_peer_that_a_restored_etcd_has_not_heard_of_counts_until_its_record_would_have_ended(
    autojump_clock: MockClock,
) -> None:
    data = Memory()
    old = Cluster(clock=wall_now, data=data)
    await old.apply([CRD, peering_crd(), peering(), widget()])
    operator, switch = Operator(old), Switch(old.transport())
    operator.bench.settings.watching.client_timeout = 2  # the watches of before end
    async with operator.bench.running(transport=switch):
        await settle(5)
        backup = data.copy()
        await old.patch("clusterkopfpeerings", "default", {"status": {"dead": record(10, lifetime=40)}})
        await settle(5)
        switch.inner = Cluster(clock=wall_now, data=backup).transport()  # its versions have gone back
        switch.expired = "/apis/kopf.dev/v1/clusterkopfpeerings"
        await settle(25)
        assert not operator.running
        await settle(15)
        assert operator.running == {"w"}


async def test_an_operator_resumes_without_a_watch_when_a_peer_has_died(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    await cluster.create(peering())
    await cluster.create(widget())
    operator, plan = Operator(cluster), FaultPlan()
    plan.add(Fault.silence(), resource="clusterkopfpeerings", watch=True)
    await cluster.patch("clusterkopfpeerings", "default", {"status": {"high": record(10, lifetime=20)}})
    async with operator.bench.running(transport=FaultyTransport(cluster.transport(), plan)):
        await settle(18)
        assert not operator.running
        await settle(4)
        assert operator.running == {"w"}


async def test_dead_peers_that_are_seen_while_others_are_being_removed_are_removed_after_them(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    await cluster.create(peering())
    operator, plan = Operator(cluster), FaultPlan()
    async with operator.bench.running(identity="me", transport=FaultyTransport(cluster.transport(), plan)):
        await settle(5)
        plan.add(Fault.delay(before=20), resource="clusterkopfpeerings", verb="patch", times=1)
        await cluster.patch("clusterkopfpeerings", "default", {"status": {"first": record(-1, lifetime=0)}})
        await settle(5)
        await cluster.patch("clusterkopfpeerings", "default", {"status": {"second": record(-1, lifetime=0)}})
        await settle(10)
        assert set(await records(cluster)) == {"me", "first", "second"}
        await settle(10)
        assert set(await records(cluster)) == {"me"}
