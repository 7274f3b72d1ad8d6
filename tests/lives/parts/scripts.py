"""A script that uses the client beside an operator: each of its calls does what it promises, once."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import trio

import trioperator
from tests.lives.network import Wire
from tests.lives.parts.base import Part
from tests.lives.world import configmap
from trioperator.errors import NotFoundError, TrioperatorError

if TYPE_CHECKING:
    from tests.lives.operators import Operator

_ERRORS = (TrioperatorError, TimeoutError)
# Seconds in which a call returns: a watch that went deaf after some retries is ended after about 75 seconds of silence.
_PATIENCE = 120


class Scripts(Part):
    """Notes, and what a script does with them."""

    kind, plural = "Note", "notes"
    first = "n0"

    def __init__(self, life: Any, options: dict[str, Any]) -> None:
        super().__init__(life, options)
        self.appended: dict[str, bool] = {}
        self.successors: dict[str, str] = {}

    @classmethod
    def draw(cls, rng: random.Random, troubles: frozenset[str]) -> dict[str, Any]:
        calls = ["append", "replace", "replace", "await_deletion", "look", "look", "await_condition"]
        return {
            "objects": {"n0": {"list": []}},
            "early": True,
            "calls": [rng.choice(calls) for _ in range(rng.choice([3, 6]))],
        }

    @classmethod
    def draw_deed(cls, rng: random.Random, options: dict[str, Any], number: int) -> tuple[str, tuple[Any, ...]]:
        return "notes.edit", ("n0", {"serial": str(number)})

    def declare(self, registry: trioperator.OperatorRegistry, operator: Operator) -> None:
        @trioperator.on.event("notes", id="event", registry=registry)
        async def event(**_: Any) -> None:
            pass

    async def accompany(self) -> None:
        """Run the script."""
        life = self.life
        settings = trioperator.OperatorSettings()
        settings.networking.error_backoffs = (1, 2)
        settings.networking.request_timeout = 10
        settings.watching.page_size = 2 if len(self.options["calls"]) > 3 else 500
        is_direct = life.plan.options["client_network"] == "connections" and not life.has("writes", "watches", "reads")
        async with trioperator.open_client(
            connection=trioperator.ConnectionInfo(server="http://client"),
            transport=None if is_direct else Wire(life, "client", life.faults["client"]),
            settings=settings,
        ) as client:
            for number, call in enumerate(self.options["calls"]):
                begun = trio.current_time()
                with trio.move_on_after(150) as scope:
                    try:
                        await getattr(self, f"_{call}")(client, number)
                    except trio.TooSlowError:
                        self.find("client hangs", f"{call} has not returned since {begun:.3f}")
                    except _ERRORS as error:
                        is_right = isinstance(error, NotFoundError) and call == "append" and self._is_gone()
                        if not (is_right or life.has("writes", "watches", "reads")):
                            self.find("client", f"{call} raises {error!r}")
                if scope.cancelled_caught:
                    self.find("client hangs", f"{call} has not returned since {begun:.3f}")
                await trio.sleep(life.random.choice([0, 1, 5]))

    def _is_gone(self) -> bool:
        """Return whether thieves have deleted what the script appends to: nobody creates it again."""
        return self.first in self.life.journal.gone | self.life.stolen

    async def _append(self, client: Any, number: int) -> None:
        token = f"token-{number}"
        self.appended[token] = False
        await client.patch(
            "notes", "n0", json=[{"op": "add", "path": "/spec/list/-", "value": token}], namespace="default"
        )
        self.appended[token] = True

    async def _replace(self, client: Any, number: int) -> None:
        """Delete an object of which there soon is a successor with the same name."""
        name = f"cm-{number}"
        made = await self.life.cluster.create(configmap(name, {}), "default")
        self.life.nursery.start_soon(self._succeed, name, made["metadata"]["uid"])
        await client.delete(
            *((made,) if number % 2 else ("configmaps", name)), **({} if number % 2 else {"namespace": "default"})
        )

    async def _succeed(self, name: str, uid: str) -> None:
        """Create an object anew as soon as it is gone, and see that it stays."""
        await self.life.cluster.wait_deleted("configmaps", name, timeout=None)
        made = await self.life.cluster.create(configmap(name, {}), "default")
        self.successors[name] = made["metadata"]["uid"]

    async def _await_deletion(self, client: Any, number: int) -> None:
        """Wait until an object is gone, whatever comes in its place."""
        name = f"cm-{number}"
        made = await self.life.cluster.create(configmap(name, {}), "default")
        self.life.nursery.start_soon(self._succeed, name, made["metadata"]["uid"])
        await trio.sleep(self.life.random.choice([0, 1]))
        self.life.nursery.start_soon(self._delete_later, name, made["metadata"]["uid"])
        await trio.sleep(self.life.random.choice([0, 0, 2]))
        with trio.fail_after(_PATIENCE):
            await client.wait_deleted(made)

    async def _delete_later(self, name: str, uid: str) -> None:
        await trio.sleep(self.life.random.choice([0, 1]))
        found = await self.life.cluster.find("configmaps", name)
        if found is not None and found["metadata"]["uid"] == uid:
            await self.life.cluster.delete("configmaps", name)

    async def _look(self, client: Any, number: int) -> None:
        """Watch in small pieces of time, with other things to do in between."""
        names = [f"seen-{number}-{index}" for index in range(4)]
        seen: set[str] = set()
        self.life.nursery.start_soon(self._create_by_and_by, names)
        end = trio.current_time() + _PATIENCE
        async with client.watch("configmaps", namespace="default") as events:
            while trio.current_time() < end and not seen.issuperset(names):
                with trio.move_on_after(self.life.random.choice([0.1, 0.5, 2])):
                    event = await anext(events)
                    seen.add(event.object["metadata"]["name"])
        if not seen.issuperset(names):
            self.find("client", f"a watch has not seen {sorted(set(names) - seen)}")

    async def _create_by_and_by(self, names: list[str]) -> None:
        for name in names:
            await trio.sleep(1.3)
            await self.life.cluster.create(configmap(name, {}), "default")

    async def _await_condition(self, client: Any, number: int) -> None:
        name = f"late-{number}"
        self.life.nursery.start_soon(self._create_by_and_by, [name])
        with trio.fail_after(_PATIENCE):
            await client.wait_for("configmaps", name, condition=lambda _: True, namespace="default")

    async def check(self) -> None:
        for each in await self.objects():
            for token, succeeded in self.appended.items():
                times = each["spec"].get("list", []).count(token)
                if times > 1 or (succeeded and not times):
                    self.find("not once", f"one patch appends {token}, and it is there {times} times")
        for name, uid in self.successors.items():
            found = await self.life.cluster.find("configmaps", name)
            if found is None or found["metadata"]["uid"] != uid:
                self.find("deleted in vain", f"{name} is the successor of an object that was deleted, and is gone, too")
