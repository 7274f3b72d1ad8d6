"""Tests for :mod:`trioperator._coordination.shards`: each shard has one owner at a time, and soon has one again."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import httpx
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.coordination.skew import SkewedTransport
from tests.runtime.conftest import settle
from tests.runtime.restoring import Memory, Switch
from trioperator._concurrency.clock import wall_now
from trioperator._coordination.shards import ShardOwnership, Shards
from trioperator._kube.api_client import open_client
from trioperator.apiserver import Cluster
from trioperator.errors import PausedError
from trioperator.settings import OperatorSettings
from trioperator.testing import Fault, FaultPlan, FaultyTransport

#: How many seeds are tried: more of them in `nox -s soak`.
SEEDS = int(os.environ.get("TRIOPERATOR_SEEDS", "4"))
TAKEOVER = 17.0

# Seconds until each replica has compared its leases with what it owns, and others have released theirs.
CHECKED: Final = 140


@dataclasses.dataclass
class Owners:
    """Who serves which shard, as the replicas do it: two at a time are an error.

    When all of them were suspended, one may take a shard over at the moment when another one wakes that has served it:
    that has not noticed yet, but cannot write any more.
    """

    serving: dict[int, str] = dataclasses.field(default_factory=dict)
    written: list[tuple[float, int, str]] = dataclasses.field(default_factory=list)
    terms: dict[int, ShardOwnership] = dataclasses.field(default_factory=dict)
    thawed_at: float = -1.0

    def owned_by(self, name: str) -> set[int]:
        return {shard for shard, owner in self.serving.items() if owner == name}

    def begin(self, name: str, term: ShardOwnership) -> None:
        before = self.serving.get(term.shard)
        if before is not None and trio.current_time() == self.thawed_at:
            with pytest.raises(PausedError):
                self.terms[term.shard].check_write()
        else:
            assert before is None, f"{name} and {before} own {term.shard}"
        self.serving[term.shard], self.terms[term.shard] = name, term

    def end(self, term: ShardOwnership) -> None:
        if self.terms[term.shard] is term:
            del self.serving[term.shard]

    def check_writes(self) -> None:
        """Check that no replica has written between two writes of a term of another one."""
        for shard in {shard for _, shard, _ in self.written}:
            terms = [term for _, number, term in self.written if number == shard]
            changes = [term for before, term in zip([None, *terms], terms, strict=False) if term != before]
            assert len(changes) == len(set(changes)), changes


class Replica:
    """One replica that serves its shards by writing all the time, and takes a while to release one."""

    def __init__(
        self,
        cluster: Cluster,
        owners: Owners,
        name: str,
        *,
        shards: int = 4,
        skew: float = 0.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.name = name
        self.plan = FaultPlan()
        self.scope = trio.CancelScope()
        self.drain = 0.0
        self.election: Shards | None = None
        self._owners = owners
        self._transport = FaultyTransport(SkewedTransport(transport or cluster.transport(), skew), self.plan)
        self._settings = OperatorSettings()
        self._settings.leadership.shards = shards

    async def run(self) -> None:
        """Take part until stopped or cancelled, which is a crash: the network is gone first."""
        info = trioperator.ConnectionInfo(server="http://embedded")
        with self.scope:
            async with open_client(lambda: info, settings=self._settings, transport=self._transport) as client:
                settings = self._settings.leadership
                self.election = Shards(client, settings=settings, identity=self.name, serve=self.serve)
                await self.election.serve()

    async def serve(self, term: ShardOwnership) -> None:
        owners = self._owners
        owners.begin(self.name, term)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.write, term, f"{self.name}/{trio.current_time():.3f}")
                await term.ending.wait()
                with trio.move_on_after(self.drain):
                    await term.lost.wait()
                nursery.cancel_scope.cancel()
        finally:
            owners.end(term)

    async def write(self, term: ShardOwnership, name: str) -> None:
        while True:
            with contextlib.suppress(PausedError):
                term.check_write()
                self._owners.written.append((trio.current_time(), term.shard, name))
            await trio.sleep(0.25)

    async def crash(self) -> None:
        """End as by SIGKILL: nothing more is sent."""
        self.plan.clear()
        self.plan.add(Fault.refuse())
        self.scope.cancel()
        await settle()

    def stop(self) -> None:
        assert self.election is not None
        self.election.stop()


@contextlib.asynccontextmanager
async def running(*replicas: Replica) -> AsyncIterator[trio.Nursery]:
    async with trio.open_nursery() as nursery:
        for replica in replicas:
            nursery.start_soon(replica.run)
        yield nursery
        nursery.cancel_scope.cancel()


@pytest.fixture
def owners() -> Owners:
    return Owners()


async def test_replicas_share_all_shards(cluster: Cluster, owners: Owners, autojump_clock: MockClock) -> None:
    made = [Replica(cluster, owners, name) for name in "abc"]
    async with running(*made):
        await settle(8)
        assert sorted(len(owners.owned_by(replica.name)) for replica in made) == [1, 1, 2]
        assert set(owners.serving) == {0, 1, 2, 3}


async def test_a_replica_that_joins_gets_its_share_and_nothing_else_moves(
    cluster: Cluster, owners: Owners, autojump_clock: MockClock
) -> None:
    first, second = Replica(cluster, owners, "a"), Replica(cluster, owners, "b")
    async with running(first) as nursery:
        await settle(4)
        assert owners.owned_by("a") == {0, 1, 2, 3}
        first.drain = 3.0
        nursery.start_soon(second.run)
        await settle(2)
        assert owners.owned_by("a") == {0, 1, 2, 3}  # two of them are being drained
        await settle(6)
        assert owners.owned_by("a") == {0, 1}
        assert owners.owned_by("b") == {2, 3}
    owners.check_writes()


async def test_the_shards_of_a_dead_replica_are_taken_over_in_time(
    cluster: Cluster, owners: Owners, autojump_clock: MockClock
) -> None:
    made = [Replica(cluster, owners, name) for name in "abc"]
    async with running(*made):
        await settle(10.3)
        victim = max(made, key=lambda replica: len(owners.owned_by(replica.name)))
        died = trio.current_time()
        await victim.crash()
        assert len(owners.serving) == 2
        while len(owners.serving) < 4:
            await settle(0.1)
        assert 10 < trio.current_time() - died <= TAKEOVER
    owners.check_writes()


async def test_a_replica_that_stops_hands_its_shards_over_at_once(
    cluster: Cluster, owners: Owners, autojump_clock: MockClock
) -> None:
    made = [Replica(cluster, owners, name) for name in "ab"]
    async with running(*made):
        await settle(8)
        made[0].stop()
        await settle(5)
        assert owners.owned_by("b") == {0, 1, 2, 3}
        lease = await cluster.get("leases.coordination.k8s.io", "trioperator-members")
        assert len(lease["metadata"]["annotations"]) == 1


async def test_a_shard_whose_acquisition_was_not_answered_is_soon_owned(
    cluster: Cluster, owners: Owners, autojump_clock: MockClock
) -> None:
    made = [Replica(cluster, owners, name) for name in "ab"]
    for replica in made:
        replica.plan.add(Fault.lose_answer(), resource="leases", verb="create", times=2)
        replica.plan.add(Fault.lose_answer(), resource="leases", verb="update", times=2)
    async with running(*made):
        await settle(20)
        assert set(owners.serving) == {0, 1, 2, 3}


async def test_a_replica_of_which_a_connection_has_died_keeps_its_shards(
    cluster: Cluster, owners: Owners, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    replica = Replica(cluster, owners, "a")
    async with running(replica):
        await settle(10)
        replica.plan.add(Fault.delay(before=2.9), resource="leases", verb="patch", times=1)
        replica.plan.add(Fault.stall(), resource="leases", verb="patch", times=1)
        await settle(30)
    assert "cannot be renewed" in caplog.text
    assert "lost" not in caplog.text


async def test_a_replica_that_is_cancelled_while_it_acquires_shards_leaves_them_to_others(
    cluster: Cluster, owners: Owners, autojump_clock: MockClock
) -> None:
    one, other = (Replica(cluster, owners, name) for name in "ab")
    one.plan.add(Fault.delay(after=3), resource="leases", verb="create", skip=1, times=4)  # but for members
    async with running(one):
        await settle(2)
        one.scope.cancel()
        await settle(1)
        async with running(other):
            await settle(5)
            assert owners.owned_by("b") == {0, 1, 2, 3}


async def test_shards_whose_acquisition_is_forbidden_are_tried_with_each_renewal_and_owned_later(
    cluster: Cluster, owners: Owners, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    replica = Replica(cluster, owners, "a")
    rule = replica.plan.add(Fault.status(403), resource="leases", verb="create", skip=1, times=500)  # but for members
    async with running(replica):
        await settle(60)
        assert 0 < rule.hits <= 4 * 60
        assert caplog.text.count("cannot be acquired: HTTP 403") == 4
        replica.plan.clear()
        await settle(5)
        assert set(owners.serving) == {0, 1, 2, 3}


async def test_a_replica_that_was_suspended_writes_nothing_when_it_wakes(
    cluster: Cluster, owners: Owners, autojump_clock: MockClock
) -> None:
    replica = Replica(cluster, owners, "a")
    async with running(replica):
        await settle(4)
        assert len(owners.serving) == 4
        owners.written.clear()
        autojump_clock.autojump_threshold = math.inf
        autojump_clock.jump(60)
        await trio.testing.wait_all_tasks_blocked()
        assert not owners.written
        assert not owners.serving


async def test_replicas_with_another_number_of_shards_wait_until_the_others_are_gone(
    cluster: Cluster, owners: Owners, autojump_clock: MockClock
) -> None:
    other = Owners()
    old, new = Replica(cluster, owners, "old"), Replica(cluster, other, "new", shards=8)
    async with running(old) as nursery:
        await settle(4)
        nursery.start_soon(new.run)
        await settle(30)
        assert not other.serving
        old.stop()
        await settle(5)
        assert not owners.serving
        assert len(other.serving) == 8


async def test_shards_whose_leases_name_another_replica_after_a_restore_are_released_all_the_same(
    cluster: Cluster, owners: Owners, autojump_clock: MockClock
) -> None:
    first, second, third = (Replica(cluster, owners, name) for name in "abc")
    async with running(first) as nursery:
        await settle(4)
        backup = cluster.snapshot()  # all shards are the first one's
        nursery.start_soon(second.run)
        await settle(8)
        assert owners.owned_by("b") == {2, 3}
        await cluster.restore(backup)
        await settle(20)  # all have noticed it
        nursery.start_soon(third.run)
        await settle(8)
        assert sorted(len(owners.owned_by(name)) for name in "abc") == [1, 1, 2]
        await second.crash()
        await settle(20)
        assert sorted(len(owners.owned_by(name)) for name in "ac") == [2, 2]
    owners.check_writes()


async def test_nobody_takes_what_another_replica_owns_after_a_restore_of_a_cluster_without_leases(
    cluster: Cluster, owners: Owners, autojump_clock: MockClock
) -> None:
    backup = cluster.snapshot()
    first, second = (Replica(cluster, owners, name) for name in "ab")
    async with running(first) as nursery:
        nursery.start_soon(second.run)
        await settle(12)
        before = dict(owners.serving)
        await cluster.restore(backup)
        await settle(30)
        assert owners.serving == before
    owners.check_writes()


async def test_shards_whose_leases_name_a_dead_replica_after_a_restore_get_no_second_owner(
    cluster: Cluster, owners: Owners, autojump_clock: MockClock
) -> None:
    first, second, third, fourth = (Replica(cluster, owners, name) for name in "abcd")
    async with running(first) as nursery:
        await settle(4)
        nursery.start_soon(second.run)
        await settle(8)
        backup = cluster.snapshot()  # two shards are the first one's
        first.stop()
        await settle(8)
        assert len(owners.owned_by("b")) == 4
        await cluster.restore(backup)
        await settle(CHECKED)
        nursery.start_soon(third.run)
        nursery.start_soon(fourth.run)
        await settle(30)
        fourth.stop()
        await settle(8)
        assert sorted(len(owners.owned_by(name)) for name in "bc") == [2, 2]
    owners.check_writes()


async def test_shards_that_are_drained_when_etcd_is_restored_get_no_second_owner_meanwhile(
    cluster: Cluster, owners: Owners, autojump_clock: MockClock
) -> None:
    first, second, third = (Replica(cluster, owners, name) for name in "abc")
    async with running(first) as nursery:
        await settle(4)
        backup = cluster.snapshot()  # all shards are the first one's
        first.stop()
        nursery.start_soon(second.run)
        await settle(8)
        assert len(owners.owned_by("b")) == 4
        second.drain = 40
        await cluster.restore(backup)  # by its record, the first one is there, so that half of them are released
        await settle(4)
        nursery.start_soon(third.run)
        await settle(60)
        assert sorted(len(owners.owned_by(name)) for name in "bc") == [2, 2]
    owners.check_writes()


async def test_shards_whose_leases_name_nobody_after_a_restore_get_no_second_owner(
    owners: Owners, autojump_clock: MockClock
) -> None:
    data = Memory()
    cluster = Cluster(clock=wall_now, data=data)
    switch = Switch(cluster.transport())
    first, second, third = (Replica(cluster, owners, name, transport=switch) for name in "abc")
    async with running(first) as nursery:
        await settle(4)
        first.stop()
        await settle(4)
        backup = data.copy()  # all shards are free
        nursery.start_soon(second.run)
        await settle(8)
        assert len(owners.owned_by("b")) == 4
        switch.inner = Cluster(clock=wall_now, data=backup).transport()
        await settle(4)  # the session was renewed meanwhile
        nursery.start_soon(third.run)
        await settle(12)
        assert sorted(len(owners.owned_by(name)) for name in "bc") == [2, 2]
    owners.check_writes()


async def test_a_shard_is_given_up_if_its_lease_names_another_replica_that_is_alive(
    cluster: Cluster, owners: Owners, autojump_clock: MockClock
) -> None:
    first, second = (Replica(cluster, owners, name) for name in "ab")
    async with running(first, second):
        await settle(8)
        holder = next(
            lease["spec"]["holderIdentity"]
            for lease in await cluster.list("leases")
            if lease["spec"].get("holderIdentity", "").startswith("b")
        )
        shard, *_ = owners.owned_by("a")
        await cluster.patch("leases", f"trioperator-{shard}", {"spec": {"holderIdentity": holder}})
        term = owners.terms[shard]
        second.plan.add(Fault.status(503), method="GET")  # it does not notice that the lease names it for nothing
        await settle(CHECKED)
        assert term.lost.is_set()
        second.plan.clear()
        await settle(CHECKED)
        assert sorted(len(owners.owned_by(name)) for name in "ab") == [2, 2]
    owners.check_writes()


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_no_shard_has_two_owners_and_each_is_soon_owned_whatever_happens(
    seed: int, cluster: Cluster, owners: Owners, autojump_clock: MockClock
) -> None:
    rng = random.Random(seed)
    names = (f"r{number}" for number in range(1000))
    alive: list[Replica] = []
    async with trio.open_nursery() as nursery:

        def join() -> None:
            replica = Replica(cluster, owners, next(names), skew=rng.choice([0, 300, -300]))
            replica.drain = rng.choice([0.0, rng.uniform(0, 5)])
            alive.append(replica)
            nursery.start_soon(replica.run)

        for _ in range(3):
            join()
        await settle(rng.uniform(0, 10))
        for _ in range(6):
            await meet_trouble(rng, alive, join, lambda: freeze_all(owners, autojump_clock))
            await settle(rng.choice([0.0, rng.uniform(0, 20)]))
        for replica in alive:
            replica.plan.clear()
        await settle(5 * 2 + TAKEOVER + 10)  # what is being drained, the dead, and what has changed hands after that
        assert set(owners.serving) == {0, 1, 2, 3}
        shares = [len(owners.owned_by(replica.name)) for replica in alive]
        assert max(shares) - min(shares) <= 1
        nursery.cancel_scope.cancel()
    owners.check_writes()


async def freeze_all(owners: Owners, clock: MockClock) -> None:
    """Suspend all replicas for a minute: no task runs meanwhile."""
    await trio.testing.wait_all_tasks_blocked()
    clock.jump(60)
    owners.thawed_at = trio.current_time()


async def meet_trouble(
    rng: random.Random, alive: list[Replica], join: Callable[[], None], freeze: Callable[[], Awaitable[None]]
) -> None:
    """Make trouble for one of the replicas, or for all of them."""
    victim = rng.choice(alive)
    match rng.choice(["kill", "stop", "join", "cut", "cut", "slow", "freeze", "heal"]):
        case "kill" if len(alive) > 1:
            alive.remove(victim)
            await victim.crash()
        case "stop" if len(alive) > 1 and victim.election is not None:
            alive.remove(victim)
            victim.stop()
        case "cut":
            victim.plan.add(rng.choice([Fault.refuse(), Fault.stall(), Fault.lose_answer(), Fault.status(500)]))
            await settle(rng.uniform(0, 30))
            victim.plan.clear()
        case "slow":
            victim.plan.add(Fault.delay(before=rng.uniform(0, 6)), chance=0.5)
            victim.plan.add(Fault.delay(after=rng.uniform(0, 20)), chance=0.5)
        case "freeze":
            await freeze()
        case "heal":
            for replica in alive:
                replica.plan.clear()
        case _:
            join()
