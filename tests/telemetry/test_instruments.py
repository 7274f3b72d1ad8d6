"""Tests for :mod:`trioperator._telemetry.instruments`: what they count, and what they change, which is nothing."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, Bench, settle, widget
from trioperator._handling.calls.invoke import Attempt, RunningCall
from trioperator._handling.calls.thread_limiter import ThreadLimiter
from trioperator._telemetry.instruments import CountingInvoker, Instruments
from trioperator.apiserver import Cluster

on = trioperator.on


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


async def test_a_cancelled_call_is_counted_and_stays_cancelled(nursery: trio.Nursery) -> None:
    instruments = Instruments(["wait"])
    running: dict[Attempt, RunningCall] = {}
    invoker = instruments.make_invoker(limiter=ThreadLimiter(1), backoff=1, running=running)
    assert isinstance(invoker.with_limiter(ThreadLimiter(2)), CountingInvoker)
    assert invoker.with_limiter(ThreadLimiter(2)).running is running


async def test_operators_with_metrics_do_the_same_with_two_frames_more(
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
    assert depths[1] == depths[0] + 2
    assert stopped == ["cancelled"] * 2
