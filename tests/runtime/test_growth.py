"""What an operator keeps in memory does not grow with the number of events."""

from __future__ import annotations

import collections
import gc
import logging
import sys

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget

on = trioperator.on

_OBJECTS = 3


@pytest.fixture
def busy(bench: Bench) -> Bench:
    """Declare handlers of all sorts, one of which fails and is tried again."""

    @on.event("widgets", registry=bench.registry)
    async def seen(**_: object) -> None:
        pass

    @trioperator.index("widgets", registry=bench.registry)
    async def by_size(name: str, spec: trioperator.Spec, **_: object) -> dict[object, str]:
        return {spec["size"]: name}

    @on.create("widgets", registry=bench.registry)
    @on.update("widgets", registry=bench.registry)
    async def changed(retry: int, patch: trioperator.Patch, spec: trioperator.Spec, **_: object) -> None:
        patch.status["size"] = spec["size"]
        if not retry:
            raise trioperator.TemporaryError("not yet", delay=1)

    @on.delete("widgets", registry=bench.registry)
    async def deleted(**_: object) -> None:
        pass

    @trioperator.daemon("widgets", registry=bench.registry)
    async def daemon(stopped: trioperator.DaemonStopped, **_: object) -> None:
        await stopped.wait()

    @trioperator.timer("widgets", interval=60, registry=bench.registry)
    async def timer(patch: trioperator.Patch, **_: object) -> None:
        patch.status["ticks"] = trio.current_time()

    return bench


async def spend(bench: Bench, rounds: int) -> None:
    """Change all objects every third minute, and replace one of them by a new one of its name."""
    for number in range(rounds):
        await bench.cluster.delete("widgets", f"w{number % _OBJECTS}")
        await settle(5)
        await bench.cluster.create(widget(f"w{number % _OBJECTS}", size=number))
        for name in range(_OBJECTS):
            await bench.cluster.patch("widgets", f"w{name}", {"spec": {"size": number}})
        await settle(175)


def own_instances() -> collections.Counter[str]:
    """Return how many instances of the operator's classes there are, those of the server aside."""
    gc.collect()
    names = [f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects()]
    return collections.Counter(
        name
        for name in names
        if name.startswith("trioperator.") and not name.startswith(("trioperator.apiserver.", "trioperator.testing."))
    )


def allocated(bench: Bench) -> int:
    """Return how many blocks of memory are in use, without the server's log of requests."""
    bench.cluster.requests.clear()
    gc.collect()
    return sys.getallocatedblocks()


async def test_an_hour_of_changes_leaves_no_more_in_memory_than_its_first_minutes(
    busy: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)  # records that are captured are kept
    for number in range(_OBJECTS):
        await busy.cluster.create(widget(f"w{number}", size=0))
    async with busy.running():
        await spend(busy, 5)
        instances, blocks = own_instances(), allocated(busy)
        await spend(busy, 20)
        assert (own_instances() - instances).total() <= 4  # a watch that began anew has no last event
        # Trio prunes the deadlines of scopes that have ended only when there are a thousand, and URLs are cached.
        assert allocated(busy) <= blocks + 20 * 100
