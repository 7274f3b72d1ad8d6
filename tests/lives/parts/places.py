"""Objects in several namespaces, of which some come, go, or are forbidden."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, ClassVar

import trioperator
from tests.lives.parts.base import Part
from tests.lives.world import configmap, manifest

if TYPE_CHECKING:
    from tests.lives.operators import Operator

on = trioperator.on
NAMESPACES = ("team-a", "team-b")


class Places(Part):
    """Tenants, for which namespaces are made, and apps in several namespaces."""

    kind, plural = "Tenant", "tenants"
    first = "tenant-x"
    others: ClassVar[tuple[str, ...]] = ("Note",)

    @classmethod
    def draw(cls, rng: random.Random, troubles: frozenset[str]) -> dict[str, Any]:
        return {
            "objects": {f"tenant-{name}": {"v": 0} for name in "xy"[: rng.choice([1, 2])]},
            "early": rng.random() < 0.5,
            "making": rng.random() < 0.5,
        }

    @classmethod
    def draw_deed(cls, rng: random.Random, options: dict[str, Any], number: int) -> tuple[str, tuple[Any, ...]]:
        name = rng.choice(sorted(options["objects"]))
        match rng.choice(["create", "create", "edit", "note", "note", "open"]):
            case "edit":
                return "tenants.edit", (name, {"v": number})
            case "note":
                return "tenants.note", (rng.choice(NAMESPACES), number)
            case deed:
                return f"tenants.{deed}", (name,)

    async def open(self, name: str) -> None:
        """Make the namespace of a tenant, as an admin would."""
        await self.life.add_namespace(name)

    async def note(self, namespace: str, number: int) -> None:
        """Create or change a note in a namespace."""
        found = await self.life.cluster.find("namespaces", namespace)
        if found is not None and "deletionTimestamp" not in found["metadata"]:
            await self.life.cluster.apply(manifest("Note", f"note-{namespace}", {"v": number}, namespace=namespace))

    def declare(self, registry: trioperator.OperatorRegistry, operator: Operator) -> None:
        who = operator.name

        @on.reconcile("tenants", id="tenant", owns=["namespaces", "configmaps"], registry=registry)
        async def tenant(name: str, spec: Any, meta: Any, **_: Any) -> Any:
            with self.life.call(who, "tenant", meta, seen=dict(spec)):
                await self.work(0)
            made = [configmap("settings", {"v": str(spec["v"])}, namespace=name)]
            if self.options["making"]:
                made.insert(0, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            return made

        @on.reconcile("notes", id="note", owns=["configmaps"], registry=registry)
        async def note(spec: Any, meta: Any, **_: Any) -> Any:
            with self.life.call(who, "note", meta, seen=dict(spec)):
                await self.work(0)
            return [configmap("note", {"v": str(spec["v"])})]

    async def settle(self) -> None:
        """Make the namespaces that are missing, if nobody else does, and a note everywhere."""
        for each in await self.objects():
            name = each["metadata"]["name"]
            if not self.options["making"] and await self.life.cluster.find("namespaces", name) is None:
                await self.open(name)
        for namespace in NAMESPACES:
            await self.note(namespace, -1)

    async def check(self) -> None:
        # A cluster-scoped object may have children in namespaces of which nothing is known.
        for each in await self.objects() if not self.life.forbidden else ():
            await self._check_child("settings", each["metadata"]["name"], each["spec"])
        for each in await self.life.cluster.list("notes"):
            if each["metadata"]["namespace"] not in self.life.forbidden:
                await self._check_child("note", each["metadata"]["namespace"], each["spec"])

    async def _check_child(self, name: str, namespace: str, spec: dict[str, Any]) -> None:
        child = await self.life.cluster.find("configmaps", name, namespace=namespace)
        if child is None:
            self.find("missing child", f"{name} should exist in {namespace}")
        elif child["data"] != {"v": str(spec["v"])}:
            self.find("wrong child", f"{name} in {namespace} should have {spec}, and has {child['data']}")
