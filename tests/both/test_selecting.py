"""Selectors that are inferred from filters: what leaves is released, also unseen, and only what is gone is deleted."""

from __future__ import annotations

from typing import Any

import trioperator
from tests.both.conftest import Body, Server
from tests.both.kinds import WIDGETS, manifest
from tests.both.marks import marked

on = trioperator.on
GOLD = {"tier": "gold"}


def is_released(body: Body) -> bool:
    return not body["metadata"].get("finalizers")


def is_finalized(body: Body) -> bool:
    return not is_released(body)


def declare(server: Server) -> None:
    """Declare handlers of gold objects that note what they are called for."""
    options: dict[str, Any] = {"labels": GOLD, "registry": server.registry}

    @on.event(*WIDGETS, **options)
    async def event(name: str, type: Any) -> None:
        if type == "DELETED":
            server.notes.add("event", name)

    @on.delete(*WIDGETS, **options)
    async def delete(name: str) -> None:
        server.notes.add("delete", name)

    @trioperator.daemon(*WIDGETS, **options)
    async def daemon(name: str, stopped: Any) -> None:
        server.notes.add("running", name)
        await stopped.wait()
        server.notes.add("stopped", name, "FILTERS_MISMATCH" in str(stopped.reason))


async def relabel(server: Server, tier: str | None, name: str = "one") -> None:
    await server.patch(WIDGETS, name, {"metadata": {"labels": {"tier": tier}}})


async def test_an_object_that_leaves_is_released_and_one_that_is_deleted_is_deleted(server: Server) -> None:
    declare(server)
    for name in ("one", "two"):
        await server.create(WIDGETS, marked(name, labels=GOLD))
    await server.create(WIDGETS, manifest(WIDGETS, "foreign"))
    async with server.operating():
        for name in ("one", "two"):
            await server.until(WIDGETS, name, is_finalized)
        await server.notes.until(lambda notes: {("running", "one"), ("running", "two")} <= set(notes))
        await relabel(server, "silver")
        await server.until(WIDGETS, "one", is_released)
        await server.notes.until(lambda notes: ("stopped", "one", True) in notes)
        await server.delete(WIDGETS, "two")
        await server.until_gone(WIDGETS, "two")
        await server.notes.until(lambda notes: ("event", "two") in notes)
        await relabel(server, "gold")
        await server.until(WIDGETS, "one", is_finalized)
    ended = [note for note in server.notes.all if note[0] != "running"]
    assert ended[0] == ("stopped", "one", True)
    assert {note for note in ended[1:] if note[1] == "two"} == {
        ("stopped", "two", False),
        ("delete", "two"),
        ("event", "two"),
    }


async def test_an_object_that_leaves_while_the_operator_is_down_keeps_no_finalizer(server: Server) -> None:
    declare(server)
    await server.create(WIDGETS, marked("one", labels=GOLD))
    async with server.operating():
        await server.until(WIDGETS, "one", is_finalized)
    await relabel(server, None)
    async with server.operating():
        await server.until(WIDGETS, "one", is_released)
    await server.delete(WIDGETS, "one")
    await server.until_gone(WIDGETS, "one")
    assert ("delete", "one") not in server.notes.all
