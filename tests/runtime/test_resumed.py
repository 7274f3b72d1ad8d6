"""Resume handlers are called once in each life of an operator, also when some have ended and others have not."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import MockClock

import trioperator
from tests.lives.world import CLUSTERS_PEERING, peering, peering_definition
from tests.runtime.conftest import Bench, settle, widget
from trioperator import OperatorRegistry
from trioperator._concurrency.clock import wall_now

on = trioperator.on


class Resuming:
    """Handlers of which ``done`` and its part succeed, and ``trying`` does so only in a release that works."""

    def __init__(self, *, works: bool = False) -> None:
        self.registry, self.calls, self.works = OperatorRegistry(), list[str](), works

        @on.create("widgets", id="created", registry=self.registry)
        async def created(**_: object) -> None: ...

        @on.resume("widgets", id="done", registry=self.registry)
        async def done(**_: object) -> None:
            @trioperator.subhandler(id="part")
            async def part(**_: object) -> None:
                self.calls.append("part")

            self.calls.append("done")

        @on.resume("widgets", id="trying", registry=self.registry)
        async def trying(**_: object) -> None:
            if not self.works:
                raise trioperator.TemporaryError("It does not work.", delay=10)
            self.calls.append("trying")

        @on.update("widgets", id="updated", registry=self.registry)
        async def updated(**_: object) -> None:
            self.calls.append("updated")


@pytest.fixture
async def interrupted(bench: Bench, autojump_clock: MockClock) -> None:
    """Let an operator end while one of two resume handlers has succeeded, and the other one is tried again."""
    await bench.cluster.create(widget())
    async with bench.running(registry=Resuming().registry):
        await settle(5)
    resuming = Resuming()
    async with bench.running(registry=resuming.registry):
        await settle(15)
    assert resuming.calls == ["done", "part"]


@pytest.mark.parametrize("is_changed", [False, True])
async def test_a_start_calls_all_though_some_have_ended_in_the_life_before(
    bench: Bench, interrupted: None, is_changed: bool, autojump_clock: MockClock
) -> None:
    if is_changed:
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
    resuming = Resuming(works=True)
    async with bench.running(registry=resuming.registry):
        await settle(100)
    assert resuming.calls == ["done", "part", "trying", *(["updated"] if is_changed else [])]
    left = await bench.cluster.get("widgets", "w")
    assert "trioperator.dev/done" not in left["metadata"]["annotations"]


async def test_an_update_is_not_handled_again_by_a_start_though_the_object_is_resumed(
    bench: Bench, interrupted: None, autojump_clock: MockClock
) -> None:
    await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
    both = [Resuming(), Resuming(works=True)]
    for resuming in both:
        async with bench.running(registry=resuming.registry):
            await settle(5)
    assert both[0].calls == ["done", "part", "updated"]
    assert both[1].calls == ["done", "part", "trying"]


async def test_a_pause_does_not_call_again_what_has_ended_in_this_life(
    bench: Bench, interrupted: None, autojump_clock: MockClock
) -> None:
    await bench.cluster.apply(peering_definition(*CLUSTERS_PEERING))
    await bench.cluster.create(peering(CLUSTERS_PEERING[0], None))
    bench.settings.peering.standalone = False
    bench.settings.peering.mandatory = True
    resuming = Resuming()
    async with bench.running(registry=resuming.registry):
        await settle(15)
        assert resuming.calls == ["done", "part"]
        boss: dict[str, Any] = {"priority": 1000, "lifetime": 30, "lastseen": wall_now().isoformat()}
        await bench.cluster.patch(CLUSTERS_PEERING[1], "default", {"status": {"boss": boss}})
        await settle(10)
        resuming.works = True
        await settle(100)
    assert resuming.calls == ["done", "part", "trying"]
