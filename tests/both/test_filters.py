"""Filters of objects and changes."""

from __future__ import annotations

from typing import Any

import trioperator
from tests.both.conftest import LAST, Server
from tests.both.kinds import WIDGETS, manifest
from tests.both.marks import marked

on = trioperator.on


async def test_handlers_are_called_for_objects_that_match_their_filters(server: Server) -> None:
    @on.create(*WIDGETS, labels={"tier": "gold"}, id="by_label", registry=server.registry)
    async def by_label(name: str) -> None:
        server.notes.add("label", name)

    @on.create(*WIDGETS, labels={"tier": trioperator.ABSENT}, id="by_absence", registry=server.registry)
    async def by_absence(name: str) -> None:
        server.notes.add("absence", name)

    @on.create(*WIDGETS, annotations={"note": trioperator.PRESENT}, id="by_annotation", registry=server.registry)
    async def by_annotation(name: str) -> None:
        server.notes.add("annotation", name)

    @on.create(*WIDGETS, field="spec.color", id="by_field", registry=server.registry)
    async def by_field(name: str) -> None:
        server.notes.add("field", name)

    @on.create(*WIDGETS, field="spec.size", value=lambda value: value > 5, id="by_value", registry=server.registry)
    async def by_value(name: str) -> None:
        server.notes.add("value", name)

    @on.create(*WIDGETS, when=lambda spec, **_: spec.get("shape") == "round", id="by_when", registry=server.registry)
    async def by_when(name: str) -> None:
        server.notes.add("when", name)

    objects = [
        marked("gold", labels={"tier": "gold"}, size=1),
        marked("bronze", labels={"tier": "bronze"}, size=9),
        marked("noted", annotations={"note": ""}, size=1),
        marked("red", labels={"tier": "bronze"}, color="red", size=1),
        marked("round", labels={"tier": "bronze"}, shape="round", size=1),
    ]
    async with server.operating():
        for body in objects:
            await server.create(WIDGETS, body)
        for body in objects:
            await server.until_handled(WIDGETS, body["metadata"]["name"])
    assert sorted(server.notes.all) == [
        ("absence", "noted"),
        ("annotation", "noted"),
        ("field", "red"),
        ("label", "gold"),
        ("value", "bronze"),
        ("when", "round"),
    ]


async def test_handlers_of_changes_are_restricted_to_both_sides_of_them(server: Server) -> None:
    @on.update(*WIDGETS, field="spec.phase", old="a", new="b", id="stepped", registry=server.registry)
    async def stepped(old: Any, new: Any) -> None:
        server.notes.add(old, new)

    @on.field(*WIDGETS, field="spec.phase", new=trioperator.ABSENT, id="dropped", registry=server.registry)
    async def dropped(old: Any, new: Any) -> None:
        server.notes.add(old, new)

    async with server.operating():
        await server.create(WIDGETS, manifest(WIDGETS, phase="a", step=0))
        await server.until_handled(WIDGETS, "one", step=0)
        for step, phase in enumerate(["b", "c", "b", "a", "b", None], 1):
            await server.patch(WIDGETS, "one", {"spec": {"phase": phase, "step": step}})
            await server.until_handled(WIDGETS, "one", step=step)
    assert server.notes.all == [("a", "b"), ("a", "b"), ("b", None)]


async def test_objects_that_match_no_filters_are_not_touched(server: Server) -> None:
    @on.create(*WIDGETS, labels={"ours": "yes"}, id="created", registry=server.registry)
    async def created(name: str) -> str:
        server.notes.add(name)
        return "made"

    @on.delete(*WIDGETS, labels={"ours": "yes"}, id="deleted", registry=server.registry)
    async def deleted(name: str) -> None:
        server.notes.add(f"not {name}")

    foreign = await server.create(WIDGETS, marked("foreign"))
    async with server.operating():
        await server.create(WIDGETS, marked("ours", labels={"ours": "yes"}))
        await server.until_handled(WIDGETS, "ours")
        assert await server.get(WIDGETS, "foreign") == foreign
        foreign = await server.patch(WIDGETS, "foreign", {"spec": {"size": 5}})
        await server.patch(WIDGETS, "ours", {"spec": {"size": 5}})
        await server.until_handled(WIDGETS, "ours", size=5)
        assert await server.get(WIDGETS, "foreign") == foreign
        await server.delete(WIDGETS, "foreign")
        await server.until_gone(WIDGETS, "foreign")
    assert server.notes.all == ["ours"]


async def test_an_object_that_stops_matching_is_released_and_one_that_starts_is_created(server: Server) -> None:
    @on.create(*WIDGETS, labels={"ours": "yes"}, id="created", registry=server.registry)
    async def created(name: str) -> None:
        server.notes.add(f"create {name}")

    @on.delete(*WIDGETS, labels={"ours": "yes"}, id="deleted", registry=server.registry)
    async def deleted(name: str) -> None:
        server.notes.add(f"delete {name}")

    async with server.operating():
        await server.create(WIDGETS, marked("comes"))
        await server.create(WIDGETS, marked("leaves", labels={"ours": "yes"}))
        body = await server.until_handled(WIDGETS, "leaves")
        assert body["metadata"]["finalizers"] == ["trioperator.dev/finalizer"]
        await server.patch(WIDGETS, "leaves", {"metadata": {"labels": {"ours": None}}})
        await server.until(WIDGETS, "leaves", lambda body: "finalizers" not in body["metadata"])
        await server.delete(WIDGETS, "leaves")
        await server.until_gone(WIDGETS, "leaves")

        assert LAST not in (await server.get(WIDGETS, "comes"))["metadata"].get("annotations", {})
        await server.patch(WIDGETS, "comes", {"metadata": {"labels": {"ours": "yes"}}})
        await server.until_handled(WIDGETS, "comes")
    assert server.notes.all == ["create leaves", "create comes"]


async def test_finalizers_of_others_are_left_alone(server: Server) -> None:
    @on.delete(*WIDGETS, id="deleted", registry=server.registry)
    async def deleted() -> None:
        server.notes.add("delete")

    ours, others = "trioperator.dev/finalizer", ["a.example.com/x", "b.example.com/y"]
    body = manifest(WIDGETS)
    body["metadata"]["finalizers"] = others
    async with server.operating():
        await server.create(WIDGETS, body)
        body = await server.until(WIDGETS, "one", lambda body: ours in body["metadata"]["finalizers"])
        assert sorted(body["metadata"]["finalizers"]) == [*others, ours]
        await server.delete(WIDGETS, "one")
        body = await server.until(WIDGETS, "one", lambda body: ours not in body["metadata"]["finalizers"])
        assert body["metadata"]["finalizers"] == others
        await server.patch(WIDGETS, "one", {"metadata": {"finalizers": others[1:]}})
        await server.patch(WIDGETS, "one", {"metadata": {"finalizers": None}})
        await server.until_gone(WIDGETS, "one")
    assert server.notes.all == ["delete"]


async def test_optional_delete_handlers_do_not_block_deletion_and_are_called(server: Server) -> None:
    @on.delete(*WIDGETS, optional=True, id="deleted", registry=server.registry)
    async def deleted(name: str, spec: trioperator.Spec) -> None:
        server.notes.add(name, dict(spec))

    async with server.operating():
        await server.create(WIDGETS, manifest(WIDGETS, "seen", size=5))
        held = manifest(WIDGETS, "held", size=6)
        held["metadata"]["finalizers"] = ["a.example.com/x"]
        await server.create(WIDGETS, held)
        await server.patch(WIDGETS, "seen", {"spec": {"size": 7}})
        for name in ("seen", "held"):
            await server.delete(WIDGETS, name)
        await server.until_gone(WIDGETS, "seen")
        await server.notes.until(1)
        await server.patch(WIDGETS, "held", {"metadata": {"finalizers": None}})
        await server.notes.until(2)
    assert server.notes.all == [("seen", {"size": 7}), ("held", {"size": 6})]


async def test_without_a_finalizer_nothing_blocks_deletion_and_delete_handlers_are_called(server: Server) -> None:
    @on.startup(registry=server.registry)
    def configure(settings: trioperator.OperatorSettings) -> None:
        settings.persistence.finalizer = None

    @on.create(*WIDGETS, id="created", registry=server.registry)
    @on.delete(*WIDGETS, id="deleted", registry=server.registry)
    async def handle(name: str, reason: trioperator.Reason) -> None:
        server.notes.add(reason.value, name)

    @trioperator.daemon(*WIDGETS, id="daemon", registry=server.registry)
    async def attend(name: str, stopped: trioperator.DaemonStopped) -> None:
        server.notes.add("begins", name)
        await stopped.wait()
        server.notes.add("ends", name)

    async with server.operating():
        await server.create(WIDGETS, manifest(WIDGETS, "one"))
        await server.notes.until(2)
        assert not (await server.get(WIDGETS, "one"))["metadata"].get("finalizers")
        await server.delete(WIDGETS, "one")
        await server.notes.until(4)
    assert sorted(server.notes.all) == [(event, "one") for event in ("begins", "create", "delete", "ends")]
