"""Deployments: a ReplicaSet for each template, and rollouts between them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from .client import Object, Resource
from .controller import Controller
from .replicasets import REPLICASETS
from .templates import PODS, condition_of, has_ended, owner_reference, set_condition, template_hash

DEPLOYMENTS: Resource = ("apps", "deployments")

_HASH: Final = "pod-template-hash"
_HISTORY: Final = "deployment.kubernetes.io/revision-history"  # earlier revisions of a ReplicaSet
_REVISION: Final = "deployment.kubernetes.io/revision"
_NOT_COPIED: Final = frozenset({"kubectl.kubernetes.io/last-applied-configuration", _HISTORY, _REVISION})


class DeploymentController(Controller):
    """Scales the ReplicaSet of the current template up and the others down, within the limits of the strategy."""

    resource: ClassVar[Resource] = DEPLOYMENTS
    owns: ClassVar[tuple[Resource, ...]] = (REPLICASETS,)
    source: ClassVar[str] = "deployment-controller"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._progress: dict[str, tuple[tuple[int, ...], float]] = {}  # the last change of counts, and its time

    async def forget(self, key: str) -> None:
        """Forget the progress of the Deployment."""
        self._progress.pop(key, None)

    async def reconcile(self, obj: Object) -> float | None:
        if "deletionTimestamp" in obj["metadata"]:
            return await self._update_status(obj)
        spec = obj["spec"]
        current = _current(obj, self._sets(obj))
        if spec.get("paused"):
            await self._scale_paused(obj)
            return await self._update_status(obj)
        if current is None and spec["strategy"]["type"] == "Recreate" and await self._scale_down_all(obj, None):
            return await self._update_status(obj)
        if current is None:
            current = await self._create(obj)
        await self._set_revision(obj, current)
        if spec["strategy"]["type"] == "Recreate":
            if not await self._scale_down_all(obj, current):
                await self._scale(obj, current, spec["replicas"])
        else:
            await self._roll_out(obj, current)
        await self._clean_up(obj)
        return await self._update_status(obj)

    def _sets(self, obj: Object) -> list[Object]:
        """Return the ReplicaSets of the Deployment, the oldest revision first."""
        return sorted(self.client.owned(obj, REPLICASETS), key=_revision)

    def _others(self, obj: Object, current: Object | None) -> list[Object]:
        uid = None if current is None else current["metadata"]["uid"]
        return [item for item in self._sets(obj) if item["metadata"]["uid"] != uid]

    # -- steps ----------------------------------------------------------------------------------------------------

    async def _create(self, obj: Object) -> Object:
        spec, meta = obj["spec"], obj["metadata"]
        wanted, (surge, _) = spec["replicas"], limits(spec)
        total = sum(item["spec"]["replicas"] for item in self._sets(obj))
        mark = {_HASH: template_hash(spec["template"])}
        template = spec["template"]
        labels = {**((template.get("metadata") or {}).get("labels") or {}), **mark}
        selector = {**spec["selector"], "matchLabels": {**(spec["selector"].get("matchLabels") or {}), **mark}}
        notes = meta.get("annotations") or {}
        own: Object = {
            "name": f"{meta['name']}-{mark[_HASH]}",
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": {key: note for key, note in notes.items() if key not in _NOT_COPIED},
            "ownerReferences": [owner_reference(obj)],
        }
        new: Object = {
            "replicas": max(0, min(wanted, wanted + surge - total)),
            "selector": selector,
            "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}},
        }
        if spec.get("minReadySeconds"):
            new["minReadySeconds"] = spec["minReadySeconds"]
        manifest = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": own, "spec": new}
        created = await self.client.create(REPLICASETS, manifest)
        if new["replicas"]:
            await self._record_scale(obj, created, 0, new["replicas"])
        return created

    async def _record_scale(self, obj: Object, item: Object, old: int, new: int) -> None:
        name, way = item["metadata"]["name"], "up" if new > old else "down"
        await self.record(obj, "ScalingReplicaSet", f"Scaled {way} replica set {name} from {old} to {new}")

    async def _set_revision(self, obj: Object, current: Object) -> None:
        """Set the highest revision on the current ReplicaSet and on the Deployment."""
        others = [_revision(item) for item in self._others(obj, current)]
        revision = _revision(current)
        if revision <= max(others, default=0):
            revision = max(others, default=0) + 1
        mark = {"metadata": {"annotations": {_REVISION: str(revision)}}}
        if revision != _revision(current):
            notes = current["metadata"].get("annotations") or {}
            history = ",".join(note for key in (_HISTORY, _REVISION) if (note := notes.get(key)))
            notes = {_REVISION: str(revision), **({_HISTORY: history} if history else {})}
            await self.client.merge(REPLICASETS, current, {"metadata": {"annotations": notes}})
        if revision != _revision(obj):  # a write to the status does not change the generation
            await self.client.merge(DEPLOYMENTS, obj, mark, subresource="status")

    async def _scale(self, obj: Object, item: Object, replicas: int) -> None:
        surge, _ = limits(obj["spec"])
        wanted = obj["spec"]["replicas"]
        prefix = "deployment.kubernetes.io"
        notes = {f"{prefix}/desired-replicas": str(wanted), f"{prefix}/max-replicas": str(wanted + surge)}
        have = item["metadata"].get("annotations") or {}
        if item["spec"]["replicas"] != replicas or (replicas and not notes.items() <= have.items()):
            patch = {"metadata": {"annotations": notes}, "spec": {"replicas": replicas}}
            await self.client.merge(REPLICASETS, item, patch)
            if item["spec"]["replicas"] != replicas:
                await self._record_scale(obj, item, item["spec"]["replicas"], replicas)

    async def _scale_paused(self, obj: Object) -> None:
        """Scale the only active ReplicaSet of a paused Deployment, if there is just one."""
        sets = self._sets(obj)
        working = [item for item in sets if item["spec"]["replicas"]] or sets[-1:]
        if len(working) == 1:
            await self._scale(obj, working[0], obj["spec"]["replicas"])

    async def _scale_down_all(self, obj: Object, current: Object | None) -> bool:
        """Scale the older ReplicaSets to zero; return whether any of their Pods still runs."""
        others = self._others(obj, current)
        for item in others:
            await self._scale(obj, item, 0)
        return any(not has_ended(pod) for item in others for pod in self.client.owned(item, PODS))

    async def _roll_out(self, obj: Object, current: Object) -> None:
        wanted = obj["spec"]["replicas"]
        surge, unavailable = limits(obj["spec"])
        others = self._others(obj, current)
        size = current["spec"]["replicas"]
        if size > wanted:
            size = wanted
        elif size < wanted:
            total = size + sum(item["spec"]["replicas"] for item in others)
            size += max(0, min(wanted - size, wanted + surge - total))
        await self._scale(obj, current, size)
        await self._scale_down(obj, current, size, min_available=wanted - unavailable)

    async def _scale_down(self, obj: Object, current: Object, size: int, *, min_available: int) -> None:
        """Scale the older ReplicaSets down, so that *min_available* Pods stay available."""
        others = [item for item in self._others(obj, current) if item["spec"]["replicas"]]
        lacking = size - _available(self._fresh(current))
        may_go = sum(item["spec"]["replicas"] for item in others) + size - min_available - max(0, lacking)
        for item in others:  # unavailable Pods go first
            unhealthy = min(max(0, item["spec"]["replicas"] - _available(item)), max(0, may_go))
            if unhealthy:
                may_go -= unhealthy
                await self._scale(obj, item, item["spec"]["replicas"] - unhealthy)
        others = [item for item in self._others(obj, current) if item["spec"]["replicas"]]
        all_available = _available(self._fresh(current)) + sum(_available(item) for item in others)
        may_go = min(may_go, all_available - min_available)
        for item in others:
            part = min(item["spec"]["replicas"], max(0, may_go))
            if part:
                may_go -= part
                await self._scale(obj, item, item["spec"]["replicas"] - part)

    def _fresh(self, item: Object) -> Object:
        meta = item["metadata"]
        return self.client.get(REPLICASETS, f"{meta['namespace']}/{meta['name']}") or item

    async def _clean_up(self, obj: Object) -> None:
        """Delete the oldest ReplicaSets without Pods, beyond the ``revisionHistoryLimit``."""
        idle = [item for item in self._others(obj, _current(obj, self._sets(obj))) if not _pods(item)]
        limit = obj["spec"].get("revisionHistoryLimit", 10)
        for item in idle[: max(0, len(idle) - limit)]:
            await self.client.delete(REPLICASETS, item)

    # -- status ---------------------------------------------------------------------------------------------------

    async def _update_status(self, obj: Object) -> float | None:
        meta = obj["metadata"]
        key = f"{meta['namespace']}/{meta['name']}"
        obj = self.client.get(DEPLOYMENTS, key) or obj
        sets = self._sets(obj)
        current = _current(obj, sets)
        wanted = obj["spec"]["replicas"]
        available = sum(map(_available, sets))
        counts = {
            "replicas": sum(map(_replicas, sets)),
            "updatedReplicas": 0 if current is None else _replicas(current),
            "readyReplicas": sum((item.get("status") or {}).get("readyReplicas", 0) for item in sets),
            "availableReplicas": available,
            "unavailableReplicas": max(0, wanted - available)
            if sum(map(_replicas, sets)) <= wanted
            else sum(map(_replicas, sets)) - available,
        }
        status: Object = {
            "observedGeneration": obj["metadata"]["generation"],
            "terminatingReplicas": sum((item.get("status") or {}).get("terminatingReplicas", 0) for item in sets),
            **{field: count for field, count in counts.items() if count},
        }
        status["conditions"] = list((obj.get("status") or {}).get("conditions") or ())
        status = self._with_availability(obj, status, available)
        status, requeue_after = self._with_progress(obj, status, current, tuple(counts.values()))
        await self.client.set_status(DEPLOYMENTS, obj, status)
        return requeue_after

    def _with_availability(self, obj: Object, status: Object, available: int) -> Object:
        _, unavailable = limits(obj["spec"])
        is_enough = available >= obj["spec"]["replicas"] - unavailable
        condition = {
            "type": "Available",
            "status": "True" if is_enough else "False",
            "reason": "MinimumReplicasAvailable" if is_enough else "MinimumReplicasUnavailable",
            "message": f"Deployment {'has' if is_enough else 'does not have'} minimum availability.",
        }
        return self._with_condition(status, condition)

    def _with_progress(
        self, obj: Object, status: Object, current: Object | None, counts: tuple[int, ...]
    ) -> tuple[Object, float | None]:
        """Return the status with the condition ``Progressing``, and the seconds until the progress deadline."""
        if current is None or obj["spec"].get("paused"):
            return status, None
        name, wanted = current["metadata"]["name"], obj["spec"]["replicas"]
        _, updated, _, available, _ = counts
        condition = {"type": "Progressing", "status": "True"}
        if updated == wanted == available == status.get("replicas", 0):
            condition |= {"reason": "NewReplicaSetAvailable"}
            condition |= {"message": f'ReplicaSet "{name}" has successfully progressed.'}
            return self._with_condition(status, condition), None
        left = self._time_left(obj, (obj["metadata"]["generation"], *counts))
        if left <= 0:
            condition |= {"status": "False", "reason": "ProgressDeadlineExceeded"}
            condition |= {"message": f'ReplicaSet "{name}" has timed out progressing.'}
            return self._with_condition(status, condition), None
        condition |= {"reason": "ReplicaSetUpdated", "message": f'ReplicaSet "{name}" is progressing.'}
        return self._with_condition(status, condition), left

    def _time_left(self, obj: Object, counts: tuple[int, ...]) -> float:
        key = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
        now = self.client.now().timestamp()
        seen, since = self._progress.get(key, ((), now))
        if seen != counts:
            since = now
            self._progress[key] = (counts, now)
        return since + float(obj["spec"].get("progressDeadlineSeconds", 600)) - now

    def _with_condition(self, status: Object, condition: Object) -> Object:
        now = self.client.timestamp()
        old = condition_of(status, condition["type"])
        is_same = old is not None and all(old.get(field) == value for field, value in condition.items())
        updated = old["lastUpdateTime"] if old is not None and is_same else now
        return set_condition(status, {**condition, "lastUpdateTime": updated}, now=now)


def limits(spec: Mapping[str, Any]) -> tuple[int, int]:
    """Return ``maxSurge`` and ``maxUnavailable`` as numbers of Pods."""
    strategy = spec["strategy"]
    if strategy["type"] == "Recreate":
        return 0, 0
    rolling, replicas = strategy.get("rollingUpdate") or {}, spec["replicas"]
    surge = _share(rolling.get("maxSurge", "25%"), replicas, math.ceil)
    unavailable = _share(rolling.get("maxUnavailable", "25%"), replicas, math.floor)
    return (surge, unavailable) if surge or unavailable else (0, 1)


def _share(value: int | str, whole: int, to_integer: Any) -> int:
    if isinstance(value, int):
        return value
    return int(to_integer(whole * int(value.removesuffix("%")) / 100))


def _current(obj: Object, sets: list[Object]) -> Object | None:
    """Return the ReplicaSet of the Deployment's current template."""
    for item in sets:
        template = item["spec"]["template"]
        meta = template.get("metadata") or {}
        labels = {key: value for key, value in (meta.get("labels") or {}).items() if key != _HASH}
        own = obj["spec"]["template"]
        if {**template, "metadata": {**meta, "labels": labels}} == {"metadata": {"labels": {}}, **own}:
            return item
    return None


def _revision(item: Object) -> int:
    return int((item["metadata"].get("annotations") or {}).get(_REVISION) or 0)


def _replicas(item: Object) -> int:
    return int((item.get("status") or {}).get("replicas", 0))


def _available(item: Object) -> int:
    return int((item.get("status") or {}).get("availableReplicas", 0))


def _pods(item: Object) -> int:
    return int(item["spec"]["replicas"]) + _replicas(item)
