"""Tests for :mod:`trioperator.apiserver.writing.system_deleter`: the control plane deletes what webhooks allow."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.apiserver.hooks import HOST, Hooks, allow, configuration, deny, webhook
from trioperator.apiserver import Cluster

RULE = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["DELETE"]}


def config_map(name: str, **meta: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **meta}}


@pytest.fixture
async def hooks() -> Hooks:
    """Return a webhook that denies everything at first."""
    hooks = Hooks()
    hooks.handlers["/hook"] = deny
    return hooks


@pytest.fixture
async def cluster(hooks: Hooks) -> Cluster:
    """Return a cluster with an owner and its dependent, and a webhook for deletions of ConfigMaps."""
    cluster = Cluster(seed=0, webhooks={HOST: hooks})
    owner = await cluster.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "owner"}})
    reference = {"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": owner["metadata"]["uid"]}
    await cluster.create(config_map("child", ownerReferences=[reference]))
    await cluster.apply(configuration("Validating", "hook", webhook(hooks, "/hook", rules=[RULE])))
    return cluster


async def write(cluster: Cluster) -> None:
    """Change something, so that follow-ups are run."""
    await cluster.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"generateName": "x-"}})


async def test_an_object_without_matching_webhooks_is_deleted_with_the_write(cluster: Cluster, hooks: Hooks) -> None:
    await cluster.delete("validatingwebhookconfigurations", "hook")
    await cluster.delete("secrets", "owner")
    assert await cluster.find("configmaps", "child") is None
    assert hooks.requests() == []


async def test_an_allowed_deletion_is_done_with_the_write(cluster: Cluster, hooks: Hooks) -> None:
    hooks.handlers["/hook"] = allow
    uid = (await cluster.get("configmaps", "child"))["metadata"]["uid"]
    await cluster.delete("secrets", "owner")
    assert await cluster.find("configmaps", "child") is None
    (request,) = hooks.requests()
    assert (request["operation"], request["name"]) == ("DELETE", "child")
    assert request["userInfo"]["username"] == "system:serviceaccount:kube-system:generic-garbage-collector"
    assert request["options"]["preconditions"] == {"uid": uid}


async def test_a_denied_deletion_is_retried_with_later_writes(
    cluster: Cluster, hooks: Hooks, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    with caplog.at_level(logging.WARNING):
        await cluster.delete("secrets", "owner")
    assert "Cannot delete configmaps/child, retrying" in caplog.text
    assert await cluster.find("configmaps", "child") is not None
    hooks.handlers["/hook"] = allow
    await trio.sleep(1)
    await write(cluster)
    assert await cluster.find("configmaps", "child") is None


async def test_retries_back_off(cluster: Cluster, hooks: Hooks, autojump_clock: MockClock) -> None:
    await cluster.delete("secrets", "owner")
    began = trio.current_time()
    times = []
    for _ in range(200):
        before = len(hooks.requests())
        await write(cluster)
        if len(hooks.requests()) > before:
            times.append(round(trio.current_time() - began))
        await trio.sleep(1)
    assert times == [1, 3, 7, 15, 31, 63, 123, 183]


async def test_an_object_that_is_gone_meanwhile_is_not_retried(
    cluster: Cluster, hooks: Hooks, autojump_clock: MockClock
) -> None:
    await cluster.delete("secrets", "owner")
    await cluster.delete("validatingwebhookconfigurations", "hook")
    await cluster.delete("configmaps", "child")
    await cluster.create(config_map("child"))
    await trio.sleep(1)
    await write(cluster)
    assert await cluster.find("configmaps", "child") is not None
    assert len(hooks.requests()) == 1


async def test_writes_of_others_do_not_wait_for_a_pending_deletion(cluster: Cluster, hooks: Hooks) -> None:
    answered = trio.Event()

    async def wait(review: dict[str, Any]) -> dict[str, Any]:
        await answered.wait()
        return allow(review)

    hooks.handlers["/hook"] = wait
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cluster.delete, "secrets", "owner")
        await trio.testing.wait_all_tasks_blocked()
        assert len(hooks.requests()) == 1
        with trio.fail_after(1):
            await write(cluster)
        assert await cluster.find("configmaps", "child") is not None
        answered.set()
    assert await cluster.find("configmaps", "child") is None
