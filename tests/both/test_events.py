"""Kubernetes Events, as the API server accepts and changes them."""

from __future__ import annotations

from typing import Any

import trioperator
from tests.both.conftest import Body, Server
from tests.both.kinds import PLANETS, WIDGETS, manifest
from trioperator._model.resource import Resource

on = trioperator.on

EVENTS = Resource("", "v1", "events", kind="Event")


async def find_events(server: Server, uid: str, namespace: str) -> dict[str, Body]:
    page = await server.admin.list_page(EVENTS.get_path(namespace=namespace))
    bodies = [obj.decode() for obj in page.items]
    return {body["reason"]: body for body in bodies if body["involvedObject"].get("uid") == uid}


async def test_events_are_created_and_updated(server: Server) -> None:
    server.settings.posting.loggers = False

    @on.create("widgets.both.example.com", id="created", registry=server.registry)
    def created(body: trioperator.Body, **_: Any) -> None:
        trioperator.event(body, type="Any", reason="Long", message="\u00fc" * 2000)
        trioperator.info(body, reason="Repeated", message="again")

    @on.update("widgets.both.example.com", id="updated", registry=server.registry)
    async def updated(body: trioperator.Body, **_: Any) -> None:
        trioperator.info(body, reason="Repeated", message="again")

    async with server.operating():
        made = await server.create(WIDGETS, manifest(WIDGETS, "w", size=1))
        await server.until_handled(WIDGETS, "w", size=1)
        await server.patch(WIDGETS, "w", {"spec": {"size": 2}})
        await server.until_handled(WIDGETS, "w", size=2)
    events = await find_events(server, made["metadata"]["uid"], server.namespace)
    assert set(events) == {"Long", "Repeated"}
    assert len(events["Long"]["message"].encode()) in (1023, 1024)
    assert events["Repeated"]["count"] == events["Repeated"]["series"]["count"] == 2
    assert events["Repeated"]["type"] == "Normal"
    assert events["Repeated"]["reportingComponent"] == "trioperator"


async def test_events_of_cluster_scoped_objects_are_in_the_default_namespace(server: Server) -> None:
    name = f"planet-{server.mark}"

    @on.create("planets", id="created", labels={"mark": server.mark}, registry=server.registry)
    async def created(body: trioperator.Body, **_: Any) -> None:
        trioperator.warn(body, reason="Made", message="of dust")

    body = manifest(PLANETS, name)
    body["metadata"]["labels"] = {"mark": server.mark}
    async with server.operating():
        made = await server.create(PLANETS, body)
        await server.until_handled(PLANETS, name)
    events = await find_events(server, made["metadata"]["uid"], "default")
    assert events["Made"]["type"] == "Warning"
    assert "namespace" not in events["Made"]["involvedObject"]
