"""DaemonSets: one Pod on each matching node."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar, Final

from .client import Object, Resource
from .controller import Controller
from .nodes import NODES, fits
from .revisions import clean_revisions, ensure_revision
from .templates import PODS, has_ended, is_active, is_ready, make_pod, until_available

DAEMONSETS: Resource = ("apps", "daemonsets")

_HASH: Final = "controller-revision-hash"
_TOLERATIONS: Final = [
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/disk-pressure", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/pid-pressure", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
]


class DaemonSetController(Controller):
    """Creates a Pod for each node, and replaces the Pods when the template changes."""

    resource: ClassVar[Resource] = DAEMONSETS
    owns: ClassVar[tuple[Resource, ...]] = (PODS,)
    source: ClassVar[str] = "daemonset-controller"

    def keys_for(self, resource: Resource, obj: Object) -> Iterable[str]:
        """Return all DaemonSets for a node, otherwise as other controllers do."""
        if resource == NODES:
            found = (item["metadata"] for item in self.client.all(DAEMONSETS))
            return [f"{meta['namespace']}/{meta['name']}" for meta in found]
        return super().keys_for(resource, obj)

    async def reconcile(self, obj: Object) -> float | None:
        mark = await ensure_revision(self.client, obj, label=_HASH)
        nodes = [node for node in self.client.all(NODES) if fits(obj["spec"]["template"]["spec"], node)]
        names = [node["metadata"]["name"] for node in nodes]
        if "deletionTimestamp" not in obj["metadata"]:
            await self._place(obj, names, mark)
            await self._update_pods(obj, mark)
        return await self._update_status(obj, names, mark)

    def _pods(self, obj: Object) -> list[Object]:
        return [pod for pod in self.client.owned(obj, PODS) if is_active(pod)]

    async def _place(self, obj: Object, names: list[str], mark: str) -> None:
        there = {_node_of(pod): pod for pod in self._pods(obj)}
        for pod in self.client.owned(obj, PODS):
            if has_ended(pod):
                await self.delete_for(obj, PODS, pod)
        for node, pod in there.items():
            if node not in names:
                await self.delete_for(obj, PODS, pod)
        going = {_node_of(pod) for pod in self.client.owned(obj, PODS) if "deletionTimestamp" in pod["metadata"]}
        for name in names:
            if name not in there and name not in going:
                await self.create_for(obj, PODS, self._make(obj, name, mark))

    def _make(self, obj: Object, node: str, mark: str) -> Object:
        labels = {_HASH: mark, "pod-template-generation": str(obj["metadata"]["generation"])}
        pod = make_pod(obj, obj["spec"]["template"], labels=labels)
        spec = pod["spec"]
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        spec["affinity"] = {**(spec.get("affinity") or {}), "nodeAffinity": required}
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *_TOLERATIONS]
        return pod

    async def _update_pods(self, obj: Object, mark: str) -> None:
        """Delete Pods of older templates, within ``maxUnavailable``."""
        strategy = obj["spec"].get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return
        pods = self.client.owned(obj, PODS)
        allowed = (strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1)
        if isinstance(allowed, str):
            allowed = math.ceil(len(pods) * int(allowed.removesuffix("%")) / 100)
        allowed -= sum(self._until_available(obj, pod) > 0 for pod in pods)
        for pod in pods:
            if not is_active(pod) or pod["metadata"]["labels"].get(_HASH) == mark:
                continue
            is_useless = self._until_available(obj, pod) > 0
            if is_useless or allowed > 0:
                allowed -= not is_useless
                await self.delete_for(obj, PODS, pod)

    def _until_available(self, obj: Object, pod: Object) -> float:
        return until_available(pod, obj["spec"].get("minReadySeconds", 0), now=self.client.now())

    async def _update_status(self, obj: Object, names: list[str], mark: str) -> float | None:
        pods = self._pods(obj)
        placed = {_node_of(pod): pod for pod in pods if _node_of(pod) in names}
        waits = [self._until_available(obj, pod) for pod in placed.values() if is_ready(pod)]
        available = sum(wait <= 0 for wait in waits)
        counts = {
            "updatedNumberScheduled": sum(pod["metadata"]["labels"].get(_HASH) == mark for pod in placed.values()),
            "numberAvailable": available,
            "numberUnavailable": len(names) - available,
        }
        status: Object = {
            "observedGeneration": obj["metadata"]["generation"],
            "currentNumberScheduled": len(placed),
            "desiredNumberScheduled": len(names),
            "numberMisscheduled": sum(_node_of(pod) not in names for pod in pods),
            "numberReady": len(waits),
            **{field: count for field, count in counts.items() if count},
        }
        await self.client.set_status(DAEMONSETS, obj, status)
        name = obj["metadata"]["name"]
        used = {f"{name}-{pod['metadata']['labels'].get(_HASH)}": pod for pod in pods}
        await clean_revisions(self.client, obj, used={**used, f"{name}-{mark}": None})
        return min((wait for wait in waits if wait > 0), default=None)


def _node_of(pod: Object) -> str:
    """Return the node that the Pod is bound to, or is created for."""
    if pod["spec"].get("nodeName"):
        return str(pod["spec"]["nodeName"])
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            return str(field["values"][0])
    return ""
