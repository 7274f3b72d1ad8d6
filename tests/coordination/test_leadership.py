"""Tests for :mod:`trioperator._coordination.leadership`: of several replicas, at most one handles objects."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import random
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.coordination.skew import SkewedTransport
from tests.runtime.conftest import CRD, Bench, settle, widget
from trioperator._coordination.leadership import Leadership
from trioperator._coordination.pauses import Pauses
from trioperator._kube.api_client import open_client
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport

#: How many seeds are tried: more of them in `nox -s soak`.
SEEDS = int(os.environ.get("TRIOPERATOR_SEEDS", "4"))
#: Seconds from the death of a leader to the first write of another one.
TAKEOVER = 17.0
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


@dataclasses.dataclass(eq=False)
class Replica:
    """One of several replicas of an operator: its network, and what it has handled."""

    name: str
    bench: Bench
    plan: FaultPlan
    calls: list[tuple[float, str]] = dataclasses.field(default_factory=list)
    stopped: list[trioperator.DaemonStoppingReason | None] = dataclasses.field(default_factory=list)
    running: set[str] = dataclasses.field(default_factory=set)
    scope: trio.CancelScope = dataclasses.field(default_factory=trio.CancelScope)

    def note(self, call: str) -> None:
        self.calls.append((trio.current_time(), call))

    @property
    def handled(self) -> list[str]:
        return [call for _, call in self.calls]


def make_replica(cluster: Cluster, name: str) -> Replica:
    settings = trioperator.OperatorSettings()
    settings.leadership.enabled = True
    settings.leadership.identity = name
    settings.networking.error_backoffs = (1,)
    registry = trioperator.OperatorRegistry()
    replica = Replica(name, Bench(cluster, registry, settings), FaultPlan())

    @trioperator.on.resume("widgets", registry=registry)
    async def resume(name: str, **_: Any) -> None:
        replica.note(f"resume {name}")

    @trioperator.on.create("widgets", registry=registry)
    async def create(name: str, **_: Any) -> None:
        replica.note(f"create {name}")

    @trioperator.on.update("widgets", registry=registry)
    async def update(name: str, **_: Any) -> None:
        replica.note(f"update {name}")

    @trioperator.on.delete("widgets", registry=registry, optional=True)
    async def delete(name: str, **_: Any) -> None:
        replica.note(f"delete {name}")

    @trioperator.daemon("widgets", registry=registry, cancellation_timeout=1)
    async def watch(name: str, stopped: trioperator.DaemonStopped, **_: Any) -> None:
        replica.running.add(name)
        try:
            await stopped.wait()
            replica.stopped.append(stopped.reason)
        finally:
            replica.running.discard(name)

    return replica


async def run_replica(replica: Replica, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Run a replica until its scope is cancelled, which is a crash: the network is gone first."""
    transport = FaultyTransport(replica.bench.cluster.transport(), replica.plan)
    with replica.scope:
        async with replica.bench.running(transport=transport):
            task_status.started()
            await trio.sleep_forever()


async def crash(replica: Replica) -> None:
    """End a replica as SIGKILL does: it sends nothing more."""
    replica.plan.add(Fault.refuse())
    replica.scope.cancel()
    await settle()


@contextlib.asynccontextmanager
async def replicas(cluster: Cluster, *names: str) -> AsyncIterator[list[Replica]]:
    """Run replicas in the block; the first one is the leader at its beginning."""
    made = [make_replica(cluster, name) for name in names]
    async with trio.open_nursery() as nursery:
        for replica in made:
            await nursery.start(run_replica, replica)
            await settle(1)
        yield made
        nursery.cancel_scope.cancel()


@pytest.fixture
async def cluster(cluster: Cluster) -> Cluster:
    await cluster.apply(CRD)
    return cluster


async def holder(cluster: Cluster) -> str:
    lease = await cluster.get("leases.coordination.k8s.io", "trioperator")
    identity: str = lease["spec"]["holderIdentity"]
    return identity


async def test_only_the_leader_handles_objects(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with replicas(cluster, "a", "b", "c") as (first, second, third):
        await cluster.create(widget())
        await settle(30)
        assert await holder(cluster) == "a"
        assert first.handled == ["create w"]
        assert first.running == {"w"}
        for standby in (second, third):
            assert not standby.calls
            assert not standby.running


async def test_a_standby_takes_over_within_the_lease_and_a_period_when_the_leader_dies(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    async with replicas(cluster, "a", "b") as (first, second):
        await cluster.create(widget())
        await settle(5.3)
        await crash(first)
        died = trio.current_time()
        await cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(17)
        assert await holder(cluster) == "b"
        assert second.handled == ["resume w", "update w"]
        assert 10 < second.calls[0][0] - died <= 17
        assert second.running == {"w"}


async def test_a_leader_that_stops_releases_the_lease_and_a_standby_takes_over_at_once(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    leader, standby = make_replica(cluster, "a"), make_replica(cluster, "b")
    async with leader.bench.running() as stop:
        await settle(1)
        async with standby.bench.running():
            await cluster.create(widget())
            await settle(5)
            stop()
            await settle(3)
            assert await holder(cluster) == "b"
            assert standby.running == {"w"}
            assert standby.handled == ["resume w"]
            assert leader.stopped == [trioperator.DaemonStoppingReason.OPERATOR_EXITING]


async def test_a_leader_without_a_network_pauses_before_another_takes_over_and_stands_by_afterwards(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    async with replicas(cluster, "a", "b") as (first, second):
        await cluster.create(widget())
        await settle(5)
        first.plan.add(Fault.stall(), resource="leases")
        first.plan.add(Fault.refuse())
        await settle(10.1)
        assert not first.running  # cancelled at the renew deadline, while the lease is still its own
        assert not second.running
        await settle(7)
        assert second.running == {"w"}
        first.plan.clear()
        await settle(60)
        assert await holder(cluster) == "b"
        assert not first.running
        await crash(second)
        await settle(20)
        assert await holder(cluster) == "a"
        assert first.running == {"w"}
        assert first.handled == ["create w"]  # what it has handled before is not resumed again


@pytest.mark.parametrize("seconds", [30, 45, 90])
async def test_a_leader_handles_objects_as_soon_as_it_has_the_lease_again(
    cluster: Cluster, seconds: float, autojump_clock: MockClock
) -> None:
    async with replicas(cluster, "a") as (leader,):
        leader.bench.settings.networking.error_backoffs = (1, 1, 2, 3, 5, 8, 13, 21)
        await cluster.create(widget())
        await settle(5)
        leader.plan.add(Fault.refuse())
        await settle(seconds)
        await cluster.patch("widgets", "w", {"spec": {"size": 2}})
        leader.plan.clear()
        await settle(4)
        assert leader.handled == ["create w", "update w"]


@pytest.mark.parametrize(
    "faults",
    [
        # A connection is dead, and the next one is slow.
        [Fault.stall(), Fault.delay(before=2)],
        # What was written is stored, but there is no response.
        [Fault.delay(after=60)],
        [Fault.delay(after=60), Fault.delay(before=1)],
    ],
)
async def test_a_leader_of_which_a_connection_has_died_goes_on_leading(
    cluster: Cluster, faults: list[Fault], autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with replicas(cluster, "a", "b") as (first, _):
        await cluster.create(widget())
        await settle(5)
        for fault in reversed(faults):
            first.plan.add(fault, resource="leases", verb="update", times=1)
        await settle(30)
        assert not first.stopped
        assert "The leadership is lost" not in caplog.text
        assert await holder(cluster) == "a"


async def test_what_was_deleted_while_on_standby_is_not_handled_twice(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    async with replicas(cluster, "a", "b") as (first, second):
        await cluster.create(widget("x"))
        await cluster.create(widget("y"))
        await settle(2)
        await cluster.delete("widgets", "x")
        await settle(2)
        assert sorted(first.handled) == ["create x", "create y", "delete x"]
        await crash(first)
        await settle(20)
        assert second.handled == ["resume y"]


@pytest.mark.parametrize("seed", range(5))
async def test_replicas_that_lose_their_network_never_lead_at_the_same_time(
    seed: int, cluster: Cluster, autojump_clock: MockClock
) -> None:
    rng = random.Random(seed)
    async with replicas(cluster, "a", "b", "c") as made:
        await cluster.create(widget())
        for round in range(4):
            await settle(rng.uniform(0.5, 20))
            assert sum(bool(replica.running) for replica in made) <= 1
            victim = rng.choice(made)
            victim.plan.add(Fault.stall(), resource="leases", chance=0.5)
            victim.plan.add(rng.choice([Fault.refuse(), Fault.status(500), Fault.lose_answer()]))
            for _ in range(rng.randrange(1, 20)):
                await settle(1)
                assert sum(bool(replica.running) for replica in made) <= 1
            victim.plan.clear()
            await cluster.patch("widgets", "w", {"spec": {"size": round}})
        await settle(60)
        assert sum(bool(replica.running) for replica in made) == 1
        assert (await cluster.get("widgets", "w"))["spec"]["size"] == 3


@pytest.mark.parametrize("attempt", range(6))  # tasks that are due at the same time run in any order
async def test_a_leader_that_was_suspended_calls_no_handlers_when_it_wakes(
    attempt: int, cluster: Cluster, mock_clock: MockClock
) -> None:
    replica = make_replica(cluster, "a")

    @trioperator.timer("widgets", registry=replica.bench.registry, interval=8)
    async def tick(**_: Any) -> None:
        replica.note("tick")

    @trioperator.on.create("widgets", registry=replica.bench.registry, id="other")
    async def retry(retry: int, **_: Any) -> None:
        replica.note(f"retry {retry}")
        raise trioperator.TemporaryError("not yet", delay=30)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_replica, replica)
        await step(mock_clock, 1)
        await cluster.create(widget())
        await step(mock_clock, 3)
        assert sorted(set(replica.handled)) == ["create w", "retry 0", "tick"]
        spec = {"holderIdentity": "b", "leaseDurationSeconds": 3600}
        await cluster.patch("leases.coordination.k8s.io", "trioperator", {"spec": spec})
        before = list(replica.calls)
        mock_clock.jump(60)
        await step(mock_clock, 5)
        assert replica.calls == before
        assert not replica.running
        nursery.cancel_scope.cancel()


async def step(clock: MockClock, seconds: float) -> None:
    """Let time pass in small steps."""
    for _ in range(round(seconds * 4)):
        await settle()
        clock.jump(0.25)
    await settle()


class Candidate:
    """A candidate that writes all the time while it is the leader, and as nothing else."""

    def __init__(self, cluster: Cluster, name: str, written: list[tuple[float, str]], *, skew: float) -> None:
        self.name = name
        self.plan = FaultPlan()
        self.scope = trio.CancelScope()
        self.pauses = Pauses()
        self._written = written
        self._transport = FaultyTransport(SkewedTransport(cluster.transport(), skew), self.plan)

    async def run(self) -> None:
        info = trioperator.ConnectionInfo(server="http://embedded")
        settings = trioperator.OperatorSettings()
        with self.scope:
            async with open_client(lambda: info, settings=settings, transport=self._transport) as client:
                election = Leadership(client, self.pauses, settings=settings.leadership, identity=self.name)
                async with trio.open_nursery() as nursery:
                    await nursery.start(election.serve)
                    await self.write()

    async def write(self) -> None:
        """Write four times a second, where the fence lets that pass, as every request does."""
        while True:
            with contextlib.suppress(trioperator.PausedError):
                self.pauses.check_write()
                self._written.append((trio.current_time(), self.name))
            await trio.sleep(0.25)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_there_are_never_two_writers_and_soon_one_whatever_happens(
    seed: int, cluster: Cluster, autojump_clock: MockClock
) -> None:
    rng = random.Random(seed)
    names = (f"c{number}" for number in range(100))
    written: list[tuple[float, str]] = []
    alive: list[Candidate] = []
    async with trio.open_nursery() as nursery:

        def join() -> None:
            alive.append(Candidate(cluster, next(names), written, skew=rng.choice([0, 300, -300])))
            nursery.start_soon(alive[-1].run)

        for _ in range(3):
            join()
        for _ in range(6):
            await settle(rng.uniform(0, 20))
            leading = [candidate for candidate in alive if written and candidate.name == written[-1][1]]
            victim = rng.choice([*alive, *leading, *leading])
            match rng.choice(["kill", "kill", "freeze", "cut"]):
                case "kill":
                    alive.remove(victim)
                    victim.plan.clear()
                    victim.plan.add(Fault.refuse())
                    victim.scope.cancel()
                    join()
                case "freeze":
                    await settle()
                    autojump_clock.jump(60)
                case _:
                    victim.plan.add(rng.choice([Fault.refuse(), Fault.stall(), Fault.lose_answer()]))
                    await settle(rng.uniform(0, 30))
                    victim.plan.clear()
            await settle(TAKEOVER + 0.25)
            assert trio.current_time() - written[-1][0] <= 0.25
        nursery.cancel_scope.cancel()
    for (ended, before), (began, name) in itertools.pairwise(written):
        assert before == name or began - ended > 0.25, f"{name} writes at {began}, and {before} did at {ended}"


async def test_times_that_contradict_each_other_are_refused(cluster: Cluster) -> None:
    replica = make_replica(cluster, "a")
    replica.bench.settings.leadership.renew_deadline = 20
    with pytest.raises(trioperator.ConfigError, match="lease_duration must be longer than renew_deadline"):
        await trioperator.operator(
            registry=replica.bench.registry,
            settings=replica.bench.settings,
            connection=trioperator.ConnectionInfo(server="http://embedded"),
            transport=cluster.transport(),
        )


async def test_a_standby_that_stops_after_a_restore_does_not_release_what_another_one_holds(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    async with replicas(cluster, "a", "b") as (former, leader), trio.open_nursery() as nursery:
        await cluster.create(widget())
        await settle(5)
        backup = cluster.snapshot()  # its Lease names the first one
        outage = former.plan.add(Fault.refuse())
        await settle(20)
        former.plan.remove(outage)
        await settle(5)
        assert await holder(cluster) == "b"
        leader.plan.add(Fault.delay(before=4), resource="leases", verb="update", times=1)
        await cluster.restore(backup)
        await settle(2.5)
        former.scope.cancel()
        other = make_replica(cluster, "c")
        await nursery.start(run_replica, other)
        await settle(1)
        assert leader.running == {"w"}
        assert not other.running
        await settle(20)
        assert await holder(cluster) == "b"
        assert not other.calls
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("noticed", [False, True])
@pytest.mark.parametrize("change", ["restored", "labelled", "deleted"])
async def test_a_leader_that_stops_releases_a_lease_that_somebody_has_changed(
    change: str, noticed: bool, cluster: Cluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    plan = FaultPlan()
    settings = trioperator.OperatorSettings()
    settings.leadership.enabled = True
    pauses = Pauses()
    async with (
        open_client(
            lambda: trioperator.ConnectionInfo(server="http://embedded", default_namespace="default"),
            settings=settings,
            transport=FaultyTransport(cluster.transport(), plan),
        ) as client,
        trio.open_nursery() as nursery,
    ):
        leadership = Leadership(client, pauses, settings=settings.leadership, identity="a")
        await nursery.start(leadership.serve)
        await settle(3)
        backup = cluster.snapshot()
        await settle(3)
        lease = settings.leadership.name
        match change:
            case "restored":
                await cluster.restore(backup)
            case "labelled":
                await cluster.patch("leases.coordination.k8s.io", lease, {"metadata": {"labels": {"team": "x"}}})
            case _:
                await cluster.delete("leases.coordination.k8s.io", lease)
        if noticed:
            renewals = plan.add(Fault.refuse(), resource="leases", verb="get")
            await settle(5)
            plan.remove(renewals)
        nursery.cancel_scope.cancel()
        caplog.clear()
        await leadership.release()
    assert await holder(cluster) == ""
    assert pauses.reasons == (f"as it gives up the {leadership.lease}",)
    assert not caplog.messages


async def test_a_standby_that_stops_does_not_say_that_it_gives_up_the_lease(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    async with replicas(cluster, "a"):
        await settle(1)
        settings = trioperator.OperatorSettings()
        pauses = Pauses()
        async with (
            open_client(
                lambda: trioperator.ConnectionInfo(server="http://embedded", default_namespace="default"),
                settings=settings,
                transport=cluster.transport(),
            ) as client,
            trio.open_nursery() as nursery,
        ):
            leadership = Leadership(client, pauses, settings=settings.leadership, identity="b")
            await nursery.start(leadership.serve)
            await settle(3)
            nursery.cancel_scope.cancel()
            await leadership.release()
        assert pauses.reasons == (f"until it holds the {leadership.lease}",)
        assert await holder(cluster) == "a"


class LateTransport(httpx.AsyncBaseTransport):
    """A network on which a write of a lease arrives after a while, also if the client has given it up by then."""

    def __init__(self, inner: httpx.AsyncBaseTransport, nursery: trio.Nursery, *, before: float, after: float) -> None:
        self._inner = inner
        self._nursery = nursery
        self._delays: tuple[float, float] | None = (before, after)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._delays is None or request.method == "GET" or "/leases" not in request.url.path:
            return await self._inner.handle_async_request(request)
        delays, self._delays = self._delays, None
        answered = trio.Event()
        response: list[httpx.Response] = []

        async def process() -> None:
            await trio.sleep(delays[0])
            response.append(await self._inner.handle_async_request(request))
            await trio.sleep(delays[1])
            answered.set()

        self._nursery.start_soon(process)
        await answered.wait()
        return response[0]


@pytest.mark.parametrize(("before", "after"), [(0, 3), (2, 1)])
@pytest.mark.parametrize("exists", [False, True])
async def test_a_replica_that_stops_while_it_acquires_the_lease_leaves_it_free(
    exists: bool, before: float, after: float, cluster: Cluster, autojump_clock: MockClock
) -> None:
    if exists:
        async with replicas(cluster, "before"):
            pass
        assert await holder(cluster) == ""
    async with trio.open_nursery() as network:
        transport = LateTransport(cluster.transport(), network, before=before, after=after)
        async with make_replica(cluster, "a").bench.running(transport=transport):
            await trio.sleep(1)
    async with replicas(cluster, "b"):
        await settle(1)
        assert await holder(cluster) == "b"
