"""Storing while a handler works: what it waits for, and what it is told when its object is gone."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on


async def test_storing_raises_not_found_if_the_object_has_gone_meanwhile(
    bench: Bench, autojump_clock: MockClock
) -> None:
    raised: list[tuple[float, Exception]] = []

    @on.create("widgets", registry=bench.registry)
    async def create(patch: trioperator.Patch, **_: Any) -> None:
        await trio.sleep(5)
        patch.status["x"] = 1
        try:
            await patch.store()
        except trioperator.NotFoundError as error:
            raised.append((trio.current_time(), error))
            raise

    async with bench.running():
        began = trio.current_time()
        await bench.cluster.create(widget())
        await trio.sleep(1)
        await bench.cluster.delete("widgets", "w")
        await settle(60)
    ((when, error),) = raised
    assert when - began < 6
    assert "w is gone" in str(error)
    assert trio.current_time() - began < 62  # stopping has waited for nothing


def _declare_handlers(bench: Bench, handle: Any) -> None:
    on.create("widgets", registry=bench.registry)(handle)
    trioperator.timer("widgets", interval=1000, finalizer=False, registry=bench.registry)(handle)
    trioperator.daemon("widgets", id="daemon", finalizer=False, registry=bench.registry)(handle)


def _declare_reconciling(bench: Bench, handle: Any) -> None:
    on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)(handle)


@pytest.mark.parametrize(("declare", "number"), [(_declare_handlers, 3), (_declare_reconciling, 1)])
@pytest.mark.parametrize("error", [ValueError("no"), trioperator.TemporaryError("not yet", delay=30)])
async def test_the_log_promises_no_other_attempt_for_an_object_that_is_gone(
    declare: Callable[[Bench, Any], None],
    number: int,
    error: Exception,
    bench: Bench,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: MockClock,
) -> None:
    calls: list[str] = []

    async def handle(name: str, **_: Any) -> None:
        calls.append(name)
        await trio.sleep(5)
        raise error

    declare(bench, handle)
    async with bench.running():
        await bench.cluster.create(widget())
        await trio.sleep(2)
        await bench.cluster.delete("widgets", "w")
        await settle(120)
    assert calls == ["w"] * number
    failed = [text for text in caplog.messages if "failed" in text]
    assert len(failed) == number
    assert all("will not try again, as the object is gone" in text for text in failed)


async def test_storing_raises_not_found_as_soon_as_the_object_goes(bench: Bench, autojump_clock: MockClock) -> None:
    """The server says 404 a while before the watch says that the object is gone."""
    raised: list[float] = []

    @on.create("widgets", registry=bench.registry)
    async def create(patch: trioperator.Patch, **_: Any) -> None:
        patch.status["x"] = 1
        try:
            await patch.store()
        except trioperator.NotFoundError:
            raised.append(trio.current_time())

    plan = FaultPlan()
    plan.add(Fault.status(404), method="PATCH")
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget())
        await trio.sleep(7)
        assert raised == []  # it may be that the kind is not served just now
        deleted = trio.current_time()
        await bench.cluster.delete("widgets", "w")
        await settle(30)
    assert [when - deleted < 0.5 for when in raised] == [True]


async def test_a_sync_handler_whose_object_has_gone_frees_its_worker(bench: Bench) -> None:
    raised: list[Exception] = []

    @on.create("widgets", registry=bench.registry)
    def create(patch: trioperator.Patch, name: str, **_: Any) -> None:
        time.sleep(0.1)
        patch.status["phase"] = "half"
        try:
            patch.store()
        except trioperator.NotFoundError as error:
            raised.append(error)
            raise

    bench.settings.queueing.worker_limit = 2
    async with bench.running():
        for number in range(2):
            await bench.cluster.create(widget(f"short-lived-{number}"))
        await trio.sleep(0.05)
        for number in range(2):
            await bench.cluster.delete("widgets", f"short-lived-{number}")
        await bench.cluster.create(widget("normal"))
        with trio.fail_after(20):
            while not (await bench.cluster.get("widgets", "normal")).get("status"):  # noqa: ASYNC110 -- real time
                await trio.sleep(0.02)
    assert len(raised) == 2


@pytest.mark.parametrize("optional", [True, False])
async def test_storing_is_of_no_consequence_when_an_object_is_released(
    bench: Bench, autojump_clock: MockClock, optional: bool
) -> None:
    stored: list[Any] = []

    @on.delete("widgets", optional=optional, registry=bench.registry)
    async def delete(patch: trioperator.Patch, **_: Any) -> None:
        patch.status["x"] = 1
        stored.append(await patch.store())

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        await bench.cluster.delete("widgets", "w")
        await settle(1)
    assert [body["metadata"]["name"] for body in stored] == ["w"]
    assert await bench.cluster.find("widgets", "w") is None


@pytest.mark.parametrize("reason", ["create", "update", "reconcile"])
async def test_a_change_that_a_handler_has_seen_by_storing_and_that_is_taken_back_before_it_ends_is_handled_again(
    bench: Bench, reason: str, autojump_clock: MockClock
) -> None:
    seen: list[int] = []

    async def work(spec: Any, patch: trioperator.Patch, **_: Any) -> list[Any]:
        await trio.sleep(1)
        patch.status["phase"] = f"Working {len(seen)}"
        await patch.store()
        seen.append(spec["size"])
        await trio.sleep(1)
        return []

    if reason == "reconcile":
        on.reconcile("widgets", registry=bench.registry)(work)
    else:
        on.create("widgets", registry=bench.registry)(work)
        on.update("widgets", registry=bench.registry)(work)
    async with bench.running():
        await bench.cluster.create(widget(size=2 if reason == "create" else 1))
        if reason != "create":
            await settle(10)
            await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        seen.clear()
        await settle(0.5)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 3}})
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(60)
        assert seen == [3, 2]


@pytest.mark.parametrize("decorator", [on.update, on.reconcile])
async def test_what_a_handler_itself_takes_back_after_storing_it_does_not_call_it_again(
    bench: Bench, decorator: Any, autojump_clock: MockClock
) -> None:
    calls: list[int] = []

    async def work(spec: Any, patch: trioperator.Patch, **_: Any) -> None:
        calls.append(spec["size"])
        patch.meta.annotations["example.com/busy"] = "yes"
        patch.fns.append(lambda body: body["spec"].setdefault("tags", []).append("busy"))
        await patch.store()
        await trio.sleep(1)
        patch.meta.annotations["example.com/busy"] = None
        patch.fns.append(lambda body: body["spec"].pop("tags"))

    decorator("widgets", registry=bench.registry)(work)
    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(60)
        calls.clear()
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(60)
        assert calls == [2]


def full(**spec: Any) -> dict[str, Any]:
    """Return an object whose annotations have no room for any records of handlers."""
    manifest = widget(**spec)
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": {"notes": "x" * (256 * 1024 - 6)}}}


async def test_what_handlers_want_is_stored_once_though_their_records_are_rejected(
    bench: Bench, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    @on.create("widgets", registry=bench.registry)
    async def create(patch: trioperator.Patch, **_: Any) -> None:
        patch.spec["size"] = 2
        patch.status["size"] = 2

    async with bench.running():
        await bench.cluster.create(full(size=1))
        await settle(30)
        stored = await bench.cluster.get("widgets", "w")
        assert (stored["spec"]["size"], stored["status"]["size"]) == (2, 2)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 3}, "status": {"size": 3}})
        await bench.cluster.patch("widgets", "w", {"status": {"size": 3}}, subresource="status")
        await settle(3600)
    stored = await bench.cluster.get("widgets", "w")
    assert (stored["spec"]["size"], stored["status"]["size"]) == (3, 3)
    assert "are dropped" not in caplog.text
    assert "Too long: may not be more than 262144 bytes" in caplog.text
    assert caplog.text.count("is too big for annotations") == 1
    assert "The object is handled, but that could not be recorded on it: " in caplog.text
    assert "could not be handled" not in caplog.text


async def test_reconcile_handlers_do_not_wait_for_records_that_are_rejected(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[int] = []

    @on.create("widgets", registry=bench.registry)
    @on.update("widgets", registry=bench.registry)
    async def change(**_: Any) -> None: ...

    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
        calls.append(spec["size"])
        return [{"apiVersion": "v1", "kind": "ConfigMap", "data": {"size": str(spec["size"])}}]

    async with bench.running():
        await bench.cluster.create(full(size=1))
        await settle(30)
        assert (await bench.cluster.get("configmaps", "w"))["data"] == {"size": "1"}
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(30)
        assert (await bench.cluster.get("configmaps", "w"))["data"] == {"size": "2"}
        await bench.cluster.delete("configmaps", "w", "default")
        await settle(3600)
        assert (await bench.cluster.get("configmaps", "w"))["data"] == {"size": "2"}
    assert calls == [1, 2, 2], "not with each attempt to store the records"


async def test_timers_and_daemons_do_not_wait_for_records_that_are_rejected(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[str] = []

    @on.create("widgets", registry=bench.registry)
    async def create(**_: Any) -> None: ...

    @trioperator.timer("widgets", interval=10, registry=bench.registry)
    async def tick(patch: trioperator.Patch, **_: Any) -> None:
        calls.append("tick")
        patch.status["ticks"] = calls.count("tick")

    @trioperator.daemon("widgets", registry=bench.registry)
    async def watch(patch: trioperator.Patch, stopped: trioperator.DaemonStopped, **_: Any) -> None:
        while not await stopped.wait(10):
            patch.status["looks"] = calls.count("look")
            await patch.store()
            calls.append("look")

    async with bench.running():
        await bench.cluster.create(full())
        await settle(300)
        assert calls.count("tick") > 20
        assert calls.count("look") > 20


async def test_what_a_running_handler_stores_does_not_wait_for_records_that_are_rejected(
    bench: Bench, autojump_clock: MockClock
) -> None:
    stored: list[float] = []
    writes: list[str] = []

    @on.update("widgets", registry=bench.registry)
    async def work(patch: trioperator.Patch, **_: Any) -> None:
        for number in range(5):
            patch.status["number"] = number
            await patch.store()
            stored.append(trio.current_time())
        bench.cluster.requests.clear()
        patch.status["number"] = 5
        await patch.store()
        writes.extend(bench.writes())

    async with bench.running():
        await bench.cluster.create(full(size=1))
        await settle(10)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1)
        assert len(stored) == 5
        assert stored[-1] - stored[0] < 1
        assert writes == ["PATCH status"]


async def test_changes_are_handled_in_time_though_their_records_are_rejected_until_there_is_room(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[tuple[str, int, float]] = []

    @on.create("widgets", registry=bench.registry)
    @on.update("widgets", registry=bench.registry)
    @on.delete("widgets", registry=bench.registry)
    async def work(reason: str, spec: Any, retry: int, **_: Any) -> None:
        calls.append((str(reason), spec["size"], trio.current_time()))
        if retry < 9:
            raise trioperator.TemporaryError("not yet", delay=2)

    async def observe(deed: Awaitable[Any], reason: str, size: int) -> None:
        began = trio.current_time()
        calls.clear()
        await deed
        await settle(30)
        assert [call[:2] for call in calls] == [(reason, size)] * 10
        assert calls[-1][2] - began < 20

    def annotate(notes: str | None) -> Awaitable[Any]:
        return bench.cluster.patch("widgets", "w", {"metadata": {"annotations": {"notes": notes}}})

    async with bench.running():
        await observe(bench.cluster.create(full(size=1)), "create", 1)
        await observe(bench.cluster.patch("widgets", "w", {"spec": {"size": 2}}), "update", 2)
        await observe(bench.cluster.patch("widgets", "w", {"spec": {"size": 1}}), "update", 1)
        await observe(annotate(None), "update", 1)
        stored = await bench.cluster.get("widgets", "w")
        key = "trioperator.dev/last-handled-configuration"
        assert stored["metadata"]["annotations"][key] == '{"spec":{"size":1}}\n'
        await observe(annotate("x" * (256 * 1024 - 200)), "update", 1)
        await observe(bench.cluster.delete("widgets", "w"), "delete", 1)
        assert await bench.cluster.find("widgets", "w") is None
