"""Objects that were replaced by others of the same name: what their uids do in requests of the client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

import trioperator
from tests.both.conftest import Body, Server
from trioperator._model.resource import Resource

CONFIG_MAPS = Resource("", "v1", "configmaps", kind="ConfigMap")
PODS = Resource("", "v1", "pods", kind="Pod")
CONTAINER = {"name": "main", "image": "web"}


@pytest.fixture
async def client(server: Server) -> AsyncIterator[trioperator.Client]:
    async with trioperator.open_client(connection=server.connection) as client:
        yield client


async def replace(server: Server, resource: Resource, **fields: Any) -> tuple[Body, Body]:
    """Create an object, delete it, and create another one of its name."""
    body = {"apiVersion": "v1", "kind": resource.kind, "metadata": {"name": "one"}, **fields}
    old = await server.create_soon(resource, body)
    await server.delete(resource, "one")
    await server.until_gone(resource, "one")
    return old, await server.create(resource, body)


async def test_a_deletion_does_not_hit_the_successor(server: Server, client: trioperator.Client) -> None:
    old, new = await replace(server, CONFIG_MAPS)
    with pytest.raises(trioperator.NotFoundError, match="replaced by another object"):
        await client.delete(old)
    with pytest.raises(trioperator.ConflictError):
        await client.delete(new, uid=old["metadata"]["uid"])
    with trio.fail_after(30):
        await client.wait_deleted(old)
    await client.delete(await server.get(CONFIG_MAPS, "one"))
    await server.until_gone(CONFIG_MAPS, "one")


async def test_an_eviction_does_not_hit_the_successor(server: Server, client: trioperator.Client) -> None:
    old, new = await replace(server, PODS, spec={"containers": [CONTAINER]})
    with pytest.raises(trioperator.NotFoundError, match="replaced by another object"):
        await client.evict(old)
    await client.evict(new)
    await server.until_gone(PODS, "one")
