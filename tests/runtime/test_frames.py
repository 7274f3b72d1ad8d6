"""The way from a worker to a user's function: what a stack trace in a handler shows."""

from __future__ import annotations

import pathlib
import traceback
from typing import Any

import pytest
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget

on = trioperator.on
PACKAGE = pathlib.Path(trioperator.__file__).parent
LIMIT = 8


def own_frames() -> list[str]:
    """Return the functions of the package that the caller was called by, from the outermost of its task on."""
    stack = [frame for frame in traceback.extract_stack() if pathlib.Path(frame.filename).is_relative_to(PACKAGE)]
    begin = next((number for number, frame in enumerate(stack) if frame.name in ("_work", "_run")), 0)
    return [frame.name for frame in stack[begin:]]


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "metrics": {"metrics_endpoint": "http://127.0.0.1:0/metrics"},
    "traces": {"tracing": True},
    "live view": {"live_view_endpoint": "http://127.0.0.1:0", "live_view_token": "secret"},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
async def test_no_more_than_eight_frames_are_between_a_worker_and_a_function(
    bench: Bench, autojump_clock: MockClock, options: dict[str, Any]
) -> None:
    frames: dict[str, list[str]] = {}

    @on.create("widgets", registry=bench.registry)
    async def created(**_: object) -> None:
        frames["create"] = own_frames()

    @on.event("widgets", registry=bench.registry)
    async def seen(**_: object) -> None:
        frames["event"] = own_frames()

    @on.delete("widgets", registry=bench.registry)
    async def deleted(**_: object) -> None:
        frames["delete"] = own_frames()

    @on.timer("widgets", interval=10, registry=bench.registry)
    async def timer(**_: object) -> None:
        frames["timer"] = own_frames()

    @on.reconcile("widgets", registry=bench.registry)
    async def reconcile(**_: object) -> None:
        frames["reconcile"] = own_frames()

    async with bench.running(**options):
        await bench.cluster.create(widget())
        await settle(1)
        await bench.cluster.delete("widgets", "w")
        await settle(1)

    assert frames.keys() == {"create", "event", "delete", "timer", "reconcile"}
    assert frames["create"][0] == "_work"
    assert {kind: names for kind, names in frames.items() if len(names) > LIMIT} == {}
