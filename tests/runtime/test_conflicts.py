"""Functions of patches, where somebody else changes the object at the same time."""

from __future__ import annotations

import httpx
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget

on = trioperator.on


class Colliding(httpx.AsyncBaseTransport):
    """A transport with somebody else, who changes the object just before each conditional patch."""

    def __init__(self, bench: Bench, *, collisions: float) -> None:
        self._bench = bench
        self._inner = bench.cluster.transport()
        self._left = collisions
        self.attempts: list[float] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.headers.get("Content-Type") == "application/json-patch+json":
            self.attempts.append(trio.current_time())
            if self._left > 0:
                self._left -= 1
                await self._bench.cluster.patch("widgets", "w", {"spec": {"other": len(self.attempts)}})
        return await self._inner.handle_async_request(request)


@pytest.fixture
def appending(bench: Bench) -> Bench:
    """Declare a handler whose patch has a function."""

    def append(body: dict[str, object]) -> None:
        spec = body["spec"]
        assert isinstance(spec, dict)
        spec["list"] = [*spec.get("list", []), 1]

    @on.create("widgets", registry=bench.registry)
    async def created(patch: trioperator.Patch, **_: object) -> None:
        patch.fns.append(append)

    return bench


async def test_a_function_is_applied_once_after_a_few_conflicts(appending: Bench, autojump_clock: MockClock) -> None:
    transport = Colliding(appending, collisions=3)
    async with appending.running(transport=transport):
        await appending.cluster.create(widget())
        await settle(1)
    assert (await appending.cluster.get("widgets", "w"))["spec"]["list"] == [1]
    assert len(transport.attempts) == 4


async def test_conflicts_without_end_make_no_hot_loop_and_the_function_is_not_lost(
    appending: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    transport = Colliding(appending, collisions=25)
    began = trio.current_time()
    async with appending.running(transport=transport):
        await appending.cluster.create(widget())
        await settle(300)
    first_seconds = [time for time in transport.attempts if time - began < 2]
    assert len(first_seconds) <= 15
    assert "was changed 5 times in a row meanwhile" in caplog.text
    assert (await appending.cluster.get("widgets", "w"))["spec"]["list"] == [1]
