"""Objects whose sync handlers wait in the operator's client, in threads."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import trioperator
from tests.lives.parts.base import Part
from tests.lives.world import configmap

if TYPE_CHECKING:
    from tests.lives.operators import Operator

on = trioperator.on


class Waiting(Part):
    """Waits."""

    kind, plural = "Wait", "waits"
    first = "x0"

    @classmethod
    def draw(cls, rng: random.Random, troubles: frozenset[str]) -> dict[str, Any]:
        return {"objects": {"x0": {"for": "right"}}, "early": rng.random() < 0.5, "watching": rng.random() < 0.3}

    @classmethod
    def draw_deed(cls, rng: random.Random, options: dict[str, Any], number: int) -> tuple[str, tuple[Any, ...]]:
        deed = rng.choice(["edit", "edit", "create"])
        return f"waits.{deed}", ("x0", {"for": rng.choice(["right", "typo"])}) if deed == "edit" else ("x0",)

    def declare(self, registry: trioperator.OperatorRegistry, operator: Operator) -> None:
        who = operator.name

        @on.create("waits", id="wait", registry=registry, backoff=3, on_change="cancel")
        @on.update("waits", id="wait", registry=registry, backoff=3, on_change="cancel")
        def wait(spec: Any, meta: Any, client: Any, **_: Any) -> None:
            with self.life.call(who, "wait", meta, seen=spec["for"], group="") as call:
                call.is_sync = True
                if self.options["watching"]:
                    with client.watch("configmaps") as events:
                        for event in events:
                            if event.object["metadata"]["name"] == spec["for"]:
                                return
                client.wait_for("configmaps", spec["for"], condition=lambda _: True)

    async def accompany(self) -> None:
        await self.life.cluster.create(configmap("right", {}), "default")

    async def settle(self) -> None:
        """Correct the typo, by a change that is no return to what was handled before: that would call nobody."""
        for each in await self.objects():
            await self.edit(each["metadata"]["name"], {"for": "right", "serial": "after all"})

    async def check(self) -> None:
        for each in await self.objects():
            seen = self.life.journal.last_seen("wait", each["metadata"]["name"])
            if seen != "right":
                self.find("not handled", f"{each['metadata']['name']} waits for what is there, and has seen {seen}")
