"""Tests for :mod:`trioperator._telemetry.instruments`: what they count, and what they change, which is nothing."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.handling.factory import WIDGETS, handler
from tests.runtime.conftest import CRD, Bench, settle, widget
from tests.runtime.harness import make_state
from trioperator._concurrency.clock import steady_now
from trioperator._handling.calls.invoke import Attempt
from trioperator._handling.calls.thread_limiter import ThreadLimiter
from trioperator._logs import get_logger
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.result import AGAIN, DONE, RequeueAt, Result
from trioperator._runtime.workqueue import Lane
from trioperator._telemetry.instruments import Instruments, ReconcileCounter
from trioperator.apiserver import Cluster

on = trioperator.on


class Retrying:
    """A reconciler that is going to try again for some objects."""

    def __init__(self) -> None:
        self.states: set[ObjectState] = set()

    def has_failed(self, state: ObjectState) -> bool:
        return False

    def is_retrying(self, state: ObjectState) -> bool:
        return state in self.states


@pytest.fixture
async def bench(cluster: Cluster) -> Bench:
    await cluster.apply(CRD)
    settings = trioperator.OperatorSettings()
    settings.networking.error_backoffs = ()
    return Bench(cluster, trioperator.OperatorRegistry(), settings)


async def test_subhandlers_are_counted_with_their_parents() -> None:
    instruments = Instruments(["parent", "parent/spec.field"])
    registry = trioperator.OperatorRegistry()
    names = ["parent", "parent/spec.field", "parent/child", "parent/spec.field/a/b", "other/x"]
    for name in names:

        @on.create("widgets", id=name, registry=registry)
        async def handle(**_: Any) -> None: ...

    found = [instruments.name_handler(handler) for handler in registry.resource_handlers()]
    assert found == ["parent", "parent/spec.field", "parent", "parent/spec.field", "other"]


async def test_a_cancelled_call_is_counted_and_stays_cancelled(autojump_clock: MockClock) -> None:
    async def wait(**_: Any) -> None:
        await trio.sleep_forever()

    instruments = Instruments(["wait"])
    invoker = instruments.make_invoker(limiter=ThreadLimiter(1), backoff=1, running={}).with_limiter(ThreadLimiter(2))
    attempt = Attempt(0, steady_now(), kind=WIDGETS)
    with trio.move_on_after(2) as scope:
        await invoker.invoke(handler(wait, id="wait"), {}, attempt=attempt, logger=get_logger("tests"))
    assert scope.cancelled_caught
    instruments.fold()
    calls = instruments.statistics.calls["widgets.example.com", "wait"]
    assert +calls.results == {"cancelled": 1}
    assert calls.seconds.sum == 2


async def test_only_the_first_lane_of_an_object_and_the_end_of_its_reconcile_are_counted(
    autojump_clock: MockClock,
) -> None:
    instruments = Instruments([])
    state = make_state(widget())
    counter = ReconcileCounter(instruments, Retrying())
    counter.queued(state, Lane.INITIAL)
    await trio.sleep(1)
    counter.queued(state, Lane.FRESH)  # now in a more urgent lane
    await trio.sleep(2)
    for result in (AGAIN, DONE, None):  # None: it is cancelled
        counter.began(state)
        assert state in instruments.statistics.at_work
        await trio.sleep(4)
        counter.ended(state, result)
    counter.requeued(state)
    instruments.fold()
    kind = instruments.statistics.kinds["widgets.example.com"]
    assert (kind.adds, kind.retries) == (1, 1)
    assert kind.results == {"success": 1, "error": 0, "requeue": 1, "requeue_after": 0}
    assert kind.queue_seconds.sum == 3
    assert kind.reconcile_seconds.sum == 12
    assert not instruments.statistics.queued
    assert not instruments.statistics.at_work


async def test_a_change_is_done_when_nothing_is_to_be_tried_again_and_lists_and_schedules_are_no_changes(
    autojump_clock: MockClock,
) -> None:
    instruments, retrying = Instruments([]), Retrying()
    counter = ReconcileCounter(instruments, retrying)
    done, failing, listed = (make_state(widget(name)) for name in "abc")

    async def reconcile(state: ObjectState, result: Result = DONE, *, lane: Lane = Lane.FRESH) -> None:
        counter.queued(state, lane)
        await trio.sleep(1)
        counter.began(state)
        counter.ended(state, result)

    await reconcile(done, RequeueAt(trio.current_time() + 10))
    await trio.sleep(10)
    await reconcile(done)  # by its schedule
    await reconcile(listed, lane=Lane.INITIAL)
    retrying.states = {failing}
    for _ in range(5):
        await reconcile(failing)
    assert set(instruments.statistics.pending) == {failing}
    retrying.states = set()
    await reconcile(failing)
    instruments.fold()
    kind = instruments.statistics.kinds["widgets.example.com"]
    assert (sum(kind.done_seconds.counts), kind.done_seconds.sum) == (2, 1 + 6)
    assert not instruments.statistics.pending


async def test_operators_with_metrics_do_the_same_in_as_many_frames(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    depths: list[int] = []
    stopped: list[str] = []

    @on.create("widgets", registry=bench.registry)
    async def create(**_: Any) -> None:
        depths.append(sum("trioperator" in frame.filename for frame in traceback.extract_stack()))

    @on.daemon("widgets", cancellation_timeout=1, registry=bench.registry)
    async def wait(**_: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            stopped.append("cancelled")

    requests: list[list[str]] = []
    for number, url in enumerate((None, "http://127.0.0.1:0/metrics")):
        bench.cluster.requests.clear()
        async with bench.running(metrics_endpoint=url):
            await bench.cluster.create(widget(f"w{number}"))
            await settle(5)
            requests.append(bench.writes())
            await bench.cluster.delete("widgets", f"w{number}")
            await settle(5)
    assert requests[0] == requests[1]
    assert depths[1] == depths[0]
    assert stopped == ["cancelled"] * 2
