"""Tests for :mod:`trioperator._runtime.reconciler.pending_events`.

What handlers of raw events see of an object that is paused.
"""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from trio.testing import MockClock

from tests.runtime.conftest import Bench, settle, widget
from trioperator import on
from trioperator._concurrency.clock import wall_now

PAUSED = "trioperator.dev/paused"


def add_handler(bench: Bench) -> list[tuple[str | None, int]]:
    seen: list[tuple[str | None, int]] = []

    @on.event("widgets", registry=bench.registry)
    async def event(type: str | None, spec: Any, **_: Any) -> None:
        seen.append((type, spec["size"]))

    return seen


async def patch(bench: Bench, size: int, value: str | None) -> None:
    await bench.cluster.patch("widgets", "w", {"metadata": {"annotations": {PAUSED: value}}, "spec": {"size": size}})
    await settle(1)


async def test_an_object_that_appears_while_it_is_paused_is_new_afterwards(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen, manifest = add_handler(bench), widget()
    manifest["metadata"]["annotations"] = {PAUSED: "true"}
    async with bench.running():
        await bench.cluster.create(manifest)
        await settle(1)
        await patch(bench, 2, "true")
        assert seen == []
        await patch(bench, 3, None)
        await patch(bench, 4, None)
        assert seen == [("ADDED", 3), ("MODIFIED", 4)]


async def test_an_object_of_a_list_is_still_one_afterwards(bench: Bench, autojump_clock: MockClock) -> None:
    seen, manifest = add_handler(bench), widget()
    manifest["metadata"]["annotations"] = {PAUSED: "true"}
    await bench.cluster.create(manifest)
    async with bench.running():
        await settle(1)
        await patch(bench, 2, None)
        assert seen == [(None, 2)]


async def test_a_pause_that_expires_is_followed_by_the_newest_state(bench: Bench, autojump_clock: MockClock) -> None:
    seen = add_handler(bench)
    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        until = (wall_now() + datetime.timedelta(seconds=60)).isoformat()
        for size in (2, 3):
            await patch(bench, size, f"until={until}")
        assert seen == [("ADDED", 1)]
        await settle(70)
        assert seen == [("ADDED", 1), ("MODIFIED", 3)]


async def test_a_deletion_is_passed_on_as_one(bench: Bench, autojump_clock: MockClock) -> None:
    seen = add_handler(bench)
    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        await patch(bench, 2, "true")
        await bench.cluster.delete("widgets", "w")
        await settle(1)
        assert seen == [("ADDED", 1), ("DELETED", 2)]


@pytest.mark.parametrize("with_changes", [False, True])
async def test_what_is_wanted_for_the_event_of_an_own_write_is_stored(
    with_changes: bool, bench: Bench, autojump_clock: MockClock
) -> None:
    @on.event("widgets", registry=bench.registry)
    async def count(patch: Any, status: Any, **_: Any) -> None:
        if status.get("count", 0) < 3:
            patch.status["count"] = status.get("count", 0) + 1

    if with_changes:

        @on.create("widgets", registry=bench.registry)
        async def create(**_: Any) -> None: ...

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        assert (await bench.cluster.get("widgets", "w"))["status"] == {"count": 3}
        await settle(1)
    writes = bench.writes()
    assert writes.count("PATCH main") == with_changes
    # Of the echoes with a count of 1, the other handler's record brings a second one: it wants 2 as well, maybe later.
    assert 3 <= writes.count("PATCH status") <= 3 + with_changes
