"""Objects of which only those with a label are handled, so that the others are not received: they leave and enter."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import trioperator
from tests.lives.parts.base import Part
from tests.lives.world import manifest

if TYPE_CHECKING:
    from tests.lives.life import Life
    from tests.lives.operators import Operator

on = trioperator.on
_LABELS = {"tier": "gold"}
_RECORDS = "trioperator.dev/"
# What stays on an object that has left: it is compared with when the object comes back.
_KEPT = {"last-handled-configuration", "kopf-managed"}
# What people set: the trouble "holds".
_OTHERS = {"paused", "reconcile-requested-at"}


class Selection(Part):
    """Members."""

    kind, plural = "Member", "members"
    first = "m0"

    def __init__(self, life: Life, options: dict[str, Any]) -> None:
        super().__init__(life, options)
        self.ids: dict[str, str] = {}  # of the handlers of each operator

    @classmethod
    def draw(cls, rng: random.Random, troubles: frozenset[str]) -> dict[str, Any]:
        return {
            "objects": {f"m{number}": {"serial": "0"} for number in range(rng.choice([1, 2, 3]))},
            "early": rng.random() < 0.5,
            "deleting": rng.random() < 0.5,
            "renaming": rng.random() < 0.4,
            "on_change": rng.choice(["finish", "cancel"]),
        }

    @classmethod
    def draw_deed(cls, rng: random.Random, options: dict[str, Any], number: int) -> tuple[str, tuple[Any, ...]]:
        name = rng.choice(sorted(options["objects"]))
        match rng.choice(["edit", "edit", "label", "label", "label", "create", "delete"]):
            case "edit":
                return "members.edit", (name, {"serial": str(number)})
            case "label":
                return "members.label", (name, rng.choice(["gold", "gold", "tin", None]))
            case deed:
                return f"members.{deed}", (name,)

    async def create(self, name: str) -> None:
        objects = self.options["objects"]
        body = manifest(self.kind, name, objects.get(name) or next(iter(objects.values())))
        body["metadata"]["labels"] = dict(_LABELS)
        await self.life.cluster.create(body)

    async def label(self, name: str, value: str | None) -> None:
        """Let an object enter the selection, or leave it: then nobody has to keep promises about it."""
        if value != _LABELS["tier"]:
            self.life.journal.gone.add(name)
        await self.life.cluster.patch(self.plural, name, {"metadata": {"labels": {"tier": value}}})

    def declare(self, registry: trioperator.OperatorRegistry, operator: Operator) -> None:
        who, group = operator.name, "changes of members"
        id = self.ids[who] = f"member-{who}-{operator.runs}" if self.options["renaming"] else "member"
        options: dict[str, Any] = {"registry": registry, "labels": _LABELS}

        @on.create("members", id=id, backoff=3, on_change=self.options["on_change"], **options)
        @on.update("members", id=id, backoff=3, on_change=self.options["on_change"], **options)
        async def member(spec: Any, meta: Any, patch: Any, retry: int, **_: Any) -> None:
            with self.life.call(who, "member", meta, group=group, seen=spec["serial"]):
                await self.work(retry)
                patch.status["serial"] = spec["serial"]

        @trioperator.daemon("members", id="endless", cancellation_timeout=2, **options)
        async def endless(meta: Any, stopped: Any, **_: Any) -> None:
            with self.life.call(who, "endless member", meta):
                await stopped.wait()

        if self.options["deleting"]:
            optional = bool(self.life.plan.options.get("optional"))

            @on.delete("members", id="remove", backoff=3, optional=optional, **options)
            async def remove(meta: Any, retry: int, **_: Any) -> None:
                with self.life.call(who, "remove", meta, group=group):
                    await self.work(retry)

    async def settle(self) -> None:
        await self.settle_restored()

    async def check(self) -> None:
        for each in await self.objects():
            meta = each["metadata"]
            if meta.get("labels", {}).get("tier") == _LABELS["tier"]:
                self._check_member(meta, each["spec"]["serial"], each.get("status") or {})
            else:
                self._check_other(meta)

    def _check_member(self, meta: dict[str, Any], serial: str, status: dict[str, Any]) -> None:
        name, running = meta["name"], self._count_daemons(meta["uid"])
        if running != 1:
            self.find("daemons", f"{running} daemons of {name} are running, which is selected")
        if (seen := self.life.journal.last_seen("member", name)) != serial:
            self.find("not handled", f"{name} has the serial {serial}, and the handler has last seen {seen}")
        elif status.get("serial") != serial:
            self.find("lost write", f"the status of {name} is {status}, and the handler has set it for {serial}")

    def _check_other(self, meta: dict[str, Any]) -> None:
        """Make sure that nothing is left on an object that is not selected."""
        if running := self._count_daemons(meta["uid"]):
            self.find("daemons", f"{running} daemons of {meta['name']} are running, which is not selected")
        if finalizers := meta.get("finalizers"):
            self.find("finalizer", f"{meta['name']} is not selected, and has {finalizers}")
        names = {key.removeprefix(_RECORDS) for key in meta.get("annotations", {}) if key.startswith(_RECORDS)}
        known = self._list_active_ids()
        foreign = {name for name in names if name.startswith("member-")} - known
        if left := names - _KEPT - _OTHERS - foreign:
            self.find("left record", f"{meta['name']} is not selected, and has {sorted(left)}")

    def _list_active_ids(self) -> set[str]:
        """Return the ids of handlers whose records do not stay on objects that are not selected.

        An operator looks for such records when it begins to act, but those of handlers that it does not have stay: they
        might be another one's. So only the one that acts now counts: records of a former leader stay, those of a peer
        that is outranked since, and those of a former owner of a shard.
        """
        life, ids = self.life, self.ids
        if len(ids) == 1:
            return {*ids.values()}
        active = None
        if life.plan.together == "leader":
            active = life.leases.holder
        elif life.plan.together == "peering":
            active = max((each.priority, each.name) for each in life.operators.values() if each.is_running)[1]
        return {ids[active]} if active in ids else set()

    def _count_daemons(self, uid: str) -> int:
        return sum(call.handler == "endless member" and call.uid == uid for call in self.life.journal.running)
