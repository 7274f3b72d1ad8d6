"""Tests for :mod:`trioperator.apiserver.writing.garbage_collection`: dependents go with their last owner."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from tests.apiserver.conftest import Target, definition
from trioperator.apiserver import Cluster
from trioperator.apiserver.store.storage import Store, Stored
from trioperator.apiserver.writing.garbage_collection import remove_finalizer


async def own(target: Target, owner: str, *names: str, **extra: Any) -> str:
    """Create a ConfigMap with dependents; return its uid."""
    uid = str((await target.create("configmaps", owner)).content["metadata"]["uid"])
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, **extra}
    for name in names:
        assert (await target.create("configmaps", name, meta={"ownerReferences": [reference]})).code == 201
    return uid


async def test_dependents_are_deleted_with_their_owner(target: Target) -> None:
    await own(target, "owner", "child1", "child2")
    await target.delete(target.path("configmaps", "owner"))
    for name in ("owner", "child1", "child2"):
        await target.until(target.path("configmaps", name), 404)


async def test_indirect_dependents_are_deleted_too(target: Target) -> None:
    await own(target, "owner")
    uid = (await target.get(target.path("configmaps", "owner"))).content["metadata"]["uid"]
    for name, parent in (("child", "owner"), ("grandchild", "child")):
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": parent, "uid": uid}
        answer = await target.create("configmaps", name, meta={"ownerReferences": [reference]})
        uid = answer.content["metadata"]["uid"]
    await target.delete(target.path("configmaps", "owner"))
    await target.until(target.path("configmaps", "grandchild"), 404)


async def test_one_remaining_owner_keeps_a_dependent(target: Target) -> None:
    references = []
    for name in ("one", "two"):
        uid = (await target.create("configmaps", name)).content["metadata"]["uid"]
        references.append({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid})
    await target.create("configmaps", "child", meta={"ownerReferences": references})
    await target.delete(target.path("configmaps", "one"))
    path = target.path("configmaps", "child")
    left = await target.eventually(
        lambda: target.get(path), lambda answer: len(answer.content["metadata"]["ownerReferences"]) == 1
    )
    assert left.content["metadata"]["ownerReferences"] == references[1:]
    await target.delete(target.path("configmaps", "two"))
    await target.until(path, 404)


async def test_orphaned_dependents_stay(target: Target) -> None:
    await own(target, "owner", "child")
    await target.delete(target.path("configmaps", "owner"), {"propagationPolicy": "Orphan"})
    await target.until(target.path("configmaps", "owner"), 404)
    child = (await target.get(target.path("configmaps", "child"))).content
    assert "ownerReferences" not in child["metadata"]


async def test_in_the_foreground_the_owner_waits_for_blocking_dependents(target: Target) -> None:
    uid = await own(target, "owner")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "blockOwnerDeletion": True}
    meta = {"ownerReferences": [reference], "finalizers": ["a.b/c"]}
    await target.create("configmaps", "child", meta=meta)
    answer = await target.delete(target.path("configmaps", "owner"), {"propagationPolicy": "Foreground"})
    assert answer.content["metadata"]["finalizers"] == ["foregroundDeletion"]
    child = target.path("configmaps", "child")
    await target.marked(child)
    assert (await target.get(target.path("configmaps", "owner"))).code == 200
    await target.merge(child, {"metadata": {"finalizers": None}})
    await target.until(target.path("configmaps", "owner"), 404)


async def test_in_the_foreground_a_dependent_with_another_owner_stays(target: Target) -> None:
    references = []
    for name in ("goes", "stays"):
        uid = (await target.create("configmaps", name)).content["metadata"]["uid"]
        owner = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": name,
            "uid": uid,
            "blockOwnerDeletion": name == "goes",
        }
        references.append(owner)
    await target.create("configmaps", "child", meta={"ownerReferences": references})
    await target.delete(target.path("configmaps", "goes"), {"propagationPolicy": "Foreground"})
    await target.until(target.path("configmaps", "goes"), 404)
    left = (await target.get(target.path("configmaps", "child"))).content["metadata"]
    assert left["ownerReferences"] == references[1:]
    assert "deletionTimestamp" not in left


async def test_a_circle_of_owners_is_deleted_in_the_foreground(target: Target) -> None:
    names = ["one", "two", "three"]
    uids = {name: (await target.create("configmaps", name)).content["metadata"]["uid"] for name in names}
    for name, owner in zip(names, [names[-1], *names], strict=False):
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uids[owner]}
        meta = {"ownerReferences": [{**reference, "controller": True, "blockOwnerDeletion": True}]}
        assert (await target.merge(target.path("configmaps", name), {"metadata": meta})).code == 200
    await target.delete(target.path("configmaps", "one"), {"propagationPolicy": "Foreground"})
    for name in names:
        await target.until(target.path("configmaps", name), 404)


async def test_dependents_of_a_missing_owner_are_deleted(target: Target) -> None:
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "never"}
    answer = await target.create("configmaps", "child", meta={"ownerReferences": [reference]})
    assert answer.code == 201
    await target.until(target.path("configmaps", "child"), 404)


async def test_dependents_of_an_owner_of_an_unknown_kind_stay(target: Target) -> None:
    reference = {"apiVersion": "nobody.dev/v1", "kind": "Nothing", "name": "never", "uid": "never"}
    await target.create("configmaps", "child", meta={"ownerReferences": [reference]})
    if target.is_real:
        await trio.sleep(1)
    assert (await target.get(target.path("configmaps", "child"))).code == 200


async def test_dependents_are_deleted_with_the_definition_of_their_owners_kind() -> None:
    cluster = Cluster(seed=0)
    await cluster.create(definition("things", "Thing", group="things.test"))
    made = await cluster.create({"apiVersion": "things.test/v1", "kind": "Thing", "metadata": {"name": "owner"}})
    await cluster.create(_owned_by(made["metadata"]["uid"]), "default")
    cluster.is_prompt = False  # the collector comes when the kind is gone
    await cluster.delete("customresourcedefinitions", "things.things.test")
    cluster.tidy()
    assert await cluster.find("configmaps", "child") is None


async def test_dependents_of_an_owner_that_is_gone_are_deleted_when_its_kind_is_defined_again() -> None:
    cluster = Cluster(seed=0)
    await cluster.create(_owned_by("never"), "default")
    await cluster.create(definition("others", "Other", group="things.test"))
    assert await cluster.find("configmaps", "child") is not None
    await cluster.create(definition("things", "Thing", group="things.test"))
    assert await cluster.find("configmaps", "child") is None


def _owned_by(uid: str) -> dict[str, Any]:
    reference = {"apiVersion": "things.test/v1", "kind": "Thing", "name": "owner", "uid": uid}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "child", "ownerReferences": [reference]}}


@pytest.fixture
def store() -> Store:
    return Store(clock=lambda: 0)


def stored_in(store: Store, **meta: Any) -> Stored:
    return store.put(store.table(("", "configmaps")), "ns/a", {"metadata": {"name": "a", "uid": "u", **meta}})


def test_an_object_that_is_being_deleted_goes_with_its_last_finalizer(store: Store) -> None:
    table = store.table(("", "configmaps"))
    stored = stored_in(store, finalizers=["one", "two"], deletionTimestamp="t")
    remove_finalizer(store, table, stored, "one")
    assert table.objects["ns/a"].obj["metadata"]["finalizers"] == ["two"]
    remove_finalizer(store, table, table.objects["ns/a"], "two")
    assert not table.objects


@pytest.mark.parametrize("meta", [{}, {"deletionTimestamp": "t", "deletionGracePeriodSeconds": 5}])
def test_an_object_that_must_stay_stays_without_finalizers(store: Store, meta: dict[str, Any]) -> None:
    table = store.table(("", "configmaps"))
    remove_finalizer(store, table, stored_in(store, finalizers=["one"], **meta), "one")
    assert "finalizers" not in table.objects["ns/a"].obj["metadata"]
