"""The completion of causes: what is recorded, and whether the object is done or is looked at again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from tests.runtime.harness import LOGGER, Harness, open_harness
from trioperator._model.patch import Patch
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.reconciler.completion import Completion
from trioperator._runtime.reconciler.finalizers import Finalizers
from trioperator._runtime.result import AGAIN, DONE
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport


@pytest.fixture
async def harness(cluster: Cluster) -> AsyncIterator[Harness]:
    async with open_harness(cluster) as harness:
        yield harness


@pytest.fixture
def completion(harness: Harness) -> Completion:
    patcher, pending, progress = harness.patcher, harness.pending, harness.progress
    finalizers = Finalizers("example.com/f", patcher=patcher, pending=pending, progress=progress)
    return Completion(progress, patcher=patcher, pending=pending, finalizers=finalizers)


async def recorded(harness: Harness) -> str | None:
    return (await harness.annotations()).get("last-handled-configuration")


async def change_by_others(harness: Harness, **spec: Any) -> None:
    await harness.cluster.patch("widgets", "w", {"spec": spec})


async def begin(harness: Harness, state: ObjectState) -> None:
    harness.progress.begin(state, harness.detect(state).cause, state.cache.kind.handlers.changes)


async def test_a_cause_whose_response_shows_only_our_records_is_done(harness: Harness, completion: Completion) -> None:
    state = await harness.make("a", size=1)
    change = harness.detect(state)
    assert await completion.finish(state, change, []) is DONE
    assert await recorded(harness) == '{"spec":{"size":1}}\n'
    assert not state.initial


async def test_a_response_that_shows_a_change_by_others_is_reconciled_again(
    harness: Harness, completion: Completion
) -> None:
    state = await harness.make("a", size=1)
    change = harness.detect(state)
    await change_by_others(harness, size=2)
    assert await completion.finish(state, change, []) is AGAIN
    assert await recorded(harness) == '{"spec":{"size":1}}\n'  # that is what was handled


async def test_a_response_to_what_handlers_want_is_reconciled_again(harness: Harness, completion: Completion) -> None:
    state = await harness.make("a", size=1)
    change = harness.detect(state)
    harness.pending.contribute(state, {"spec": {"size": 2}}, [], by="Handler", logger=LOGGER)
    assert await completion.finish(state, change, []) is AGAIN


async def test_a_cause_that_is_out_of_date_by_a_response_to_the_saver_is_reconciled_again(
    harness: Harness, completion: Completion
) -> None:
    state = await harness.make("a", size=1)
    change = harness.detect(state)
    await harness.patcher.store(state, Patch({"metadata": {"annotations": {"example.com/x": "1"}}}), LOGGER)
    assert state.revision != change.revision
    assert await completion.finish(state, change, []) is AGAIN


async def test_nothing_to_handle_is_no_request(harness: Harness, completion: Completion) -> None:
    state = await harness.make("a", size=1)
    await completion.finish(state, harness.detect(state), [])
    patches = harness.patches
    assert await completion.settle(state, harness.detect(state)) is DONE
    assert harness.patches == patches


async def test_nothing_to_handle_stores_what_is_pending_and_is_reconciled_again(
    harness: Harness, completion: Completion
) -> None:
    state = await harness.make("a", size=1)
    await completion.finish(state, harness.detect(state), [])
    harness.pending.contribute(state, {"status": {"x": 1}}, [], by="Handler", logger=LOGGER)
    assert await completion.settle(state, harness.detect(state)) is AGAIN
    assert (await harness.get())["status"] == {"x": 1}


async def test_a_change_that_a_handler_has_seen_and_that_is_taken_back_is_recorded_to_be_found(
    harness: Harness, completion: Completion
) -> None:
    state = await harness.make("a", size=1)
    await completion.finish(state, harness.detect(state), [])
    await begin(harness, state)
    harness.progress.last_handled(state).see(b'{"spec":{"size":2}}')
    assert await completion.settle(state, harness.detect(state)) is AGAIN
    assert await recorded(harness) == '{"spec":{"size":2}}\n'


@pytest.mark.parametrize("fails", [False, True])
async def test_resuming_logs_nothing_beyond_the_success_of_each_handler(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    caplog.set_level("INFO")

    @trioperator.on.resume("widgets", id="resume", registry=bench.registry)
    async def resume(**_: Any) -> None:
        if fails:
            raise trioperator.PermanentError("never")

    await bench.cluster.create(widget())
    async with bench.running():  # the first time, it is created
        await settle(5)
    caplog.clear()
    async with bench.running():
        await settle(5)
    logged = [record.getMessage() for record in caplog.records if record.name == "trioperator.objects"]
    ended = ["Handler 'resume' failed permanently: never", "Resuming is processed: 0 succeeded; 1 failed."]
    assert logged == (ended if fails else ["Handler 'resume' succeeded."])


async def test_functions_with_the_same_id_are_counted_once(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for _ in range(2):

        @trioperator.on.create("widgets", id="create", registry=bench.registry)
        async def create(**_: Any) -> None: ...

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(5)
    assert "Creation is processed: 1 succeeded; 0 failed." in caplog.text


@pytest.mark.parametrize(("failing", "title"), [("create", "Creation"), ("delete", "Deletion")])
@pytest.mark.parametrize("status", [409, 422, 500])
async def test_the_end_of_a_cause_is_logged_once_however_often_it_has_to_be_stored(
    bench: Bench, failing: str, title: str, status: int, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    caplog.set_level("INFO")
    plan = FaultPlan()

    @trioperator.on.create("widgets", registry=bench.registry)
    @trioperator.on.delete("widgets", registry=bench.registry)
    async def work(reason: str, **_: Any) -> None:
        if reason == failing:
            plan.add(Fault.status(status), verb="patch", until=trio.current_time() + 60)

    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget())
        await settle(150)
        await bench.cluster.delete("widgets", "w")
        await settle(150)
        assert not await bench.cluster.list("widgets")
    assert caplog.text.count(f"{title} is processed: 1 succeeded; 0 failed.") == 1


@pytest.mark.parametrize("reason", ["create", "update"])
async def test_a_cause_that_another_operator_records_as_handled_is_reported(
    bench: Bench, reason: str, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    other, calls = trioperator.OperatorRegistry(), list[int]()

    @trioperator.on.create("widgets", registry=bench.registry)
    @trioperator.on.update("widgets", registry=bench.registry)
    async def work(retry: int, spec: Any, **_: Any) -> None:
        calls.append(retry)
        if spec["busy"]:
            raise trioperator.TemporaryError("not yet", delay=10)

    @trioperator.on.create("widgets", registry=other)
    @trioperator.on.update("widgets", registry=other)
    async def quick(**_: Any) -> None: ...

    async with bench.running():
        await bench.cluster.create(widget(busy=reason == "create"))
        await settle(5)
        if reason == "update":
            await bench.cluster.patch("widgets", "w", {"spec": {"busy": True}})
            await settle(5)
        calls.clear()
        async with bench.running(registry=other):
            await settle(60)
    assert not calls
    assert "is recorded as handled by somebody else, before test_a_cause" in caplog.text


async def test_a_change_that_is_taken_back_is_not_reported_as_handled_by_others(
    bench: Bench, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    @trioperator.on.update("widgets", registry=bench.registry)
    async def work(spec: Any, **_: Any) -> None:
        if spec["size"] == 2:
            raise trioperator.TemporaryError("not yet", delay=10)

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(5)
        for size in (2, 1, 2, 1):
            await bench.cluster.patch("widgets", "w", {"spec": {"size": size}})
            await settle(5)
    assert "by somebody else" not in caplog.text
