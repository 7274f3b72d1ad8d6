"""Operators that watch a hundred kinds: an outage of the API server leads to no storm, no whole lists, few warnings."""

from __future__ import annotations

import collections
import copy
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, Bench, settle, widget
from trioperator.testing import Fault, FaultPlan, FaultyTransport

GROUP = "many.example.com"
KINDS = 100


class Network(httpx.AsyncBaseTransport):
    """A network that may be down: then requests fail, and watches that were open are broken."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self._scopes: set[trio.CancelScope] = set()
        self.is_down = False
        self.watches: list[float] = []
        self.lists: list[float] = []
        self.checks: list[float] = []  # of the version of a collection, by lists of one object

    def forget(self) -> None:
        self.watches.clear()
        self.lists.clear()
        self.checks.clear()

    def go_down(self) -> None:
        self.is_down = True
        for scope in self._scopes:
            scope.cancel()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if GROUP in request.url.path:
            is_watch, is_check = "watch" in request.url.params, request.url.params.get("limit") == "1"
            (self.watches if is_watch else self.checks if is_check else self.lists).append(trio.current_time())
        if self.is_down:
            raise httpx.ConnectError("refused", request=request)
        response = await self._inner.handle_async_request(request)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = Breakable(response.stream, self._scopes)
        return response


class Breakable(httpx.AsyncByteStream):
    """A stream that is read within scopes which others may cancel."""

    def __init__(self, inner: httpx.AsyncByteStream, scopes: set[trio.CancelScope]) -> None:
        self._inner = inner
        self._parts = inner.__aiter__()
        self._scopes = scopes

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                return await self._parts.__anext__()
            finally:
                self._scopes.remove(scope)
        raise httpx.ReadError("broken")

    async def aclose(self) -> None:
        await self._inner.aclose()


def crd(number: int) -> dict[str, Any]:
    made = copy.deepcopy(CRD)
    made["metadata"]["name"] = f"kind{number}s.{GROUP}"
    made["spec"]["group"] = GROUP
    made["spec"]["names"] = {"plural": f"kind{number}s", "singular": f"kind{number}", "kind": f"Kind{number}"}
    return made


def busiest(moments: list[float]) -> int:
    """Return the most requests in a second."""
    return max(collections.Counter(map(int, moments)).values(), default=0)


async def test_quiet_kinds_without_bookmarks_cost_few_requests_and_no_log_lines(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    trioperator.on.event(GROUP, "v1", trioperator.EVERYTHING, registry=bench.registry)(lambda **_: None)
    for number in range(KINDS):
        await bench.cluster.apply(crd(number))
    plan = FaultPlan()
    plan.add(Fault.silence(), watch=True)
    network = Network(FaultyTransport(bench.cluster.transport(), plan))
    async with bench.running(transport=network):
        await settle(300)
        caplog.clear()
        caplog.set_level(logging.INFO)
        network.forget()
        await settle(3600)
        assert len(network.watches) / 3600 <= 5 * KINDS / 300
        assert len(network.checks) <= 3600 / 150
        assert network.lists == []
        assert busiest(network.watches) <= KINDS / 5
    assert [record for record in caplog.records if "trioperator.supervisor" not in record.name] == []


@pytest.mark.parametrize("outage", [20, 200])
async def test_an_outage_is_followed_by_no_storm(
    outage: float, bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    seen: set[str] = set()

    @trioperator.on.event(GROUP, "v1", trioperator.EVERYTHING, registry=bench.registry)
    async def see(resource: trioperator.Resource, **_: Any) -> None:
        seen.add(resource.plural)

    for number in range(KINDS):
        await bench.cluster.apply(crd(number))
    plan = FaultPlan()
    network = Network(FaultyTransport(bench.cluster.transport(), plan))
    async with bench.running(transport=network):
        await settle(30)
        assert (len(network.lists), len(network.watches)) == (KINDS, KINDS)
        network.go_down()
        network.forget()
        began = trio.current_time()
        await settle(outage)
        assert busiest([moment for moment in network.watches if moment > began + 10]) <= KINDS / 2
        assert len(network.watches) / KINDS <= 7 + outage / 20
        assert 1 <= len([record for record in caplog.records if record.levelno >= logging.WARNING]) <= 10
        network.is_down = False
        network.forget()
        # While an API server starts, it has no watches yet.
        plan.add(Fault.status(429, retry_after=1), watch=True, until=trio.current_time() + 10)
        await settle(40)
        assert network.lists == []
        assert len(network.checks) == 1  # whether the server is the same
        assert KINDS <= len(network.watches) <= 4 * KINDS
        assert busiest(network.watches) <= KINDS / 2
        for number in range(KINDS):
            obj = {**widget(kind=f"Kind{number}"), "apiVersion": f"{GROUP}/v1"}
            await bench.cluster.create(obj)
        await settle(1)
        assert len(seen) == KINDS
