"""Tests for :mod:`trioperator.testing.rights`: a test run says which rights handlers lack."""

from __future__ import annotations

import pytest
import trio

import trioperator
from tests.runtime.conftest import CRD, widget
from trioperator.apiserver import Cluster
from trioperator.testing import OperatorRunner

on = trioperator.on

JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "it"},
    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "it", "image": "it:1"}]}}},
}


@pytest.fixture
async def cluster(cluster: Cluster) -> Cluster:
    await cluster.apply(CRD)
    return cluster


async def live(cluster: Cluster, operator: OperatorRunner, **options: object) -> None:
    await operator.start(**options)
    await cluster.create(widget("w"))
    await trio.sleep(30)


async def test_rights_that_handlers_lack_are_said_as_they_are_to_be_declared(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: object
) -> None:
    @on.create("widgets", rights=["get:nodes"])
    async def make(client: trioperator.Client) -> None:
        await client.apply(JOB)
        await client.list("pods", labels={"a": "b"})
        await client.list("configmaps")

    await live(cluster, operator)
    with pytest.raises(AssertionError, match="does not allow what handlers have requested") as raised:
        await operator.assert_rights()
    line = '    rights=["get:nodes", "get,create,patch:jobs.batch", "list:configmaps,pods"]'
    assert str(raised.value).splitlines()[2].strip() == line.strip()
    assert "tests/testing/test_rights.py:" in str(raised.value)
    assert "PATCH /apis/batch/v1/namespaces/default/jobs/it" in str(raised.value)
    [missing] = await operator.find_missing_rights()
    assert missing.rights == ["get:nodes", "get,create,patch:jobs.batch", "list:configmaps,pods"]


async def test_declared_rights_and_those_for_the_kinds_of_handlers_are_enough(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: object
) -> None:
    @on.create("widgets", rights=["get,create,patch:jobs.batch"])
    async def make(client: trioperator.Client, patch: trioperator.Patch, name: str) -> None:
        await client.apply(JOB)
        await client.get("widgets", name)
        patch.status["seen"] = "yes"
        await patch.store()

    await live(cluster, operator)
    await operator.assert_rights()


async def test_requests_of_sync_handlers_sub_handlers_and_daemons_are_theirs(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: object
) -> None:
    @on.create("widgets")
    def in_thread(client: trioperator.SyncClient) -> None:
        client.list("pods")

    @on.create("widgets")
    async def parent() -> None:
        @trioperator.subhandler(id="child")
        async def child(client: trioperator.Client) -> None:
            await client.list("secrets")

    @trioperator.daemon("widgets", finalizer=False)
    async def background(client: trioperator.Client, stopped: trioperator.DaemonStopped) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.list, "services")

    @on.startup()
    async def before(client: trioperator.Client) -> None:
        await client.list("namespaces")

    await live(cluster, operator)
    found = {missing.handler.id.rpartition(".")[2]: missing.rights for missing in await operator.find_missing_rights()}
    assert found == {
        "in_thread": ["list:pods"],
        "parent": ["list:secrets"],
        "background": ["list:services"],
        "before": ["list:namespaces"],
    }


async def test_requests_in_namespaces_that_are_not_served_are_told_apart(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: object
) -> None:
    @on.create("widgets", rights=["list:pods"])
    async def make(client: trioperator.Client) -> None:
        await client.list("pods", namespace="kube-system")

    await live(cluster, operator, namespaces=["default"])
    [missing] = await operator.find_missing_rights()
    assert (missing.requests, missing.elsewhere) == ((), ("GET /api/v1/namespaces/kube-system/pods",))
