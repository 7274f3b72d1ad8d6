"""One scenario, with an operator in several styles, leads to one end: in memory, over TCP, on a real control plane."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection
from typing import Any

import pytest
from trio.testing import MockClock

import trioperator
from tests.both.conftest import Server
from tests.both.kinds import WIDGETS, define, manifest
from tests.both.styles import MARK, NAME, STYLES, STYLES_ON_NETWORKS, Declare
from trioperator.apiserver import Cluster
from trioperator.testing import OperatorRunner, crash_at_every_write

APPS = f"{WIDGETS.plural}.{WIDGETS.group}"
Body = dict[str, Any]
# What somebody changes in the children.
EDITS: dict[str, list[tuple[str, object]]] = {
    "configmaps": [("/data/level", "debug")],
    "deployments": [("/spec/template/spec/containers/0/image", "busybox"), ("/spec/replicas", 7)],
}
MEMORY = trioperator.ConnectionInfo(server="http://cluster")


def open_user(
    connection: trioperator.ConnectionInfo, namespace: str, **options: Any
) -> contextlib.AbstractAsyncContextManager[trioperator.Client]:
    """Open a client of somebody who has fields of their own."""
    settings = trioperator.OperatorSettings()
    settings.persistence.field_manager = "somebody"
    connection = dataclasses.replace(connection, default_namespace=namespace)
    return trioperator.open_client(connection=connection, settings=settings, **options)


async def live(user: trioperator.Client, kinds: Collection[str] = tuple(EDITS)) -> None:
    """Create an app, scale it, edit and delete its children, and wait each time until all is as it should be."""
    await user.create(manifest(WIDGETS, NAME, replicas=1))
    await check(user, replicas=1)
    await user.patch(APPS, NAME, merge={"spec": {"replicas": 3}})
    await check(user, replicas=3)
    for kind in kinds:
        await user.patch(kind, NAME, json=[{"op": "replace", "path": path, "value": new} for path, new in EDITS[kind]])
        await check(user, replicas=3)
        await user.delete(kind, NAME, propagation="Background")
        await check(user, replicas=3)


async def check(user: trioperator.Client, *, replicas: int) -> None:
    """Wait until the app and its children are as they should be, and stay so in all that matters."""

    def is_observed(app: Body) -> bool:
        return bool(app.get("status", {}).get("replicas") == replicas)

    def is_deployed(child: Body) -> bool:
        (container,) = child["spec"]["template"]["spec"]["containers"]
        return (child["spec"]["replicas"], container["image"]) == (replicas, "nginx:1")

    parent = await user.wait_for(
        APPS, NAME, condition=lambda app: app.get("status", {}).get("replicas") == replicas, timeout=60
    )
    expected: dict[str, Callable[[Body], bool]] = {
        "deployments": is_deployed,
        "configmaps": lambda child: child["data"] == {"level": "info"},
    }
    for kind, is_expected in expected.items():
        child = await user.wait_for(kind, NAME, condition=is_expected, timeout=60)
        assert [owner["uid"] for owner in child["metadata"]["ownerReferences"]] == [parent["metadata"]["uid"]]
        assert child["metadata"]["labels"] == MARK


async def check_gone(user: trioperator.Client) -> None:
    """Wait until nothing is left."""
    for kind in (APPS, "deployments", "configmaps"):
        await user.wait_deleted(kind, NAME, timeout=120)  # a real garbage collector takes half a minute for new kinds


@pytest.mark.parametrize("declare", STYLES_ON_NETWORKS)
async def test_the_same_end_on_each_server(server: Server, declare: Declare) -> None:
    declare(server.registry)
    async with open_user(server.connection, server.namespace) as user:
        async with server.operating(seconds=120):
            await live(user)
            await user.delete(APPS, NAME)
            await user.wait_deleted(APPS, NAME, timeout=60)
        await check_gone(user)


@pytest.mark.parametrize("declare", STYLES)
async def test_the_same_end_in_virtual_time(
    operator: OperatorRunner, cluster: Cluster, autojump_clock: MockClock, declare: Declare
) -> None:
    registry = trioperator.OperatorRegistry()
    declare(registry)
    await cluster.apply(define(WIDGETS))
    await operator.start(registry)
    async with open_user(MEMORY, "default", transport=cluster.transport()) as user:
        await live(user)
        await operator.assert_converged()
        await check(user, replicas=3)
        await user.delete(APPS, NAME)
        await check_gone(user)
        await operator.assert_converged()
        await check_gone(user)


@pytest.mark.parametrize("declare", STYLES)
async def test_the_same_end_after_a_crash_at_any_write(autojump_clock: MockClock, declare: Declare) -> None:
    async def scenario(cluster: Cluster, operator: OperatorRunner) -> None:
        registry = trioperator.OperatorRegistry()
        declare(registry)
        await cluster.apply(define(WIDGETS))
        await operator.start(registry)
        async with open_user(MEMORY, "default", transport=cluster.transport()) as user:
            await live(user, ["configmaps"])

    assert await crash_at_every_write(scenario) >= 10
