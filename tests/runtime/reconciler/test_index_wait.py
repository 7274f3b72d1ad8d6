"""Tests for :mod:`trioperator._runtime.reconciler.index_wait`.

Handlers find own writes in the indices of their kind.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on


def plain(index: Any) -> dict[Any, list[Any]]:
    return {key: list(store) for key, store in index.items()}


@pytest.mark.parametrize("looks", ["update", "reconcile"])
async def test_handlers_find_what_others_have_patched_in_the_index(
    bench: Bench, autojump_clock: MockClock, looks: str
) -> None:
    seen: list[dict[str, list[str]]] = []

    @trioperator.index("widgets", registry=bench.registry)
    def tiers(name: str, spec: trioperator.Spec, **_: Any) -> dict[str, str]:
        return {spec.get("tier", "none"): name}

    @on.create("widgets", registry=bench.registry)
    async def create(patch: trioperator.Patch, **_: Any) -> None:
        patch.spec["tier"] = "gold"

    decorate = on.update if looks == "update" else on.reconcile

    @decorate("widgets", registry=bench.registry)
    async def look(tiers: trioperator.Index[str, str]) -> list[Any]:
        seen.append(plain(tiers))
        return []

    plan = FaultPlan()
    plan.add(Fault.lag(2), watch=True, resource="widgets")
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget("w"))
        await settle(60)
    assert seen[-1] == {"gold": ["w"]}


async def test_handlers_do_not_wait_for_ever_for_what_they_have_patched(
    bench: Bench, autojump_clock: MockClock
) -> None:
    @trioperator.index("widgets", registry=bench.registry)
    async def tiers(name: str, spec: trioperator.Spec, **_: Any) -> dict[str, str]:
        return {spec.get("tier", "none"): name}

    @on.create("widgets", registry=bench.registry)
    async def create(patch: trioperator.Patch, **_: Any) -> None:
        times.append(trio.current_time())
        patch.spec["tier"] = "gold"

    times: list[float] = []

    @on.update("widgets", registry=bench.registry)
    async def look(tiers: trioperator.Index[str, str]) -> None:
        times.append(trio.current_time())

    plan = FaultPlan()
    plan.add(Fault.lag(60), watch=True, resource="widgets")
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget("w"))
        await settle(300)
    (created, looked) = times
    assert looked - created == pytest.approx(bench.settings.persistence.consistency_timeout)
