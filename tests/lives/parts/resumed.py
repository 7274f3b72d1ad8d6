"""Objects that are resumed after a start, by handlers that give up sometimes, with records in one place or another."""

# The framework is a module that the plan chooses.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import trioperator
from tests.lives.parts.base import Part

if TYPE_CHECKING:
    from tests.lives.operators import Operator

# Troubles by which what was done may not be known any more, or may have come too late to count.
_FORGETFUL = ("lease", "slow leases", "writes", "denials", "restore", "freeze", "pauses", "releases", "reads", "kinds")


class Resumed(Part):
    """Lamps."""

    kind, plural = "Lamp", "lamps"
    first = "l0"

    @classmethod
    def draw(cls, rng: random.Random, troubles: frozenset[str]) -> dict[str, Any]:
        return {
            "objects": {f"l{number}": {"serial": "0"} for number in range(rng.choice([1, 2, 3]))},
            "early": rng.random() < 0.7,
            "deleting": rng.random() < 0.5,
            "alike": rng.random() < 0.5,
            "retries": rng.choice([None, None, 1, 3]),
            "storage": rng.choice(["annotations", "status", "both"]),
        }

    @classmethod
    def draw_deed(cls, rng: random.Random, options: dict[str, Any], number: int) -> tuple[str, tuple[Any, ...]]:
        name = rng.choice(sorted(options["objects"]))
        deed = rng.choice(["edit", "edit", "create", "delete"])
        return f"lamps.{deed}", (name, {"serial": str(number)}) if deed == "edit" else (name,)

    def configure(self, settings: trioperator.OperatorSettings) -> None:
        status = trioperator.StatusProgressStorage(field="status.lives")
        annotations = trioperator.AnnotationsProgressStorage(prefix="lives.example.com")
        settings.persistence.progress_storage = {
            "annotations": annotations,
            "status": status,
            "both": trioperator.MultiProgressStorage([status, annotations]),
        }[self.options["storage"]]

    def declare(self, registry: trioperator.OperatorRegistry, operator: Operator) -> None:
        on, who, group = self.framework.on, operator.name, "changes of lamps"
        options: dict[str, Any] = {"registry": registry, "backoff": 3, "retries": self.options["retries"]}

        async def light(spec: Any, meta: Any, retry: int, **_: Any) -> None:
            await self._do("light", who, spec, meta, retry, group)

        async def look(spec: Any, meta: Any, retry: int, **_: Any) -> None:
            await self._do("look", who, spec, meta, retry, group)

        on.create("lamps", id="light", **options)(light)
        on.update("lamps", id="light", **options)(light)
        on.resume("lamps", id="light" if self.options["alike"] else "look", **options)(
            light if self.options["alike"] else look
        )
        if self.options["deleting"]:
            optional = bool(self.life.plan.options.get("optional"))
            on.delete("lamps", id="put_out", registry=registry, optional=optional)(_do_nothing)

    async def _do(self, what: str, who: str, spec: Any, meta: Any, retry: int, group: str) -> None:
        """Do the work of a handler; if it fails for good, it has seen the object all the same."""
        with self.life.call(who, what, meta, seen=spec["serial"], group=group) as call:
            if self.life.random.random() < 0.1:
                call.succeeded = True
                raise trioperator.PermanentError("it cannot be")
            try:
                await self.work(retry)
            except Exception:
                call.succeeded = retry + 1 == self.options["retries"]
                raise

    async def settle(self) -> None:
        await self.settle_restored()

    async def check(self) -> None:
        for each in await self.objects():
            name, uid, serial = each["metadata"]["name"], each["metadata"]["uid"], each["spec"]["serial"]
            if (seen := self.life.journal.last_seen("light", name, uid)) != serial:
                self.find("not handled", f"lamp {name} has the serial {serial}, and the handler has last seen {seen}")
            self._check_resumed(name, uid)

    def _check_resumed(self, name: str, uid: str) -> None:
        """Make sure that each start has resumed the object once, if it was there before."""
        calls = [call for call in self.life.journal.calls if call.uid == uid and call.succeeded]
        first = min(call.started for call in calls)
        for operator in self.life.operators.values():
            mine = [call for call in calls if (call.operator, call.run) == (operator.name, operator.runs)]
            if self.life.plan.together == "alone" and not mine and operator.started > first:
                self.find("not resumed", f"lamp {name} was there before {operator.name} was started")
        if self.life.has(*_FORGETFUL):
            return
        looks = [(call.operator, call.run) for call in calls if call.handler == "look"]
        for life in set(looks):
            if (number := looks.count(life)) > 1:
                self.find("resumed twice", f"{life[0]} resumes {name} {number} times in one life")


async def _do_nothing(**_: Any) -> None:
    pass
