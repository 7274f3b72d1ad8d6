"""Sub-handlers, lifecycles, interruptions and rejected patches."""

from __future__ import annotations

import functools
import json
from typing import Any

import trio

import trioperator
from tests.both.conftest import Server
from tests.both.kinds import CONFIGMAPS, STRICTS, WIDGETS, config_map, manifest

on = trioperator.on
PREFIX = "trioperator.dev/"


def records(body: dict[str, Any]) -> dict[str, Any]:
    annotations = body["metadata"].get("annotations") or {}
    own = {key.removeprefix(PREFIX): value for key, value in annotations.items() if key.startswith(PREFIX)}
    return {key: json.loads(value) for key, value in own.items() if "configuration" not in key and "managed" not in key}


async def test_the_progress_of_sub_handlers_is_stored_until_all_have_finished(server: Server) -> None:
    @on.create(*WIDGETS, id="parent", registry=server.registry)
    def parent(spec: trioperator.Spec) -> None:
        for item in spec["items"]:

            @trioperator.subhandler(id=item)
            async def child(retry: int, item: str = item) -> str:
                server.notes.add(item, retry)
                if item == "b" and retry < 2:
                    raise trioperator.TemporaryError("not yet", delay=0.5)
                return f"{item} is done"

    async with server.operating():
        await server.create(WIDGETS, manifest(WIDGETS, items=["a", "b", "c"]))
        waiting = await server.until(WIDGETS, "one", lambda body: "parent.b" in records(body))
        body = await server.until_handled(WIDGETS, "one")
    assert records(waiting)["parent"]["subrefs"] == ["parent/a", "parent/b", "parent/c"]
    assert records(waiting)["parent.b"]["retries"] == 1
    assert body["status"] == {f"parent/{item}": f"{item} is done" for item in "abc"}
    assert records(body) == {}
    assert server.notes.all == [("a", 0), ("b", 0), ("c", 0), ("b", 1), ("b", 2)]


async def test_finished_sub_handlers_are_not_called_by_the_next_operator(server: Server) -> None:
    last_life = False

    @on.create(*WIDGETS, id="parent", registry=server.registry)
    async def parent() -> None:
        await trioperator.execute(fns={item: functools.partial(child, item) for item in "ab"})

    async def child(item: str) -> None:
        server.notes.add(item)
        if item == "b" and not last_life:
            await trio.sleep_forever()

    with trio.CancelScope() as killed:
        async with server.operating():
            await server.create(WIDGETS, manifest(WIDGETS))
            await server.until(WIDGETS, "one", lambda body: "parent.a" in records(body))
            killed.cancel()
    last_life = True
    async with server.operating():
        await server.until_handled(WIDGETS, "one")
    assert server.notes.all == ["a", "b", "b"]


async def test_lifecycles_order_the_calls_of_handlers(server: Server) -> None:
    for item in "abc":

        @on.create(*WIDGETS, id=item, registry=server.registry)
        async def create(item: str = item) -> None:
            server.notes.add(item)

    trioperator.set_default_lifecycle(lambda handlers: handlers[-1:])
    try:
        async with server.operating():
            await server.create(WIDGETS, manifest(WIDGETS))
            await server.until_handled(WIDGETS, "one")
    finally:
        trioperator.set_default_lifecycle(None)
    assert server.notes.all == ["c", "b", "a"]


async def test_a_call_is_interrupted_by_a_newer_generation(server: Server) -> None:
    @on.create(*WIDGETS, id="create", on_change="cancel", registry=server.registry)
    async def create(spec: trioperator.Spec) -> int:
        server.notes.add(spec["size"])
        if spec["size"] == 1:
            await trio.sleep_forever()
        return int(spec["size"])

    async with server.operating():
        await server.create(WIDGETS, manifest(WIDGETS, size=1))
        await server.notes.until(1)
        await server.patch(WIDGETS, "one", {"metadata": {"labels": {"some": "label"}}})
        await server.patch(WIDGETS, "one", {"spec": {"size": 2}})
        body = await server.until_handled(WIDGETS, "one", size=2)
    assert server.notes.all == [1, 2]
    assert body["status"] == {"create": 2}


async def test_a_call_is_interrupted_by_a_change_of_what_has_no_generation(server: Server) -> None:
    @on.create(*CONFIGMAPS, id="create", on_change="cancel", registry=server.registry, when=lambda name: name == "one")
    async def create(body: trioperator.Body) -> None:
        server.notes.add(body["data"]["size"])
        if body["data"]["size"] == "1":
            await trio.sleep_forever()

    async with server.operating():
        await server.create(CONFIGMAPS, config_map("one", size="1"))
        await server.notes.until(1)
        await server.patch(CONFIGMAPS, "one", {"data": {"size": "2"}})
        await server.until(CONFIGMAPS, "one", lambda body: "last-handled" in json.dumps(body["metadata"]))
    assert server.notes.all == ["1", "2"]


async def test_a_call_is_interrupted_by_a_deletion(server: Server) -> None:
    @on.create(*WIDGETS, id="create", on_change="cancel", registry=server.registry)
    async def create() -> None:
        server.notes.add("create")
        await trio.sleep_forever()

    @on.delete(*WIDGETS, id="delete", registry=server.registry)
    async def delete() -> None:
        server.notes.add("delete")

    async with server.operating():
        await server.create(WIDGETS, manifest(WIDGETS))
        await server.notes.until(1)
        await server.delete(WIDGETS, "one")
        await server.until_gone(WIDGETS, "one")
    assert server.notes.all == ["create", "delete"]


async def test_only_the_rejected_patch_is_dropped(server: Server) -> None:
    @on.create(*STRICTS, id="first", registry=server.registry)
    async def first(patch: trioperator.Patch) -> None:
        patch.spec["size"] = 1000  # more than the schema allows

    @on.create(*STRICTS, id="second", registry=server.registry)
    async def second(patch: trioperator.Patch) -> None:
        patch.meta.labels["second"] = "stored"

    @on.create(*STRICTS, id="third", registry=server.registry)
    async def third(patch: trioperator.Patch) -> None:
        patch.fns.append(lambda body: body["spec"].update(size=2000))

    @on.create(*STRICTS, id="fourth", registry=server.registry)
    async def fourth(patch: trioperator.Patch) -> None:
        patch.fns.append(lambda body: body["metadata"]["labels"].update(fourth="stored"))

    async with server.operating():
        await server.create(STRICTS, manifest(STRICTS, size=1))
        body = await server.until(STRICTS, "one", lambda body: "fourth" in body["metadata"].get("labels", ()))
    assert body["metadata"]["labels"] == {"second": "stored", "fourth": "stored"}
    assert body["spec"] == {"size": 1}
