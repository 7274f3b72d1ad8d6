"""Indices of Pods, which are created, changed and deleted."""

from __future__ import annotations

from typing import Any

import trioperator
from tests.both.conftest import Body, Server
from tests.both.kinds import PODS, WIDGETS, manifest

on = trioperator.on
Index = trioperator.Index


def pod(name: str, *containers: str, **labels: str) -> Body:
    """Return a Pod."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": each, "image": "busybox"} for each in containers or ["main"]]},
    }


def plain(index: Index[Any, Any]) -> dict[Any, list[Any]]:
    """Return the content of an index, sorted: objects are indexed concurrently."""
    return {key: sorted(store, key=str) for key, store in index.items()}


async def test_indices_of_all_shapes_are_complete_before_the_first_handler(server: Server) -> None:
    @on.index("pods", registry=server.registry)
    def string_keys(namespace: str, name: str) -> Any:
        return {namespace: name}

    @on.index("pods", registry=server.registry)
    async def tuple_keys(namespace: str, name: str) -> Any:
        return {(namespace, name): "hello"}

    @on.index("pods", registry=server.registry)
    async def by_label(labels: trioperator.Labels, name: str) -> Any:
        return dict.fromkeys(labels.items(), name)

    @on.index("pods", registry=server.registry)
    async def pod_names(name: str) -> Any:
        return name

    @on.index("pods", registry=server.registry)
    async def container_names(spec: trioperator.Spec) -> Any:
        return {container["name"] for container in spec.get("containers", [])}

    @on.index("pods", registry=server.registry)
    async def empty_index(name: str) -> None: ...

    @on.index("pods", registry=server.registry)
    async def index_of_nones() -> Any:
        return {"key": None}

    @on.index("pods", registry=server.registry)
    async def whole_pods(name: str, body: trioperator.Body) -> Any:
        return {name: body}

    @on.create("widgets", id="created", registry=server.registry)
    async def created(**kwargs: Any) -> None:
        for name in ("string_keys", "tuple_keys", "by_label", "pod_names", "empty_index", "index_of_nones"):
            server.notes.add(name, plain(kwargs[name]))
        server.notes.add("container_names", sorted(sorted(names) for names in kwargs["container_names"][None]))
        (body,) = kwargs["whole_pods"]["b"]
        server.notes.add("whole_pods", body.spec["containers"][0]["image"])

    await server.create(PODS, pod("a", "one", "two", app="x", tier="gold"))
    await server.create(PODS, pod("b", app="x"))
    await server.create(WIDGETS, manifest(WIDGETS))
    async with server.operating():
        notes = dict(await server.notes.until(8))
    place = server.namespace
    assert notes == {
        "string_keys": {place: ["a", "b"]},
        "tuple_keys": {(place, "a"): ["hello"], (place, "b"): ["hello"]},
        "by_label": {("app", "x"): ["a", "b"], ("tier", "gold"): ["a"]},
        "pod_names": {None: ["a", "b"]},
        "container_names": [["main"], ["one", "two"]],
        "empty_index": {},
        "index_of_nones": {"key": [None, None]},
        "whole_pods": "busybox",
    }


async def test_an_index_follows_changes_and_deletions(server: Server) -> None:
    @on.index("pods", labels={"app": trioperator.PRESENT}, registry=server.registry)
    async def by_app(labels: trioperator.Labels, name: str) -> Any:
        return {labels["app"]: name}

    @on.event("pods", id="seen", registry=server.registry)
    async def seen(type: str | None, name: str, by_app: Index[str, str]) -> None:
        server.notes.add(type, name, plain(by_app))

    async with server.operating():
        await server.create(PODS, pod("a", app="x"))
        await server.create(PODS, pod("b", app="x"))
        await server.notes.until(lambda notes: ("ADDED", "b", {"x": ["a", "b"]}) in notes)
        await server.patch(PODS, "a", {"metadata": {"labels": {"app": "y"}}})
        await server.notes.until(lambda notes: ("MODIFIED", "a", {"x": ["b"], "y": ["a"]}) in notes)
        await server.patch(PODS, "b", {"metadata": {"labels": {"app": None}}})
        await server.notes.until(lambda notes: ("MODIFIED", "b", {"y": ["a"]}) in notes)
        await server.delete(PODS, "a")
        await server.notes.until(lambda notes: ("DELETED", "a", {}) in notes)
