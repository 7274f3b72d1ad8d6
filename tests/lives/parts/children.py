"""Objects with children: made in order, shared by handlers, watched by others, deleted and changed by everybody."""

from __future__ import annotations

import base64
import contextlib
import random
from typing import TYPE_CHECKING, Any, ClassVar

import trio

import trioperator
from tests.lives.parts.base import Part
from tests.lives.world import GROUP, configmap, manifest
from trioperator.errors import ApiError
from trioperator.testing.plans import RequestInfo

if TYPE_CHECKING:
    from tests.lives.operators import Operator

on = trioperator.on
# Seconds after a call in which its result is shown in the status.
_SHOWN = 5.0
# Results of handlers that are no children, by their names in the spec.
_GARBLED: dict[str, Any] = {
    "nothing in metadata": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": None},
    "labels in a list": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "labels": ["a"]}},
    "a number": 1,
    "another kind": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}},
}


class Children(Part):
    """Apps, and dashes, which look at the children of apps."""

    kind, plural = "App", "apps"
    first = "a0"
    others: ClassVar[tuple[str, ...]] = ("Dash",)

    def __init__(self, life: Any, options: dict[str, Any]) -> None:
        super().__init__(life, options)
        self.returned: dict[str, set[str]] = {}
        self.dash_uid = ""
        self.were_ready: set[str] = set()  # uids of children

    @classmethod
    def draw(cls, rng: random.Random, troubles: frozenset[str]) -> dict[str, Any]:
        shape = rng.choice(["plain", "plain", "ordered", "filtered", "garbled", "fixed", "rolling"])
        objects = {f"a{number}": {"n": rng.randrange(4), "v": 0} for number in range(rng.choice([1, 2, 3]))}
        return {
            "objects": objects,
            "early": rng.random() < 0.6,
            "shape": shape,
            "bodies": shape in {"ordered", "rolling"} or rng.random() < 0.5,
            "labels": rng.random() < 0.25,
            "strategy": "rolling" if shape == "rolling" else rng.choice(["in_place", "in_place", "recreate"]),
            "dash": rng.choice([None, "mapper", "owner", "index"]) if shape == "plain" else None,
            "resync": rng.choice([None, None, 50]),
        }

    @classmethod
    def draw_deed(cls, rng: random.Random, options: dict[str, Any], number: int) -> tuple[str, tuple[Any, ...]]:
        name = rng.choice(sorted(options["objects"]))
        deeds = ["edit"] * 4 + ["create", "steal", "steal", "spoil", "delete"]
        deeds += {"filtered": ["label"] * 3, "garbled": ["garble"] * 3}.get(options["shape"], [])
        deeds += ["wipe"] * 2 if options["resync"] else []
        if options["shape"] == "rolling":
            deeds.remove("spoil")
        match rng.choice(deeds):
            case "edit":
                return "apps.edit", (name, {"n": rng.randrange(4), "v": rng.randrange(4)})
            case "label":
                return "apps.label", (name, rng.choice(["yes", "no"]))
            case "garble":
                return "apps.edit", (name, {"garbled": rng.choice([None, *_GARBLED])})
            case "steal" | "spoil" as deed:
                return f"apps.{deed}", (rng.randrange(9),)
            case deed:
                return f"apps.{deed}", (name,)

    # What others do.

    async def create(self, name: str) -> None:
        labels = {"a": "yes"} if self.options["shape"] == "filtered" else {}
        body = manifest("App", name, self.options["objects"][name], namespace=self.namespace_of(name))
        body["metadata"]["labels"] = labels
        await self.life.cluster.create(body)

    async def label(self, name: str, value: str) -> None:
        """Let an object match a filter, or not."""
        await self.life.cluster.patch("apps", name, {"metadata": {"labels": {"a": value}}}, self.namespace_of(name))

    async def steal(self, number: int) -> None:
        """Delete a child."""
        if found := await self._list_children():
            child = found[number % len(found)]
            self.life.stolen.add(child["metadata"]["name"])
            await self.life.cluster.delete(
                child["kind"], child["metadata"]["name"], namespace=child["metadata"]["namespace"]
            )

    async def spoil(self, number: int) -> None:
        """Change a child."""
        if found := [each for each in await self._list_children() if each["kind"] == "ConfigMap"]:
            child = found[number % len(found)]["metadata"]
            await self.life.cluster.patch("configmaps", child["name"], {"data": {"v": "spoilt"}}, child["namespace"])

    async def wipe(self, name: str) -> None:
        """Remove the status of an app, as others do who replace all of it."""
        await self.life.cluster.patch("apps", name, {"status": None}, self.namespace_of(name), subresource="status")

    async def fight(self, name: str, pause: float, seconds: float) -> None:
        """Change the children of an app again and again."""
        with trio.move_on_after(seconds):
            while not self.life.is_peaceful:
                for child in await self._list_children():
                    meta = child["metadata"]
                    if child["kind"] == "ConfigMap" and meta["name"].startswith(f"{name}-"):
                        with contextlib.suppress(ApiError):
                            await self.life.cluster.patch(
                                "configmaps", meta["name"], {"data": {"v": "fought"}}, meta["namespace"]
                            )
                await trio.sleep(pause)

    async def _list_children(self) -> list[dict[str, Any]]:
        found = [*await self.life.cluster.list("configmaps"), *await self.life.cluster.list("secrets")]
        return [each for each in found if each["metadata"].get("ownerReferences")]

    async def accompany(self) -> None:
        """Create the dash, limit what is fixed, and make children ready after a while, as their controller."""
        if self.options["dash"]:
            made = await self.life.cluster.create(manifest("Dash", "d", {}))
            self.dash_uid = made["metadata"]["uid"]
        if self.options["shape"] == "fixed":
            await self._limit_secrets()
        if not self.options["early"]:
            await trio.sleep(1)
        while self.options["shape"] == "ordered":
            await trio.sleep(3)
            for each in await self.life.cluster.list("secrets"):
                if "ready" not in (each["metadata"].get("labels") or {}):
                    meta = each["metadata"]
                    await self.life.cluster.patch(
                        "secrets", meta["name"], {"metadata": {"labels": {"ready": "y"}}}, meta["namespace"]
                    )
        while self.options["shape"] == "rolling":
            await trio.sleep(self.life.random.choice([0.5, 3]))
            for each in await self._list_children():
                meta = each["metadata"]
                if not _is_rolled_out(each):
                    labels = {"labels": {"ready": each["data"]["v"]}}
                    with contextlib.suppress(ApiError):  # a restore may have removed it
                        await self.life.cluster.patch(
                            "configmaps", meta["name"], {"metadata": labels}, meta["namespace"]
                        )
                self.were_ready.add(meta["uid"])

    async def _limit_secrets(self) -> None:
        """Leave no room for more secrets than all operators want, by a quota, as its controller counts it."""
        operators = self.life.plan.replicas if self.life.plan.together == "apart" else 1
        hard = {"secrets": str(len(self.options["objects"]) * operators)}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}
        await self.life.cluster.create(quota, "default")
        await self.life.cluster.patch(
            "resourcequotas", "q", {"status": {"hard": hard}}, "default", subresource="status"
        )

    # The handlers.

    def desired(self, name: str, spec: Any, who: str) -> dict[str, dict[str, Any]]:
        """Return the names of all children with their data, by the spec of an app."""
        prefix = f"{who}-{name}" if self.life.plan.together == "apart" else name
        match self.options["shape"]:
            case "ordered":
                return {f"{prefix}-db-{spec['v']}": {}, f"{prefix}-web-{spec['v']}": {"v": str(spec["v"])}}
            case "filtered":
                return {f"{prefix}-a": {"v": "1"}, f"{prefix}-b": {"v": str(spec["v"])}}
            case "fixed":
                return {f"{prefix}-s": {"v": base64.b64encode(str(spec["v"]).encode()).decode()}}
            case _:
                return {f"{prefix}-{number}": {"v": str(spec["v"])} for number in range(spec["n"])}

    def declare(self, registry: trioperator.OperatorRegistry, operator: Operator) -> None:
        who, options = operator.name, self.options
        labels = {"app": "lives"} if options["labels"] else None
        owned = trioperator.Owned("configmaps", bodies=options["bodies"], labels=labels, strategy=options["strategy"])
        owns = [owned]
        if options["shape"] == "ordered":
            owns.append(trioperator.Owned("secrets", bodies=True))
        elif options["shape"] == "fixed":
            owns = [trioperator.Owned("secrets", bodies=options["bodies"], labels=labels, strategy="recreate")]
        ids = f"children-{who}" if self.life.plan.together == "apart" else "children"

        def part(id: str, suffix: str, **filters: Any) -> None:
            @on.reconcile("apps", id=id, owns=owns, registry=registry, resync=options["resync"], **filters)
            async def handle(name: str, spec: Any, meta: Any, **_: Any) -> Any:
                with self.life.call(who, id, meta, seen=dict(spec)):
                    await trio.sleep(self.life.random.choice([0, 0, 0.01, 1]))
                    if self.life.random.random() < 0.1:
                        raise ValueError("something")
                wanted = {key: data for key, data in self.desired(name, spec, who).items() if key.endswith(suffix)}
                self.returned[name] = set(wanted)
                return self._make(wanted, spec)

        if options["shape"] == "filtered":
            part(f"{ids}-a", "-a", labels={"a": "yes"})
            part(f"{ids}-b", "-b")
        else:
            part(ids, "")
        if options["dash"]:
            self._declare_dash(registry, who)

    def _make(self, wanted: dict[str, dict[str, Any]], spec: Any) -> list[Any]:
        garbled = spec.get("garbled") if self.options["shape"] == "garbled" else None
        made: list[Any] = [_GARBLED[garbled]] if garbled else []
        before: list[trioperator.Child] = []
        for name, data in wanted.items():
            labels = {"labels": {"dash": "d"}} if self.options["dash"] in {"mapper", "index"} else {}
            body = configmap(name, data, kind="ConfigMap" if data else "Secret", **labels)
            if self.options["shape"] == "fixed":
                body |= {"kind": "Secret", "immutable": True}
            if self.options["dash"] == "owner" and self.dash_uid:
                owner = {"apiVersion": f"{GROUP}/v1", "kind": "Dash", "name": "d", "uid": self.dash_uid}
                body["metadata"]["ownerReferences"] = [owner]
            if self.options["shape"] == "ordered" and not data:
                before.append(trioperator.Child(body, ready=_is_ready))
                made.append(before[0])
            elif self.options["shape"] == "rolling":
                made.append(trioperator.Child(body, ready=_is_rolled_out))
            else:
                made.append(trioperator.Child(body, depends_on=before))
        return made

    def _declare_dash(self, registry: trioperator.OperatorRegistry, who: str) -> None:
        if self.options["dash"] == "index":
            self._declare_indexed_dash(registry, who)
            return
        watching = self.options["dash"] == "mapper"
        mapper = {"configmaps": lambda labels, **_: labels.get("dash")}
        how: dict[str, Any] = (
            {"watches": mapper} if watching else {"owns": [trioperator.Owned("configmaps", bodies=True)]}
        )

        @on.reconcile("dashes", id="dash", registry=registry, **how)
        async def dash(meta: Any, client: Any, children: Any, **_: Any) -> Any:
            found = (
                await client.list("configmaps", labels={"dash": "d"}) if watching else children["configmaps"].values()
            )
            seen = sorted((each["metadata"]["name"], each["data"]["v"]) for each in found)
            with self.life.call(who, "dash", meta, seen=seen):
                await trio.lowlevel.checkpoint()
            raise trioperator.Requeue(after=100_000)

    def _declare_indexed_dash(self, registry: trioperator.OperatorRegistry, who: str) -> None:
        @trioperator.index("configmaps", labels={"dash": "d"}, id="values", registry=registry)
        async def values(name: str, body: Any, **_: Any) -> dict[str, str]:
            return {name: body["data"]["v"]}

        @on.reconcile(
            "dashes", id="dash", registry=registry, watches={"configmaps": lambda labels, **_: labels.get("dash")}
        )
        async def dash(meta: Any, values: trioperator.Index[str, str], **_: Any) -> Any:
            seen = sorted((name, found) for name in values for found in values[name])
            with self.life.call(who, "dash", meta, seen=seen):
                await trio.lowlevel.checkpoint()
            raise trioperator.Requeue(after=100_000)

    # What must hold.

    async def check_write(self, operator: str, info: RequestInfo) -> None:
        """Make sure that nothing is deleted that is desired, or before what replaces it is there."""
        if info.verb == "patch" and info.resource == "configmaps" and self.options["shape"] == "rolling":
            await self._check_rollout(info.name)
        if info.verb != "delete" or info.resource not in {"configmaps", "secrets"}:
            return
        others = tuple(f"{name}-" for name in self.life.operators if name != operator)
        if self.life.plan.together == "apart" and info.name.startswith(others):
            self.find("deleted in vain", f"{info.name} is deleted by {operator}, which has never wanted it")
        owner = next((name for name in self.options["objects"] if info.name.startswith(f"{name}-")), None)
        if owner is None or await self.life.cluster.find("apps", owner) is None:
            return
        if self.options["shape"] == "filtered" and self.life.plan.together == "alone":
            self.find("deleted in vain", f"{info.name} is deleted, though all handlers want it, or match no more")
        if self.options["shape"] == "ordered" and not self.life.has("restore") and self.life.plan.together == "alone":
            children = {each["metadata"]["name"] for each in await self._list_children()}
            missing = self.returned[owner] - children - self.life.stolen if owner in self.returned else set()
            if missing:
                self.find("deleted too early", f"{info.name} is deleted, and {', '.join(missing)} are not applied yet")

    async def _check_rollout(self, name: str) -> None:
        """Make sure that no other child has to get ready again while a ready one is changed."""
        if self.life.has("restore", "fights", "thieves") or self.life.plan.together == "apart":
            return
        found = {each["metadata"]["name"]: each for each in await self._list_children()}
        if name not in found or not _is_rolled_out(found[name]):
            return
        uid, owner = _owner_of(found[name]), name.rpartition("-")[0]
        for other in found.keys() & self.returned.get(owner, set()):  # what is not wanted is not waited for
            each = found[other]
            again = each["metadata"]["uid"] in self.were_ready and not _is_rolled_out(each)
            if other != name and _owner_of(each) == uid and again and "deletionTimestamp" not in each["metadata"]:
                self.find("rolled too early", f"{name} is changed while {other} is not ready again")

    async def settle(self) -> None:
        """Correct what is garbled, and change all objects once more where a restored cluster may have lost that."""
        for each in await self.objects():
            name = each["metadata"]["name"]
            if each["spec"].get("garbled") and self.life.random.random() < 0.5:
                await self.edit(name, {"garbled": None})
            if self.life.has("restore"):
                await self.edit(name, {"n": 3, "v": 9})

    async def check(self) -> None:
        children = {each["metadata"]["name"]: each for each in await self._list_children()}
        wanted: dict[str, dict[str, Any]] = {}
        for each in await self.objects():
            if each["spec"].get("garbled"):
                return
            for who in self.life.operators if self.life.plan.together == "apart" else ("a",):
                desired = self.desired(each["metadata"]["name"], each["spec"], who)
                if self.options["shape"] == "filtered" and each["metadata"].get("labels", {}).get("a") != "yes":
                    desired = {key: data for key, data in desired.items() if key.endswith("-b")}
                wanted |= desired
        leftovers = await self._find_leftovers()
        for name, data in wanted.items():
            if name in leftovers:
                continue
            if name not in children:
                self.find("missing child", f"{name} should exist")
            elif data and children[name].get("data") != data:
                self.find("wrong child", f"{name} should have {data}, and has {children[name].get('data')}")
        owners = {each["metadata"]["uid"] for each in await self.objects()}
        owned = {
            name
            for name, each in children.items()
            if owners & {ref["uid"] for ref in each["metadata"]["ownerReferences"]}
        }
        extra = owned - wanted.keys()
        if extra and not leftovers and self.options["shape"] != "filtered":
            self.find("unwanted child", f"nobody wants {', '.join(sorted(extra))}")
        if not leftovers and self.life.plan.together != "apart":
            for each in await self.objects():
                self._check_status(each)
        await self._check_dash()

    def _check_status(self, app: dict[str, Any]) -> None:
        """Make sure that the conditions of an app say that it is as desired, if its last calls have succeeded."""
        meta, status, journal = app["metadata"], app.get("status") or {}, self.life.journal
        calls = {call.handler: call for call in journal.calls if call.uid == meta["uid"]}
        if not all(call.succeeded and trio.current_time() - (call.ended or 0.0) > _SHOWN for call in calls.values()):
            return
        shown = {each["type"]: each["status"] for each in status.get("conditions") or ()}
        observed = status.get("observedGeneration")
        is_shown = shown.get("Applied") == shown.get("Ready") == "True" and not shown.keys() & {
            "Reconciling",
            "Stalled",
        }
        if observed != meta["generation"] or not is_shown:
            text = f"generation {observed} of {meta['generation']}, {shown}"
            self.find("wrong status", f"{meta['name']} is as desired, and its status is about {text}")

    async def _find_leftovers(self) -> set[str]:
        """Return the names of what another owner keeps after an app has gone: it stays as it is."""
        owners = {each["metadata"]["uid"] for each in await self.objects()}
        found = await self._list_children()
        return {
            each["metadata"]["name"]
            for each in found
            if not owners & {ref["uid"] for ref in each["metadata"]["ownerReferences"] if ref["kind"] == "App"}
        }

    async def _check_dash(self) -> None:
        if not self.options["dash"] or await self.life.cluster.find("dashes", "d") is None:
            return
        found = await self.life.cluster.list("configmaps")
        there = sorted((each["metadata"]["name"], each["data"]["v"]) for each in found if _belongs_to_dash(each))
        seen = self.life.journal.last_seen("dash", "d")
        if seen != there:
            self.find("not seen", f"the {self.options['dash']} of {there} has last seen {seen}")

    async def delete_all(self) -> None:
        if self.options["dash"] and await self.life.cluster.find("dashes", "d"):
            await self.life.cluster.delete("dashes", "d")
        await super().delete_all()


def _is_ready(body: Any) -> bool:
    return "ready" in (body["metadata"].get("labels") or {})


def _is_rolled_out(body: Any) -> bool:
    return bool((body["metadata"].get("labels") or {}).get("ready") == body["data"]["v"])


def _owner_of(child: dict[str, Any]) -> str:
    return next((ref["uid"] for ref in child["metadata"]["ownerReferences"] if ref["kind"] == "App"), "")


def _belongs_to_dash(child: dict[str, Any]) -> bool:
    meta = child["metadata"]
    owners = [each["kind"] for each in meta.get("ownerReferences") or ()]
    return (meta.get("labels") or {}).get("dash") == "d" or "Dash" in owners
