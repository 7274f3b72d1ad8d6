"""Tests for :mod:`trioperator._handling.calls.storing`: patches that handlers store while they run."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, Bench, settle, widget
from trioperator import on
from trioperator._handling.calls.storing import AsyncPatch, SyncPatch, make_patch
from trioperator._model.body import Body
from trioperator.apiserver import Cluster
from trioperator.errors import PermanentError
from trioperator.testing import Fault, FaultPlan, FaultyTransport


@pytest.fixture
async def bench(cluster: Cluster) -> Bench:
    await cluster.apply(CRD)
    settings = trioperator.OperatorSettings()
    settings.posting.loggers = False
    return Bench(cluster, trioperator.OperatorRegistry(), settings)


async def phase(bench: Bench) -> Any:
    return ((await bench.cluster.get("widgets", "w")).get("status") or {}).get("phase")


# ------------------------------------------------------------------------------------------------- daemons and timers


async def test_a_daemon_stores_what_it_has_changed(bench: Bench, autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    @trioperator.daemon("widgets", registry=bench.registry)
    async def daemon(patch: trioperator.Patch, body: trioperator.Body, **_: Any) -> None:
        for number in range(3):
            patch.status["phase"] = number
            stored = await patch.store()
            seen.append((await phase(bench), stored["status"]["phase"], body.status["phase"]))
            assert not patch
            await trio.sleep(10)
        await trio.sleep_forever()

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(60)
        assert seen == [(0, 0, 0), (1, 1, 1), (2, 2, 2)]
        assert bench.writes()[-3:] == ["PATCH status"] * 3


async def test_a_sync_timer_stores_what_it_has_changed(bench: Bench, autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    @trioperator.timer("widgets", interval=100, registry=bench.registry)
    def tick(patch: trioperator.Patch, **_: Any) -> None:
        patch.status["phase"] = "one"
        seen.append(patch.store()["status"])
        patch.fns.append(lambda body: body["status"].update(phase="two"))
        seen.append(patch.store()["status"])

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
    assert seen == [{"phase": "one"}, {"phase": "two"}]


async def test_a_daemon_stores_while_another_handler_runs(bench: Bench, autojump_clock: MockClock) -> None:
    stored_at: list[float] = []

    @on.create("widgets", registry=bench.registry)
    async def create(**_: Any) -> None:
        await trio.sleep(1000)

    @trioperator.daemon("widgets", registry=bench.registry)
    async def daemon(patch: trioperator.Patch, **_: Any) -> None:
        await trio.sleep(100)
        patch.status["phase"] = "stored"
        await patch.store()
        stored_at.append(trio.current_time())

    async with bench.running():
        began = trio.current_time()
        await bench.cluster.create(widget())
        await settle(500)
        assert stored_at == [began + 100]
        await settle(1000)


async def test_nothing_to_store_takes_no_request(bench: Bench, autojump_clock: MockClock) -> None:
    @trioperator.daemon("widgets", finalizer=False, registry=bench.registry)
    async def daemon(patch: trioperator.Patch, name: str, **_: Any) -> None:
        assert (await patch.store())["metadata"]["name"] == name
        patch.status["phase"] = "done"

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
    assert bench.writes() == ["PATCH status"]


async def test_what_cannot_be_stored_now_is_waited_for(bench: Bench, autojump_clock: MockClock) -> None:
    plan = FaultPlan()
    plan.add(Fault.refuse(), method="PATCH", until=100)
    stored_at: list[float] = []

    @trioperator.daemon("widgets", finalizer=False, registry=bench.registry)
    async def daemon(patch: trioperator.Patch, **_: Any) -> None:
        patch.status["phase"] = "stored"
        await patch.store()
        stored_at.append(trio.current_time())

    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget())
        await settle(500)
        assert await phase(bench) == "stored"
    assert len(stored_at) == 1
    assert 100 <= stored_at[0] < 200


async def test_a_daemon_that_waits_to_store_can_be_stopped(bench: Bench, autojump_clock: MockClock) -> None:
    plan = FaultPlan()
    plan.add(Fault.refuse(), method="PATCH")
    ended: list[str] = []

    @trioperator.daemon("widgets", finalizer=False, cancellation_timeout=5, registry=bench.registry)
    async def daemon(patch: trioperator.Patch, **_: Any) -> None:
        patch.status["phase"] = "stored"
        try:
            await patch.store()
        finally:
            ended.append("ended")

    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget())
        await settle(5)
        assert not ended
        await bench.cluster.delete("widgets", "w")
        await settle(500)
        assert ended == ["ended"]


# ------------------------------------------------------------------------------------------------ handlers of changes


@pytest.mark.parametrize("later", [[], [10]], ids=["first", "after others"])
async def test_a_long_handler_stores_what_it_has_changed(
    bench: Bench, autojump_clock: MockClock, later: list[int]
) -> None:
    seen: list[Any] = []

    for number in later:

        @on.create("widgets", id=f"other-{number}", registry=bench.registry)
        async def other(number: int = number, **_: Any) -> None:
            await trio.sleep(number)

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(patch: trioperator.Patch, body: trioperator.Body, **_: Any) -> str:
        for number in range(2):
            patch.status["phase"] = number
            stored = await patch.store()
            seen.append((await phase(bench), stored["status"]["phase"], body.status["phase"]))
            await trio.sleep(100)
        patch.status["phase"] = 0
        return "result"

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(300)
        assert seen == [(0, 0, 0), (1, 1, 1)]
        stored = await bench.cluster.get("widgets", "w")
        assert stored["status"] == {"phase": 0, "create": "result"}
        assert not [key for key in stored["metadata"]["annotations"] if "create" in key]


async def test_a_sync_handler_and_its_subhandlers_store_what_they_have_changed(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen: list[Any] = []

    @on.create("widgets", registry=bench.registry)
    async def create(patch: trioperator.Patch, **_: Any) -> None:
        patch.status["parent"] = 1

        @trioperator.subhandler(id="inner")
        def inner(patch: trioperator.Patch, **_: Any) -> None:
            patch.status["phase"] = 1
            seen.append(patch.store()["status"]["phase"])

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
        assert (await bench.cluster.get("widgets", "w"))["status"] == {"parent": 1, "phase": 1}
    assert seen == [1]


async def test_what_a_handler_stores_is_no_change_of_the_object_by_others(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[str] = []

    @on.create("widgets", registry=bench.registry)
    async def create(patch: trioperator.Patch, **_: Any) -> None:
        calls.append("create")
        patch.meta.annotations["mine"] = "1"
        await patch.store()
        await trio.sleep(10)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(100)
    assert calls == ["create"]


# ---------------------------------------------------------------------------------------------------------- mistakes


async def test_what_is_no_json_is_not_stored(autojump_clock: MockClock) -> None:
    async def store() -> Body:
        raise AssertionError

    patch = make_patch(store, is_async=True)
    patch.status["phase"] = object()
    with pytest.raises(PermanentError, match=r"status\.phase is of the type object"):
        await patch.store()


async def test_an_abandoned_handler_stores_nothing() -> None:
    async def store() -> Body:
        return Body({})

    patch = make_patch(store, is_async=False)
    assert isinstance(patch, SyncPatch)
    assert await trio.to_thread.run_sync(patch.store) == {}
    patch.expire()
    with pytest.raises(RuntimeError, match="after the end"):
        await trio.to_thread.run_sync(patch.store)
    assert isinstance(make_patch(store, is_async=True), AsyncPatch)


async def test_other_handlers_cannot_store_at_once(bench: Bench, autojump_clock: MockClock) -> None:
    raised: list[RuntimeError] = []

    @on.event("widgets", registry=bench.registry)
    async def event(patch: trioperator.Patch, **_: Any) -> None:
        with pytest.raises(RuntimeError, match="daemons, timers and handlers of changes") as caught:
            await patch.store()
        raised.append(caught.value)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
    assert raised
