"""What all parts have."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import anyio

import trioperator
from tests.lives.world import manifest
from trioperator.testing.plans import RequestInfo

if TYPE_CHECKING:
    from tests.lives.life import Life
    from tests.lives.operators import Operator

#: Deeds with their arguments, to choose from.
Deeds: TypeAlias = list[tuple[str, tuple[Any, ...]]]


class Part:
    """A part of an operator. The options are drawn by :meth:`draw`. *first* is the name of an object of each life."""

    kind: ClassVar[str]
    plural: ClassVar[str]
    others: ClassVar[tuple[str, ...]] = ()
    first: ClassVar[str]

    def __init__(self, life: Life, options: dict[str, Any]) -> None:
        self.life = life
        self.options = options

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of its objects."""
        return (self.kind, *self.others)

    @classmethod
    def draw(cls, rng: random.Random, troubles: frozenset[str]) -> dict[str, Any]:
        """Return options."""
        raise NotImplementedError

    @classmethod
    def draw_deed(cls, rng: random.Random, options: dict[str, Any], number: int) -> tuple[str, tuple[Any, ...]]:
        """Return one deed of those who change its objects; the number is another one for each."""
        raise NotImplementedError

    def configure(self, settings: trioperator.OperatorSettings) -> None:
        """Change the settings of an operator that is about to start."""

    def declare(self, registry: trioperator.OperatorRegistry, operator: Operator) -> None:
        """Declare the handlers of an operator that is about to start."""
        raise NotImplementedError

    def namespace_of(self, name: str) -> str:
        """Return where an object is."""
        return "default"

    async def accompany(self) -> None:
        """Do what goes on beside the operator until the life ends."""

    async def settle(self) -> None:
        """Change what must be changed for the last time."""

    async def forget(self) -> None:
        """Forget what the cluster has forgotten."""

    async def check_write(self, operator: str, info: RequestInfo) -> None:
        """Look at a request that changes something before it is answered."""

    async def check(self) -> None:
        """Note in the journal what is wrong when all has settled."""
        raise NotImplementedError

    # What they have in common.

    @property
    def framework(self) -> Any:
        """The framework by which handlers are declared: on Trio, or on asyncio."""
        return self.life.framework

    def find(self, kind: str, text: str) -> None:
        """Note what should not be."""
        self.life.journal.find(kind, text)

    async def create(self, name: str) -> None:
        """Create one of its objects."""
        objects = self.options["objects"]
        spec = objects.get(name) or next(iter(objects.values()))
        await self.life.cluster.create(manifest(self.kind, name, spec, namespace=self.namespace_of(name)))

    async def delete(self, name: str) -> None:
        """Delete one of its objects."""
        self.life.journal.gone.add(name)
        await self.life.cluster.delete(self.plural, name, namespace=self._scope_of(name))

    async def edit(self, name: str, spec: dict[str, Any]) -> None:
        """Change the spec of an object."""
        await self.life.cluster.patch(self.plural, name, {"spec": spec}, self._scope_of(name))

    def _scope_of(self, name: str) -> str | None:
        return None if self.kind == "Tenant" else self.namespace_of(name)

    async def objects(self) -> list[dict[str, Any]]:
        """Return its objects that are not being deleted."""
        found = await self.life.cluster.list(self.plural)
        return [each for each in found if "deletionTimestamp" not in each["metadata"]]

    async def settle_restored(self) -> None:
        """Change all objects once more, as a restored cluster may have lost what handlers have seen."""
        if self.life.has("restore"):
            for each in await self.objects():
                await self.edit(each["metadata"]["name"], {"serial": "after all"})

    async def delete_all(self) -> None:
        """Delete its objects at the end of the life."""
        for each in await self.objects():
            self.life.journal.gone.add(each["metadata"]["name"])
            await self.life.cluster.delete(
                self.plural, each["metadata"]["name"], namespace=each["metadata"].get("namespace")
            )

    async def check_gone(self) -> None:
        """Note which of its objects are not gone."""
        for each in await self.life.cluster.list(self.plural):
            meta = each["metadata"]
            self.find("finalizer", f"{self.kind} {meta['name']} is not gone: {meta.get('finalizers')}")

    async def work(self, retry: int) -> None:
        """Take time as a handler, and fail sometimes."""
        rng = self.life.random
        await anyio.sleep(rng.choice([0, 0, 0.01, 0.1, 1, 4]))
        if rng.random() < (0.1 if self.life.is_peaceful else 0.25) and retry < 6:
            if rng.random() < 0.3:
                raise ValueError("something")
            raise trioperator.TemporaryError("not yet", delay=rng.choice([0, 0.05, 1, 5, 10]))
