"""Who has changed which fields, by what both API servers record, in random histories of one object each."""

from __future__ import annotations

import functools
import os
import random
from typing import Any, Final

import msgspec
import trio

from tests.both.conftest import Body, Server
from tests.both.kinds import WIDGETS, manifest
from tests.model.test_contention import OTHERS, OWN, PATHS, Change, find_blamed
from trioperator._kube.api_client import MERGE_PATCH
from trioperator._model.fields import resolve

HISTORIES: Final = int(os.environ.get("TRIOPERATOR_SEEDS", "40"))
# How many go on at the same time.
AT_ONCE: Final = 100


class History:
    """An object, and who has changed which of its fields."""

    def __init__(self, server: Server, seed: int) -> None:
        self.server = server
        self.random = random.Random(seed)
        self.name = f"h{seed}"
        self.truth: list[Change] = []
        self.body: Body = {}

    async def play(self) -> int:
        """Let several writers interleave, of which some states are not seen; return how many changes are blamed."""
        choose, blamed, position = self.random, 0, 0
        known = await self.begin()
        for _ in range(choose.randrange(5, 30)):
            await trio.sleep(choose.choice([0, 0, 0, 0.1, 0.3, 1]))  # the times on record are whole seconds
            ours = choose.random() < 0.4
            values = {path: choose.choice(["1", "2", None]) for path in choose.sample(PATHS, choose.randint(1, 2))}
            await self.write(choose.choice([*OWN] if ours else OTHERS), values)
            answered = ours and choose.random() < 0.8  # else the response is lost, and the watch brings it
            if not answered and choose.random() < 0.4:
                continue  # the next watch event brings it
            since, position = self.truth[position:], len(self.truth)
            answers = values if answered else ()
            blamed += len(find_blamed(known, self.body, since, answered=answers, history=self.name))
            known = self.body
        return blamed

    async def begin(self) -> Body:
        """Create the object, with mappings that no removal leaves empty."""
        body = manifest(WIDGETS, self.name, fixed="1")
        body["metadata"] |= {"labels": {"fixed": "1"}, "annotations": {"fixed": "1"}}
        self.body = await self.server.create(WIDGETS, body)
        await self.write("kubectl-edit", {("status", "fixed"): "1"})
        self.truth.clear()
        return self.body

    async def write(self, manager: str, values: dict[tuple[str, ...], Any]) -> None:
        """Write fields as somebody, those of the status by themselves."""
        self.truth += [(path, manager) for path, value in values.items() if resolve(self.body, path) != value]
        for path, value in values.items():
            subresource = "/status" if path[0] == "status" else ""
            patch = functools.reduce(lambda inner, key: {key: inner}, reversed(path), value)
            where = WIDGETS.get_path(namespace=self.server.namespace, name=self.name)
            raw = await self.server.admin.request(
                "PATCH",
                f"{where}{subresource}",
                params={"fieldManager": manager},
                body=msgspec.json.encode(patch),
                content_type=MERGE_PATCH,
            )
            self.body = msgspec.json.decode(raw)


async def test_nobody_is_blamed_for_what_others_have_done(server: Server) -> None:
    blamed = list[int]()
    limit = trio.CapacityLimiter(AT_ONCE)

    async def play(seed: int) -> None:
        async with limit:
            blamed.append(await History(server, seed).play())

    async with trio.open_nursery() as nursery:
        for seed in range(HISTORIES):
            nursery.start_soon(play, seed)
    assert sum(blamed) > HISTORIES
