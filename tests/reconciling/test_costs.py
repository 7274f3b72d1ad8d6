"""What reconcile handlers cost: requests for many parents, when they are created, and when nothing changes."""

from __future__ import annotations

import os
from typing import Any

from trio.testing import MockClock

import trioperator
from tests.reconciling.conftest import config_map
from tests.runtime.conftest import Bench, settle, widget
from trioperator import on

# With 1,000, it takes a minute: for those who measure.
PARENTS = int(os.environ.get("TRIOPERATOR_PARENTS", "30"))
CHILDREN = ("one", "two", "three")


async def test_parents_cost_what_is_written_and_nothing_when_all_is_as_desired(
    bench: Bench, autojump_clock: MockClock
) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile(
        name: str, conditions: trioperator.Conditions, patch: trioperator.Patch
    ) -> list[dict[str, Any]]:
        conditions.set("Ready", True, reason="Desired")
        patch.status["children"] = len(CHILDREN)
        return [config_map(f"{name}-{child}", parent=name) for child in CHILDREN]

    for number in range(PARENTS):
        await bench.cluster.create(widget(f"w{number}"))
    async with bench.running():
        await settle(60)
        requests = [(each.verb, each.resource, each.subresource) for each in bench.cluster.requests]
        writes = {each: requests.count(each) for each in {each for each in requests if each[0] == "patch"}}
        assert writes == {
            ("patch", "configmaps", ""): len(CHILDREN) * PARENTS,
            ("patch", "widgets.example.com", "status"): PARENTS,  # conditions and all
        }
        assert not {verb for verb, resource, _ in requests if resource} - {"patch", "list", "watch"}
        bench.cluster.requests.clear()
        await settle(3600)
        assert {each.verb for each in bench.cluster.requests} == {"watch"}, "no writes, and no reads"
