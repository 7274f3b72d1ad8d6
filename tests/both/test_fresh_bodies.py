"""Handlers see what those before them have written by whatever client: also on the real server, and in daemons."""

from __future__ import annotations

from typing import Any

import trio

import trioperator
from tests.both.conftest import Server
from tests.both.kinds import WIDGETS, manifest

OBJECTS = 20


async def test_the_next_handler_and_the_daemon_see_what_a_handler_has_written(server: Server) -> None:
    async def write(name: str) -> None:
        await server.patch(WIDGETS, name, {"status": {"first": "done"}}, subresource="status")

    @trioperator.on.create(*WIDGETS, registry=server.registry)
    async def first(name: str, **_: Any) -> None:
        await write(name)

    @trioperator.on.create(*WIDGETS, registry=server.registry)
    async def second(name: str, status: trioperator.Status, patch: trioperator.Patch, **_: Any) -> None:
        server.notes.add("second", name, status.get("first"))
        patch.status["phase"] = "ready"

    @trioperator.daemon(*WIDGETS, field="status.phase", value="ready", registry=server.registry)
    async def follow(name: str, status: trioperator.Status, stopped: trioperator.DaemonStopped, **_: Any) -> None:
        server.notes.add("daemon", name, status.get("first"))
        await stopped.wait()

    names = [f"w{number}" for number in range(OBJECTS)]
    async with server.operating():
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(server.create, WIDGETS, manifest(WIDGETS, name))
        notes = await server.notes.until(2 * OBJECTS)
    assert sorted(notes) == sorted((who, name, "done") for who in ("second", "daemon") for name in names)
