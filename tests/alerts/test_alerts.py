"""Each fault fires its alert, and no other, and what is healthy fires none: by the metrics of real operators."""

from __future__ import annotations

import contextlib
import pathlib
from typing import Final

import pytest
import trio
from trio.testing import MockClock

from tests.alerts.faults import TROUBLES, World, live_well
from tests.alerts.history import find_lasting
from trioperator.apiserver import Cluster

# Seconds before a fault, and those within which an alert fires once its condition has held for as long as it has to.
_HEALTHY: Final = 900.0
_LATEST: Final = 60.0


@pytest.mark.parametrize("name", TROUBLES)
async def test_a_fault_fires_its_alert_in_time_and_no_other(
    name: str, cluster: Cluster, tmp_path: pathlib.Path, autojump_clock: MockClock
) -> None:
    trouble, world = TROUBLES[name], World(cluster, tmp_path)
    trouble.prepare(world)
    await world.prepare()
    async with trio.open_nursery() as nursery, contextlib.AsyncExitStack() as stack:
        await nursery.start(world.history.record)
        for pod in world.pods[: 1 + world.elects]:
            world.stops.append(await stack.enter_async_context(world.operating(pod)))
        nursery.start_soon(world.work)
        await trio.sleep(_HEALTHY)
        healthy = world.history.now
        await trouble.bring(world, nursery)
        await trio.sleep(trouble.seen_after + find_lasting(trouble.alert) + _LATEST)
        nursery.cancel_scope.cancel()
    fired = {healthy: (), world.history.now: {trouble.alert}}
    assert world.history.judge(tmp_path, fired) == ""


@pytest.mark.parametrize("shards", [1, 4])
async def test_timers_requeues_changes_and_a_replaced_replica_fire_nothing(
    shards: int, cluster: Cluster, tmp_path: pathlib.Path, autojump_clock: MockClock
) -> None:
    assert await live_well(cluster, tmp_path, objects=10, hours=2, shards=shards) == ""
