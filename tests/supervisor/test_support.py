"""Tests for :mod:`trioperator._supervisor.support`: in which order an operator leaves when it handles nothing more."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, Bench, settle, widget
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport


@pytest.fixture
async def leader(cluster: Cluster) -> Bench:
    await cluster.apply(CRD)
    bench = Bench(cluster, trioperator.OperatorRegistry(), trioperator.OperatorSettings())
    bench.settings.leadership.enabled = True

    @trioperator.on.create("widgets", registry=bench.registry)
    async def create(body: trioperator.Body, **_: Any) -> None:
        await trio.sleep(5)
        trioperator.event(body, type="Normal", reason="Created", message="It is there.")

    return bench


async def test_a_leader_lets_others_take_over_when_all_is_stored_and_its_events_are_posted(
    leader: Bench, autojump_clock: MockClock
) -> None:
    async with leader.running() as stop:
        await leader.cluster.create(widget())
        await settle(1)
        leader.cluster.requests.clear()
        stop()
    writes = [(request.verb, request.resource) for request in leader.cluster.requests if request.verb != "watch"]
    others = [resource for verb, resource in writes if verb in ("create", "patch", "update")]
    assert others.index("widgets.example.com") < others.index("events")
    assert others[-1] == "leases.coordination.k8s.io"
    lease = await leader.cluster.get("leases", "trioperator", namespace="default")
    assert lease["spec"]["holderIdentity"] == ""


async def test_a_leader_that_is_cancelled_or_cannot_post_its_events_releases_its_lease_too(
    leader: Bench, autojump_clock: MockClock
) -> None:
    plan = FaultPlan()
    plan.add(Fault.stall(), resource="events")
    async with leader.running(transport=FaultyTransport(leader.cluster.transport(), plan)):
        await leader.cluster.create(widget())
        await settle(6)
        began = trio.current_time()
    assert trio.current_time() - began < 6  # as long as is waited for events
    lease = await leader.cluster.get("leases", "trioperator", namespace="default")
    assert lease["spec"]["holderIdentity"] == ""
    with trio.move_on_after(1):
        async with leader.running():
            await trio.sleep_forever()
    lease = await leader.cluster.get("leases", "trioperator", namespace="default")
    assert lease["spec"]["holderIdentity"] == ""
