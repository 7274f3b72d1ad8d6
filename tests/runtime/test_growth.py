"""What an operator keeps in memory does not grow with the number of events."""

from __future__ import annotations

import collections
import gc
import logging
import os
import sys

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator._runtime.ledger import Ledger

on = trioperator.on

_OBJECTS = 3
# Lives of objects: as many are over when memory is measured first, and in the end; and at a time.
_FEW, _MANY, _TOGETHER = 100, 400, 50
# What is kept for a while is forgotten in portions.
_PORTION = 64


@pytest.fixture(autouse=True)
def few_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the ledger be full soon: it keeps a limited number of pages, also of objects that are gone."""
    defaults = Ledger.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "limit", 5)


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


def declare_lives(registry: trioperator.OperatorRegistry) -> None:
    """Declare what leaves traces of objects: names in errors, in ids, in children, in indices, in what is stored."""

    @trioperator.index("widgets", registry=registry)
    async def by_size(name: str, spec: trioperator.Spec, **_: object) -> dict[object, str]:
        return {spec["size"]: name}

    @on.create("widgets", registry=registry)
    async def created(name: str, retry: int, **_: object) -> None:
        if not retry:
            raise trioperator.TemporaryError(f"{name} is not ready", delay=1)

        @trioperator.subhandler(id=f"sub-{name}")
        async def sub(**_: object) -> None:
            pass

    @trioperator.daemon("widgets", registry=registry)
    async def daemon(stopped: trioperator.DaemonStopped, **_: object) -> None:
        await stopped.wait()

    @on.reconcile("widgets", owns=["configmaps"], condition="Applied", registry=registry)
    async def reconciled(name: str, spec: trioperator.Spec, **_: object) -> list[object]:
        return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-{spec['size']}"}}]

    @on.reconcile("widgets", watches={"configmaps": lambda name, **_: name}, registry=registry)
    async def failed(name: str, **_: object) -> None:
        raise trioperator.PermanentError(f"{name} is wrong")


async def live(bench: Bench, first: int, last: int) -> None:
    """Create objects, and delete them when they are handled, some at a time. Their children go with them.

    One object stays, whose children have other names again and again.
    """
    for begin in range(first, last, _TOGETHER):
        names = [f"w{number}" for number in range(begin, begin + _TOGETHER)]
        for name in names:
            await bench.cluster.create(widget(name, size=begin))
        for number in range(begin, begin + _TOGETHER // 2):
            await bench.cluster.patch("widgets", "old", {"spec": {"size": number}})
            await settle(1)
        for name in names:
            await bench.cluster.delete("widgets", name)
        await settle(100)


def sizes_of_containers() -> collections.Counter[str]:
    """Return how many items the containers have that belong to instances of the operator's classes, by attributes."""
    sizes: collections.Counter[str] = collections.Counter()
    for each in gc.get_objects():
        if not type(each).__module__.startswith("trioperator.") or "apiserver" in type(each).__module__:
            continue
        fields = vars(each) if type(each).__dictoffset__ else ()  # loggers have any attribute that they are asked for
        for name in {*fields, *getattr(type(each), "__slots__", ())}:
            value = getattr(each, name, None)
            if isinstance(value, dict | list | set | frozenset | collections.deque):
                sizes[f"{type(each).__qualname__}.{name}"] += len(value)
    return sizes


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


async def test_ten_thousand_lives_leave_no_more_in_memory_than_two_thousand(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    few, many = (2_000, 10_000) if os.environ.get("TRIOPERATOR_LONG_TESTS") else (_FEW, _MANY)
    caplog.set_level(logging.CRITICAL)
    bench.settings.posting.enabled = False  # events are counted for a while, and nobody removes them here
    declare_lives(bench.registry)
    await bench.cluster.create(widget("old"))
    async with bench.running():
        await live(bench, 0, few)
        instances, sizes = own_instances(), sizes_of_containers()
        await live(bench, few, many)
        assert (own_instances() - instances).total() <= 4
        now = sizes_of_containers()
        assert {name: (sizes[name], now[name]) for name in now if now[name] > sizes[name] + _PORTION} == {}
