"""What handlers get is theirs: they can change it, and neither the cached object nor what is stored is affected."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget

on = trioperator.on
HISTORY = ["old"]


def add(status: Any, patch: Any, item: Any) -> None:
    """Write a list as most people do: in place."""
    history = status.get("history", [])
    history.append(item)
    patch.status["history"] = history


async def create(bench: Bench) -> None:
    """Create an object with a list."""
    await bench.cluster.create(widget(size=0))
    await bench.cluster.patch("widgets", "w", {"status": {"history": HISTORY}}, subresource="status")


async def history(bench: Bench) -> Any:
    return (await bench.cluster.get("widgets", "w"))["status"]["history"]


@pytest.mark.parametrize("stores", [False, True])
async def test_a_list_of_the_status_can_be_extended_in_place(
    bench: Bench, autojump_clock: MockClock, stores: bool
) -> None:
    await create(bench)

    @on.resume("widgets", registry=bench.registry)
    @on.create("widgets", registry=bench.registry)
    @on.update("widgets", registry=bench.registry)
    async def handle(spec: Any, status: Any, patch: Any, **_: Any) -> None:
        add(status, patch, spec["size"])
        if stores:
            await patch.store()

    async with bench.running():
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 1}})
        await settle(1)
    assert await history(bench) == ["old", 0, 1]


async def test_timers_daemons_and_reconcile_handlers_can_extend_a_list_in_place(
    bench: Bench, autojump_clock: MockClock
) -> None:
    await create(bench)
    bench.settings.background.spread = 0

    @trioperator.timer("widgets", interval=10, initial_delay=5, registry=bench.registry)
    async def tick(status: Any, patch: Any, **_: Any) -> None:
        add(status, patch, "tick")

    @trioperator.daemon("widgets", registry=bench.registry)
    async def serve(status: Any, patch: Any, **_: Any) -> None:
        for _number in range(2):
            add(status, patch, "daemon")
            await patch.store()

    @on.reconcile("widgets", registry=bench.registry)
    async def reconcile(spec: Any, status: Any, patch: Any, **_: Any) -> list[Any]:
        add(status, patch, f"reconcile {spec['size']}")
        return []

    async with bench.running():
        await settle(2)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 1}})
        await settle(2)
        await trio.sleep(12)
    assert sorted(await history(bench)) == sorted(
        ["old", "reconcile 0", "daemon", "daemon", "reconcile 1", "tick", "tick"]
    )


async def test_nothing_that_handlers_and_filters_change_in_place_reaches_the_cache(
    bench: Bench, autojump_clock: MockClock
) -> None:
    """Each spoils all that it gets, and the others see the object as it is, also when they are tried again."""
    await create(bench)
    seen: list[Any] = []
    changes: list[Any] = []

    def spoil(**kwargs: Any) -> None:
        for name in ("body", "event", "old", "new"):
            given = kwargs.get(name)
            while isinstance(given, dict) and "spec" not in given and "object" in given:
                given = given["object"]
            if given is not None and not isinstance(given, int):
                given["spec"]["size"] = 100
                given["spec"].setdefault("items", []).append("spoilt")
        for item in kwargs.get("diff") or ():
            if isinstance(item.new, dict):
                item.new["spoilt"] = True
        kwargs["status"]["history"].clear()
        kwargs["meta"]["labels"].clear()

    def select(**kwargs: Any) -> bool:
        spoil(**kwargs)
        return True

    @on.event("widgets", when=select, registry=bench.registry)
    async def event(**kwargs: Any) -> None:
        spoil(**kwargs)

    @on.index("widgets", when=select, registry=bench.registry)
    async def index(**kwargs: Any) -> dict[str, str]:
        spoil(**kwargs)
        return {"a": "b"}

    @trioperator.daemon("widgets", when=select, registry=bench.registry)
    async def daemon(**kwargs: Any) -> None:
        spoil(**kwargs)

    @on.create("widgets", registry=bench.registry)
    @on.update("widgets", registry=bench.registry)
    async def handle(body: Any, old: Any, new: Any, retry: int, **kwargs: Any) -> None:
        seen.append(copy.deepcopy(dict(body)))
        changes.append(copy.deepcopy((old, new)))
        spoil(body=body, old=old, new=new, **kwargs)
        if not retry:
            raise trioperator.TemporaryError("again", delay=1)

    await bench.cluster.patch("widgets", "w", {"metadata": {"labels": {"app": "x"}}})
    async with bench.running():
        await settle(5)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 1}})
        await settle(5)
    assert [(body["spec"], body["status"], body["metadata"]["labels"]) for body in seen] == [
        ({"size": size}, {"history": HISTORY}, {"app": "x"}) for size in (0, 0, 1, 1)
    ]
    before, after = ({"spec": {"size": size}, "metadata": {"labels": {"app": "x"}}} for size in (0, 1))
    assert changes == [(None, before), (None, before), (before, after), (before, after)]
    found = await bench.cluster.get("widgets", "w")
    assert found["spec"] == {"size": 1}
    assert found["status"] == {"history": HISTORY}


@pytest.mark.parametrize("by_function", [False, True])
async def test_what_a_handler_wants_is_stored_though_somebody_has_changed_it_meanwhile(
    bench: Bench, autojump_clock: MockClock, by_function: bool
) -> None:
    @on.update("widgets", registry=bench.registry)
    async def update(patch: Any, **_: Any) -> None:
        await trio.sleep(2)
        if by_function:
            patch.fns.append(lambda body: body["status"].update(phase="Ready"))
        else:
            patch.status["phase"] = "Ready"

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await bench.cluster.patch("widgets", "w", {"status": {"phase": "Ready"}}, subresource="status")
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"status": {"phase": "Degraded"}}, subresource="status")
        await settle(10)
    assert (await bench.cluster.get("widgets", "w"))["status"] == {"phase": "Ready"}


async def test_what_a_reconcile_handler_repeats_is_stored_only_if_the_object_differs(
    bench: Bench, autojump_clock: MockClock
) -> None:
    @on.reconcile("widgets", registry=bench.registry)
    async def reconcile(patch: Any, **_: Any) -> list[Any]:
        await trio.sleep(2)
        patch.status["phase"] = "Ready"
        return []

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(3)
        assert bench.writes() == ["PATCH status"]
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(3)
        assert bench.writes() == ["PATCH status"]
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 3}})
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"status": {"phase": "Degraded"}}, subresource="status")
        await settle(3)
    assert (await bench.cluster.get("widgets", "w"))["status"] == {"phase": "Ready"}
