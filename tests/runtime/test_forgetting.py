"""What is remembered of objects: nothing, once they are gone or are not handled any more."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator._runtime.cache.object_state import ObjectState
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on


def find_states() -> list[ObjectState]:
    """Return the states of all objects that are in memory."""
    gc.collect()
    return [item for item in gc.get_objects() if type(item) is ObjectState]


@pytest.fixture
def remembered() -> Callable[[], list[str]]:
    """Return a function that returns the names of objects in memory, but for those that other tests have left."""
    before = find_states()

    def find_names() -> list[str]:
        return sorted(state.name for state in find_states() if state not in before)

    return find_names


@pytest.fixture
def busy(bench: Bench) -> Bench:
    """Declare handlers of all sorts, some of which fail and are tried again."""

    @on.event("widgets", registry=bench.registry)
    async def seen(**_: object) -> None:
        pass

    @trioperator.index("widgets", registry=bench.registry)
    async def by_name(name: str, **_: object) -> dict[str, str]:
        return {name: name}

    @on.create("widgets", registry=bench.registry)
    async def created(name: str, **_: object) -> None:
        if name == "failing":
            raise trioperator.TemporaryError("not yet", delay=1)

    @on.delete("widgets", optional=True, registry=bench.registry)
    async def deleted(**_: object) -> None:
        pass

    @trioperator.daemon("widgets", cancellation_timeout=1, registry=bench.registry)
    async def daemon(**_: object) -> None:
        await trio.sleep_forever()

    @trioperator.timer("widgets", interval=1, registry=bench.registry)
    async def timer(patch: trioperator.Patch, **_: object) -> None:
        patch.status["ticks"] = trio.current_time()

    return bench


async def test_nothing_is_remembered_of_objects_that_are_gone(
    busy: Bench, autojump_clock: MockClock, remembered: Callable[[], list[str]]
) -> None:
    async with busy.running():
        for name in ("one", "two", "failing"):
            await busy.cluster.create(widget(name))
        await settle(5)
        assert remembered() == ["failing", "one", "two"]
        for name in ("one", "failing"):
            await busy.cluster.delete("widgets", name)
        await settle(20)
        assert remembered() == ["two"]


async def test_nothing_is_remembered_of_objects_in_namespaces_that_are_not_served_any_more(
    busy: Bench, autojump_clock: MockClock, remembered: Callable[[], list[str]]
) -> None:
    async with busy.running(namespaces=["serve*"]):
        await busy.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "served"}})
        await settle(5)
        manifest = widget("one")
        manifest["metadata"]["namespace"] = "served"
        await busy.cluster.create(manifest)
        await settle(5)
        assert remembered() == ["one"]
        await busy.cluster.delete("namespaces", "served")
        await settle(60)
        assert remembered() == []


@contextlib.contextmanager
def gathering_garbage() -> Iterator[list[object]]:
    """Yield a list that has, after the block, what only the garbage collector could free of what was made in it."""
    garbage: list[object] = []
    gc.collect()
    gc.disable()
    try:
        yield garbage
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        garbage += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize(
    "fault",
    [*map(Fault.status, (400, 403, 404, 409, 410, 422, 429, 500)), Fault.refuse(), Fault.reset(), Fault.lose_answer()],
    ids=str,
)
async def test_an_error_of_a_request_is_freed_at_once_with_all_that_its_traceback_has(
    busy: Bench, autojump_clock: MockClock, fault: Fault
) -> None:
    @on.reconcile("widgets", owns=[trioperator.Owned("configmaps")], registry=busy.registry)
    async def reconcile(name: str) -> list[trioperator.Child]:
        return [trioperator.Child({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})]

    plan = FaultPlan()
    for verb in ("get", "list", "watch", "create", "patch", "delete"):
        plan.add(fault, verb=verb, times=2)
    with gathering_garbage() as garbage:
        async with busy.running(transport=FaultyTransport(busy.cluster.transport(), plan)):
            for name in ("one", "two"):
                await busy.cluster.create(widget(name))
            await settle(100)
            for name in ("one", "two"):
                await busy.cluster.delete("widgets", name)
            await settle(100)
    assert not [item for item in garbage if isinstance(item, trioperator.errors.TrioperatorError)]
