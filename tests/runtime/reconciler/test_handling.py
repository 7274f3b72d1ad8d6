"""What is known of the handling of one object."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator._handling.handlers.handler import Reason
from trioperator._runtime.reconciler.handling import Handling

on = trioperator.on


def inspect(view: Any, uid: str) -> Handling:
    parts = view._shown.parts
    state = parts.watches.find(uid)
    handling: Handling = parts.shards.find_reconciler(state).status.inspect(state)
    return handling


async def test_the_unfinished_cause_the_daemons_and_the_body_of_an_object_are_known(
    bench: Bench, autojump_clock: MockClock
) -> None:
    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        raise trioperator.TemporaryError("later", delay=30)

    @on.timer("widgets", id="tick", interval=1000, registry=bench.registry)
    async def tick(**_: Any) -> None: ...

    view = trioperator.live_view_app()

    async with bench.running(live_view_app=view, standalone=True):
        uid = (await bench.cluster.create(widget()))["metadata"]["uid"]
        await settle(10)
        waiting = inspect(view, uid)
        assert waiting.purpose is Reason.CREATE
        assert waiting.handlers["create"].message == "later"
        [(timer, due)] = waiting.daemons
        assert timer.id == "tick"
        assert due is not None
        assert 980 < due - trio.current_time() < 1000
        assert (waiting.errors, waiting.unsaved) == (0, False)
        assert waiting.body == await bench.cluster.get("widgets", "w")


async def test_the_body_of_an_idle_object_is_known_if_it_is_kept(bench: Bench, autojump_clock: MockClock) -> None:
    @on.reconcile("widgets", registry=bench.registry)
    async def reconcile(**_: Any) -> None: ...

    view = trioperator.live_view_app()
    async with bench.running(live_view_app=view, standalone=True):
        uid = (await bench.cluster.create(widget()))["metadata"]["uid"]
        await settle(10)
        handling = inspect(view, uid)
        assert handling.purpose is None
        assert handling.body == await bench.cluster.get("widgets", "w")
