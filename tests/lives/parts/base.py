"""What all parts have."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import anyio
import trio

import trioperator
from tests.lives.world import manifest
from trioperator.errors import ApiError, ConfigError, ConflictError, NotFoundError
from trioperator.testing.plans import RequestInfo

if TYPE_CHECKING:
    from tests.lives.life import Life
    from tests.lives.operators import Operator

#: The finalizer of somebody else.
STRANGER: Final = "lives.example.com/stranger"
#: Deeds with their arguments, to choose from.
Deeds: TypeAlias = list[tuple[str, tuple[Any, ...]]]


class Part:
    """A part of an operator. The options are drawn by :meth:`draw`. *first* is the name of an object of each life."""

    kind: ClassVar[str]
    plural: ClassVar[str]
    others: ClassVar[tuple[str, ...]] = ()
    first: ClassVar[str]
    #: What all replicas write, whoever is the leader.
    shared: ClassVar[frozenset[str]] = frozenset()

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

    async def succeed(self, name: str) -> None:
        """Delete an object, and create another one of its name as soon as it is gone."""
        await self.delete(name)
        self.life.nursery.start_soon(self._create_when_gone, name)

    async def _create_when_gone(self, name: str) -> None:
        with trio.move_on_after(20), contextlib.suppress(ApiError, ConfigError):
            await self.life.cluster.wait_deleted(self.plural, name, namespace=self._scope_of(name), timeout=None)
            await self.create(name)

    async def hinder(self, name: str, seconds: float) -> None:
        """Let somebody else keep an object from going for a while, by a finalizer."""
        await self._set_stranger(name, is_there=True)
        self.life.nursery.start_soon(self._let_go, name, seconds)

    async def _let_go(self, name: str, seconds: float) -> None:
        await trio.sleep(seconds)
        await self._set_stranger(name, is_there=False)

    async def _set_stranger(self, name: str, *, is_there: bool) -> None:
        """Add the finalizer of somebody else to an object, or remove it, if that can be done."""
        with contextlib.suppress(NotFoundError, ConfigError):
            while True:
                body = await self.life.cluster.get(self.plural, name, namespace=self._scope_of(name))
                meta = body["metadata"]
                others = [each for each in meta.get("finalizers", ()) if each != STRANGER]
                wanted = [*others, STRANGER] if is_there and "deletionTimestamp" not in meta else others
                patch = {"metadata": {"resourceVersion": meta["resourceVersion"], "finalizers": wanted}}
                try:
                    await self.life.cluster.patch(self.plural, name, patch, self._scope_of(name))
                    return
                except ConflictError:
                    await trio.sleep(0.01)

    async def dismiss_strangers(self) -> None:
        """Remove what others have left on objects, as they came back by a restore."""
        for each in await self.life.cluster.list(self.plural):
            await self._set_stranger(each["metadata"]["name"], is_there=False)

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
