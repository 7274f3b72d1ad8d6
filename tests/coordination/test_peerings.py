"""Tests for :mod:`trioperator._coordination.peerings`: which peerings an operator takes part in, and when."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.coordination.peers import Operator, peering, peering_crd
from tests.runtime.conftest import CRD, settle, widget
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport, deterministic


async def test_nothing_is_handled_before_the_peers_are_known(autojump_clock: MockClock) -> None:
    cluster = Cluster()
    for manifest in (CRD, peering_crd(), peering(), widget()):
        await cluster.apply(manifest)
    low, high, plan = Operator(cluster), Operator(cluster, priority=1), FaultPlan()
    plan.add(Fault.delay(after=3), resource="clusterkopfpeerings", verb="list")
    async with high.bench.running():
        await settle(1)
        async with low.bench.running(transport=FaultyTransport(cluster.transport(), plan)):
            await settle(30)
    assert low.handled == []


async def test_peerings_that_cannot_be_listed_do_not_hold_up_the_operator_for_ever(autojump_clock: MockClock) -> None:
    cluster = Cluster()
    for manifest in (CRD, peering_crd(), peering(), widget()):
        await cluster.apply(manifest)
    operator, plan = Operator(cluster), FaultPlan()
    plan.add(Fault.stall(), resource="clusterkopfpeerings")
    async with operator.bench.running(transport=FaultyTransport(cluster.transport(), plan)):
        await settle(30)
        assert operator.running == {"w"}


async def test_a_namespace_that_comes_later_has_a_peering_and_one_that_goes_pauses_nobody(
    autojump_clock: MockClock,
) -> None:
    cluster = Cluster()
    for manifest in (CRD, peering_crd(clusterwide=False)):
        await cluster.apply(manifest)
    low, high = Operator(cluster), Operator(cluster, priority=1)
    async with low.bench.running(namespaces=["team-*"], identity="low"):
        await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})
        await cluster.create(peering(namespace="team-a"))
        await settle(1)
        assert list((await cluster.get("kopfpeerings", "default", namespace="team-a"))["status"]) == ["low"]
        await cluster.create({**widget(), "metadata": {"name": "w", "namespace": "team-a"}})
        async with high.bench.running(namespaces=["team-a"]):
            await settle(1)
            assert not low.running
        await settle(1)
        assert low.running == {"w"}


async def test_a_namespace_whose_peering_cannot_be_listed_holds_up_no_other_one(autojump_clock: MockClock) -> None:
    cluster = Cluster()
    for manifest in (CRD, peering_crd(clusterwide=False)):
        await cluster.apply(manifest)
    low, high, plan = Operator(cluster), Operator(cluster, priority=1), FaultPlan()
    plan.add(Fault.stall(), resource="kopfpeerings", namespace="team-a")
    transport = FaultyTransport(cluster.transport(), plan)
    async with low.bench.running(namespaces=["team-*"], identity="low", transport=transport):
        for name in ("team-a", "team-b"):
            await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            await settle(10)
        await cluster.create(peering(namespace="team-b"))
        await cluster.create({**widget(), "metadata": {"name": "w", "namespace": "team-b"}})
        await settle(1)
        assert low.running == {"w"}
        async with high.bench.running(namespaces=["team-b"]):
            await settle(1)
            assert (high.running, low.running) == ({"w"}, set())


@pytest.mark.parametrize("code", [403, 500])
async def test_an_operator_that_may_not_discover_peerings_is_standalone(
    code: int, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster()
    for manifest in (CRD, peering_crd(), peering(), widget()):
        await cluster.apply(manifest)
    operator, plan = Operator(cluster), FaultPlan()
    plan.add(Fault.status(code), path=r"/apis/(kopf\.dev|zalando\.org)/v1$")
    async with operator.bench.running(transport=FaultyTransport(cluster.transport(), plan)):
        await settle(1)
        assert operator.running == {"w"}
    assert "The peering objects cannot be discovered" in caplog.text


async def test_an_operator_stops_while_it_waits_for_a_mandatory_peering(autojump_clock: MockClock) -> None:
    cluster = Cluster()
    await cluster.apply(CRD)
    cleaned: list[Any] = []
    operator = Operator(cluster)

    @trioperator.on.cleanup(registry=operator.bench.registry)
    async def clean(**_: Any) -> None:
        cleaned.append(True)

    with trio.fail_after(60):
        async with operator.bench.running(peering_name="absent") as stop:
            await settle(5)
            stop()
    assert cleaned == [True]


async def test_peerings_that_must_not_be_listed_are_warned_of_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster()
    for manifest in (CRD, peering_crd(), peering(), widget()):
        await cluster.apply(manifest)
    operator, plan = Operator(cluster), FaultPlan()
    plan.add(Fault.status(403), resource="clusterkopfpeerings")
    async with operator.bench.running(transport=FaultyTransport(cluster.transport(), plan)):
        await settle(3600)
        assert operator.running == {"w"}
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "clusterkopfpeerings" in warning
    assert "Other operators are not noticed until then" in warning


@pytest.mark.parametrize(("in_pod", "elects"), [(True, False), (True, True), (False, False)])
async def test_a_pod_without_election_and_peering_is_told_that_another_one_would_handle_the_same(
    in_pod: bool,
    elects: bool,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if in_pod:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    else:
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    cluster = Cluster()
    await cluster.apply(CRD)
    operator = Operator(cluster)
    operator.bench.settings.leadership.enabled = elects
    with caplog.at_level("INFO"):
        async with operator.bench.running():
            await settle(1)
    assert ("another pod of this operator" in caplog.text) is (in_pod and not elects)


class HeldTransport(httpx.AsyncBaseTransport):
    """A network on which the events of all watches are held until the gate is open, and then arrive at once."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self.gate = trio.Event()
        self.gate.set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        if b"watch=" in request.url.query:
            response.stream = HeldStream(self, response.stream)
        return response


class HeldStream(httpx.AsyncByteStream):
    def __init__(self, network: HeldTransport, inner: httpx.SyncByteStream | httpx.AsyncByteStream) -> None:
        assert isinstance(inner, httpx.AsyncByteStream)
        self._network = network
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for line in self._inner:
            if not self._network.gate.is_set():
                await self._network.gate.wait()
            yield line

    async def aclose(self) -> None:
        await self._inner.aclose()


def make_namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


async def make_cluster(*names: str) -> Cluster:
    """Return a cluster with these namespaces, and a peering object in each."""
    cluster = Cluster()
    for manifest in (CRD, peering_crd(clusterwide=False)):
        await cluster.apply(manifest)
    for name in names:
        await cluster.create(make_namespace(name))
        await cluster.create(peering(namespace=name))
    return cluster


@pytest.mark.parametrize("seed", range(8))
def test_a_peering_object_that_goes_at_the_same_time_as_its_namespace_pauses_nobody(seed: int) -> None:
    async def main() -> None:
        cluster = await make_cluster("team-a", "team-b")
        operator, network = Operator(cluster), HeldTransport(cluster.transport())
        async with operator.bench.running(namespaces=["team-*"], peering_name="default", transport=network):
            await settle(1)
            network.gate = trio.Event()
            await cluster.delete("kopfpeerings", "default", namespace="team-a")
            await cluster.delete("namespaces", "team-a")
            await settle(1)
            network.gate.set()
            await settle(1)
            await cluster.create({**widget(), "metadata": {"name": "w", "namespace": "team-b"}})
            await settle(1)
            assert operator.running == {"w"}

    with deterministic(seed):
        trio.run(main, clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize("seed", range(4))
def test_a_namespace_that_is_created_again_at_once_pauses_until_it_has_a_peering_object(seed: int) -> None:
    async def main() -> None:
        cluster = await make_cluster("team-a")
        operator, network = Operator(cluster), HeldTransport(cluster.transport())
        async with operator.bench.running(namespaces=["team-*"], peering_name="default", transport=network):
            await settle(1)
            network.gate = trio.Event()
            await cluster.delete("kopfpeerings", "default", namespace="team-a")
            await cluster.delete("namespaces", "team-a")
            await settle(1)
            await cluster.create(make_namespace("team-a"))
            await cluster.create({**widget(), "metadata": {"name": "w", "namespace": "team-a"}})
            await settle(1)
            network.gate.set()
            await settle(30)
            assert not operator.running
            await cluster.create(peering(namespace="team-a"))
            await settle(1)
            assert operator.running == {"w"}

    with deterministic(seed):
        trio.run(main, clock=MockClock(autojump_threshold=0))
