"""Many objects whose handlers send requests of their own, which fill an operator's connections when they are slow."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import trioperator
from tests.lives.parts.base import Part
from tests.lives.world import configmap
from trioperator.errors import ConflictError

if TYPE_CHECKING:
    from tests.lives.operators import Operator

on = trioperator.on


class Tasks(Part):
    """Tasks."""

    kind, plural = "Task", "tasks"
    first = "t0"

    @classmethod
    def draw(cls, rng: random.Random, troubles: frozenset[str]) -> dict[str, Any]:
        number = rng.choice([5, 30, 40])
        return {
            "objects": {f"t{number}": {"serial": "0"} for number in range(number)},
            "early": rng.random() < 0.7,
            "threads": rng.random() < 0.5,
        }

    @classmethod
    def draw_deed(cls, rng: random.Random, options: dict[str, Any], number: int) -> tuple[str, tuple[Any, ...]]:
        deed = rng.choice(["edit", "edit_all", "create_all"])
        spec = {"serial": str(number)}
        return f"tasks.{deed}", {"edit": ("t0", spec), "edit_all": (spec,), "create_all": ()}[deed]

    async def edit_all(self, spec: dict[str, Any]) -> None:
        """Change all objects."""
        for each in await self.objects():
            await self.edit(each["metadata"]["name"], spec)

    async def create_all(self) -> None:
        """Create all objects that do not exist."""
        for name in self.options["objects"]:
            if await self.life.cluster.find(self.plural, name) is None:
                await self.create(name)

    def declare(self, registry: trioperator.OperatorRegistry, operator: Operator) -> None:
        who = operator.name

        async def do(spec: Any, meta: Any, client: Any, **_: Any) -> None:
            with self.life.call(who, "task", meta, seen=spec["serial"]):
                try:
                    await client.create(configmap(f"task-{meta['name']}-{spec['serial']}", {}))
                except ConflictError:
                    pass

        def do_in_thread(spec: Any, meta: Any, client: Any, **_: Any) -> None:
            with self.life.call(who, "task", meta, seen=spec["serial"], group="") as call:
                call.is_sync = True
                try:
                    client.create(configmap(f"task-{meta['name']}-{spec['serial']}", {}))
                except ConflictError:
                    pass

        handler = do_in_thread if self.options["threads"] else do
        for decorator in (on.create, on.update):
            decorator("tasks", id="task", registry=registry, backoff=3)(handler)

    async def check(self) -> None:
        for each in await self.objects():
            seen = self.life.journal.last_seen("task", each["metadata"]["name"])
            if seen != each["spec"]["serial"]:
                self.find(
                    "not handled", f"{each['metadata']['name']} has {each['spec']}, and the handler has seen {seen}"
                )
