"""The section of docs/day-two.md on fields that others change back, followed."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock

import trioperator
from tests.docs.pages import ROOT
from tests.runtime.databases import CRD, database
from tests.runtime.patching.test_contention_guard import fighting, stomp_label
from trioperator.apiserver import Cluster
from trioperator.testing import OperatorRunner

PAGE = (ROOT / "docs" / "day-two.md").read_text()
SECTION = PAGE.split("## When others change it back")[1].split("\n## ")[0]


async def test_the_section_shows_what_such_an_operator_says(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    @trioperator.on.event("databases")
    async def insist(patch: trioperator.Patch, **_: Any) -> None:
        patch.metadata.labels["team"] = "ours"

    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database())
    async with fighting(cluster, "stomper", stomp_label):
        await trio.sleep(10)
    [warning] = operator.logs.select(level="WARNING")
    assert str(warning) in SECTION
    [event] = [each for each in await operator.list_events("orders") if each["reason"] == "Contended"]
    assert (event["type"], event["message"]) == ("Warning", str(warning))
    [contended] = operator.why("orders").contended
    assert contended in SECTION
    assert str(operator.why("orders")).splitlines()[1] == contended
