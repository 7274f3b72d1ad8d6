"""The load generator: creates, changes and deletes objects over a connection of its own, without faults."""

from __future__ import annotations

import collections
import itertools
import random
from typing import Any

import trio

from tests.bench.objects import COLLECTION, build_object
from trioperator._kube.api_client import ApiClient
from trioperator.errors import ConflictError, NotFoundError


class Load:
    """Objects by number, each of them there or not.

    ``counts`` says what has been done. ``deleted`` are the uids of the objects that had a finalizer when they were
    deleted: somebody has to handle their deletion.
    """

    def __init__(self, client: ApiClient, *, objects: int, seed: int) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.deleted: set[str] = set()
        self._client = client
        self._objects = objects
        self._random = random.Random(seed)
        self._serials = itertools.count(1)
        self._present: set[int] = set()

    async def fill(self) -> None:
        """Create all objects."""
        numbers = iter(range(self._objects))

        async def work() -> None:
            for number in numbers:
                await self._create(number)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(work)

    async def run(self, rate: float) -> None:
        """Change something *rate* times a second, until cancelled."""
        while True:
            number = self._random.randrange(self._objects)
            if number not in self._present:
                await self._create(number)
            elif self._random.random() < 0.15:
                await self._delete(number)
            else:
                await self._change(number)
            await trio.sleep(self._random.expovariate(rate))

    async def list(self) -> list[Any]:
        """Return all objects."""
        items: list[Any] = (await self._client.get(COLLECTION))["items"]
        return items

    async def delete_all(self) -> None:
        """Delete all objects."""
        for number in sorted(self._present):
            await self._delete(number)

    async def _create(self, number: int) -> None:
        manifest = build_object(f"object-{number:05}")
        labels = {"daemon": self._random.choice(["yes", "no"]), "timer": "yes" if number % 20 == 0 else "no"}
        manifest["metadata"]["labels"] = labels
        manifest["spec"]["serial"] = next(self._serials)
        try:
            await self._client.post(COLLECTION, manifest)
        except ConflictError:
            self.counts["still there"] += 1  # the one before waits for its deletion to be handled
        else:
            self._present.add(number)
            self.counts["created"] += 1

    async def _change(self, number: int) -> None:
        patch: dict[str, Any] = {"spec": {"serial": next(self._serials)}}
        if self._random.random() < 0.2:
            patch["metadata"] = {"labels": {"daemon": self._random.choice(["yes", "no"])}}
        try:
            await self._client.patch(_path(number), patch)
        except NotFoundError:
            self._present.discard(number)
        else:
            self.counts["changed"] += 1

    async def _delete(self, number: int) -> None:
        self._present.discard(number)
        answer = await self._client.delete(_path(number))
        if answer["kind"] != "Status":  # it waits for its finalizers
            self.deleted.add(answer["metadata"]["uid"])
        self.counts["deleted"] += 1


def _path(number: int) -> str:
    return f"{COLLECTION}/object-{number:05}"
