"""Large objects in a whole operator: nothing of them is decoded while it waits, whatever handlers have looked at."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator._model import lazy_object
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on
OBJECTS, ITEMS = 3, 20_000


@pytest.fixture(autouse=True)
def only_new_objects() -> None:
    """Hide what other tests have left from the search for decoded objects, which takes the longer the more there is."""
    gc.collect()
    gc.freeze()


def count_decoded() -> int:
    """Return how many lists of items there are in this process, but for those of the embedded server."""
    gc.collect()
    lists = [found for found in gc.get_objects() if type(found) is list and len(found) == ITEMS]
    return sum(not any(map(_is_of_server, _parents(spec))) for found in lists for spec in _parents(found))


def _is_of_server(body: object) -> bool:
    return any(type(owner).__module__.startswith("trioperator.apiserver") for owner in gc.get_referrers(body))


def _parents(value: object) -> list[object]:
    return [found for found in gc.get_referrers(value) if type(found) is dict]


def declare(bench: Bench) -> None:
    """Declare handlers of all kinds that look at their objects."""

    @on.create("widgets", id="change", registry=bench.registry)
    @on.update("widgets", id="change", registry=bench.registry)
    async def change(spec: Any, new: Any, diff: Any, patch: Any, **_: Any) -> None:
        assert len(spec["items"]) == len(new["spec"]["items"]) == ITEMS
        assert len(diff) == 1
        patch.status["items"] = len(spec["items"])

    @on.field("widgets", id="field", field="spec.number", registry=bench.registry)
    async def field(new: Any, **_: Any) -> None:
        pass

    @trioperator.daemon("widgets", id="watch", registry=bench.registry)
    async def watch(spec: Any, stopped: Any, **_: Any) -> None:
        assert len(spec["items"]) == ITEMS
        await stopped.wait()

    @trioperator.timer("widgets", id="tick", interval=60, registry=bench.registry)
    async def tick(spec: Any, status: Any, patch: Any, **_: Any) -> None:
        if status.get("number") != spec["number"]:
            patch.status["number"] = spec["number"]


async def test_nothing_of_large_objects_is_decoded_while_an_operator_waits(
    bench: Bench, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy_object, "_BUDGET", 0)
    monkeypatch.setattr(lazy_object, "_recent", lazy_object._Recent())
    declare(bench)
    names = [f"w{number}" for number in range(OBJECTS)]
    for name in names:
        await bench.cluster.create(widget(name, number=0, items=["item"] * ITEMS))
    plan = FaultPlan()
    plan.add(Fault.delay(before=10), verb="patch")
    counts = []
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        for number in range(1, 3):
            for _ in range(20):
                await trio.sleep(3)  # there are requests for some of the time
                counts.append(count_decoded())
            for name in names:
                await bench.cluster.patch("widgets", name, {"spec": {"number": number}})
        await settle(120)
        for each in await bench.cluster.list("widgets"):
            assert each["status"] == {"items": ITEMS, "number": 2}
    assert set(counts) == {0}


async def test_handlers_of_many_huge_objects_do_not_add_up(
    bench: Bench, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy_object, "_BUDGET", 0)
    monkeypatch.setattr(lazy_object, "_recent", lazy_object._Recent())
    counts = []

    @on.create("widgets", registry=bench.registry)
    @on.update("widgets", registry=bench.registry)
    async def change(spec: Any, **_: Any) -> None:
        assert len(spec["items"]) == ITEMS
        counts.append(count_decoded())

    names = [f"w{number}" for number in range(OBJECTS)]
    for name in names:
        await bench.cluster.create(widget(name, number=0, items=["item"] * ITEMS))
    async with bench.running():
        await settle(10)
        for name in names:
            await bench.cluster.patch("widgets", name, {"spec": {"number": 1}})
        await settle(10)
    assert len(counts) == 2 * OBJECTS
    assert max(counts) <= 2  # what the handler sees, and what has just been digested


async def test_a_change_of_a_huge_object_is_decoded_for_its_handlers_and_little_else(
    bench: Bench, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy_object, "_BUDGET", 0)
    monkeypatch.setattr(lazy_object, "_recent", lazy_object._Recent())
    decoded: list[float] = []
    decode = lazy_object.LazyObject._decode_alone

    def count(found: lazy_object.LazyObject) -> dict[str, Any]:
        decoded.append(trio.current_time())
        return decode(found)

    @on.update("widgets", registry=bench.registry)
    async def change(spec: Any, old: Any, **_: Any) -> None:
        assert spec["number"] == 1
        decoded.append(0)  # what is decoded from now on is for storing that it has been handled

    await bench.cluster.create(widget("w", number=0, items=["x" * 20] * ITEMS))  # too large for annotations
    async with bench.running():
        await settle(10)
        monkeypatch.setattr(lazy_object.LazyObject, "_decode_alone", count)
        await bench.cluster.patch("widgets", "w", {"spec": {"number": 1}})
        await settle(10)
    assert (len(decoded), decoded.index(0)) == (2, 1)  # its spec
