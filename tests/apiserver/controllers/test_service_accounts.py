"""Tests for :mod:`trioperator.apiserver.controllers.service_accounts`: each namespace has its default account."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from trioperator.apiserver import Cluster


async def names(cluster: Cluster, kind: str) -> list[str]:
    return [obj["metadata"]["name"] for obj in await cluster.list(kind, "default")]


async def test_each_namespace_has_a_service_account(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("service-accounts"):
        await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}})
        await trio.sleep(1)
        accounts = await cluster.list("serviceaccounts")
        places = {obj["metadata"]["namespace"] for obj in accounts if obj["metadata"]["name"] == "default"}
        assert places == {"default", "kube-node-lease", "kube-public", "kube-system", "new"}
        await cluster.delete("sa", "default")
        await trio.sleep(1)
        assert await names(cluster, "sa") == ["default"]
        await cluster.delete("ns", "new")
        await trio.sleep(1)
        assert await cluster.find("ns", "new") is None


async def test_an_account_that_exists_is_left_alone(cluster: Cluster, autojump_clock: MockClock) -> None:
    meta = {"name": "default", "namespace": "default", "labels": {"mine": "yes"}}
    made = await cluster.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    async with cluster.open_controllers("service-accounts"):
        await trio.sleep(1)
        assert await cluster.get("sa", "default") == made


async def test_a_terminating_namespace_gets_no_new_account(
    cluster: Cluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}}
    keeper = {"apiVersion": "v1", "kind": "ConfigMap"}
    async with cluster.open_controllers("service-accounts"):
        await cluster.create(manifest)
        await cluster.create({**keeper, "metadata": {"name": "a", "namespace": "new", "finalizers": ["a.b/c"]}})
        await trio.sleep(1)
        await cluster.delete("ns", "new")
        await trio.sleep(1)
        assert (await cluster.get("ns", "new"))["status"]["phase"] == "Terminating"
        assert await cluster.list("sa", "new") == []
    assert caplog.messages == []  # nothing was tried and rejected


async def test_other_accounts_are_not_recreated(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("service-accounts"):
        await cluster.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "other"}})
        await trio.sleep(1)
        assert await names(cluster, "sa") == ["default", "other"]
        await cluster.delete("sa", "other")
        await trio.sleep(1)
        assert await names(cluster, "sa") == ["default"]
