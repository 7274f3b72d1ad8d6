"""What type checkers make of typed kinds; nothing here is ever called.

mypy checks it with all tests, where an ignored error that does not exist is an error, and pyright by
``tests/test_pyright.py``, where each line that ignores an error must have one, and no other line.
"""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager
from typing import Any, assert_type

import attrs
import msgspec
import pydantic

import trioperator
from trioperator import crds
from trioperator._handling.declaring.registry import OperatorRegistry

UNUSED = OperatorRegistry()


class Spec(msgspec.Struct):
    size: int = 1


class Status(msgspec.Struct):
    phase: str = "New"


@crds.kind("example.com/v1", registry=UNUSED)
class Database(msgspec.Struct):
    spec: Spec
    metadata: crds.ObjectMeta = crds.ObjectMeta()
    status: Status | None = None


@crds.kind("example.com/v1", registry=UNUSED)
@dataclasses.dataclass
class Cache:
    spec: Spec


@crds.kind("example.com/v1", registry=UNUSED)
@attrs.define
class Queue:
    spec: Spec


@crds.kind("example.com/v1", registry=UNUSED)
class Topic(pydantic.BaseModel):
    spec: dict[str, str]


class Foreign:
    """As the classes of kr8s and pykube."""

    version = "v1"
    kind = "Pod"


@dataclasses.dataclass
class LightkubeModel:
    spec: Spec


class Lightkube(LightkubeModel):
    """As the resources of lightkube."""

    _api_info = object()


def declare_handlers() -> None:
    @trioperator.on.create(Database)
    async def good(spec: Spec, body: Database, name: str, client: trioperator.Client) -> None:
        size: int = spec.size + body.spec.size
        assert_type((await client.get(Database, name)).spec.size + size, int)

    @trioperator.on.create(Database)
    async def bad(spec: Spec, body: Database, client: trioperator.Client) -> None:
        spec.siez  # type: ignore[attr-defined]  # noqa: B018 -- no such field
        body.spec.size.upper()  # type: ignore[attr-defined]
        crds.decode(Spec, {}).nothing  # type: ignore[attr-defined]  # noqa: B018 -- no such field
        (await client.get(Database, "x")).spec.siez  # type: ignore[attr-defined]  # noqa: B018 -- no such field


def declare_indices() -> None:
    @trioperator.index(Database)
    async def by_phase(name: str) -> dict[str, str]:
        return {"New": name}

    @trioperator.on.create(Database)
    async def good(by_phase: trioperator.Index, stores: list[trioperator.Store]) -> None:
        assert_type(by_phase, trioperator.Index[Any, Any])
        assert_type(by_phase["New"], trioperator.Store[Any])

    @trioperator.on.create(Database)
    async def typed(by_phase: trioperator.Index[str, str]) -> None:
        for name in by_phase["New"]:
            assert_type(name, str)
        by_phase["New"].append("x")  # type: ignore[attr-defined]


async def read(client: trioperator.Client, body: trioperator.Body) -> None:
    assert_type(await client.get(Database, "x"), Database)
    assert_type(await client.get(Database, "x", namespace="other", subresource="status"), Database)
    assert_type(await client.get(Database, "x", subresource="scale"), dict[str, Any])
    assert_type(await client.get(Cache, "x"), Cache)
    assert_type(await client.get(Queue, "x"), Queue)
    assert_type(await client.get(Topic, "x"), Topic)
    assert_type(await client.get(Database(Spec())), Database)
    assert_type(await client.get("databases", "x"), dict[str, Any])
    assert_type(await client.get("example.com/v1", "Database", "x"), dict[str, Any])
    assert_type(await client.get(body), dict[str, Any])
    assert_type(await client.get({"kind": "Pod"}), dict[str, Any])
    assert_type(await client.get(Foreign, "x"), dict[str, Any])
    assert_type(await client.get(Lightkube, "x"), dict[str, Any])
    assert_type(await client.get(Lightkube(Spec())), dict[str, Any])
    assert_type(await client.list(Database, labels={"a": "b"}), list[Database])
    assert_type(await client.list("databases"), list[dict[str, Any]])
    assert_type(await client.list(Lightkube), list[dict[str, Any]])
    async for database in client.iterate(Database, page_size=3):
        assert_type(database, Database)
    async for obj in client.iterate("databases"):
        assert_type(obj, dict[str, Any])
    async with client.watch(Database, name="x") as events:
        async for event in events:
            assert_type(event, trioperator.ObjectEvent[Database])
            assert_type(event.object.spec.size, int)
    async with client.watch("databases") as raw:
        async for change in raw:
            plain: trioperator.ObjectEvent = change
            assert_type(plain.object, dict[str, Any])
    assert_type(await client.wait_for(Database, "x", condition=lambda obj: obj.spec.size > 1, timeout=9), Database)
    assert_type(await client.wait_for(Database(Spec()), condition="Ready"), Database)
    assert_type(await client.wait_for("pods", "x", condition=lambda obj: obj["spec"]), dict[str, Any])


async def write(client: trioperator.Client, database: Database) -> None:
    assert_type(await client.create(database, owner=None, dry_run=True), Database)
    assert_type(await client.create({"kind": "Pod"}, "pods", "x", subresource="eviction"), dict[str, Any])
    assert_type(await client.replace(database, subresource="status"), Database)
    assert_type(await client.replace({"kind": "Pod"}), dict[str, Any])
    assert_type(await client.apply(database, force=True), Database)
    assert_type(await client.apply(Topic(spec={})), Topic)
    assert_type(await client.apply({"kind": "Pod"}), dict[str, Any])
    assert_type(await client.patch(Database, "x", merge={"spec": {"size": 2}}), Database)
    assert_type(await client.patch(database, json=[]), Database)
    assert_type(await client.patch("pods", "x", merge={}), dict[str, Any])
    await client.create(database, force=True)  # type: ignore[call-overload]
    await client.patch(Database, "x", margin={})  # type: ignore[call-overload]


def use_threads(client: trioperator.SyncClient, database: Database) -> None:
    assert_type(client.get(Database, "x"), Database)
    assert_type(client.get("pods", "x"), dict[str, Any])
    assert_type(client.list(Database), list[Database])
    assert_type([each.spec.size for each in client.iterate(Database)], list[int])
    watching = client.watch(Database)
    assert isinstance(watching, AbstractContextManager)
    with watching as events:
        assert_type(next(events).object, Database)
    assert_type(client.wait_for(Database, "x", condition=lambda obj: obj.spec.size), Database)
    assert_type(client.create(database), Database)
    assert_type(client.replace(database), Database)
    assert_type(client.apply(database), Database)
    assert_type(client.patch(database, merge={}), Database)
    assert_type(client.apply({"kind": "Pod"}), dict[str, Any])
