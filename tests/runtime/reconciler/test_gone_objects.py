"""Objects that are gone: their optional delete handlers."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget

on = trioperator.on


async def test_an_optional_delete_handler_gets_the_last_state_and_is_retried_in_memory(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[tuple[int, int]] = []

    @on.delete("widgets", optional=True, registry=bench.registry)
    async def delete(spec: trioperator.Spec, retry: int, **_: Any) -> None:
        calls.append((spec["size"], retry))
        if not retry:
            raise trioperator.TemporaryError("later", delay=5)

    async with bench.running():
        await bench.cluster.create(widget(size=7))
        await settle(1)
        writes = len(bench.writes())
        await bench.cluster.delete("widgets", "w")
        await settle(1)
        assert calls == [(7, 0)]
        await settle(10)
        assert calls == [(7, 0), (7, 1)]
        assert len(bench.writes()) == writes


async def test_a_filter_that_fails_for_an_object_that_is_gone_is_reported_once_and_the_object_forgotten(
    bench: Bench, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    calls: list[str] = []

    def fails(status: trioperator.Status, **_: Any) -> bool:
        if "phase" not in status:
            raise ValueError("no phase")
        return True

    @on.delete("widgets", optional=True, when=fails, registry=bench.registry)
    async def clean(**_: Any) -> None:
        calls.append("clean")

    @on.delete("widgets", optional=True, registry=bench.registry)
    async def note(**_: Any) -> None:
        calls.append("note")

    async with bench.running():
        await bench.cluster.create(widget())
        await bench.cluster.patch("widgets", "w", {"status": {"phase": "Ready"}}, subresource="status")
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"status": {"phase": None}}, subresource="status")
        await bench.cluster.delete("widgets", "w")
        await settle(1)
        assert calls == ["note"]
        caplog.clear()
        await settle(3600)
    assert "no phase" not in caplog.text


async def test_an_optional_delete_handler_is_not_called_again_after_the_deletion_was_handled(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[str] = []

    @on.delete("widgets", id="optional", optional=True, registry=bench.registry)
    async def optional(**_: Any) -> None:
        calls.append("optional")

    @on.delete("widgets", id="mandatory", registry=bench.registry)
    async def mandatory(**_: Any) -> None:
        calls.append("mandatory")

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        await bench.cluster.delete("widgets", "w")
        await settle(1)
    assert sorted(calls) == ["mandatory", "optional"]


@pytest.mark.parametrize("by", ["others", "the operator"])
async def test_an_object_that_is_gone_before_its_delete_handler_has_finished_is_reported(
    by: str, bench: Bench, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    @on.delete("widgets", id="delete", registry=bench.registry)
    async def delete(retry: int, **_: Any) -> None:
        if retry < 2:
            raise trioperator.TemporaryError("later", delay=5)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        await bench.cluster.delete("widgets", "w")
        await settle(1)
        if by == "others":
            await bench.cluster.patch("widgets", "w", {"metadata": {"finalizers": None}})
        await settle(20)
        assert await bench.cluster.list("widgets") == []
    text = "The object is gone before Handler 'delete' has finished: somebody has removed the finalizer"
    assert (text in caplog.text) == (by == "others")
