"""Children of reconcile handlers: those of two operators, and those that are deleted as soon as they exist."""

from __future__ import annotations

import functools
from typing import Any

import trio

import trioperator
from tests.both.conftest import Body, Server
from tests.both.kinds import WIDGETS, manifest
from trioperator._model.resource import Resource

CONFIG_MAPS = Resource("", "v1", "configmaps", kind="ConfigMap")


def make_config_map(name: str, **data: str) -> Body:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def watch_deletions(server: Server, deleted: list[str]) -> Any:
    """Return an async function that notes the ConfigMaps of the test that are deleted."""
    registry = trioperator.OperatorRegistry()

    @trioperator.on.event("configmaps", registry=registry)
    async def note(type: str | None, name: str, **_: Any) -> None:
        if type == "DELETED":
            deleted.append(name)

    return functools.partial(server.operating, registry=registry)


async def test_two_operators_with_the_default_settings_leave_each_others_children(server: Server) -> None:
    """Each owns one ConfigMap of the same object, with a handler of its own, by the same field manager."""
    registries = [trioperator.OperatorRegistry() for _ in range(2)]

    @trioperator.on.reconcile(*WIDGETS, owns=["configmaps"], registry=registries[0])
    async def first(name: str, spec: trioperator.Spec) -> Body:
        return make_config_map(f"first-{name}", size=str(spec["size"]))

    @trioperator.on.reconcile(*WIDGETS, owns=["configmaps"], registry=registries[1])
    async def second(name: str, spec: trioperator.Spec) -> Body:
        return make_config_map(f"second-{name}", size=str(spec["size"]))

    async def until_all_are_of(size: str) -> None:
        for name in ("first-one", "second-one"):
            await server.until(CONFIG_MAPS, name, lambda body: body["data"] == {"size": size})

    deleted: list[str] = []
    async with watch_deletions(server, deleted)():
        for size in (1, 2):  # the second time, both find the children of the other one on their start
            async with server.operating(registry=registries[0]), server.operating(registry=registries[1]):
                if size == 1:
                    await server.create(WIDGETS, manifest(WIDGETS, size=size))
                else:
                    await server.patch(WIDGETS, "one", {"spec": {"size": size}})
                await until_all_are_of(str(size))
        await trio.sleep(1)
    assert not deleted


async def test_children_that_are_deleted_while_they_are_applied_come_back(server: Server) -> None:
    """The watch may bring the deletion before the response to what has created it."""
    names = [f"w{number}" for number in range(20)]
    deleters, uids = trioperator.OperatorRegistry(), dict[str, str]()

    @trioperator.on.reconcile(*WIDGETS, owns=["configmaps"], registry=server.registry)
    async def reconcile(name: str) -> Body:
        return make_config_map(name)

    @trioperator.on.event("configmaps", registry=deleters)
    async def delete(type: str | None, name: str, uid: str, client: trioperator.Client, **_: Any) -> None:
        if type == "ADDED" and name in names and name not in uids:
            uids[name] = uid
            await client.delete("configmaps", name)

    async with server.operating(registry=deleters), server.operating():
        for name in names:
            await server.create(WIDGETS, manifest(WIDGETS, name))
        for name in names:
            await server.until(
                CONFIG_MAPS, name, lambda body: body["metadata"]["uid"] != uids.get(body["metadata"]["name"])
            )
