"""Tests for :mod:`trioperator._supervisor.intake`: what ends the watching of objects, and what comes then."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.coordination.peers import peering, peering_crd
from tests.runtime.conftest import CRD, Bench, settle, widget
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on


@pytest.fixture
async def bench(cluster: Cluster) -> Bench:
    await cluster.apply(CRD)
    return Bench(cluster, trioperator.OperatorRegistry(), trioperator.OperatorSettings())


async def test_a_kind_whose_list_hangs_does_not_block_others(bench: Bench, autojump_clock: MockClock) -> None:
    plan = FaultPlan()
    plan.add(Fault.stall(), path="/widgets")
    created: list[float] = []

    @on.create("widgets", id="never", registry=bench.registry)
    async def never(**_: Any) -> None:
        raise AssertionError

    @on.create("v1", "configmaps", id="soon", registry=bench.registry)
    async def soon(**_: Any) -> None:
        created.append(trio.current_time())

    began = trio.current_time()
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        assert trio.current_time() - began < 10
        await bench.cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}, "default")
        await settle(5)
        assert len(created) == 1


async def test_an_operator_that_fails_stops_handlers_and_daemons_in_order(
    bench: Bench, autojump_clock: MockClock
) -> None:
    class Broken(threading.Event):
        def set(self) -> None:
            raise RuntimeError("a flag of the user's that fails")

    ended: list[str] = []

    @on.create("widgets", registry=bench.registry)
    async def create(**_: Any) -> None:
        await trio.sleep(10)
        ended.append("handler")

    @trioperator.daemon("widgets", registry=bench.registry)
    async def watch(stopped: trioperator.DaemonStopped, **_: Any) -> None:
        await stopped.wait()
        ended.append("daemon")

    @on.cleanup(registry=bench.registry)
    async def clean(**_: Any) -> None:
        ended.append("cleanup")

    manifest = widget()
    manifest["metadata"]["finalizers"] = [bench.settings.persistence.finalizer]
    await bench.cluster.create(manifest)
    with pytest.RaisesGroup(RuntimeError, flatten_subgroups=True):
        async with bench.running(ready_flag=Broken()):
            await trio.sleep_forever()
    assert ended == ["daemon", "handler", "cleanup"]


class CountedWatch(httpx.AsyncByteStream):
    """Stream of a watch that is counted until it is closed."""

    def __init__(self, inner: httpx.AsyncByteStream, transport: CountingTransport) -> None:
        self._inner = inner
        self._transport = transport

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._inner)

    async def aclose(self) -> None:
        self._transport.watches -= 1
        await self._inner.aclose()


class CountingTransport(httpx.AsyncBaseTransport):
    """Transport that counts the watches of widgets that are open."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self.watches = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        if request.url.path.endswith("/widgets") and "watch" in request.url.params:
            assert isinstance(response.stream, httpx.AsyncByteStream)
            self.watches += 1
            response.stream = CountedWatch(response.stream, self)
        return response


async def test_a_pause_is_logged_when_no_more_objects_come_in(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @on.create("widgets", registry=bench.registry)
    async def create(**_: Any) -> None: ...

    await bench.cluster.apply(peering_crd())
    await bench.cluster.create(peering())
    transport = CountingTransport(bench.cluster.transport())
    open_watches: list[int] = []

    class Watching(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "Pausing operations" in record.getMessage():
                open_watches.append(transport.watches)

    caplog.set_level(logging.INFO)
    logger, handler = logging.getLogger("trioperator.supervisor"), Watching()
    logger.addHandler(handler)
    try:
        async with bench.running(transport=transport):
            assert transport.watches == 1
            async with bench.running(settings=preferred()):
                await settle(1)
    finally:
        logger.removeHandler(handler)
    assert open_watches == [0]


async def test_a_pause_that_ends_while_everything_is_listed_is_not_logged(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @on.create("widgets", registry=bench.registry)
    async def create(**_: Any) -> None: ...

    caplog.set_level(logging.INFO)
    bench.settings.peering.standalone = bench.settings.leadership.enabled = True
    plan = FaultPlan()
    plan.add(Fault.delay(before=1), resource="leases")
    plan.add(Fault.delay(before=4), resource="widgets")
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(1)
    messages = [record.getMessage() for record in caplog.records]
    assert "This operator is the leader" in caplog.text
    assert not [message for message in messages if "operations" in message]


def preferred() -> trioperator.OperatorSettings:
    """Return the settings of an operator that others pause for."""
    settings = trioperator.OperatorSettings()
    settings.peering.priority = 10
    return settings


async def test_after_a_pause_it_is_tried_again_to_start_while_the_api_server_cannot_be_reached(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    created: list[str] = []

    @on.create("widgets", registry=bench.registry)
    async def create(name: str, **_: Any) -> None:
        created.append(name)

    await bench.cluster.apply(peering_crd())
    await bench.cluster.create(peering())
    bench.settings.networking.error_backoffs = ()
    plan, other = FaultPlan(), trioperator.OperatorRegistry()
    on.event("configmaps", registry=other)(lambda **_: None)
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        plan.add(Fault.refuse(), path="/apis", verb="")
        async with bench.running(settings=preferred(), registry=other):
            await settle(1)
        await settle(2)
        plan.clear()
        await bench.cluster.create(widget())
        await settle(6)
        assert created == ["w"]
    assert "Starting again after a pause in 5 s, as it failed: " in caplog.text


async def test_an_operator_that_cannot_reach_the_api_server_does_not_start(
    bench: Bench, autojump_clock: MockClock
) -> None:
    @on.create("widgets", registry=bench.registry)
    async def create(**_: Any) -> None: ...

    bench.settings.networking.error_backoffs = ()
    bench.settings.peering.standalone = True
    plan = FaultPlan()
    plan.add(Fault.refuse(), path="/apis")
    with pytest.RaisesGroup(trioperator.ConnectionLostError, flatten_subgroups=True):
        async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
            raise AssertionError
