"""From several replicas to one, in the middle of a rollout: one operator goes on where two of them were."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, Bench, widget
from trioperator._tooling.deployment.options import DeploymentOptions
from trioperator._tooling.deployment.workload import make_deployment
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport


class Deployment:
    """The operator as it is deployed: its replicas, and the calls of their handlers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.calls: list[str] = []
        self.registry = trioperator.OperatorRegistry()
        self.may_succeed = False
        self._add_handlers()

    def _add_handlers(self) -> None:
        @trioperator.on.create("widgets", registry=self.registry)
        async def create(name: str, **_: Any) -> None:
            self.calls.append(f"create {name}")

        @trioperator.on.create("widgets", registry=self.registry, when=lambda name, **_: name == "b")
        async def provision(name: str, retry: int, **_: Any) -> None:
            self.calls.append(f"provision {name} {retry}")
            if not self.may_succeed:
                raise trioperator.TemporaryError("not yet", delay=30)

        @trioperator.on.update("widgets", registry=self.registry)
        async def update(name: str, spec: trioperator.Spec, **_: Any) -> None:
            self.calls.append(f"update {name} {spec['size']}")

        @trioperator.on.delete("widgets", registry=self.registry)
        async def delete(name: str, **_: Any) -> None:
            self.calls.append(f"delete {name}")

    @contextlib.asynccontextmanager
    async def running(self, *identities: str, shards: int = 1, ends: str = "stopped") -> AsyncIterator[None]:
        """Run replicas in the block, one started after the other; then all of them are stopped, or killed."""
        async with contextlib.AsyncExitStack() as stack:
            plan = FaultPlan()
            scope = stack.enter_context(trio.CancelScope())
            for identity in identities:
                settings = trioperator.OperatorSettings()
                settings.leadership.identity = identity
                settings.leadership.enabled = len(identities) > 1
                settings.leadership.shards = shards
                settings.posting.enabled = False
                bench = Bench(self.cluster, self.registry, settings)
                transport = FaultyTransport(self.cluster.transport(), plan)
                await stack.enter_async_context(bench.running(transport=transport))
                await trio.sleep(5)
            yield
            if ends == "killed":  # nothing more is sent: Leases stay with their holders
                plan.add(Fault.refuse())
                scope.cancel()

    async def find_finalizers(self) -> list[str]:
        found = await self.cluster.list("widgets")
        return [each["metadata"]["name"] for each in found if each["metadata"].get("finalizers")]


@pytest.fixture
async def deployment(cluster: Cluster) -> Deployment:
    await cluster.apply(CRD)
    return Deployment(cluster)


@pytest.mark.parametrize("ends", ["stopped", "killed"])
@pytest.mark.parametrize("shards", [1, 4], ids=["leader", "shards"])
async def test_one_operator_goes_on_where_several_were(
    deployment: Deployment, autojump_clock: MockClock, cluster: Cluster, shards: int, ends: str
) -> None:
    async with deployment.running("old", "new", shards=shards, ends=ends):
        await trio.sleep(30)
        for name in ("a", "b", "c"):
            await cluster.create(widget(name))
        await trio.sleep(5)
        assert sorted(deployment.calls) == ["create a", "create b", "create c", "provision b 0"]
    await cluster.patch("widgets", "a", {"spec": {"size": 7}})
    await cluster.delete("widgets", "c")
    deployment.calls.clear()
    deployment.may_succeed = True
    async with deployment.running("single"):
        assert sorted(deployment.calls) == ["delete c", "update a 7"], "it waits for no Lease"
        await trio.sleep(60)
        assert deployment.calls[2:] == ["provision b 1"], "and for the retry as long as was left"
    assert await deployment.find_finalizers() == ["a", "b"]


@pytest.mark.parametrize("ends", ["stopped", "killed"])
@pytest.mark.parametrize("shards", [1, 4], ids=["leader", "shards"])
async def test_several_go_on_where_one_was_in_spite_of_old_leases(
    deployment: Deployment, autojump_clock: MockClock, cluster: Cluster, shards: int, ends: str
) -> None:
    async with deployment.running("old", "new", shards=shards, ends=ends):
        await cluster.create(widget("a"))
        await trio.sleep(30)
    async with deployment.running("single"):
        await cluster.create(widget("b"))
        await trio.sleep(1)
    deployment.calls.clear()
    async with deployment.running("third", "fourth", shards=shards):
        await cluster.create(widget("c"))
        await cluster.patch("widgets", "a", {"spec": {"size": 7}})
        await cluster.delete("widgets", "b")
        await trio.sleep(30)
        assert sorted(deployment.calls) == ["create c", "delete b", "update a 7"]
    assert await deployment.find_finalizers() == ["a", "c"]


async def test_the_manifests_of_one_replace_those_of_several(cluster: Cluster) -> None:
    connection = trioperator.ConnectionInfo(server="http://embedded")
    await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "operator"}})
    several = DeploymentOptions(namespace="operator", replicas=2, leader_elect=True)
    single = DeploymentOptions(namespace="operator")
    rolling, recreate = ("RollingUpdate", True), ("Recreate", False)
    async with trioperator.open_client(connection=connection, transport=cluster.transport()) as client:
        for options, count, strategy in ((several, 2, rolling), (single, 1, recreate), (several, 2, rolling)):
            await client.apply(make_deployment(options))
            spec = (await cluster.get("deployments.apps", options.name, namespace="operator"))["spec"]
            assert spec["replicas"] == count
            assert (spec["strategy"]["type"], "rollingUpdate" in spec["strategy"]) == strategy
