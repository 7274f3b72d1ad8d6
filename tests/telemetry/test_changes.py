"""Tests for :mod:`trioperator._telemetry.changes`: what is announced, to whom, and that nobody pays for nobody."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, Bench, settle, widget
from trioperator._concurrency.pulse import Pulse
from trioperator._endpoints.live_view.app import LiveViewApp
from trioperator._kube.objects import RawObject, parse_object
from trioperator._telemetry.changes import Changes
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on


async def is_set(pulse: Pulse) -> bool:
    with trio.move_on_after(0.01):
        await pulse.wait()
        return True
    return False


async def test_all_watchers_are_woken_until_they_leave() -> None:
    changes = Changes()
    with changes.watching() as first:
        with changes.watching() as second:
            changes.announce()
            changes.announce()
            assert await is_set(first)
            assert not await is_set(first), "announcements add up to one"
            assert await is_set(second)
        changes.announce()
        assert not await is_set(second)
        assert await is_set(first)
    assert changes._watchers == {}


def test_an_observer_passes_on_what_it_sees() -> None:
    seen: list[Any] = []

    class Inner:
        def observe(self, type: str | None, obj: RawObject) -> str:
            seen.append((type, obj))
            return "key"

        def replace(self, listed: Collection[str]) -> None:
            seen.append(listed)

    changes = Changes()
    observer, obj = changes.observe(Inner()), parse_object(b'{"metadata": {}}')
    with changes.watching() as pulse:
        assert observer.observe("ADDED", obj) == "key"
        assert pulse._event.is_set()
        pulse.clear()
        observer.replace(["key"])
        assert pulse._event.is_set()
    assert seen == [("ADDED", obj), ["key"]]


@pytest.fixture
async def bench(cluster: Cluster) -> Bench:
    await cluster.apply(CRD)
    settings = trioperator.OperatorSettings()
    settings.posting.enabled = False
    return Bench(cluster, trioperator.OperatorRegistry(), settings)


def changes_of(view: LiveViewApp) -> Changes:
    assert view._shown is not None
    return view._shown.changes


async def test_what_happens_to_an_operator_is_announced(bench: Bench, autojump_clock: MockClock) -> None:
    on.event("widgets", registry=bench.registry)(lambda **_: None)
    begun, end = trio.Event(), trio.Event()

    @on.create("widgets", registry=bench.registry)
    async def create(**_: Any) -> None:
        begun.set()
        await end.wait()

    view, plan = trioperator.live_view_app(), FaultPlan()
    async with bench.running(
        live_view_app=view, standalone=True, transport=FaultyTransport(bench.cluster.transport(), plan)
    ):
        await settle(5)
        with changes_of(view).watching() as pulse:
            assert not await is_set(pulse), "an idle operator announces nothing"
            await bench.cluster.create(widget())
            await begun.wait()
            await settle(1)
            assert await is_set(pulse)
            assert not await is_set(pulse)
            end.set()
            await settle(1)
            assert await is_set(pulse)
            plan.add(Fault.refuse(), verb="watch")
            await settle(1000)
            assert await is_set(pulse), "a watch is interrupted"


async def test_an_operator_that_is_paused_announces_that(bench: Bench, autojump_clock: MockClock) -> None:
    view = trioperator.live_view_app()
    async with bench.running(live_view_app=view, standalone=True):
        assert view._shown is not None
        await settle(1)
        with changes_of(view).watching() as pulse:
            pauses = view._shown.parts.pauses
            pauses.pause("test", "for a test")
            assert await is_set(pulse)
            pauses.resume("test")
            assert await is_set(pulse)
            await settle(1)
            pulse.clear()
            pauses.resume("test", until=trio.current_time() + 10)
            assert not await is_set(pulse), "a lease was renewed"
