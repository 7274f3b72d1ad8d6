"""Objects whose changes are handled: statuses that are written in place, patches in between, deletions."""

# The framework is a module that the plan chooses.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import collections
import contextlib
import itertools
import math
import random
from typing import TYPE_CHECKING, Any

import trio

import trioperator
from tests.lives.parts.additions import add_handlers, check_additions
from tests.lives.parts.base import Part
from trioperator.errors import ApiError

if TYPE_CHECKING:
    from tests.lives.operators import Operator

# Troubles in which a call may end with its operator, so that nobody knows what it has seen.
_ENDS = ("restart", "lease", "slow leases", "freeze", "slow", "pauses", "retire", "releases", "restore", "upgrades")
# Seconds after which a change is seen, as other handlers are tried again until they have ended with the one before.
_PATIENCE = 60.0
_OTHER_ENDS = ("rollout", "rollbacks", "versions", "kinds", "late start")


class Changes(Part):
    """Widgets."""

    kind, plural = "Widget", "widgets"
    first = "w0"

    def __init__(self, life: Any, options: dict[str, Any]) -> None:
        super().__init__(life, options)
        self.degraded: dict[str, float] = {}
        self._serials: dict[str, list[str]] = {}
        self._edited: dict[str, float] = {}  # when serials were set
        self._shown: set[tuple[str, str]] = set()  # names and serials that a handler has seen when it had stored

    @classmethod
    def draw(cls, rng: random.Random, troubles: frozenset[str]) -> dict[str, Any]:
        return {
            "objects": {f"w{number}": {"serial": "0"} for number in range(rng.choice([1, 2, 4]))},
            "early": rng.random() < 0.5,
            "deleting": rng.random() < 0.5,
            "storing": rng.random() < 0.5,
            "brief": rng.random() < 0.3,
            "on_change": rng.choice(["finish", "cancel"]),
        }

    @classmethod
    def draw_deed(cls, rng: random.Random, options: dict[str, Any], number: int) -> tuple[str, tuple[Any, ...]]:
        name = rng.choice(sorted(options["objects"]))
        deed = rng.choice(["edit", "edit", "edit", "create", "degrade", "delete"])
        return f"widgets.{deed}", (name, {"serial": str(number)}) if deed == "edit" else (name,)

    async def edit(self, name: str, spec: dict[str, Any]) -> None:
        await super().edit(name, spec)
        self._serials.setdefault(name, ["0"]).append(spec["serial"])
        self._edited[spec["serial"]] = trio.current_time()

    async def take_back(self, name: str) -> None:
        """Change an object back to what it was before its last change."""
        serials = self._serials.get(name, [])
        if len(serials) > 1:
            await self.edit(name, {"serial": serials[-2]})

    async def degrade(self, name: str) -> None:
        """Let another component write the status."""
        await self.life.cluster.patch("widgets", name, {"status": {"phase": "Degraded"}}, subresource="status")
        self.degraded[name] = trio.current_time()

    async def fight(self, name: str, pause: float, seconds: float) -> None:
        """Let another component write the status again and again, and change the object now and then."""
        with trio.move_on_after(seconds):
            for number in itertools.count():
                if self.life.is_peaceful:
                    return
                with contextlib.suppress(ApiError):
                    await self.degrade(name)
                    if number % 4 == 0:
                        await self.edit(name, {"serial": f"fight {number}"})
                await trio.sleep(pause)

    def declare(self, registry: trioperator.OperatorRegistry, operator: Operator) -> None:
        on, variant = self.framework.on, operator.variant or ("full" if self.options["deleting"] else "plain")
        if variant == "event":
            on.event("widgets", id="event", registry=registry)(_ignore)
        elif variant == "reconcile":
            on.reconcile("widgets", id="reconcile", registry=registry)(_have_no_children)
        elif variant == "other":
            self._declare_others(registry, operator.name)
        else:
            self._declare_changes(registry, operator.name)
            add_handlers(self, registry, operator.name)
        if variant == "full":
            self._declare_deletion(registry, operator.name)

    def _declare_changes(self, registry: trioperator.OperatorRegistry, who: str) -> None:
        on, group = self.framework.on, "changes of widgets"

        @on.create("widgets", id="made", registry=registry, backoff=3)
        async def made(spec: Any, meta: Any, retry: int, **_: Any) -> None:
            with self.life.call(who, "made", meta, group=group, seen=spec["serial"]):
                await self.work(retry)

        @on.create("widgets", id="change", registry=registry, backoff=3, on_change=self.options["on_change"])
        @on.update("widgets", id="change", registry=registry, backoff=3, on_change=self.options["on_change"])
        async def change(spec: Any, meta: Any, status: Any, patch: Any, retry: int, old: Any, **_: Any) -> None:
            if old is not None and not retry:
                self._check_old(meta, old)
            with self.life.call(who, "change", meta, group=group, seen=spec["serial"]):
                await self.work(retry)
                if self.options["storing"] and not self.life.plan.options.get("asyncio"):
                    patch.status["phase"] = "Working"
                    await patch.store()
                    self._shown.add((meta["name"], spec["serial"]))
                    await self.work(retry)
                if not self.options.get("brief"):  # else it wants nothing but what it may have had before
                    conditions = status.get("conditions", [])
                    conditions.append({"type": "Seen", "serial": spec["serial"]})
                    del conditions[:-3]
                    patch.status["conditions"] = conditions
                patch.status["phase"] = "Ready"

        if self.life.has("rollbacks", "stops"):  # so that one handler may have ended, and another one has not

            @on.create("widgets", id="second", registry=registry, backoff=3)
            @on.update("widgets", id="second", registry=registry, backoff=3)
            async def second(spec: Any, meta: Any, retry: int, **_: Any) -> None:
                with self.life.call(who, "second", meta, group=group, seen=spec["serial"]):
                    await self.work(retry)

    def _declare_others(self, registry: trioperator.OperatorRegistry, who: str) -> None:
        on = self.framework.on

        @on.create("widgets", id="other", registry=registry, backoff=3)
        @on.update("widgets", id="other", registry=registry, backoff=3)
        async def other(spec: Any, meta: Any, retry: int, **_: Any) -> None:
            with self.life.call(who, "other", meta, group="changes of widgets", seen=spec["serial"]):
                await self.work(retry)

    def _declare_deletion(self, registry: trioperator.OperatorRegistry, who: str) -> None:
        optional = bool(self.life.plan.options.get("optional"))

        @self.framework.on.delete("widgets", id="remove", registry=registry, backoff=3, optional=optional)
        async def remove(meta: Any, retry: int, **_: Any) -> None:
            with self.life.call(who, "remove", meta, group="changes of widgets"):
                await self.work(retry)

    async def settle(self) -> None:
        await self.settle_restored()

    async def check(self) -> None:
        if {operator.variant for operator in self.life.operators.values()} & {"event", "reconcile"}:
            return
        for each in await self.objects():
            self._check_object(each["metadata"]["name"], each["spec"]["serial"], each.get("status") or {})
            if not self.life.has("rollbacks"):
                check_additions(self, each)
        # A storage that fails while the operator is stopped has recorded nothing.
        if (
            self.life.plan.together != "peering"
            and not self.life.is_tuned("failing")
            and not self.life.has(
                "restart",
                "lease",
                "writes",
                "restore",
                "freeze",
                "slow leases",
                "slow",
                "pauses",
                "releases",
                "denials",
                "logins",
                "rollout",
                "rollbacks",
            )
        ):
            for handler in ("made", "remove"):
                calls = [call for call in self.life.journal.calls if call.group == "changes of widgets"]
                done = [call for call in calls if call.handler == handler and call.succeeded]
                for uid, number in collections.Counter(call.uid for call in done).items():
                    if number > 1:
                        self.find("handled twice", f"{handler} has succeeded {number} times for one widget: {uid}")
        if self.life.plan.options.get("optional"):
            for each in await self.objects():
                if finalizers := each["metadata"].get("finalizers"):
                    self.find("finalizer", f"{each['metadata']['name']} needs none, and has {finalizers}")

    def _check_old(self, meta: Any, old: Any) -> None:
        """Make sure that a change is from what a handler was called for last, or has handled last."""
        # Records of contended objects wait in memory, and a pause by a failed keep-alive does not let them be stored.
        if self.life.has(*_ENDS, *_OTHER_ENDS, "fillings", "slow peering") or self.life.is_tuned("digested"):
            return
        allowed: set[object] = set()
        for handler in ("made", "change", "second"):
            calls = [call for call in self.life.journal.of(handler, meta["name"]) if call.uid == meta["uid"]]
            ended = [number for number, call in enumerate(calls) if call.succeeded]
            allowed |= {call.seen for call in (calls[ended[-1] :] if ended else calls)}
        before = old.get("spec", {}).get("serial")
        if before not in allowed and (meta["name"], before) not in self._shown:
            self.find(
                "wrong old", f"{meta['name']} was {before}, and the handler has last seen {sorted(map(str, allowed))}"
            )

    async def check_gone(self) -> None:
        await super().check_gone()
        left = {each["metadata"]["uid"] for each in await self.life.cluster.list(self.plural)}
        journal, optional = self.life.journal, self.life.plan.options.get("optional")
        forced = ("releases", "restore", "kinds", "upgrades", "rollout", "rollbacks", "strangers", "versions")
        if not self.options["deleting"] or optional or self.life.has(*forced):
            return
        called = {call.uid for call in journal.calls if call.handler == "remove"}
        for call in journal.calls:
            if call.handler == "made" and call.succeeded and call.uid not in left | called:
                self.find("not deleted", f"{call.name} is gone, and the handler of deletions was not called")

    def _check_object(self, name: str, serial: str, status: dict[str, Any]) -> None:
        calls = [call for call in self.life.journal.of("change", name) if call.succeeded]
        others = [call for call in self.life.journal.of("other", name) if call.succeeded]
        if others and others[-1].seen == serial:
            return  # by a release without the handler
        seconds = [call for call in self.life.journal.of("second", name) if call.succeeded]
        if self.life.has("rollbacks", "stops") and (not seconds or seconds[-1].seen != serial):
            self.find("not handled", f"widget {name} has the serial {serial}, which the second handler has not seen")
        if self.life.has("reversals", "stops") and not self.life.has(*_ENDS, *_OTHER_ENDS):
            called = self.life.journal.of("change", name)[-1:]
            if called and called[0].seen != serial:
                self.find("not taken back", f"widget {name} has {serial}, and the last call was for {called[0].seen}")
        seen_at = [call.started for call in self.life.journal.of("change", name) if call.seen == serial]
        is_late = seen_at and seen_at[0] > self._edited.get(serial, math.inf) + _PATIENCE
        if self.life.plan.troubles == {"fillings"} and is_late:
            self.find("late", f"widget {name} has had {serial} since {self._edited[serial]:.0f} s")
        if not calls or calls[-1].seen != serial:
            seen = calls[-1].seen if calls else "nothing"
            self.find("not handled", f"widget {name} has the serial {serial}, and the handler has last seen {seen}")
            return
        seen = [each for each in status.get("conditions", ()) if each["type"] == "Seen"]  # others may follow
        last = seen[-1]["serial"] if seen else None
        if last != serial and not self.options.get("brief"):
            self.find("lost write", f"the condition of {name} is for {last}, and the handler has set it for {serial}")
        if status.get("phase") != "Ready" and self.degraded.get(name, 0) < (calls[-1].ended or 0):
            self.find(
                "lost write", f"the phase of {name} is {status.get('phase')}, and the handler has set Ready later"
            )


async def _ignore(**_: Any) -> None:
    pass


async def _have_no_children(**_: Any) -> list[Any]:
    return []
