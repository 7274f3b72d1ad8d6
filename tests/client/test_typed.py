"""Tests for :mod:`trioperator.client.typed`: clients of kinds that classes declare, on an embedded cluster."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import msgspec
import pydantic
import pytest
import trio

from tests.client.conftest import handling
from trioperator import crds
from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator.apiserver import Cluster
from trioperator.client import Client, ObjectEvent, SyncClient
from trioperator.client.kinds import to_dict
from trioperator.client.typed import decode_all
from trioperator.errors import ConflictError, DecodeError, ForeignChildError

UNUSED = OperatorRegistry()


class DatabaseSpec(msgspec.Struct, rename="camel"):
    size: int
    storage_class: str | None = None
    backup_at: datetime.datetime | None = None


class DatabaseStatus(msgspec.Struct):
    phase: str = "New"


@crds.kind("example.com/v1", registry=UNUSED)
class Database(msgspec.Struct):
    spec: DatabaseSpec
    metadata: crds.ObjectMeta = crds.ObjectMeta()
    status: DatabaseStatus | None = None


@crds.kind("example.com/v1", kind="Database", registry=UNUSED)
class Nameless(msgspec.Struct):
    spec: DatabaseSpec


class Inner(pydantic.BaseModel):
    storage_class: str | None = pydantic.Field(default=None, alias="storageClass")
    required: int | None
    free: dict[str, Any] = {}


@crds.kind("example.com/v1", registry=UNUSED)
class Model(pydantic.BaseModel):
    metadata: dict[str, Any] = {}
    spec: Inner
    items: list[Inner] = []


@dataclasses.dataclass
class Plain:
    a: int | None = None
    b: int | None = 5


@crds.kind("example.com/v1", registry=UNUSED)
@dataclasses.dataclass
class Record:
    spec: Plain
    nested: dict[str, Plain] = dataclasses.field(default_factory=dict)


def make_crd() -> dict[str, Any]:
    """Return a definition that lets anything in, as if it were older than the class."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
        "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.n"}},
    }
    names = {"kind": "Database", "plural": "databases", "singular": "database", "listKind": "DatabaseList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "databases.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    }


def make_raw(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Database", "metadata": {"name": name}, "spec": spec}


def database(name: str, size: int, **labels: str) -> Database:
    return Database(metadata=crds.ObjectMeta(name=name, labels=labels), spec=DatabaseSpec(size))


@pytest.fixture
async def client(client: Client, cluster: Cluster) -> Client:
    """Return the client of a cluster that has the kind."""
    await client.create(make_crd())
    await client.wait_for("customresourcedefinitions", "databases.example.com", condition="Established", timeout=60)
    return client


async def test_what_is_written_is_returned_typed(client: Client, cluster: Cluster) -> None:
    created = await client.create(database("one", 1))
    assert (type(created), created.spec.size, created.metadata.namespace) == (Database, 1, "default")
    stored = await cluster.get("databases", "one", "default")
    assert stored["spec"] == {"size": 1}  # and none of the fields that are None by default
    assert created.metadata.uid == stored["metadata"]["uid"]

    created.spec.storage_class = "ssd"
    created.spec.backup_at = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    replaced = await client.replace(created)
    assert replaced == await client.get(Database, "one") == await client.get(created)
    assert (await cluster.get("databases", "one", "default"))["spec"] == {
        "size": 1,
        "storageClass": "ssd",
        "backupAt": "2026-01-02T00:00:00Z",
    }
    with pytest.raises(ConflictError):
        await client.replace(created)

    replaced.status = DatabaseStatus("Ready")
    assert (await client.replace(replaced, subresource="status")).status == DatabaseStatus("Ready")
    assert (await client.patch(Database, "one", merge={"spec": {"size": 2}})).spec.size == 2
    assert (await client.patch(replaced, json=[{"op": "replace", "path": "/spec/size", "value": 3}])).spec.size == 3
    assert (await client.apply(database("one", 4, a="b"), force=True)).metadata.labels == {"a": "b"}
    await client.delete(replaced)
    await client.wait_deleted(replaced, timeout=10)


async def test_lists_and_watches_are_typed(client: Client) -> None:
    for name, size in (("one", 1), ("two", 2)):
        await client.create(database(name, size, tier=str(size)))
    assert [each.spec.size for each in await client.list(Database)] == [1, 2]
    assert [each.spec.size for each in await client.list(Database, labels={"tier": "2"})] == [2]
    assert [each.metadata.name async for each in client.iterate(Database, page_size=1)] == ["one", "two"]
    with trio.fail_after(60):
        async with client.watch(Database, name="one") as events:
            event = await anext(events)
            assert event == ObjectEvent("ADDED", await client.get(Database, "one"))
            await client.delete(event.object)
            assert (await anext(events)).type == "DELETED"
        found = await client.wait_for(Database, "two", condition=lambda each: each.spec.size == 2, timeout=60)
        assert found.spec.size == 2


async def test_names_of_the_kind_and_subresources_of_other_kinds_are_dicts(client: Client) -> None:
    await client.create(database("one", 1))
    assert (await client.get("databases", "one"))["spec"] == {"size": 1}
    assert (await client.list("databases"))[0]["spec"] == {"size": 1}
    assert (await client.get(Database, "one", subresource="scale"))["kind"] == "Scale"
    assert (await client.scale(Database, "one", replicas=7))["spec"] == {"replicas": 7}


async def test_threads_get_the_same(client: Client) -> None:
    def work(sync: SyncClient) -> None:
        created = sync.create(database("one", 1))
        assert isinstance(created, Database)
        assert [created] == sync.list(Database) == list(sync.iterate(Database))
        with sync.watch(Database) as events:
            assert next(events).object == created
        assert sync.wait_for(Database, "one", condition=lambda each: each.spec.size, timeout=60) == created
        assert sync.patch(created, merge={"spec": {"size": 2}}).spec.size == 2
        assert sync.apply(database("one", 3), force=True).spec.size == 3
        current = sync.get(Database, "one")
        assert sync.replace(current) == current

    sync = SyncClient(client)
    with trio.fail_after(60):
        await trio.to_thread.run_sync(work, sync)


async def test_an_object_that_does_not_fit_is_an_error_that_has_it(client: Client) -> None:
    bad = await client.create(make_raw("bad", size="big"))
    text = r"^default/bad: It is not a valid Database.spec.size: Expected `int`, got `str`.$"
    with pytest.raises(DecodeError, match=text) as caught:
        await client.get(Database, "bad")
    assert caught.value.objects == (bad,)
    with pytest.raises(DecodeError, match=text):
        await client.wait_for(Database, "bad", condition=lambda each: each.spec.size, timeout=60)
    with pytest.raises(DecodeError, match=text):
        await client.patch(Database, "bad", merge={"metadata": {"labels": {"a": "b"}}})
    assert (await client.get("databases", "bad"))["metadata"]["labels"] == {"a": "b"}


async def test_objects_that_do_not_fit_hide_no_others(client: Client) -> None:
    for name, size in (("a", 1), ("b", "big"), ("c", "huge"), ("d", 4)):
        await client.create(make_raw(name, size=size))
    with pytest.raises(DecodeError, match=r"^default/b: .* default/c: ") as caught:
        await client.list(Database)
    assert [each["metadata"]["name"] for each in caught.value.objects] == ["b", "c"]

    seen: list[object] = []
    pages = client.iterate(Database, page_size=3)
    async with client.watch(Database) as events:
        for source in (pages, events):
            for _ in range(4):
                try:
                    found: Any = await anext(source)
                except DecodeError as error:
                    seen.append(error.objects[0]["metadata"]["name"])
                else:
                    seen.append(getattr(found, "object", found).spec.size)
    assert seen == [1, "b", "c", 4] * 2


def test_errors_of_many_objects_are_short() -> None:
    with pytest.raises(DecodeError, match=r"There are 15 more\.$") as caught:
        decode_all(Database, [make_raw(f"x{number}", size="big") for number in range(20)])
    assert len(caught.value.objects) == 20


async def test_owners_and_children_may_be_typed(client: Client, cluster: Cluster) -> None:
    owner = await client.create(database("owner", 1))
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "child"}}
    assert (await client.create(child, owner=owner))["metadata"]["ownerReferences"][0]["uid"] == owner.metadata.uid
    with handling(await cluster.get("databases", "owner", "default")):
        adopted = await client.create(Nameless(spec=DatabaseSpec(5)))  # which is named after the owner
        assert adopted.spec.size == 5
    names = [each.metadata.name for each in await client.list(Database)]
    assert len(names) == 2
    assert all(name.startswith("owner") for name in names)


async def test_applying_a_typed_child_leaves_the_objects_of_others_alone(client: Client, cluster: Cluster) -> None:
    owner = await client.create(database("owner", 1))
    before = await client.create(database("other", 2))
    with pytest.raises(ForeignChildError):
        await client.apply(database("other", 3), owner=owner, force=True)
    with handling(await cluster.get("databases", "owner", "default")), pytest.raises(ForeignChildError):
        await client.apply(database("other", 3))
    assert await client.get(Database, "other") == before


async def test_objects_without_a_name_are_explained(client: Client) -> None:
    hint = r"as the class Nameless has no field metadata: crds.ObjectMeta"
    nameless = Nameless(spec=DatabaseSpec(1))
    with pytest.raises(TypeError, match=hint):
        await client.get(nameless)
    with pytest.raises(ValueError, match=hint):
        await client.apply(nameless)
    with pytest.raises(ValueError, match=hint):
        await client.replace(nameless)
    with pytest.raises(TypeError, match=r"Database cannot be an owner without metadata.uid"):
        await client.create(database("one", 1), owner=database("two", 2))


def test_fields_that_are_none_by_default_are_not_written() -> None:
    inner = Inner(required=None, free={"a": None})
    assert to_dict(Model(metadata={"name": "x"}, spec=inner, items=[Inner(required=1, storageClass="ssd")])) == {
        "apiVersion": "example.com/v1",
        "kind": "Model",
        "metadata": {"name": "x"},
        "spec": {"required": None, "free": {"a": None}},
        "items": [{"required": 1, "storageClass": "ssd", "free": {}}],
    }
    record = to_dict(Record(spec=Plain(b=None), nested={"x": Plain(a=1)}))
    assert (record["spec"], record["nested"]) == ({"b": None}, {"x": {"a": 1, "b": 5}})
