"""Tests for :mod:`trioperator._reconciling.level_reconciler`: when reconcile handlers are called."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.reconciling.calls import Calls
from tests.reconciling.conftest import config_map, names_of, requests_of
from tests.runtime.conftest import Bench, settle, widget
from tests.runtime.succession import serve
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on


async def test_it_is_called_at_start_and_for_new_objects(bench: Bench, autojump_clock: MockClock) -> None:
    calls = Calls(bench)
    await bench.cluster.create(widget("old"))
    async with bench.running():
        await settle(1)
        await bench.cluster.create(widget("new"))
        await settle(3600)
    assert calls.names == ["old", "new"]


async def test_an_object_that_goes_while_it_is_read_again_has_no_more_handlers_called(
    bench: Bench, autojump_clock: MockClock
) -> None:
    called: list[str] = []

    @on.reconcile("widgets", id="first", registry=bench.registry)
    async def first(**_: Any) -> list[Any]:
        called.append("first")
        await trio.sleep(1)  # so the object is read again before the second one
        return []

    @on.reconcile("widgets", id="second", registry=bench.registry)
    async def second(**_: Any) -> list[Any]:
        called.append("second")
        raise ValueError("it is tried again, for nothing")

    plan = FaultPlan()
    plan.add(Fault.delay(after=2), verb="get", resource="widgets")
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget())
        await settle(2)
        await bench.cluster.delete("widgets", "w")
        await settle(60)
    assert called == ["first"]


@pytest.mark.parametrize(
    ("patch", "called"),
    [
        ({"spec": {"size": 2}}, 1),
        ({"metadata": {"labels": {"a": "b"}}}, 1),
        ({"metadata": {"annotations": {"a": "b"}}}, 1),
        ({"metadata": {"finalizers": ["example.com/other"]}}, 0),
    ],
)
async def test_it_is_called_for_changes_of_what_is_desired(
    bench: Bench, autojump_clock: MockClock, patch: Mapping[str, Any], called: int
) -> None:
    calls = Calls(bench)
    await bench.cluster.create(widget())
    async with bench.running():
        await settle(1)
        calls.take()
        await bench.cluster.patch("widgets", "w", patch)
        await settle(1)
        assert calls.take() == called


async def test_it_is_not_called_for_changes_of_the_status(bench: Bench, autojump_clock: MockClock) -> None:
    calls = Calls(bench)
    await bench.cluster.create(widget())
    async with bench.running():
        await settle(1)
        calls.take()
        await bench.cluster.patch("widgets", "w", {"status": {"ready": True}}, subresource="status")
        await settle(1)
        assert calls.take() == 0


async def test_its_own_patch_is_stored_once_and_does_not_call_it_again(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @on.reconcile("widgets", registry=bench.registry)
    async def reconcile(spec: Mapping[str, Any], patch: trioperator.Patch) -> None:
        calls.append(spec["size"])
        patch.status["size"] = spec["size"]

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(60)
    assert calls == [1, 2]
    assert bench.writes() == ["PATCH status", "PATCH status"]
    assert (await bench.cluster.get("widgets", "w"))["status"] == {"size": 2}


async def test_a_patch_can_be_stored_while_it_runs(bench: Bench, autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    @on.reconcile("widgets", registry=bench.registry)
    async def reconcile(patch: Any, body: trioperator.Body) -> None:
        patch.status["phase"] = "Working"
        await patch.store()
        seen.append(body.status["phase"])
        patch.status["phase"] = "Done"

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(60)
    assert seen == ["Working"]
    assert (await bench.cluster.get("widgets", "w"))["status"] == {"phase": "Done"}


async def test_it_sees_its_own_writes_before_the_watch_brings_them(bench: Bench, autojump_clock: MockClock) -> None:
    seen: list[int] = []

    @on.reconcile("widgets", registry=bench.registry)
    async def reconcile(status: Mapping[str, Any], patch: trioperator.Patch) -> trioperator.Requeue | None:
        seen.append(status.get("count", 0))
        patch.status["count"] = seen[-1] + 1
        return trioperator.Requeue(after=1) if len(seen) < 4 else None

    plan = FaultPlan()
    plan.add(Fault.lag(30), resource="widgets", watch=True)
    await bench.cluster.create(widget())
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(10)
        assert seen == [0, 1, 2, 3]


async def test_an_object_that_is_being_deleted_is_left_alone(bench: Bench, autojump_clock: MockClock) -> None:
    calls = Calls(bench, owns=["configmaps"])
    parent = widget()
    parent["metadata"]["finalizers"] = ["example.com/other"]
    await bench.cluster.create(parent)
    async with bench.running():
        await settle(1)
        calls.take()
        await bench.cluster.delete("widgets", "w")
        await bench.cluster.patch("widgets", "w", {"metadata": {"labels": {"a": "b"}}})
        await settle(60)
        assert calls.take() == 0


async def test_many_changes_at_once_are_few_calls(bench: Bench, autojump_clock: MockClock) -> None:
    active, most, calls = 0, 0, 0

    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile() -> list[dict[str, Any]]:
        nonlocal active, most, calls
        active, calls = active + 1, calls + 1
        most = max(most, active)
        await trio.sleep(5)
        active -= 1
        return [config_map(f"c{number}") for number in range(10)]

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(20)
        calls = 0
        for number in range(10):
            await bench.cluster.delete("configmaps", f"c{number}")
            await bench.cluster.patch("widgets", "w", {"spec": {"size": number}})
        await settle(60)
        assert len(await names_of(bench.cluster)) == 10
    assert most == 1
    assert calls <= 3


async def test_it_is_called_again_after_the_resync(bench: Bench, autojump_clock: MockClock) -> None:
    calls = Calls(bench, resync=100)
    await bench.cluster.create(widget())
    async with bench.running():
        bench.cluster.requests.clear()
        await settle(1000)
    assert 10 <= len(calls.times) <= 12
    assert all(90 <= delay <= 100 for delay in calls.delays)
    assert requests_of(bench) == []


@pytest.mark.parametrize("form", ["raise", "return", "yield", "list"])
async def test_it_is_called_again_after_a_requeue(bench: Bench, autojump_clock: MockClock, form: str) -> None:
    times: list[float] = []

    async def raises() -> None:
        times.append(trio.current_time())
        raise trioperator.Requeue(after=10)

    async def returns() -> trioperator.Requeue:
        times.append(trio.current_time())
        return trioperator.Requeue(after=10)

    async def yields() -> AsyncIterator[Any]:
        times.append(trio.current_time())
        yield config_map("one")
        yield trioperator.Requeue(after=10)

    def lists() -> Iterator[Any]:
        yield [config_map("one"), trioperator.Requeue(after=10)]

    fns = {"raise": raises, "return": returns, "yield": yields, "list": lists}
    on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)(fns[form])
    await bench.cluster.create(widget())
    async with bench.running():
        await settle(35)
        assert await names_of(bench.cluster) == ([] if form in ("raise", "return") else ["one"])
    if form != "list":
        rounded = [round(later - earlier, 3) for earlier, later in itertools.pairwise(times)]
        assert [delay for delay in rounded if delay] == [10, 10, 10]


async def test_errors_are_tried_again_with_a_growing_backoff(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls(bench)
    calls.fail = [RuntimeError("boom")] * 5
    await bench.cluster.create(widget())
    async with bench.running():
        await settle(3600)
    assert calls.delays == [0.1, 0.2, 0.4, 0.8, 1.6]
    assert "will try again in 0.1 seconds: RuntimeError: boom" in caplog.text


@pytest.mark.parametrize(
    ("options", "error", "delays"),
    [
        ({"backoff": 7}, lambda: RuntimeError("boom"), [7, 7]),
        ({}, lambda: trioperator.TemporaryError("wait", delay=30), [30, 30]),
        ({"retries": 2}, lambda: RuntimeError("boom"), [0.1]),
        ({}, lambda: trioperator.PermanentError("never"), []),
        ({"errors": trioperator.ErrorsMode.IGNORED}, lambda: RuntimeError("boom"), []),
    ],
)
async def test_the_options_of_retries_apply_to_errors_in_a_row(
    bench: Bench,
    autojump_clock: MockClock,
    options: dict[str, Any],
    error: Callable[[], Exception],
    delays: list[float],
) -> None:
    calls = Calls(bench, **options)
    calls.fail = [error(), error()]
    await bench.cluster.create(widget())
    async with bench.running():
        await settle(3600)
        assert calls.delays == delays
        calls.take()
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(3600)
        assert calls.take() >= 1, "a change is a new reason"


async def test_an_ignored_error_leaves_the_children_as_they_are(bench: Bench, autojump_clock: MockClock) -> None:
    ignored = trioperator.ErrorsMode.IGNORED

    @on.reconcile("widgets", owns=["configmaps"], errors=ignored, registry=bench.registry)
    def reconcile(spec: Mapping[str, Any]) -> Any:
        if spec["size"] == 2:
            raise RuntimeError("boom")
        yield config_map("one")

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1)
        assert await names_of(bench.cluster) == ["one"]


async def test_filters_decide_for_which_objects_it_is_called(bench: Bench, autojump_clock: MockClock) -> None:
    calls = Calls(bench, labels={"tier": "gold"})
    await bench.cluster.create(widget())
    async with bench.running():
        await settle(1)
        assert calls.take() == 0
        await bench.cluster.patch("widgets", "w", {"metadata": {"labels": {"tier": "gold"}}})
        await settle(1)
        assert calls.take() == 1


async def test_it_lives_next_to_change_handlers_daemons_and_timers(bench: Bench, autojump_clock: MockClock) -> None:
    seen: list[str] = []
    calls = Calls(bench, owns=["configmaps"], resync=60)

    @on.create("widgets", registry=bench.registry)
    async def created(retry: int) -> str:
        seen.append("create")
        if not retry:
            raise trioperator.TemporaryError("wait", delay=200)
        return "created"

    @on.update("widgets", registry=bench.registry)
    async def updated() -> None:
        seen.append("update")

    @on.delete("widgets", registry=bench.registry)
    async def deleted() -> None:
        seen.append("delete")

    @on.daemon("widgets", registry=bench.registry)
    async def daemon(stopped: Any) -> None:
        seen.append("daemon")
        await stopped.wait()

    @on.timer("widgets", interval=100, registry=bench.registry)
    async def timer(patch: trioperator.Patch) -> None:
        patch.status["ticks"] = len(seen)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(150)
        assert calls.take() >= 2, "it does not wait for other handlers"
        await settle(150)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1)
        await bench.cluster.delete("widgets", "w")
        await settle(10)
        assert await bench.cluster.find("widgets", "w") is None
    assert [each for each in seen if each != "daemon"] == ["create", "create", "update", "delete"]
    assert seen.count("daemon") == 1


async def test_a_handler_in_a_thread_works_too(bench: Bench, autojump_clock: MockClock) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    def reconcile(name: str) -> Iterator[dict[str, Any]]:
        yield config_map(f"{name}-1")
        yield config_map(f"{name}-2")

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(1)
    assert await names_of(bench.cluster) == ["w-1", "w-2"]


async def test_several_handlers_of_an_object_keep_each_others_children(bench: Bench, autojump_clock: MockClock) -> None:
    for part in ("one", "two"):

        @on.reconcile("widgets", owns=["configmaps"], id=part, param=part, registry=bench.registry)
        async def reconcile(param: str) -> dict[str, Any]:
            return config_map(param)

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(10)
        assert await names_of(bench.cluster) == ["one", "two"]
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(10)
        assert await names_of(bench.cluster) == ["one", "two"]


async def test_nothing_is_called_on_standby(bench: Bench, autojump_clock: MockClock) -> None:
    calls = Calls(bench, owns=["configmaps"])
    lease = {"holderIdentity": "other", "leaseDurationSeconds": 15, "renewTime": "2999-01-01T00:00:00.000000Z"}
    await bench.cluster.create(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "trioperator", "namespace": "default"},
            "spec": {"acquireTime": "2026-01-01T00:00:00.000000Z", "leaseTransitions": 1, **lease},
        }
    )
    bench.settings.leadership.enabled = True
    bench.settings.leadership.namespace = "default"
    parent = await bench.cluster.create(widget())
    child = config_map("one")
    trioperator.append_owner_reference(child, parent)
    async with bench.running():
        await settle(5)
        await bench.cluster.create(child)
        await bench.cluster.delete("configmaps", "one")
        await settle(5)
        assert calls.take() == 0
        await settle(30)
        assert calls.take() == 1, "the other has not renewed its lease"


async def test_children_are_watched_after_their_owner_has_got_another_version_during_a_call(
    bench: Bench, autojump_clock: MockClock
) -> None:
    @on.reconcile("widgets", owns=["configmaps"], resync=10_000, registry=bench.registry)
    async def reconcile(name: str) -> Any:
        await trio.sleep(5)
        return config_map(name)

    async with bench.running():
        await bench.cluster.create(widget("w"))
        await settle(1)
        await serve(bench, "v1", "v2")
        await settle(30)
        await bench.cluster.delete("configmaps", "w")
        await settle(30)
        assert await names_of(bench.cluster) == ["w"]


@pytest.mark.parametrize("manager", ["", "ours"])
async def test_handlers_of_several_versions_of_a_kind_keep_each_others_children(
    manager: str, bench: Bench, autojump_clock: MockClock
) -> None:
    if manager:
        bench.settings.persistence.field_manager = manager

    def declare(version: str) -> None:
        @on.reconcile(
            "example.com", version, "widgets", owns=["configmaps"], registry=bench.registry, id=f"handle-{version}"
        )
        async def handle() -> Any:
            return config_map(version)

    declare("v1")
    declare("v2")
    await serve(bench, "v1", "v2")
    async with bench.running():
        await bench.cluster.create(widget("w"))
        await settle(10)
        for name in ("v1", "v2"):
            await bench.cluster.delete("configmaps", name)
            await settle(30)
            assert await names_of(bench.cluster) == ["v1", "v2"]
        assert not [request for request in requests_of(bench) if request.startswith("delete")]
