"""Tests for :mod:`trioperator._reconciling.recreating`: children that are replaced, as the strategies of kinds say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget

on = trioperator.on


def deployment(selector: str, replicas: int = 1) -> dict[str, Any]:
    labels = {"app": selector}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec}


class Strategies:
    """A handler whose child is a Deployment, with the selector and the replicas of the object."""

    def __init__(self, bench: Bench, strategy: Any) -> None:
        self.bench = bench
        owned = trioperator.Owned("deployments", strategy=strategy)

        @on.reconcile("widgets", owns=[owned], registry=bench.registry)
        async def reconcile(spec: Mapping[str, Any]) -> dict[str, Any]:
            return deployment(spec["selector"], spec.get("replicas", 1))

    async def change(self, **spec: Any) -> tuple[bool, dict[str, Any]]:
        """Change the object; return whether the child is another one after that, and its spec."""
        before = await self.bench.cluster.get("deployments", "w")
        await self.bench.cluster.patch("widgets", "w", {"spec": spec})
        await settle(10)
        after = await self.bench.cluster.get("deployments", "w")
        return after["metadata"]["uid"] != before["metadata"]["uid"], after["spec"]


@pytest.mark.parametrize(
    ("strategy", "scaled", "moved"),
    [
        ("in_place", (False, 2), (False, "a")),
        ("recreate", (False, 2), (True, "b")),
        ("on_delete", (False, 1), (False, "a")),
    ],
)
async def test_a_child_that_differs_is_changed_by_its_strategy(
    bench: Bench, autojump_clock: MockClock, strategy: str, scaled: tuple[bool, int], moved: tuple[bool, str]
) -> None:
    strategies = Strategies(bench, strategy)
    await bench.cluster.create(widget(selector="a"))
    async with bench.running():
        await settle(1)
        is_new, spec = await strategies.change(replicas=2)
        assert (is_new, spec["replicas"]) == scaled
        is_new, spec = await strategies.change(selector="b")
        assert (is_new, spec["selector"]["matchLabels"]["app"]) == moved
        await bench.cluster.delete("deployments", "w")
        await settle(10)
        child = await bench.cluster.get("deployments", "w")
        assert child["spec"]["selector"]["matchLabels"]["app"] == "b"


async def test_a_child_is_not_deleted_for_a_manifest_that_is_invalid_anyway(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    strategies = Strategies(bench, "recreate")
    await bench.cluster.create(widget(selector="a"))
    async with bench.running():
        await settle(1)
        is_new, spec = await strategies.change(replicas=-1)
        assert (is_new, spec["replicas"]) == (False, 1)
        assert "spec.replicas" in caplog.text


def test_there_are_four_strategies() -> None:
    with pytest.raises(ValueError, match="'recreate'"):
        trioperator.Owned("pods", strategy="canary")  # type: ignore[arg-type]
