"""Tests for :mod:`trioperator._coordination.session`: one request renews a session and tells who else is alive."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import trio
from trio.testing import MockClock

import trioperator
from trioperator._coordination.members import Member
from trioperator._coordination.session import Session
from trioperator._kube.api_client import ApiClient, open_client
from trioperator.apiserver import Cluster
from trioperator.errors import ConnectionLostError
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


def make(client: ApiClient, identity: str) -> Session:
    member = Member(identity=identity, shards=4, duration=15.0)
    return Session(client, namespace="default", name="it-members", member=member, deadline=10.0)


async def renew(*sessions: Session, times: int = 1) -> None:
    for _ in range(times):
        for session in sessions:
            await session.renew(timeout=5)


async def records(cluster: Cluster) -> int:
    lease = await cluster.get("leases.coordination.k8s.io", "it-members")
    return len(lease["metadata"]["annotations"])


async def test_members_have_shares_when_they_know_each_other(
    cluster: Cluster, client: ApiClient, autojump_clock: MockClock
) -> None:
    one, other = make(client, "a"), make(client, "b")
    await renew(one)
    assert not one.is_ranked
    assert one.share.size == 0
    await renew(one)
    assert one.share.size == 4
    await renew(other, other)
    await renew(one)
    assert (one.share.size, other.share.size) == (2, 2)
    assert (one.count, other.count) == (2, 2)
    assert await records(cluster) == 2


async def test_a_renewal_is_one_request(cluster: Cluster, client: ApiClient, autojump_clock: MockClock) -> None:
    session = make(client, "a")
    await renew(session, times=2)
    cluster.requests.clear()
    await renew(session)
    assert [request.method for request in cluster.requests] == ["PATCH"]


async def test_a_renewal_shows_that_etcd_was_restored_though_versions_have_gone_on(
    cluster: Cluster, client: ApiClient, autojump_clock: MockClock
) -> None:
    one, other = make(client, "a"), make(client, "b")
    await renew(one, times=2)
    before_the_other, version = cluster.snapshot(), one.lease._newest
    await renew(one, other, times=2)
    assert not one.lease.has_gone_back
    await cluster.restore(before_the_other)
    await renew(one, other)
    assert one.lease._newest > version
    assert one.lease.has_gone_back
    assert other.lease.has_gone_back
    assert await records(cluster) == 2
    await renew(one, other)
    assert not one.lease.has_gone_back
    assert not other.lease.has_gone_back


async def test_a_renewal_without_a_response_is_not_taken_for_a_restore(
    cluster: Cluster, client: ApiClient, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    session = make(client, "a")
    await renew(session, times=2)
    plan.add(Fault.lose_answer(), times=1)
    with pytest.raises(ConnectionLostError):
        await renew(session)
    await renew(session)
    assert not session.lease.has_gone_back


class ChangingTransport(httpx.AsyncBaseTransport):
    """A transport to a server whose admission writes records in another way."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        before, found, after = request.content.rpartition(rb"shards\":4")  # what is written, not what is tested
        content = before + found.replace(b":", b": ") + after
        headers = {key: value for key, value in request.headers.items() if key.lower() != "content-length"}
        return await self.inner.handle_async_request(
            httpx.Request(request.method, request.url, headers=headers, content=content)
        )


async def test_a_record_that_admission_has_changed_is_not_taken_for_a_restored_one(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    info, transport = trioperator.ConnectionInfo(server="http://embedded"), ChangingTransport(cluster.transport())
    async with open_client(lambda: info, settings=OperatorSettings(), transport=transport) as client:
        session = make(client, "a")
        for _ in range(4):
            await renew(session)
            assert not session.lease.has_gone_back
    lease = await cluster.get("leases.coordination.k8s.io", "it-members")
    assert '"shards": 4' in next(iter(lease["metadata"]["annotations"].values()))


async def test_a_record_that_was_removed_is_written_again(
    cluster: Cluster, client: ApiClient, autojump_clock: MockClock
) -> None:
    session = make(client, "a")
    await renew(session, times=2)
    await cluster.delete("leases.coordination.k8s.io", "it-members")
    await renew(session)
    assert session.lease.has_gone_back
    assert await records(cluster) == 1


async def test_a_session_is_valid_for_a_while_after_the_begin_of_its_last_renewal(
    client: ApiClient, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    session = make(client, "a")
    await renew(session)
    plan.add(Fault.delay(after=3))
    began = trio.current_time()
    await renew(session)
    assert session.valid_until == began + 10
    plan.clear()
    plan.add(Fault.stall())
    with pytest.raises(trio.TooSlowError):
        await renew(session)
    assert session.valid_until == began + 10


async def test_what_a_dead_member_owned_is_free_when_a_renewal_has_shown_that_it_is_dead(
    client: ApiClient, autojump_clock: MockClock
) -> None:
    one, other = make(client, "a"), make(client, "b")
    await renew(one, other, times=2)
    await renew(one)
    assert not one.is_free(other.identity)
    assert one.next_expiry == trio.current_time() + 15
    await trio.sleep(20)  # suspended, perhaps: the others were not
    assert not one.is_free(other.identity)
    await renew(one)
    assert one.is_free(other.identity)
    assert one.share.size == 4


async def test_an_unknown_holder_is_waited_for(client: ApiClient, autojump_clock: MockClock) -> None:
    session = make(client, "a")
    await renew(session, times=2)
    assert session.is_free("")
    assert not session.is_free("somebody")
    await trio.sleep(15)
    await renew(session)
    assert session.is_free("somebody")


async def test_a_session_that_is_joined_again_has_a_new_identity_and_removes_its_old_record(
    cluster: Cluster, client: ApiClient, autojump_clock: MockClock
) -> None:
    one, other = make(client, "a"), make(client, "b")
    await renew(one, other, times=2)
    before = one.identity
    one.join()
    assert one.identity != before
    assert one.share.size == 0
    assert one.valid_until == float("inf")
    await renew(one, times=2)
    assert await records(cluster) == 2
    assert one.is_free(before)
    await renew(other)
    assert not other.is_free(before)
    assert other.share.size == 2


async def test_an_identity_lapses_from_its_first_attempt_even_if_that_was_not_answered(
    client: ApiClient, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    session = make(client, "a")
    assert session.valid_until == float("inf")
    plan.add(Fault.lose_answer())
    began = trio.current_time()
    with pytest.raises(ConnectionLostError):
        await renew(session)
    assert session.valid_until == began + 10


async def test_a_member_that_was_suspended_removes_no_records_of_others_that_live(
    cluster: Cluster, client: ApiClient, autojump_clock: MockClock
) -> None:
    one, other = make(client, "a"), make(client, "b")
    await renew(one, other, one, other, one)
    for _ in range(10):
        await trio.sleep(9)
        await renew(other)
    one.join()
    await renew(one, one)
    assert await records(cluster) == 2
    assert not one.is_free(other.identity)
    assert one.count == 2


async def test_who_leaves_is_gone_at_once(cluster: Cluster, client: ApiClient, autojump_clock: MockClock) -> None:
    one, other = make(client, "a"), make(client, "b")
    await renew(one, other, times=2)
    await other.leave()
    await renew(one)
    assert one.share.size == 4
    assert await records(cluster) == 1


async def test_the_lease_of_the_members_is_created_again(
    cluster: Cluster, client: ApiClient, autojump_clock: MockClock
) -> None:
    one, other = make(client, "a"), make(client, "b")
    await renew(one, other, times=2)
    await cluster.delete("leases.coordination.k8s.io", "it-members")
    await renew(one, other, one)
    assert (one.share.size, other.share.size) == (2, 2)


async def test_a_response_that_is_no_lease_renews_nothing(
    client: ApiClient, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    session = make(client, "a")
    plan.add(Fault.answer(200, b"<html>"))
    with pytest.raises(ConnectionLostError, match="not a Lease"):
        await renew(session)
    assert not session.is_joined
