"""Tests for pauses of an operator: whenever one comes, nothing is handled from then on, and everything after it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.announcing import Change, announce, withdraw
from tests.coordination.peers import peering, peering_crd
from tests.runtime.conftest import CRD, PLAIN_CRD, Bench, settle, widget
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport

#: Seconds that each request of a starting operator takes, so that its start has many moments.
LATENCY = 0.5
#: Seconds within which an operator notices that somebody has taken its lease: two attempts.
NOTICE = 5.0
#: Seconds after the begin of a start: in the middle of each of its requests, and in the first seconds after them.
MOMENTS = [0.1, 0.6, 1.1, 1.6, 2.1, 2.6, 3.1, 3.6, 4.1, 5.1, 6.1, 7.1]


@dataclasses.dataclass(frozen=True)
class Cause:
    """Why an operator pauses: what somebody does in the cluster, and undoes."""

    begin: Change
    end: Change
    settings: dict[str, Any]
    notice: float = 0.0


def hold(identity: str, seconds: int) -> Change:
    async def hold(cluster: Cluster) -> None:
        spec = {"holderIdentity": identity, "leaseDurationSeconds": seconds}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}
        await cluster.apply({**lease, "metadata": {"name": "trioperator", "namespace": "default"}})

    return hold


CAUSES = {
    "peer with a higher priority": Cause(announce(10), withdraw, {"peering": True}),
    "peer with the same priority": Cause(announce(0), withdraw, {"peering": True}),
    "lost lease": Cause(hold("other", 3600), hold("", 1), {"leadership": True, "peering": True}, NOTICE),
    "peer of a replica with shards": Cause(announce(10), withdraw, {"peering": True, "shards": 3}),
}


class Operator:
    """An operator on a slow cluster, which notes what it does for widgets."""

    def __init__(self, cluster: Cluster, *, peering: bool = False, leadership: bool = False, shards: int = 1) -> None:
        settings = trioperator.OperatorSettings()
        settings.posting.enabled = False
        settings.peering.standalone = not peering
        settings.leadership.enabled = leadership
        settings.leadership.shards = shards
        settings.background.spread = 0
        self.bench = Bench(cluster, trioperator.OperatorRegistry(), settings)
        self.plan = FaultPlan()
        self.calls: list[str] = []
        self.running: set[str] = set()
        self.cancelled: list[float] = []
        self._declare(self.bench.registry)

    def _declare(self, registry: trioperator.OperatorRegistry) -> None:
        @trioperator.on.create("widgets", registry=registry)
        async def create(name: str, spec: trioperator.Spec, **_: Any) -> None:
            self.calls.append(f"create {name}")
            try:
                await trio.sleep(spec.get("seconds", 0))
            except trio.Cancelled:
                self.cancelled.append(trio.current_time())
                raise

        @trioperator.timer("widgets", interval=0.2, registry=registry)
        async def tick(**_: Any) -> None:
            self.calls.append("tick")

        @trioperator.daemon("widgets", registry=registry, cancellation_backoff=60, cancellation_timeout=60)
        async def watch(name: str, stopped: trioperator.DaemonStopped, spec: trioperator.Spec, **_: Any) -> None:
            self.running.add(name)
            try:
                await stopped.wait()
                await trio.sleep(spec.get("seconds", 0))
            finally:
                self.running.discard(name)

        @trioperator.on.event("gadgets", registry=registry)
        async def event(**_: Any) -> None: ...

    async def run(self) -> None:
        transport = FaultyTransport(self.bench.cluster.transport(), self.plan)
        async with self.bench.running(transport=transport):
            await trio.sleep_forever()


@pytest.fixture
async def cluster(cluster: Cluster) -> Cluster:
    for manifest in (CRD, PLAIN_CRD, peering_crd(), peering()):
        await cluster.apply(manifest)
    return cluster


async def assert_paused(operator: Operator, cluster: Cluster, name: str) -> None:
    """Check that nothing is handled: neither what is there, nor a new object."""
    before = len(operator.calls)
    assert not operator.running
    await cluster.create(widget(name))
    await settle(10)
    assert operator.calls[before:] == []
    assert not operator.running


async def assert_active(operator: Operator, *names: str) -> None:
    """Check that every object was handled once, and is handled."""
    assert sorted(call for call in operator.calls if call != "tick") == [f"create {name}" for name in names]
    assert operator.running == {*names}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", CAUSES)
async def test_a_pause_while_the_operator_starts_lets_nothing_be_handled_until_it_is_over(
    name: str, moment: float, cluster: Cluster, autojump_clock: MockClock
) -> None:
    cause = CAUSES[name]
    operator = Operator(cluster, **cause.settings)
    operator.plan.add(Fault.delay(after=6), resource="gadgets", verb="list", times=1)  # longer than it is waited for
    operator.plan.add(Fault.delay(), resource="leases")
    operator.plan.add(Fault.delay(before=LATENCY))
    await cluster.create(widget("a"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(operator.run)
        await settle(moment)
        await cause.begin(cluster)
        await settle(3 * LATENCY + cause.notice)
        await assert_paused(operator, cluster, "b")
        await cause.end(cluster)
        await settle(20)
        await assert_active(operator, "a", "b")
        await cause.begin(cluster)
        await settle(3 * LATENCY + cause.notice)
        await assert_paused(operator, cluster, "c")
        await cause.end(cluster)
        await settle(moment)  # within the start that follows
        await cause.begin(cluster)
        await settle(3 * LATENCY + cause.notice)
        await assert_paused(operator, cluster, "d")
        await cause.end(cluster)
        await settle(20)
        await assert_active(operator, "a", "b", "c", "d")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("moment", [0.0, 0.1, 2.0, 8.0])
async def test_a_lease_that_is_lost_while_the_operator_stops_ends_its_handlers_at_once(
    moment: float, cluster: Cluster, autojump_clock: MockClock
) -> None:
    operator = Operator(cluster, leadership=True)
    async with operator.bench.running() as stop:
        await cluster.create(widget("a", seconds=20))
        await settle(3)
        stop()
        await settle(moment)
        await hold("other", 3600)(cluster)
        await settle(NOTICE)
        assert not operator.running
        assert operator.cancelled


@pytest.mark.parametrize("moment", [0.0, 0.1, 2.0, 8.0])
@pytest.mark.parametrize("is_over", [False, True])
async def test_a_lease_that_is_lost_during_a_pause_in_order_ends_the_handlers_at_once(
    moment: float, is_over: bool, cluster: Cluster, autojump_clock: MockClock
) -> None:
    operator = Operator(cluster, leadership=True, peering=True)
    async with operator.bench.running():
        await cluster.create(widget("a", seconds=20))
        await settle(3)
        await announce(10)(cluster)
        await settle(moment)
        assert operator.running == {"a"}
        if is_over:
            await withdraw(cluster)
            await settle()
            assert operator.running == {"a"}
        await hold("other", 3600)(cluster)
        await settle(NOTICE)
        assert not operator.running
        assert operator.cancelled
        await assert_paused(operator, cluster, "b")


async def test_a_shard_that_is_acquired_while_the_operator_is_paused_is_not_handled(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    operator = Operator(cluster, peering=True, shards=3)
    operator.plan.add(Fault.delay(after=4), resource="leases", verb=["create", "update"])
    for number in range(6):
        await cluster.create(widget(f"w{number}"))
    async with operator.bench.running(transport=FaultyTransport(cluster.transport(), operator.plan)):
        await settle(2)
        await announce(10)(cluster)
        await settle(30)
        assert not operator.calls
        await withdraw(cluster)
        await settle(30)
        await assert_active(operator, *(f"w{number}" for number in range(6)))


@pytest.mark.parametrize("name", CAUSES)
async def test_a_daemon_that_has_ended_by_itself_is_not_run_again_after_pauses(
    name: str, cluster: Cluster, autojump_clock: MockClock
) -> None:
    cause, calls = CAUSES[name], list[str]()
    operator = Operator(cluster, **cause.settings)

    @trioperator.daemon("widgets", registry=operator.bench.registry)
    async def once(name: str, **_: Any) -> None:
        calls.append(f"daemon of {name}")

    @trioperator.timer("widgets", registry=operator.bench.registry)
    async def fail(name: str, **_: Any) -> None:
        calls.append(f"timer of {name}")
        raise trioperator.PermanentError("never again")

    async with operator.bench.running():
        await cluster.create(widget("a"))
        for _ in range(3):
            await settle(5)
            await cause.begin(cluster)
            await settle(cause.notice + 1)
            assert not operator.running
            await cause.end(cluster)
        await settle(5)
        assert operator.running == {"a"}
    assert sorted(calls) == ["daemon of a", "timer of a"]


@pytest.mark.parametrize("name", ["peer with a higher priority", "peer of a replica with shards"])
async def test_a_daemon_that_ends_during_a_pause_without_having_seen_the_flag_is_not_run_again(
    name: str, cluster: Cluster, autojump_clock: MockClock
) -> None:
    cause, calls = CAUSES[name], list[str]()
    operator = Operator(cluster, **cause.settings)

    @trioperator.daemon("widgets", registry=operator.bench.registry)
    async def once(**_: Any) -> None:
        calls.append("once")
        await trio.sleep(7)

    async with operator.bench.running():
        await settle(1)
        await cluster.create(widget("a"))
        await settle(5)
        await cause.begin(cluster)
        await settle(cause.notice + 5)
        await cause.end(cluster)
        await settle(20)
    assert calls == ["once"]


@pytest.mark.parametrize("moment", [0.0, 0.1, 2.0])
@pytest.mark.parametrize("is_paused", [False, True])
async def test_shards_that_are_lost_while_they_are_drained_are_given_up_at_once(
    moment: float, is_paused: bool, cluster: Cluster, autojump_clock: MockClock
) -> None:
    operator = Operator(cluster, peering=True, shards=3)
    async with operator.bench.running(transport=FaultyTransport(cluster.transport(), operator.plan)) as stop:
        await cluster.create(widget("a", seconds=60))
        await settle(5)
        if is_paused:
            await announce(10)(cluster)
        else:
            stop()
        await settle(moment)
        assert operator.running == {"a"}
        began = trio.current_time()
        operator.plan.add(Fault.stall(), resource="leases")
        await settle(11)  # the deadline of the session is 10 s after its last renewal, and drained would be after 15 s
        assert not operator.running
        (cancelled,) = operator.cancelled
        assert 7 < cancelled - began <= 10


@pytest.mark.parametrize("attempt", range(6))  # tasks that are due at the same time run in any order
async def test_an_operator_that_is_suspended_while_it_drains_for_a_peer_writes_nothing_when_it_wakes(
    attempt: int, cluster: Cluster, mock_clock: MockClock
) -> None:
    operator = Operator(cluster, peering=True)
    operator.bench.settings.peering.lifetime = 10
    suspended: list[float] = []

    @trioperator.on.create("widgets", id="late", registry=operator.bench.registry)
    async def late(client: trioperator.Client, name: str, **_: Any) -> None:
        await client.get("widgets", name, namespace="default")  # it is connected, and knows the kind
        await trio.sleep(3)
        suspended.append(trio.current_time())
        mock_clock.jump(11)  # the own record ends meanwhile, so that others take the operator for dead
        await client.patch("widgets", name, merge={"spec": {"size": 7}}, namespace="default")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(operator.run)
        await step(mock_clock, 5)
        await cluster.create(widget())
        await step(mock_clock, 1)
        await announce(10)(cluster)
        await step(mock_clock, 10)
        assert suspended
        assert (await cluster.get("widgets", "w"))["spec"]["size"] != 7
        nursery.cancel_scope.cancel()


async def step(clock: MockClock, seconds: float) -> None:
    """Let time pass in small steps."""
    for _ in range(round(seconds * 4)):
        await settle()
        clock.jump(0.25)
    await settle()
