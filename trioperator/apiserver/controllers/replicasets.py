"""ReplicaSets, and what came before them: ReplicationControllers."""

from __future__ import annotations

from typing import ClassVar

from .client import Object, Resource
from .controller import Controller
from .templates import PODS, adopt, is_active, is_ready, make_pod, until_available

REPLICASETS: Resource = ("apps", "replicasets")


class ReplicaSetController(Controller):
    """Creates, adopts and deletes Pods, and counts them."""

    resource: ClassVar[Resource] = REPLICASETS
    owns: ClassVar[tuple[Resource, ...]] = (PODS,)
    source: ClassVar[str] = "replicaset-controller"

    async def reconcile(self, obj: Object) -> float | None:
        if "deletionTimestamp" not in obj["metadata"]:
            await adopt(self.client, obj, PODS, kept=is_active)
            await self._scale(obj)
        return await self._update_status(obj)

    async def _scale(self, obj: Object) -> None:
        active = [pod for pod in self.client.owned(obj, PODS) if is_active(pod)]
        wanted = obj["spec"].get("replicas", 1)
        for _ in range(wanted - len(active)):
            await self.create_for(obj, PODS, make_pod(obj, obj["spec"]["template"], labels={}))
        for pod in pods_to_delete(active, len(active) - wanted):
            await self.delete_for(obj, PODS, pod)

    async def _update_status(self, obj: Object) -> float | None:
        pods = self.client.owned(obj, PODS)
        active = [pod for pod in pods if is_active(pod)]
        labels = ((obj["spec"]["template"].get("metadata") or {}).get("labels") or {}).items()
        ready = [pod for pod in active if is_ready(pod)]
        seconds, now = obj["spec"].get("minReadySeconds", 0), self.client.now()
        waits = [until_available(pod, seconds, now=now) for pod in ready]
        counts = {
            "fullyLabeledReplicas": sum(labels <= (pod["metadata"].get("labels") or {}).items() for pod in active),
            "readyReplicas": len(ready),
            "availableReplicas": sum(wait <= 0 for wait in waits),
        }
        status: Object = {
            "replicas": len(active),
            **{field: count for field, count in counts.items() if count},
            "observedGeneration": obj["metadata"]["generation"],
        }
        if self.resource == REPLICASETS:
            status["terminatingReplicas"] = sum("deletionTimestamp" in pod["metadata"] for pod in pods)
        await self.client.set_status(self.resource, obj, status)
        return min((wait for wait in waits if wait > 0), default=None)


class ReplicationControllerController(ReplicaSetController):
    """Does the same for ReplicationControllers."""

    resource: ClassVar[Resource] = ("", "replicationcontrollers")
    source: ClassVar[str] = "replication-controller"


def pods_to_delete(pods: list[Object], count: int) -> list[Object]:
    """Return the Pods to delete first: unscheduled, not running, not ready, young."""

    def value(pod: Object) -> tuple[bool, bool, bool]:
        return ("nodeName" in pod["spec"], pod["status"].get("phase") == "Running", is_ready(pod))

    # Sorting is stable: of equal Pods the younger ones come first.
    younger_first = sorted(pods, key=lambda pod: int(pod["metadata"]["resourceVersion"]), reverse=True)
    younger_first.sort(key=lambda pod: str(pod["metadata"]["creationTimestamp"]), reverse=True)
    return sorted(younger_first, key=value)[: max(count, 0)]
