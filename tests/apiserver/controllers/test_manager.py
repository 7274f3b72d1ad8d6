"""Running of controllers."""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable
from typing import ClassVar

import pytest
import trio
from trio.testing import MockClock

from tests.apiserver.controllers.objects import Object
from trioperator.apiserver import Cluster
from trioperator.apiserver.controllers import (
    Client,
    Controller,
    Pace,
    serve_controllers,
)
from trioperator.apiserver.controllers.client import Resource
from trioperator.apiserver.controllers.manager import WorkQueue
from trioperator.errors import ApiError


async def test_items_are_processed_when_they_are_due(autojump_clock: MockClock) -> None:
    agenda: WorkQueue[str] = WorkQueue()
    for item, after in {"late": 20.0, "now": 0.0, "soon": 10.0, "also now": 0.0}.items():
        agenda.add(item, after=after)
    taken = [(await agenda.take(), trio.current_time()) for _ in range(4)]
    assert taken == [("now", 0), ("also now", 0), ("soon", 10), ("late", 20)]


async def test_an_item_that_is_added_twice_is_due_once_at_the_earlier_time(autojump_clock: MockClock) -> None:
    agenda: WorkQueue[str] = WorkQueue()
    for after in (20, 5, 10):
        agenda.add("a", after=after)
    agenda.add("b", after=30)
    taken = [(await agenda.take(), trio.current_time()) for _ in range(2)]
    assert taken == [("a", 5), ("b", 30)]


async def test_an_item_that_is_added_during_a_wait_is_processed(autojump_clock: MockClock) -> None:
    agenda: WorkQueue[str] = WorkQueue()
    agenda.add("late", after=100)

    async def add() -> None:
        await trio.sleep(3)
        agenda.add("a")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(add)
        assert (await agenda.take(), trio.current_time()) == ("a", 3)


SETTING: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}


Service = Callable[..., Awaitable[None]]


class Settings(Controller):
    """Controller that records when it reconciles ConfigMaps, and fails as often as they specify."""

    resource: ClassVar[Resource] = ("", "configmaps")
    seen: ClassVar[list[float]] = []
    gone: ClassVar[list[str]] = []

    async def reconcile(self, obj: Object) -> float | None:
        if obj["metadata"]["name"] != "a":
            return None
        self.seen.append(trio.current_time())
        data = obj.get("data") or {}
        if len(self.seen) <= int(data.get("refusals", 0)):
            raise ApiError.of("it is not allowed", status=403)
        if len(self.seen) <= int(data.get("failures", 0)):
            raise ValueError("it is not understood")
        return float(data["again"]) if "again" in data else None

    async def forget(self, key: str) -> None:
        self.gone.append(key)


@pytest.fixture
def run(cluster: Cluster) -> Service:
    Settings.seen.clear()
    Settings.gone.clear()
    api = cluster.api
    client = Client(api.state, writer=api.writer, deleter=api.deleter, tidy=cluster.tidy)
    return functools.partial(serve_controllers, client, [Settings], pace=Pace())


@pytest.mark.parametrize("failing", ["refusals", "failures"])
async def test_failures_are_requeued_with_backoff(
    cluster: Cluster,
    run: Service,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    failing: str,
) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(run)
        await cluster.create({**SETTING, "data": {failing: "4"}})
        await trio.sleep(3600)
        nursery.cancel_scope.cancel()
    assert Settings.seen == [0, 1, 3, 7, 15]
    assert [record.levelno for record in caplog.records] == [
        {"refusals": logging.WARNING, "failures": logging.ERROR}[failing]
    ] * 4


async def test_a_controller_can_requeue_after_a_delay(
    cluster: Cluster, run: Service, autojump_clock: MockClock
) -> None:
    await cluster.create({**SETTING, "data": {"again": "20"}})
    async with trio.open_nursery() as nursery:
        await nursery.start(run)
        await trio.sleep(30)
        await cluster.delete("cm", "a")
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    assert Settings.seen == [0, 20]
    assert Settings.gone
    assert set(Settings.gone) == {"default/a"}


async def test_stopped_controllers_ignore_changes(cluster: Cluster, autojump_clock: MockClock) -> None:
    listeners = list(cluster.api.state.store.on_change)
    async with cluster.open_controllers():
        assert len(cluster.api.state.store.on_change) > len(listeners)
    assert cluster.api.state.store.on_change == listeners


async def test_the_shortest_delay_elapses(cluster: Cluster, run: Service, autojump_clock: MockClock) -> None:
    autojump_clock.jump(1e6)
    await cluster.create({**SETTING, "data": {"again": "1e-12"}})
    async with trio.open_nursery() as nursery:
        await nursery.start(run)
        await trio.sleep(0.0105)
        nursery.cancel_scope.cancel()
    assert len(Settings.seen) == 11
