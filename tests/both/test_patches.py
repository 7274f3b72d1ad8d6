"""Patches and results of handlers."""

from __future__ import annotations

import json
from typing import Any

import pytest

import trioperator
from tests.both.conftest import LAST, Server
from tests.both.kinds import GADGETS, STRICTS, WIDGETS, manifest
from trioperator._model.resource import Resource

on = trioperator.on


@pytest.mark.parametrize("resource", [WIDGETS, GADGETS], ids=["with a status subresource", "without one"])
async def test_results_and_patches_are_stored(server: Server, resource: Resource) -> None:
    @on.create(*resource, id="first", registry=server.registry)
    async def first(patch: trioperator.Patch) -> dict[str, Any]:
        patch.spec["color"] = "blue"
        patch.spec["unwanted"] = None
        patch.status["phase"] = "made"
        patch.meta.labels["made"] = "yes"
        patch.meta.annotations["note"] = "hello"
        return {"ports": [80, 443], "nothing": None}

    @on.create(*resource, id="second", registry=server.registry)
    async def second(spec: trioperator.Spec, status: trioperator.Status, labels: trioperator.Labels) -> str:
        server.notes.add(spec.get("color"), status.get("phase"), labels.get("made"))
        return "seen"

    @on.update(*resource, id="updated", registry=server.registry)
    async def updated(diff: Any) -> None:
        server.notes.add(tuple(diff))

    async with server.operating():
        await server.create(resource, manifest(resource, size=1, unwanted="x"))
        body = await server.until_handled(resource, "one", color="blue")
        assert body["spec"] == {"size": 1, "color": "blue"}
        assert body["metadata"]["labels"] == {"made": "yes"}
        assert body["metadata"]["annotations"]["note"] == "hello"
        assert body["status"] == {"phase": "made", "first": {"ports": [80, 443]}, "second": "seen"}
        await server.patch(resource, "one", {"spec": {"size": 2}})
        await server.until_handled(resource, "one", size=2)
    creation, own, other = server.notes.all
    assert creation == ("blue", "made", "yes")
    # What a handler changes itself is a change, too.
    assert {field for _, field, _, _ in own} == {
        ("spec", "color"),
        ("spec", "unwanted"),
        ("metadata",),
    }
    assert other == (("change", ("spec", "size"), 1, 2),)


async def test_functions_of_a_patch_get_the_newest_object(server: Server) -> None:
    @on.create(*WIDGETS, id="created", registry=server.registry)
    async def created(patch: trioperator.Patch) -> None:
        patch.fns.append(lambda body: body["spec"]["items"].append("last"))
        patch.fns.append(lambda body: body.setdefault("status", {}).update(count=len(body["spec"]["items"])))
        await server.patch(WIDGETS, "one", {"spec": {"items": ["one", "two"]}})  # somebody is faster

    async with server.operating():
        await server.create(WIDGETS, manifest(WIDGETS, items=["one"]))
        body = await server.until(WIDGETS, "one", lambda body: body.get("status", {}).get("count") == 3)
    assert body["spec"]["items"] == ["one", "two", "last"]


async def test_fields_that_a_strict_schema_prunes_are_reported(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    @on.create(*STRICTS, id="created", registry=server.registry)
    async def created(patch: trioperator.Patch) -> int:
        server.notes.add("create")
        patch.status["phase"] = "made"
        patch.spec["unknown"] = "x"
        return 1

    async with server.operating():
        await server.create(STRICTS, manifest(STRICTS, size=1))
        body = await server.until_handled(STRICTS, "one", size=1)
        assert body["status"] == {"phase": "made"}
        assert body["spec"] == {"size": 1}
        await server.patch(STRICTS, "one", {"spec": {"size": 2}})
        await server.until_handled(STRICTS, "one", size=2)
    assert server.notes.all == ["create"]
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert any("status.created" in text for text in warnings)
    assert any("spec.unknown" in text for text in warnings)


@pytest.mark.parametrize(
    ("patch", "reason"),
    [
        ({"metadata": {"labels": {"not a label!": "x"}}}, "not a label!"),
        ({"metadata": {"labels": {"good": "no good value!"}}}, "no good value!"),
        ({"spec": {"size": "big"}}, "spec.size"),
        ({"spec": {"size": 1000}}, "spec.size"),
        ({"spec": []}, "spec"),
        ({"status": {"phase": 5}}, "status.phase"),
    ],
    ids=["a label's name", "a label's value", "a type", "a range", "another type", "the status"],
)
async def test_a_rejected_patch_is_reported_and_handling_continues(
    server: Server, caplog: pytest.LogCaptureFixture, patch: dict[str, Any], reason: str
) -> None:
    @on.create(*STRICTS, id="created", registry=server.registry)
    async def created(patch: trioperator.Patch) -> None:
        server.notes.add("create")
        patch.update(wanted)

    wanted = patch
    async with server.operating():
        await server.create(STRICTS, manifest(STRICTS, size=1))
        body = await server.until_handled(STRICTS, "one", size=1)
        assert body["spec"] == {"size": 1}
        assert "labels" not in body["metadata"]
    assert server.notes.all == ["create"]
    [rejection] = [record.getMessage() for record in caplog.records if "was rejected" in record.getMessage()]
    assert reason in rejection


async def test_the_operators_state_may_be_in_the_status(server: Server) -> None:
    server.settings.persistence.progress_storage = trioperator.StatusProgressStorage(name="op")
    server.settings.persistence.diffbase_storage = trioperator.StatusDiffBaseStorage(name="op")

    @on.create(*WIDGETS, id="created", registry=server.registry)
    async def created(retry: int) -> str:
        server.notes.add("create", retry)
        if not retry:
            raise trioperator.TemporaryError("again", delay=0.1)
        return "made"

    @on.update(*WIDGETS, id="updated", registry=server.registry)
    async def updated(diff: Any) -> None:
        server.notes.add(tuple(diff))

    def is_handled(size: int) -> Any:
        def check(body: dict[str, Any]) -> bool:
            last = body.get("status", {}).get("op", {}).get("last-handled-configuration")
            return last is not None and json.loads(last)["spec"]["size"] == size

        return check

    async with server.operating():
        await server.create(WIDGETS, manifest(WIDGETS, size=1))
        body = await server.until(WIDGETS, "one", is_handled(1))
        assert body["status"]["created"] == "made"
        await server.patch(WIDGETS, "one", {"spec": {"size": 2}})
        body = await server.until(WIDGETS, "one", is_handled(2))
        assert "annotations" not in body["metadata"]
        assert not body["status"]["op"].get("progress")
    assert server.notes.all == [("create", 0), ("create", 1), (("change", ("spec", "size"), 1, 2),)]


@pytest.mark.parametrize("size", [300_000, 900_000])
async def test_a_huge_object_is_handled_like_any_other(
    server: Server, caplog: pytest.LogCaptureFixture, size: int
) -> None:
    @on.create(*WIDGETS, id="handle", registry=server.registry)
    @on.update(*WIDGETS, id="handle", registry=server.registry)
    async def handle(reason: str, diff: trioperator.Diff, spec: trioperator.Spec) -> int:
        server.notes.add(str(reason), [item.field for item in diff if reason != "create"])
        return len(spec["big"])

    async with server.operating():
        await server.create(WIDGETS, manifest(WIDGETS, big="x" * size, size=1))
        body = await server.until(WIDGETS, "one", lambda body: LAST in body["metadata"].get("annotations", {}))
        assert body["status"] == {"handle": size}
        changes: list[dict[str, Any]] = [{"size": 2}, {"big": "y" * size}, {"size": 3}]
        for count, change in enumerate(changes, 2):
            await server.patch(WIDGETS, "one", {"spec": change})
            await server.notes.until(count)
            await server.until_handled(WIDGETS, "one", size=change.get("size", 2))
    assert server.notes.all == [
        ("create", []),
        ("update", [("spec", "size")]),
        ("update", [("spec", "big")]),
        ("update", [("spec", "size")]),
    ]
    assert caplog.text.count("too big for annotations") == 1


async def test_annotations_that_others_remove_make_no_loop(server: Server) -> None:
    @on.create(*WIDGETS, id="handle", registry=server.registry)
    @on.update(*WIDGETS, id="handle", registry=server.registry)
    async def handle(reason: str, spec: trioperator.Spec) -> None:
        server.notes.add(str(reason), spec["size"])

    async with server.operating():
        await server.create(WIDGETS, manifest(WIDGETS, size=1))
        await server.until_handled(WIDGETS, "one", size=1)
        for _ in range(3):
            await server.patch(WIDGETS, "one", {"metadata": {"annotations": {LAST: None}}})
        await server.patch(WIDGETS, "one", {"spec": {"size": 2}})
        await server.notes.until(2)
        await server.create(WIDGETS, manifest(WIDGETS, "other", size=3))
        await server.notes.until(3)
    assert server.notes.all == [("create", 1), ("update", 2), ("create", 3)]


TEXT = 'Žluťoučký kůň 🐎 \u2028 "quoted" \\ \n\t<&> \x7f 漢字'


async def test_any_string_reaches_handlers_and_is_stored_unchanged(server: Server) -> None:
    @on.create(*WIDGETS, id="created", registry=server.registry)
    async def created(spec: trioperator.Spec, annotations: trioperator.Annotations, patch: trioperator.Patch) -> str:
        server.notes.add(spec["text"], annotations["note"])
        patch.meta.annotations["echo"] = TEXT
        return str(spec["text"])

    @on.update(*WIDGETS, id="updated", registry=server.registry)
    async def updated(diff: Any) -> None:
        server.notes.add(tuple(diff))

    body = manifest(WIDGETS, text=TEXT, step=0)
    body["spec"][TEXT] = 1
    body["metadata"]["annotations"] = {"note": TEXT}
    async with server.operating():
        await server.create(WIDGETS, body)
        body = await server.until_handled(WIDGETS, "one", text=TEXT)
        assert body["status"] == {"created": TEXT}
        assert body["metadata"]["annotations"]["echo"] == TEXT
        await server.patch(WIDGETS, "one", {"spec": {TEXT: 2, "step": 1}})
        await server.until_handled(WIDGETS, "one", step=1)
    assert server.notes.all[0] == (TEXT, TEXT)
    assert ("change", ("spec", TEXT), 1, 2) in server.notes.all[-1]


async def test_changes_are_handled_and_stored_though_annotations_have_no_room_for_records(server: Server) -> None:
    @on.create(*WIDGETS, id="work", registry=server.registry)
    @on.update(*WIDGETS, id="work", registry=server.registry)
    @on.delete(*WIDGETS, id="work", registry=server.registry)
    async def work(spec: trioperator.Spec, reason: str, patch: trioperator.Patch, retry: int) -> None:
        if not retry:
            raise trioperator.TemporaryError("not yet", delay=0.1)
        patch.spec["seen"] = spec["size"]
        server.notes.add(str(reason), spec["size"])

    async with server.operating():
        full = manifest(WIDGETS, size=1)
        full["metadata"]["annotations"] = {"notes": "x" * (256 * 1024 - 6)}
        await server.create(WIDGETS, full)
        await server.notes.until(lambda notes: ("create", 1) in notes)
        await server.until(WIDGETS, "one", lambda body: body["spec"].get("seen") == 1)
        await server.patch(WIDGETS, "one", {"spec": {"size": 2}})
        await server.notes.until(lambda notes: ("update", 2) in notes)
        await server.until(WIDGETS, "one", lambda body: body["spec"].get("seen") == 2)
        await server.delete(WIDGETS, "one")
        await server.until_gone(WIDGETS, "one")
    assert server.notes.all[-1] == ("delete", 2)
