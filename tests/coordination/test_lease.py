"""Tests for :mod:`trioperator._coordination.lease`: a lease has one holder at a time, by client-go's rules."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from trioperator._coordination.lease import Attempt, Lease
from trioperator._kube.api_client import ApiClient, open_client
from trioperator.apiserver import Cluster
from trioperator.errors import ConflictError, ServerError
from trioperator.settings import OperatorSettings
from trioperator.testing import Fault, FaultPlan, FaultyTransport


@pytest.fixture
def plan() -> FaultPlan:
    return FaultPlan()


@pytest.fixture
async def client(cluster: Cluster, plan: FaultPlan) -> AsyncIterator[ApiClient]:
    info = trioperator.ConnectionInfo(server="http://embedded")
    transport = FaultyTransport(cluster.transport(), plan)
    async with open_client(lambda: info, settings=OperatorSettings(), transport=transport) as client:
        yield client


def make(client: ApiClient, identity: str, *, duration: float = 15) -> Lease:
    return Lease(client, namespace="default", name="it", identity=identity, duration=duration)


async def spec(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = (await cluster.get("leases.coordination.k8s.io", "it"))["spec"]
    return found


async def test_the_first_one_acquires_the_lease_and_renews_it(
    cluster: Cluster, client: ApiClient, autojump_clock: MockClock
) -> None:
    lease = make(client, "a")
    assert await lease.attempt(timeout=5) is Attempt.HELD
    first = await spec(cluster)
    assert first["holderIdentity"] == "a"
    assert first["leaseDurationSeconds"] == 15
    assert first["leaseTransitions"] == 0
    await trio.sleep(3)
    cluster.requests.clear()
    assert await lease.attempt(timeout=5) is Attempt.HELD
    assert len(cluster.requests) == 1  # one optimistic write, and no read
    second = await spec(cluster)
    assert second["renewTime"] > first["renewTime"]
    assert second["acquireTime"] == first["acquireTime"]


@pytest.mark.parametrize(("duration", "seconds"), [(0.5, 1), (2.4, 3), (2.5, 3), (2.6, 3), (3, 3)])
async def test_others_wait_at_least_as_long_as_the_holder_was_promised(
    duration: float, seconds: int, cluster: Cluster, client: ApiClient, autojump_clock: MockClock
) -> None:
    await make(client, "a", duration=duration).attempt(timeout=5)
    assert (await spec(cluster))["leaseDurationSeconds"] == seconds


async def test_another_one_waits_until_the_record_has_not_changed_for_its_duration(
    client: ApiClient, autojump_clock: MockClock
) -> None:
    one, other = make(client, "a"), make(client, "b")
    await one.attempt(timeout=5)
    assert await other.attempt(timeout=5) is Attempt.TAKEN
    assert other.holder == "a"
    await trio.sleep(10)
    await one.attempt(timeout=5)
    await trio.sleep(10)
    assert await other.attempt(timeout=5) is Attempt.TAKEN  # it was renewed meanwhile
    await trio.sleep(10)
    assert await other.attempt(timeout=5) is Attempt.TAKEN
    await trio.sleep_until(other.expires_at)
    assert await other.attempt(timeout=5) is Attempt.HELD
    with pytest.raises(ConflictError):
        await one.attempt(timeout=5)
    assert await one.attempt(timeout=5) is Attempt.TAKEN
    assert one.holder == "b"


async def test_transitions_are_counted_and_foreign_fields_are_kept(
    cluster: Cluster, client: ApiClient, autojump_clock: MockClock
) -> None:
    one, other = make(client, "a"), make(client, "b")
    await one.attempt(timeout=5)
    await cluster.patch("leases.coordination.k8s.io", "it", {"metadata": {"labels": {"team": "x"}}})
    await other.attempt(timeout=5)
    await trio.sleep(10)
    await other.attempt(timeout=5)
    await trio.sleep(5)
    assert await other.attempt(timeout=5) is Attempt.HELD
    found = await cluster.get("leases.coordination.k8s.io", "it")
    assert found["spec"]["leaseTransitions"] == 1
    assert found["metadata"]["labels"] == {"team": "x"}


async def test_a_lease_that_was_released_is_free_at_once(
    cluster: Cluster, client: ApiClient, autojump_clock: MockClock
) -> None:
    one, other = make(client, "a"), make(client, "b")
    await one.attempt(timeout=5)
    await other.attempt(timeout=5)
    await one.release()
    assert (await spec(cluster))["holderIdentity"] == ""
    assert await other.attempt(timeout=5) is Attempt.HELD


async def test_only_the_holder_releases_a_lease(cluster: Cluster, client: ApiClient, autojump_clock: MockClock) -> None:
    one, other = make(client, "a"), make(client, "b")
    await one.attempt(timeout=5)
    await other.attempt(timeout=5)
    await other.release()
    assert (await spec(cluster))["holderIdentity"] == "a"


async def test_a_lease_that_was_deleted_is_created_again(
    cluster: Cluster, client: ApiClient, autojump_clock: MockClock
) -> None:
    lease = make(client, "a")
    await lease.attempt(timeout=5)
    await cluster.delete("leases.coordination.k8s.io", "it")
    for _ in range(2):
        attempt = None
        try:
            attempt = await lease.attempt(timeout=5)
        except trioperator.TrioperatorError:
            continue
    assert attempt is Attempt.HELD
    assert (await spec(cluster))["holderIdentity"] == "a"


async def grow(cluster: Cluster, lease: Lease, *, times: int = 3) -> None:
    for _ in range(times):
        await trio.sleep(1)
        assert await lease.attempt(timeout=5) is Attempt.HELD


@pytest.mark.parametrize("restored", ["named", "released", "missing", "another"])
async def test_a_standby_does_not_believe_a_lease_of_a_restored_etcd(
    restored: str, cluster: Cluster, client: ApiClient, autojump_clock: MockClock
) -> None:
    leader, standby = make(client, "a"), make(client, "b")
    backup = cluster.snapshot()
    if restored != "missing":
        former = standby if restored == "named" else make(client, "c")
        await former.attempt(timeout=5)
        if restored == "released":
            await former.release()
        backup = cluster.snapshot()
        await former.release()
    await grow(cluster, leader)
    assert await standby.attempt(timeout=5) is Attempt.TAKEN
    await cluster.restore(backup)
    assert await standby.attempt(timeout=5) is Attempt.TAKEN
    with contextlib.suppress(ConflictError):
        await leader.attempt(timeout=5)
    assert await leader.attempt(timeout=5) is Attempt.HELD
    await trio.sleep(10)
    assert await standby.attempt(timeout=5) is Attempt.TAKEN
    assert standby.holder == "a"


async def test_a_standby_takes_the_lease_of_a_restored_etcd_when_that_of_before_has_expired(
    cluster: Cluster, client: ApiClient, autojump_clock: MockClock
) -> None:
    leader, standby = make(client, "a"), make(client, "b")
    await standby.attempt(timeout=5)
    backup = cluster.snapshot()
    await standby.release()
    await grow(cluster, leader)
    await standby.attempt(timeout=5)
    await cluster.restore(backup)
    await trio.sleep(14.9)
    assert await standby.attempt(timeout=5) is Attempt.TAKEN
    await trio.sleep(0.2)
    assert await standby.attempt(timeout=5) is Attempt.HELD
    with pytest.raises(ConflictError):
        await leader.attempt(timeout=5)
    assert await leader.attempt(timeout=5) is Attempt.TAKEN


async def test_a_holder_of_before_does_not_believe_a_restored_lease_as_it_may_have_a_successor(
    cluster: Cluster, client: ApiClient, autojump_clock: MockClock
) -> None:
    former, leader = make(client, "a"), make(client, "b")
    await grow(cluster, former)
    backup = cluster.snapshot()
    await grow(cluster, former)
    for seconds in (10, 5.1):
        await leader.attempt(timeout=5)
        await trio.sleep(seconds)  # the former leader reaches nobody, and does not see who is next
    await grow(cluster, leader)
    await cluster.restore(backup)
    with pytest.raises(ConflictError):
        await former.attempt(timeout=5)
    assert await former.attempt(timeout=5) is Attempt.TAKEN
    with pytest.raises(ConflictError):
        await leader.attempt(timeout=5)
    assert await leader.attempt(timeout=5) is Attempt.HELD
    assert await former.attempt(timeout=5) is Attempt.TAKEN


async def test_one_that_was_deaf_since_the_backup_does_not_take_a_restored_lease_for_expired(
    cluster: Cluster, client: ApiClient, autojump_clock: MockClock
) -> None:
    leader, other = make(client, "a"), make(client, "b")
    await leader.attempt(timeout=5)
    assert await other.attempt(timeout=5) is Attempt.TAKEN
    backup = cluster.snapshot()
    await grow(cluster, leader, times=25)  # which the other one does not see
    await cluster.restore(backup)
    assert await other.attempt(timeout=5) is Attempt.TAKEN
    await trio.sleep(1)
    with pytest.raises(ConflictError):
        await leader.attempt(timeout=5)
    assert await leader.attempt(timeout=5) is Attempt.HELD


async def test_a_holder_of_before_takes_a_restored_lease_when_no_successor_has_shown_itself(
    cluster: Cluster, client: ApiClient, autojump_clock: MockClock
) -> None:
    former = make(client, "a")
    await grow(cluster, former)
    backup = cluster.snapshot()
    await grow(cluster, former)
    await trio.sleep(15.1)
    await cluster.restore(backup)
    with pytest.raises(ConflictError):
        await former.attempt(timeout=5)
    for _ in range(3):
        assert await former.attempt(timeout=5) is Attempt.TAKEN
        await trio.sleep(5)
    assert await former.attempt(timeout=5) is Attempt.HELD


async def test_a_holder_that_has_a_successor_after_a_restore_gives_way(
    cluster: Cluster, client: ApiClient, autojump_clock: MockClock
) -> None:
    leader = make(client, "a")
    former = make(client, "b")
    await former.attempt(timeout=5)
    backup = cluster.snapshot()
    await former.release()
    await grow(cluster, leader)
    await cluster.restore(backup)
    await trio.sleep(1)
    assert await make(client, "b").attempt(timeout=5) is Attempt.HELD  # it was restarted, and knows nothing
    with pytest.raises(ConflictError):
        await leader.attempt(timeout=5)
    assert await leader.attempt(timeout=5) is Attempt.TAKEN


async def test_a_conflict_is_not_overwritten(cluster: Cluster, client: ApiClient, autojump_clock: MockClock) -> None:
    lease = make(client, "a")
    await lease.attempt(timeout=5)
    await cluster.patch("leases.coordination.k8s.io", "it", {"spec": {"holderIdentity": "b"}})
    with pytest.raises(ConflictError):
        await lease.attempt(timeout=5)
    assert await lease.attempt(timeout=5) is Attempt.TAKEN
    assert lease.holder == "b"


async def test_a_change_of_others_to_the_metadata_takes_no_leadership(
    cluster: Cluster, client: ApiClient, autojump_clock: MockClock
) -> None:
    lease = make(client, "a")
    await lease.attempt(timeout=5)
    await cluster.patch("leases.coordination.k8s.io", "it", {"metadata": {"labels": {"team": "x"}}})
    with pytest.raises(ConflictError):
        await lease.attempt(timeout=5)
    assert await lease.attempt(timeout=5) is Attempt.HELD


async def test_errors_are_raised_and_renew_nothing(
    client: ApiClient, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    lease = make(client, "a")
    await lease.attempt(timeout=5)
    renewed_at = lease.renewed_at
    await trio.sleep(2)
    plan.add(Fault.status(503), times=1)
    with pytest.raises(ServerError):
        await lease.attempt(timeout=5)
    plan.add(Fault.stall(), times=1)
    with pytest.raises(trio.TooSlowError):
        await lease.attempt(timeout=5)
    assert lease.renewed_at == renewed_at


async def test_the_time_of_a_renewal_is_that_of_its_request(
    client: ApiClient, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    lease, began = make(client, "a"), trio.current_time()
    plan.add(Fault.delay(after=3))
    await lease.attempt(timeout=30)
    assert lease.renewed_at == began


async def test_nonsense_in_a_record_is_replaced_after_the_duration(
    cluster: Cluster, client: ApiClient, autojump_clock: MockClock
) -> None:
    await cluster.create(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "it", "namespace": "default"},
            "spec": {"holderIdentity": "x"},
        }
    )
    lease = make(client, "a")
    for seconds in (10, 5):
        assert await lease.attempt(timeout=5) is Attempt.TAKEN
        await trio.sleep(seconds)
    assert await lease.attempt(timeout=5) is Attempt.HELD
