"""Tests for :mod:`trioperator._reconciling.preparing`: what can be a child, and what it is completed by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from trio.testing import MockClock

import trioperator
from tests.reconciling.conftest import config_map, names_of
from tests.runtime.conftest import Bench, settle, widget

on = trioperator.on


@pytest.mark.parametrize(
    ("child", "message"),
    [
        ({"metadata": {"name": "x"}}, "without apiVersion or kind"),
        ({"apiVersion": "v1", "kind": "Secret"}, "which is not in owns="),
        ("text", "which is not a child"),
        ([config_map("x"), config_map("x")], "ConfigMap default/x twice"),
        (trioperator.Child(config_map("x"), depends_on=[trioperator.Child(config_map("y"))]), "has not returned"),
        (trioperator.Child(config_map("x"), ready=bool), "Owned(..., bodies=True)"),
        ({**config_map("x"), "metadata": {"name": "x", "namespace": "other"}}, "its children are in its own namespace"),
        ({**config_map("x"), "data": {"x": object()}}, "object"),
        ({**config_map("x"), "data": {"x": float("nan")}}, "data.x is nan, which is no number in JSON"),
        ([3], "which is not a child"),
    ],
)
async def test_what_cannot_be_a_child_is_an_error_that_waits_for_a_change(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, child: Any, message: str
) -> None:
    calls: list[int] = []

    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile(spec: Mapping[str, Any]) -> Any:
        calls.append(1)
        return child if spec["size"] == 1 else []

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(60)
        assert message in caplog.text
        assert len(calls) == 1
        assert await names_of(bench.cluster) == []
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(60)
    assert len(calls) == 2
