"""Objects whose children are of a custom kind, which is gone now and then."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, ClassVar

import trio

import trioperator
from tests.lives.parts.base import Part
from tests.lives.world import definition, manifest

if TYPE_CHECKING:
    from tests.lives.operators import Operator


class Trees(Part):
    """Trees with leaves."""

    kind, plural = "Tree", "trees"
    others: ClassVar[tuple[str, ...]] = ("Leaf",)
    first = "t0"

    @classmethod
    def draw(cls, rng: random.Random, troubles: frozenset[str]) -> dict[str, Any]:
        objects = {f"t{number}": {"n": rng.randrange(4), "v": "0"} for number in range(rng.choice([1, 2, 3]))}
        return {"objects": objects, "early": rng.random() < 0.6, "bodies": rng.random() < 0.5}

    @classmethod
    def draw_deed(cls, rng: random.Random, options: dict[str, Any], number: int) -> tuple[str, tuple[Any, ...]]:
        name = rng.choice(sorted(options["objects"]))
        match rng.choice(["edit", "edit", "create", "delete", "shed", "shed", "redefine"]):
            case "edit":
                return "trees.edit", (name, {"n": rng.randrange(4), "v": str(number)})
            case "shed":
                return "trees.shed", (rng.choice([0, 0.1, 3, 15]),)
            case "redefine":
                return "trees.redefine", (rng.choice([1, 2, 3]),)
            case deed:
                return f"trees.{deed}", (name,)

    async def shed(self, seconds: float) -> None:
        """Delete the kind of the children with all of them, and define it again a while after it is gone."""
        kind = ("customresourcedefinitions", definition("Leaf")["metadata"]["name"])
        self.life.stolen |= self.options["objects"].keys()  # what is to be tried again waits until the kind is back
        await self.life.cluster.delete(*kind)
        with trio.move_on_after(60):
            await self.life.cluster.wait_deleted(*kind, timeout=None)
        await trio.sleep(seconds)
        await self.redefine(1)

    async def redefine(self, versions: int) -> None:
        """Let the kind of the children have so many versions."""
        await self.life.cluster.apply(definition("Leaf", versions=versions))

    def declare(self, registry: trioperator.OperatorRegistry, operator: Operator) -> None:
        who, owned = operator.name, trioperator.Owned("leaves", bodies=self.options["bodies"])

        @trioperator.on.reconcile("trees", id="grow", owns=[owned], registry=registry)
        async def grow(name: str, spec: Any, meta: Any, **_: Any) -> Any:
            with self.life.call(who, "grow", meta, seen=dict(spec)):
                await trio.sleep(self.life.random.choice([0, 0, 0.01, 1, 3]))
                if self.life.random.random() < 0.1:
                    raise ValueError("something")
            return [manifest("Leaf", leaf, {"v": value}) for leaf, value in self._desired(name, spec).items()]

    def _desired(self, name: str, spec: Any) -> dict[str, str]:
        return {f"{name}-{number}": spec["v"] for number in range(spec["n"])}

    async def check(self) -> None:
        leaves = await self.life.cluster.list("leaves")
        for each in await self.objects():
            meta = each["metadata"]
            owned = [leaf for leaf in leaves if leaf["metadata"]["ownerReferences"][0]["uid"] == meta["uid"]]
            found = {leaf["metadata"]["name"]: leaf["spec"]["v"] for leaf in owned}
            if found != (wanted := self._desired(meta["name"], each["spec"])):
                kind = "missing child" if wanted.keys() - found.keys() else "wrong child"
                self.find(kind, f"{meta['name']} has the leaves {found}, and should have {wanted}")
