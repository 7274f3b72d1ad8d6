"""Watch events that come faster than the handlers of raw events take them."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget

on = trioperator.on


async def test_events_behind_a_handler_that_hangs_are_limited_and_none_of_the_ends_is_lost(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench.settings.queueing.backlog_limit = 5
    seen: list[tuple[str | None, int]] = []
    release = trio.Event()

    @on.event("widgets", registry=bench.registry)
    async def handle(type: str | None, spec: trioperator.Spec, **_: object) -> None:
        seen.append((type, spec["size"]))
        await release.wait()

    async with bench.running():
        await bench.cluster.create(widget(size=0))
        await settle(1)
        for size in range(1, 50):
            await bench.cluster.patch("widgets", "w", {"spec": {"size": size}})
        await settle(1)
        await bench.cluster.delete("widgets", "w")
        await bench.cluster.create(widget(size=100))
        await settle(1)
        release.set()
        await settle(1)

    first = [("ADDED", 0), ("MODIFIED", 1), ("MODIFIED", 2), ("MODIFIED", 3), ("MODIFIED", 4), ("MODIFIED", 49)]
    assert [event for event in seen if event[1] < 100] == [*first, ("DELETED", 49)]
    assert ("ADDED", 100) in seen
    assert caplog.text.count("Event handlers do not keep up: 5 watch events are pending") == 1


async def test_events_that_are_taken_in_time_all_reach_the_handler(bench: Bench, autojump_clock: MockClock) -> None:
    bench.settings.queueing.backlog_limit = 5
    sizes: list[int] = []

    @on.event("widgets", registry=bench.registry)
    async def handle(spec: trioperator.Spec, **_: object) -> None:
        sizes.append(spec["size"])

    async with bench.running():
        await bench.cluster.create(widget(size=0))
        for size in range(1, 50):
            await bench.cluster.patch("widgets", "w", {"spec": {"size": size}})
            await settle()
    assert sizes == list(range(50))
