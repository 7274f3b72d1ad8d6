"""Somebody removes the last-handled configuration from an object, or puts an old one back."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget

on = trioperator.on
LAST = "trioperator.dev/last-handled-configuration"


@pytest.fixture
def calls(bench: Bench) -> list[tuple[str, int]]:
    """Declare two quick handlers of changes, and return the list to which they add what they have seen."""
    seen: list[tuple[str, int]] = []
    for name in ("first", "second"):

        @on.create("widgets", id=name, param=name, registry=bench.registry)
        @on.update("widgets", id=name, param=name, registry=bench.registry)
        async def handle(spec: trioperator.Spec, param: str, **_: object) -> None:
            await trio.sleep(0.02)
            seen.append((param, spec["size"]))

    return seen


async def test_a_change_between_two_handlers_reaches_both_though_the_record_is_removed(
    bench: Bench, calls: list[tuple[str, int]], autojump_clock: MockClock
) -> None:
    async with bench.running():
        await bench.cluster.create(widget(size=0))
        await settle(5)
        await bench.cluster.patch("widgets", "w", {"metadata": {"annotations": {LAST: None}}})
        await settle(5)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 1}})
        await trio.sleep(0.01)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1000)
    assert dict(calls) == {"first": 2, "second": 2}


async def test_an_old_record_that_is_put_back_is_handled_once(
    bench: Bench, calls: list[tuple[str, int]], autojump_clock: MockClock
) -> None:
    async with bench.running():
        await bench.cluster.create(widget(size=0))
        await settle(5)
        old = (await bench.cluster.get("widgets", "w"))["metadata"]["annotations"][LAST]
        await bench.cluster.patch("widgets", "w", {"metadata": {"annotations": {LAST: None}}})
        await settle(5)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 1}})
        await settle(5)
        calls.clear()
        await bench.cluster.patch("widgets", "w", {"metadata": {"annotations": {LAST: old}}})
        await settle(5)
        for number in range(5):
            await bench.cluster.patch("widgets", "w", {"status": {"others": number}}, subresource="status")
            await settle(5)
    assert calls == [("first", 1), ("second", 1)]
