"""Objects with handlers in handlers: one for each item, one after another or all at once, and handlers of fields."""

# The framework is a module that the plan chooses.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import functools
import random
from typing import TYPE_CHECKING, Any

import anyio

import trioperator
from tests.lives.parts.base import Part

if TYPE_CHECKING:
    from tests.lives.operators import Operator

_ITEMS = ("a", "b", "c")


class Nested(Part):
    """Orders."""

    kind, plural = "Order", "orders"
    first = "o0"

    @classmethod
    def draw(cls, rng: random.Random, troubles: frozenset[str]) -> dict[str, Any]:
        count = rng.choice([1, 2, 3])
        return {
            "objects": {f"o{number}": {"serial": "0", "items": _draw_items(rng)} for number in range(count)},
            "early": rng.random() < 0.5,
            "deleting": rng.random() < 0.5,
            "way": rng.choice(["left", "executed", "at once"]),
            "on_change": rng.choice(["finish", "cancel"]),
        }

    @classmethod
    def draw_deed(cls, rng: random.Random, options: dict[str, Any], number: int) -> tuple[str, tuple[Any, ...]]:
        name = rng.choice(sorted(options["objects"]))
        deed = rng.choice(["edit", "edit", "edit", "create", "delete"])
        spec = {"serial": str(number), "items": _draw_items(rng)}
        return f"orders.{deed}", (name, spec) if deed == "edit" else (name,)

    def declare(self, registry: trioperator.OperatorRegistry, operator: Operator) -> None:
        who, on = operator.name, self.framework.on
        self._declare_items(registry, who)

        @on.field("orders", id="follow", field="spec.serial", registry=registry, backoff=3)
        async def follow(old: Any, new: Any, meta: Any, retry: int, **_: Any) -> None:
            with self.life.call(who, "follow", meta, seen=new, group="orders"):
                if old == new:
                    self.find("no change", f"the serial of {meta['name']} was {old} before, too")
                await self.work(retry)

        if self.options["deleting"]:

            @on.delete("orders", id="remove", registry=registry, backoff=3)
            async def remove(spec: Any, meta: Any, **_: Any) -> None:
                with self.life.call(who, "remove", meta, group="remove orders"):
                    await self._do_items("removed", who, spec, meta)

    def _declare_items(self, registry: trioperator.OperatorRegistry, who: str) -> None:
        on, on_change = self.framework.on, self.options["on_change"]

        @on.create("orders", id="fill", registry=registry, backoff=3, on_change=on_change)
        @on.update("orders", id="fill", registry=registry, backoff=3, on_change=on_change)
        async def fill(spec: Any, meta: Any, **_: Any) -> None:
            with self.life.call(who, "fill", meta, seen=spec["serial"], group="fill orders"):
                await self._do_items("filled", who, spec, meta)

    async def _do_items(self, what: str, who: str, spec: Any, meta: Any) -> None:
        """Do the items, in the way of this life."""
        way = self.options["way"]
        fns = {item: functools.partial(self._do_item, f"{what} {item}", who, item) for item in spec["items"]}
        if way == "at once":
            async with anyio.create_task_group() as group:
                for item, fn in fns.items():
                    group.start_soon(functools.partial(self.framework.execute, fns={item: fn}))
            return
        for item, fn in fns.items():
            self.framework.register(fn, id=item, backoff=3)
        if way == "executed":
            await self.framework.execute()

    async def _do_item(self, what: str, who: str, item: str, spec: Any, meta: Any, retry: int, **_: Any) -> str:
        with self.life.call(who, what, meta, seen=spec["serial"], group=f"orders {item}"):
            await self.work(retry)
            return f"{item} of {spec['serial']}"

    async def settle(self) -> None:
        await self.settle_restored()

    async def check(self) -> None:
        for each in await self.objects():
            name, spec, status = each["metadata"]["name"], each["spec"], each.get("status") or {}
            for handler in ("follow", "fill", *(f"filled {item}" for item in spec["items"])):
                seen = self.life.journal.last_seen(handler, name)
                if seen != spec["serial"]:
                    self.find("not handled", f"{name} has the serial {spec['serial']}, and {handler} has seen {seen}")
            for item in spec["items"]:
                if (result := status.get(f"fill/{item}")) != f"{item} of {spec['serial']}":
                    self.find("lost write", f"the result for {item} of {name} is {result}: {spec}")


def _draw_items(rng: random.Random) -> list[str]:
    return sorted(rng.sample(_ITEMS, rng.choice([1, 2, 3])))
