"""What those who may patch an object can do to its handling, and to nothing else: docs/security.md."""

from __future__ import annotations

import json
from typing import Any

import pytest
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget

on = trioperator.on
PREFIX = "trioperator.dev"


@pytest.fixture
def calls(bench: Bench) -> list[str]:
    """Add handlers, and return a list of their calls."""
    calls: list[str] = []

    @on.update("widgets", id="update", retries=3, registry=bench.registry)
    async def update(name: str, old: Any, **_: Any) -> None:
        calls.append(f"{name} {old['spec']['size']}")

    @on.delete("widgets", id="delete", registry=bench.registry)
    async def delete(name: str, **_: Any) -> None:
        calls.append(f"deleted {name}")

    return calls


async def patch(bench: Bench, annotations: dict[str, Any], size: int = 2) -> None:
    patch = {"metadata": {"annotations": annotations}, "spec": {"size": size}}
    await bench.cluster.patch("widgets", "tenant", patch)
    await bench.cluster.patch("widgets", "other", {"spec": {"size": 2}})
    await settle(30)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({}, ["other 1", "tenant 1"]),
        ({"success": True}, ["other 1"]),
        ({"failure": True}, ["other 1"]),
        ({"retries": 3}, ["other 1"]),
        ({"delayed": "9999-01-01T00:00:00+00:00"}, ["other 1"]),
        ({"delayed": 5, "retries": "many", "started": [], "subrefs": 7}, ["other 1", "tenant 1"]),
    ],
)
async def test_a_record_affects_the_handler_of_that_object_only(
    record: dict[str, Any], expected: list[str], bench: Bench, calls: list[str], autojump_clock: MockClock
) -> None:
    async with bench.running():
        for name in ("tenant", "other"):
            await bench.cluster.create(widget(name))
        await settle(30)
        await patch(bench, {f"{PREFIX}/update": json.dumps({"purpose": "update", **record})})
        assert sorted(calls) == expected


@pytest.mark.parametrize(("stored", "expected"), [(7, ["other 1", "tenant 7"]), (2, ["other 1"])])
async def test_the_last_handled_configuration_decides_what_has_changed(
    stored: int, expected: list[str], bench: Bench, calls: list[str], autojump_clock: MockClock
) -> None:
    async with bench.running():
        for name in ("tenant", "other"):
            await bench.cluster.create(widget(name))
        await settle(30)
        await patch(bench, {f"{PREFIX}/last-handled-configuration": json.dumps({"spec": {"size": stored}}) + "\n"})
        assert sorted(calls) == expected


async def test_without_the_finalizer_an_object_is_gone_before_its_delete_handlers_are_called(
    bench: Bench, calls: list[str], autojump_clock: MockClock
) -> None:
    async with bench.running():
        await bench.cluster.create(widget("tenant"))
        await settle(30)
    await bench.cluster.patch("widgets", "tenant", {"metadata": {"finalizers": None}})
    await bench.cluster.delete("widgets", "tenant")
    async with bench.running():
        await settle(30)
    assert calls == []
