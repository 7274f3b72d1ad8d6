"""Handlers of creation, update, deletion, resuming, events and fields."""

from __future__ import annotations

import json
from typing import Any

import trio

import trioperator
from tests.both.conftest import LAST, Server
from tests.both.kinds import WIDGETS, manifest

on = trioperator.on


async def test_an_object_is_created_updated_and_deleted(server: Server) -> None:
    @on.create(*WIDGETS, id="created", registry=server.registry)
    async def created(spec: trioperator.Spec, **kwargs: Any) -> dict[str, Any]:
        server.notes.add(str(kwargs["reason"]), kwargs["retry"], kwargs["old"], tuple(kwargs["diff"]))
        return {"size": spec["size"]}

    @on.update(*WIDGETS, id="updated", registry=server.registry)
    def updated(old: Any, new: Any, diff: trioperator.Diff) -> int:
        trio.from_thread.run_sync(server.notes.add, old, new, tuple(diff))
        return len(diff)

    @on.delete(*WIDGETS, id="deleted", registry=server.registry)
    async def deleted(name: str, meta: trioperator.Meta) -> None:
        server.notes.add(name, meta.deletion_timestamp is not None)

    async with server.operating():
        await server.create(WIDGETS, manifest(WIDGETS, size=1, color="red"))
        body = await server.until_handled(WIDGETS, "one", size=1)
        assert body["status"] == {"created": {"size": 1}}
        assert body["metadata"]["finalizers"] == ["trioperator.dev/finalizer"]
        assert json.loads(body["metadata"]["annotations"][LAST]) == {"spec": {"size": 1, "color": "red"}}
        assert [key for key in body["metadata"]["annotations"] if key.startswith("trioperator.dev/created")] == []

        await server.patch(WIDGETS, "one", {"spec": {"size": 2, "color": None, "shape": "round"}})
        body = await server.until_handled(WIDGETS, "one", size=2)
        assert body["status"] == {"created": {"size": 1}, "updated": 3}

        await server.delete(WIDGETS, "one")
        await server.until_gone(WIDGETS, "one")
    essence = {"spec": {"size": 1, "color": "red"}}
    creation, change, deletion = server.notes.all
    assert creation == ("create", 0, None, (("add", (), None, essence),))
    old, new, diff = change
    assert (old, new) == (essence, {"spec": {"size": 2, "shape": "round"}})
    assert set(diff) == {
        ("change", ("spec", "size"), 1, 2),
        ("remove", ("spec", "color"), "red", None),
        ("add", ("spec", "shape"), None, "round"),
    }
    assert deletion == ("one", True)


async def test_handlers_of_a_field_are_called_for_that_field_only(server: Server) -> None:
    @on.field(*WIDGETS, field="spec.size", id="resized", registry=server.registry)
    async def resized(old: Any, new: Any, diff: Any) -> None:
        server.notes.add(old, new, tuple(diff))

    @on.field(*WIDGETS, field="metadata.labels.tier", id="promoted", registry=server.registry)
    async def promoted(old: Any, new: Any) -> None:
        server.notes.add("tier", old, new)

    async with server.operating():
        await server.create(WIDGETS, manifest(WIDGETS, size=1))
        await server.until_handled(WIDGETS, "one", size=1)
        await server.patch(WIDGETS, "one", {"spec": {"color": "red"}})
        await server.until_handled(WIDGETS, "one", color="red")
        await server.patch(WIDGETS, "one", {"spec": {"size": 2}})
        await server.until_handled(WIDGETS, "one", size=2)
        await server.patch(WIDGETS, "one", {"metadata": {"labels": {"tier": "gold"}}})
        await server.notes.until(3)
        await server.patch(WIDGETS, "one", {"spec": {"size": None}})
        await server.notes.until(4)
    assert server.notes.all == [
        (None, 1, (("add", (), None, 1),)),
        (1, 2, (("change", (), 1, 2),)),
        ("tier", None, "gold"),
        (2, None, (("remove", (), 2, None),)),
    ]


async def test_objects_are_resumed_once_after_a_restart_and_changes_meanwhile_are_found(server: Server) -> None:
    @on.create(*WIDGETS, id="created", registry=server.registry)
    async def created(name: str) -> None:
        server.notes.add("create", name)

    @on.resume(*WIDGETS, id="resumed", registry=server.registry)
    async def resumed(name: str) -> None:
        server.notes.add("resume", name)

    @on.update(*WIDGETS, id="updated", registry=server.registry)
    async def updated(name: str, diff: Any) -> None:
        server.notes.add("update", name, tuple(diff))

    @on.delete(*WIDGETS, id="deleted", registry=server.registry)
    async def deleted(name: str) -> None:
        server.notes.add("delete", name)

    async with server.operating():
        for name in ("same", "changed", "deleted"):
            await server.create(WIDGETS, manifest(WIDGETS, name))
            await server.until_handled(WIDGETS, name)
    assert sorted(server.notes.all) == [("create", name) for name in ("changed", "deleted", "same")]
    server.notes.all.clear()

    await server.patch(WIDGETS, "changed", {"spec": {"size": 2}})
    await server.patch(WIDGETS, "changed", {"spec": {"size": 3}})
    await server.delete(WIDGETS, "deleted")
    version = (await server.get(WIDGETS, "same"))["metadata"]["resourceVersion"]
    async with server.operating():
        await server.until_handled(WIDGETS, "changed", size=3)
        await server.until_gone(WIDGETS, "deleted")
        await server.notes.until(4)
        await server.create(WIDGETS, manifest(WIDGETS, "new"))
        await server.until_handled(WIDGETS, "new")
    assert sorted(server.notes.all) == [
        ("create", "new"),
        ("delete", "deleted"),
        ("resume", "changed"),
        ("resume", "same"),
        ("update", "changed", (("change", ("spec", "size"), 1, 3),)),
    ]
    assert (await server.get(WIDGETS, "same"))["metadata"]["resourceVersion"] == version


async def test_handlers_are_retried_and_their_progress_is_stored(server: Server) -> None:
    @on.create(*WIDGETS, id="patient", registry=server.registry)
    async def patient(retry: int) -> str:
        server.notes.add("patient", retry)
        if retry < 2:
            raise trioperator.TemporaryError("not yet", delay=0.2)
        return "done"

    @on.create(*WIDGETS, id="clumsy", backoff=0.1, retries=2, registry=server.registry)
    async def clumsy(retry: int) -> None:
        server.notes.add("clumsy", retry)
        raise ValueError("again")

    async with server.operating():
        await server.create(WIDGETS, manifest(WIDGETS))
        body = await server.until(
            WIDGETS, "one", lambda body: "trioperator.dev/patient" in body["metadata"].get("annotations", {})
        )
        record = json.loads(body["metadata"]["annotations"]["trioperator.dev/patient"])
        assert record["purpose"] == "create"
        assert record["message"] == "not yet"
        body = await server.until_handled(WIDGETS, "one")
    assert body["status"] == {"patient": "done"}
    assert "trioperator.dev/patient" not in body["metadata"]["annotations"]
    assert [note for note in server.notes.all if note[0] == "patient"] == [("patient", retry) for retry in range(3)]
    assert [note for note in server.notes.all if note[0] == "clumsy"] == [("clumsy", 0), ("clumsy", 1)]


async def test_a_handler_that_fails_permanently_is_not_called_again(server: Server) -> None:
    @on.create(*WIDGETS, id="bad", registry=server.registry)
    async def bad() -> None:
        server.notes.add("bad")
        raise trioperator.PermanentError("never")

    @on.create(*WIDGETS, id="strict", errors=trioperator.ErrorsMode.PERMANENT, registry=server.registry)
    async def strict() -> None:
        server.notes.add("strict")
        raise ValueError("never ever")

    @on.create(*WIDGETS, id="lax", errors=trioperator.ErrorsMode.IGNORED, registry=server.registry)
    async def lax() -> None:
        server.notes.add("lax")
        raise ValueError("whatever")

    @on.create(*WIDGETS, id="good", registry=server.registry)
    async def good() -> str:
        return "good"

    async with server.operating():
        await server.create(WIDGETS, manifest(WIDGETS))
        body = await server.until_handled(WIDGETS, "one")
        assert body["status"] == {"good": "good"}
        await server.patch(WIDGETS, "one", {"spec": {"size": 5}})
        await server.until_handled(WIDGETS, "one", size=5)
    assert server.notes.all == ["bad", "strict", "lax"]


async def test_a_deletion_supersedes_a_waiting_creation(server: Server) -> None:
    @on.create(*WIDGETS, id="created", registry=server.registry)
    async def created() -> None:
        server.notes.add("create")
        raise trioperator.TemporaryError("not today", delay=3600)

    @on.delete(*WIDGETS, id="deleted", registry=server.registry)
    async def deleted(retry: int) -> None:
        server.notes.add("delete", retry)
        if not retry:
            raise trioperator.TemporaryError("once more", delay=0.1)

    async with server.operating():
        await server.create(WIDGETS, manifest(WIDGETS))
        await server.notes.until(1)
        await server.delete(WIDGETS, "one")
        await server.until_gone(WIDGETS, "one")
    assert server.notes.all == ["create", ("delete", 0), ("delete", 1)]


async def test_an_object_of_the_same_name_is_another_object(server: Server) -> None:
    @on.create(*WIDGETS, id="created", registry=server.registry)
    async def created(uid: str, memo: trioperator.Memo) -> None:
        server.notes.add("create", uid, dict(memo))
        memo.seen = True

    @on.delete(*WIDGETS, id="deleted", registry=server.registry)
    async def deleted(uid: str) -> None:
        server.notes.add("delete", uid)

    async with server.operating():
        uids = []
        for _ in range(2):
            created_body = await server.create(WIDGETS, manifest(WIDGETS))
            uids.append(created_body["metadata"]["uid"])
            await server.until_handled(WIDGETS, "one")
            await server.delete(WIDGETS, "one")
            await server.until_gone(WIDGETS, "one")
    first, second = uids
    assert first != second
    assert server.notes.all == [
        ("create", first, {}),
        ("delete", first),
        ("create", second, {}),
        ("delete", second),
    ]


async def test_each_event_reaches_event_handlers_in_order(server: Server) -> None:
    await server.create(WIDGETS, manifest(WIDGETS, size=0))

    @on.event(*WIDGETS, id="event", registry=server.registry)
    async def event(type: str | None, event: trioperator.RawEvent, spec: trioperator.Spec) -> None:
        assert event["object"]["kind"] == "Widget"
        assert event["type"] == type
        server.notes.add(type, spec["size"])
        raise ValueError("this is ignored")

    async with server.operating():
        await server.notes.until(1)
        for size in (1, 2, 3):
            await server.patch(WIDGETS, "one", {"spec": {"size": size}})
        await server.delete(WIDGETS, "one")
        await server.notes.until(5)
        await server.create(WIDGETS, manifest(WIDGETS, size=7))
        await server.notes.until(6)
    assert server.notes.all == [
        (None, 0),
        *[("MODIFIED", size) for size in (1, 2, 3)],
        ("DELETED", 3),
        ("ADDED", 7),
    ]


async def test_all_pages_of_a_list_are_handled(server: Server) -> None:
    server.settings.watching.page_size = 2
    names = {f"w{number}" for number in range(7)}
    for name in names:
        await server.create(WIDGETS, manifest(WIDGETS, name))

    @on.create(*WIDGETS, id="created", registry=server.registry)
    async def created(name: str) -> None:
        server.notes.add(name)

    async with server.operating():
        assert set(await server.notes.until(7)) == names
        await server.create(WIDGETS, manifest(WIDGETS, "later"))
        await server.notes.until(8)
    assert len(server.notes.all) == 8


async def test_watching_goes_on_after_the_server_has_ended_a_watch(server: Server) -> None:
    server.settings.watching.server_timeout = 1
    server.settings.watching.reconnect_backoff = 0

    @on.event(*WIDGETS, id="event", registry=server.registry)
    async def event(type: str | None, name: str) -> None:
        server.notes.add(type, name)

    async with server.operating():
        for number in range(4):
            await server.create(WIDGETS, manifest(WIDGETS, f"w{number}"))
            await server.notes.until(number + 1)
            await trio.sleep(0.6)  # so that watches end before, between and after the events
    assert server.notes.all == [("ADDED", f"w{number}") for number in range(4)]


async def test_an_object_whose_name_the_server_generates(server: Server) -> None:
    @on.create(*WIDGETS, id="created", registry=server.registry)
    async def created(name: str, namespace: str) -> None:
        server.notes.add(namespace, name)

    async with server.operating():
        wanted = manifest(WIDGETS)
        wanted["metadata"] = {"generateName": "made-"}
        names = [(await server.create(WIDGETS, wanted))["metadata"]["name"] for _ in range(3)]
        for name in names:
            await server.until_handled(WIDGETS, name)
    assert all(name.startswith("made-") and len(name) == len("made-") + 5 for name in names)
    assert sorted(server.notes.all) == sorted((server.namespace, name) for name in names)
