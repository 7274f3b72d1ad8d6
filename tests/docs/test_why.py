"""The section of docs/day-two.md on why an object was reconciled, followed."""

from __future__ import annotations

import re
from typing import Any

import trio
from trio.testing import MockClock

import trioperator
from tests.docs.pages import ROOT
from tests.runtime.databases import CRD, database
from trioperator.apiserver import Cluster
from trioperator.testing import OperatorRunner

SECTION = (ROOT / "docs" / "day-two.md").read_text().split("## Why an object was reconciled")[1].split("\n## ")[0]


async def test_the_section_shows_what_such_an_operator_says(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    @trioperator.on.create("databases", id="create")
    async def create(patch: trioperator.Patch, **_: Any) -> None:
        await trio.sleep(0.12)
        patch.status["phase"] = "Ready"

    @trioperator.on.update("databases", id="resize")
    async def resize(patch: trioperator.Patch, spec: trioperator.Spec, **_: Any) -> None:
        await trio.sleep(0.34)
        patch.status["size"] = spec["size"]

    @trioperator.timer("databases", id="probe", interval=10, initial_delay=49, idle=1)
    async def probe(**_: Any) -> None:
        await trio.sleep(0.004)

    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database(size=1))
    await trio.sleep(10)
    await cluster.patch("databases", "orders", {"spec": {"size": 2}})
    await trio.sleep(100)
    text = str(operator.why("orders"))
    shown = SECTION.split("database/orders\n")[1].split("```")[0]
    assert generalize(text) == generalize(shown)
    assert operator.why("orders").writes == int(re.findall(r"\.writes == (\d+)", SECTION)[0])


def generalize(text: str) -> list[str]:
    """Return the lines of a history without times, versions, and who has used which client."""
    masked = re.sub(r"\d\d\d\d-\d\d-\d\d \d\d:\d\d:\d\d|(?<=until )\d\d:\d\d:\d\d", "TIME", text.strip())
    masked = re.sub(r"(ADDED|MODIFIED) \d+|by \S+|\d+ times|\d+ ms", "…", masked)
    return masked.splitlines()
