"""Built-in, cluster-scoped and multi-version kinds; kinds and namespaces that are created and deleted."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

import trioperator
from tests.both.conftest import LAST, Body, Server
from tests.both.kinds import (
    CONFIGMAPS,
    CRDS,
    NAMESPACES,
    PLANETS,
    PODS,
    TOOLS,
    TOOLS_BETA,
    WIDGETS,
    config_map,
    define,
    manifest,
)
from trioperator._model.resource import Resource
from trioperator.errors import ConflictError

on = trioperator.on


async def test_cluster_scoped_objects_are_handled_with_any_namespaces(server: Server) -> None:
    name = f"planet-{server.mark}"

    @on.create("planets", id="created", labels={"mark": server.mark}, registry=server.registry)
    async def created(namespace: str | None, patch: trioperator.Patch) -> str:
        server.notes.add(namespace)
        patch.meta.labels["handled"] = "yes"
        return "made"

    @on.delete("planets", id="deleted", labels={"mark": server.mark}, registry=server.registry)
    async def deleted() -> None:
        server.notes.add("delete")

    body = manifest(PLANETS, name)
    body["metadata"]["labels"] = {"mark": server.mark}
    async with server.operating():
        await server.create(PLANETS, body)
        body = await server.until_handled(PLANETS, name)
        assert (body["status"], body["metadata"]["labels"]["handled"]) == ({"created": "made"}, "yes")
        await server.delete(PLANETS, name)
        await server.until_gone(PLANETS, name)
    assert server.notes.all == [None, "delete"]


async def test_config_maps_are_handled_by_their_data(server: Server) -> None:
    @on.create("configmaps", labels={"ours": "yes"}, id="created", registry=server.registry)
    async def created(body: trioperator.Body, patch: trioperator.Patch) -> None:
        server.notes.add(dict(body["data"]))
        patch["data"] = {"echo": body["data"]["key"]}

    @on.field("configmaps", field="data.key", labels={"ours": "yes"}, id="changed", registry=server.registry)
    async def changed(old: Any, new: Any) -> None:
        server.notes.add(old, new)

    async with server.operating():
        await server.create(CONFIGMAPS, config_map("ours", key="a"))
        body = await server.until(CONFIGMAPS, "ours", lambda body: LAST in body["metadata"].get("annotations", {}))
        assert body["data"] == {"key": "a", "echo": "a"}
        assert "status" not in body
        await server.patch(CONFIGMAPS, "ours", {"data": {"key": "b"}})
        await server.notes.until(3)
    assert server.notes.all == [{"key": "a"}, (None, "a"), ("a", "b")]


POD: Body = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "one"},
    "spec": {"containers": [{"name": "main", "image": "example.com/image"}]},
}


async def test_pods_get_the_status_that_handlers_patch(server: Server) -> None:
    condition = {"type": "example.com/Seen", "status": "True"}

    @on.create("pods", id="created", registry=server.registry)
    async def created(patch: trioperator.Patch, status: trioperator.Status) -> None:
        server.notes.add(status.get("phase"))
        patch.status["message"] = "seen"
        patch.status["conditions"] = [condition]

    async with server.operating():
        await server.create(PODS, POD)
        body = await server.until(PODS, "one", lambda body: LAST in body["metadata"].get("annotations", {}))
        assert body["status"]["phase"] == "Pending"
        assert body["status"]["message"] == "seen"
        assert [{key: each.get(key) for key in condition} for each in body["status"]["conditions"]] == [condition]
        await server.delete(PODS, "one")
        await server.until_gone(PODS, "one")
    assert server.notes.all == ["Pending"]


async def test_a_result_that_a_pod_cannot_store_is_reported(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    @on.create("pods", id="created", registry=server.registry)
    async def created() -> dict[str, int]:
        server.notes.add("create")
        return {"port": 80}

    async with server.operating():
        await server.create(PODS, POD)
        body = await server.until(PODS, "one", lambda body: LAST in body["metadata"].get("annotations", {}))
    assert server.notes.all == ["create"]
    assert "created" not in body["status"]
    assert "status.created" in caplog.text


@pytest.mark.parametrize(
    ("selector", "version"),
    [
        ({"plural": "tools"}, "v1"),
        ({"kind": "Tool"}, "v1"),
        ({"group": TOOLS.group, "singular": "tool"}, "v1"),
        ({"shortcut": "tl"}, "v1"),
        ({"category": "bothtools"}, "v1"),
        ({"group": TOOLS.group, "version": "v1beta1", "plural": "tools"}, "v1beta1"),
        ({"version": "v1beta1", "kind": "Tool"}, "v1beta1"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else value,
)
async def test_a_kind_of_several_versions_is_handled_in_one(
    server: Server, selector: dict[str, str], version: str
) -> None:
    @on.create(id="created", registry=server.registry, **selector)  # type: ignore[arg-type]
    async def created(body: trioperator.Body, resource: trioperator.Resource) -> str:
        server.notes.add(body["apiVersion"], resource.version)
        return "made"

    async with server.operating():
        for resource in (TOOLS, TOOLS_BETA):
            await server.create(resource, manifest(resource, resource.version))
            body = await server.until_handled(TOOLS, resource.version)
            assert body["status"] == {"created": "made"}
    assert server.notes.all == [(f"{TOOLS.group}/{version}", version)] * 2


async def test_children_are_deleted_with_their_owner(server: Server) -> None:
    @on.create("configmaps", labels={"ours": "yes"}, id="created", registry=server.registry)
    async def created(namespace: str) -> None:
        child: Body = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"child": "yes"}}
        trioperator.adopt(child)
        made = await server.create(CONFIGMAPS, child, namespace=namespace)
        server.notes.add(made["metadata"])

    async with server.operating():
        owner = await server.create(CONFIGMAPS, config_map("owner", key="a"))
        # The child has its owner's label, so that it is a parent as well: of one generation, no more.
        [child, *_] = await server.notes.until(1)
        server.registry = trioperator.OperatorRegistry()
    assert child["name"].startswith("owner-")
    assert child["labels"] == {"ours": "yes"}
    [reference] = child["ownerReferences"]
    assert reference == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    await server.delete(CONFIGMAPS, "owner")
    await server.until_gone(CONFIGMAPS, child["name"])


async def test_a_deletion_in_the_foreground_waits_for_children_and_for_handlers(server: Server) -> None:
    @on.delete("configmaps", labels={"ours": "yes"}, id="deleted", registry=server.registry)
    async def deleted(name: str) -> None:
        server.notes.add(name)

    async with server.operating():
        owner = await server.create(CONFIGMAPS, config_map("owner", key="a"))
        await server.until(CONFIGMAPS, "owner", lambda body: body["metadata"].get("finalizers"))
        child: Body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "child"}}
        trioperator.append_owner_reference(child, owner=owner)
        await server.create(CONFIGMAPS, child)
        await server.delete(CONFIGMAPS, "owner", policy="Foreground")
        await server.until_gone(CONFIGMAPS, "owner")
        await server.until_gone(CONFIGMAPS, "child")
    assert server.notes.all == ["owner"]


async def test_everything_can_be_watched(server: Server) -> None:
    wanted = {("Widget", "ADDED"), ("Planet", "ADDED"), ("ConfigMap", "ADDED"), ("Namespace", None)}

    @on.event(trioperator.EVERYTHING, id="event", registry=server.registry)
    async def event(type: str | None, body: trioperator.Body, name: str) -> None:
        if name in (f"e-{server.mark}", server.namespace):
            server.notes.add(body["kind"], type)

    name = f"e-{server.mark}"
    async with server.operating():
        await server.create(WIDGETS, manifest(WIDGETS, name))
        await server.create(PLANETS, manifest(PLANETS, name))
        await server.create(CONFIGMAPS, config_map(name))
        await server.notes.until(lambda notes: wanted <= set(notes))


async def test_namespaces_that_are_created_and_deleted(server: Server) -> None:
    good, secret = f"team-{server.mark}-good", f"team-{server.mark}-secret"

    @on.create(*WIDGETS, id="created", registry=server.registry)
    async def created(namespace: str, name: str) -> None:
        server.notes.add("create", namespace, name)

    @on.delete(*WIDGETS, id="deleted", registry=server.registry)
    async def deleted(namespace: str, name: str) -> None:
        server.notes.add("delete", namespace, name)

    async with server.operating(namespaces=(f"team-{server.mark}-*,!*-secret",)):
        for name in ("one", "two"):
            for namespace in (secret, good):
                body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
                with contextlib.suppress(ConflictError):
                    await server.create(NAMESPACES, body)
                await server.create(WIDGETS, manifest(WIDGETS, name), namespace=namespace)
            await server.until_handled(WIDGETS, name, namespace=good)
            body = await server.get(WIDGETS, name, namespace=secret)
            assert "annotations" not in body["metadata"]
            if name == "one":
                await server.delete(NAMESPACES, good)
                await server.until_gone(NAMESPACES, good)
    assert server.notes.all == [("create", good, "one"), ("delete", good, "one"), ("create", good, "two")]


async def test_kinds_that_are_added_and_removed(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    plural = f"things{server.mark}"
    things = Resource(f"{server.mark}.example.com", "v1", plural, kind=plural.capitalize())

    @on.create(*things, id="created", registry=server.registry)
    async def created(name: str) -> str:
        server.notes.add("create", name)
        return "made"

    @on.delete(*things, id="deleted", registry=server.registry)
    async def deleted(name: str) -> None:
        server.notes.add("delete", name)

    async with server.operating():
        assert plural in caplog.text  # it is named as one that cannot be handled yet
        for name in ("first", "second"):
            definition = define(things)
            await server.create(CRDS, definition)
            await server.create_soon(things, manifest(things, name))
            body = await server.until_handled(things, name)
            assert body["status"] == {"created": "made"}
            if name == "first":
                await server.delete(CRDS, definition["metadata"]["name"])
                await server.until_gone(CRDS, definition["metadata"]["name"])
    assert server.notes.all == [("create", "first"), ("delete", "first"), ("create", "second")]
