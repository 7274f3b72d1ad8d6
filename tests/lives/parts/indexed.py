"""Objects that are indexed, seen by event handlers, and looked up by handlers of another kind."""

# The framework is a module that the plan chooses.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, ClassVar

import trio

import trioperator
from tests.lives.parts.base import Part
from tests.lives.world import manifest

if TYPE_CHECKING:
    from tests.lives.operators import Operator

_GROUPS = ("red", "blue")
# Seconds until a handler that looks up the index has been called for the last time, in a life that is quiet.
_ANSWER = 30


class Indexed(Part):
    """Entries, and a query."""

    kind, plural = "Entry", "entries"
    others: ClassVar[tuple[str, ...]] = ("Query",)
    first = "e0"

    @classmethod
    def draw(cls, rng: random.Random, troubles: frozenset[str]) -> dict[str, Any]:
        return {
            "objects": {
                f"e{number}": {"serial": "0", "group": rng.choice(_GROUPS)} for number in range(rng.choice([1, 3]))
            },
            "early": rng.random() < 0.5,
            "deleting": rng.random() < 0.3,
            "filtered": rng.random() < 0.5,
            "failing": rng.random() < 0.5,
        }

    @classmethod
    def draw_deed(cls, rng: random.Random, options: dict[str, Any], number: int) -> tuple[str, tuple[Any, ...]]:
        name = rng.choice(sorted(options["objects"]))
        match rng.choice(["edit", "edit", "edit", "ask", "create", "delete"]):
            case "edit":
                spec = {"serial": str(number), "group": rng.choice(_GROUPS), "hidden": rng.random() < 0.3}
                return "entries.edit", (name, spec)
            case "ask":
                return "entries.ask", (str(number),)
            case deed:
                return f"entries.{deed}", (name,)

    async def ask(self, serial: str) -> None:
        """Let the handler of the query look up the index."""
        await self.life.cluster.apply(manifest("Query", "q0", {"serial": serial}))

    def declare(self, registry: trioperator.OperatorRegistry, operator: Operator) -> None:
        who, on = operator.name, self.framework.on
        options: dict[str, Any] = {"when": _is_shown} if self.options["filtered"] else {}

        @self.framework.index("entries", id="by_group", registry=registry, backoff=3, **options)
        async def by_group(spec: Any, name: str, retry: int, **_: Any) -> Any:
            if self.options["failing"] and retry < 6 and self.life.random.random() < 0.2:
                raise trioperator.TemporaryError("not yet", delay=self.life.random.choice([0.05, 1, 5, 10]))
            return {spec["group"]: (name, spec["serial"])}

        @on.event("entries", id="see", registry=registry)
        async def see(spec: Any, meta: Any, **_: Any) -> None:
            with self.life.call(who, "see", meta, seen=spec.get("serial")):
                pass

        @on.create("queries", id="ask", registry=registry, backoff=3)
        @on.update("queries", id="ask", registry=registry, backoff=3)
        async def ask(by_group: Any, meta: Any, spec: Any, **_: Any) -> None:
            found = {group: sorted(by_group[group]) for group in by_group}
            with self.life.call(who, "ask", meta, seen=(spec["serial"], found)):
                pass

        if self.options["deleting"]:

            @on.delete("entries", id="remove", registry=registry, backoff=3)
            async def remove(meta: Any, retry: int, **_: Any) -> None:
                with self.life.call(who, "remove", meta):
                    await self.work(retry)

    async def check(self) -> None:
        await self.ask("last")
        await trio.sleep(_ANSWER)
        wanted: dict[str, list[Any]] = {}
        for each in await self.objects():
            name, uid, spec = each["metadata"]["name"], each["metadata"]["uid"], each["spec"]
            if (seen := self.life.journal.last_seen("see", name, uid)) != spec["serial"]:
                self.find(
                    "not handled", f"{name} has the serial {spec['serial']}, and the event handler has seen {seen}"
                )
            if not self.options["filtered"] or _is_shown(spec):
                wanted.setdefault(spec["group"], []).append((name, spec["serial"]))
        self._check_answer({group: sorted(entries) for group, entries in wanted.items()})

    def _check_answer(self, wanted: dict[str, list[Any]]) -> None:
        seen = self.life.journal.last_seen("ask", "q0")
        if not isinstance(seen, tuple) or seen[0] != "last":
            self.find("not handled", f"the query has the serial last, and the handler has seen {seen}")
        elif seen[1] != wanted:
            self.find("stale index", f"the index has {seen[1]}, and the cluster {wanted}")

    async def delete_all(self) -> None:
        await super().delete_all()
        await self.life.cluster.delete("queries", "q0", namespace="default")


def _is_shown(spec: Any, **_: Any) -> bool:
    return not spec.get("hidden")
