"""Daemons: when they are spawned, what they see, what they want stored, and how they end."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator import DaemonStoppingReason

on = trioperator.on
FINALIZERS = ["trioperator.dev/finalizer"]


async def test_a_daemon_is_spawned_for_each_object(bench: Bench, autojump_clock: MockClock) -> None:
    spawned: list[Any] = []

    @trioperator.daemon("widgets", registry=bench.registry)
    async def watch(name: str, retry: int, spec: Any, stopped: trioperator.DaemonStopped, **_: Any) -> None:
        spawned.append((name, retry, dict(spec), bool(stopped), stopped.reason))
        await trio.sleep_forever()

    await bench.cluster.create(widget("before"))
    async with bench.running():
        await bench.cluster.create(widget("after"))
        await settle(1)
        assert sorted(spawned) == [(name, 0, {"size": 1}, False, None) for name in ("after", "before")]
        body = await bench.cluster.get("widgets", "after")
        assert body["metadata"]["finalizers"] == FINALIZERS
        assert "annotations" not in body["metadata"]
        assert bench.writes() == ["PATCH main"] * 2


async def test_a_deleted_object_waits_for_its_daemon_and_vanishes_at_once_then(
    bench: Bench, autojump_clock: MockClock
) -> None:
    ended: list[Any] = []

    @trioperator.daemon("widgets", registry=bench.registry)
    async def watch(stopped: trioperator.DaemonStopped, **_: Any) -> None:
        await stopped.wait()
        await trio.sleep(100)
        ended.append((trio.current_time(), stopped.reason))

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        await bench.cluster.delete("widgets", "w")
        asked = trio.current_time()
        await settle(99.9)
        assert await bench.cluster.list("widgets")
        await settle(0.1)
        assert not await bench.cluster.list("widgets")
    assert ended == [(asked + 100, DaemonStoppingReason.RESOURCE_DELETED | DaemonStoppingReason.DAEMON_SIGNALLED)]
