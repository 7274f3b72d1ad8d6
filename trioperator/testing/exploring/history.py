"""Objects on the way from one state to the next: changes that are undone, and claims that come too early."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from trioperator.apiserver import Cluster
from trioperator.testing.exploring.snapshots import list_written

_CLAIMS: Final = frozenset({"Ready", "Available"})
#: Kinds that run pods, and say how many of them are ready.
WORKLOADS: Final = frozenset({"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"})


class History:
    """The objects before a step, and the replicas of workloads after each write of the operator."""

    def __init__(self, cluster: Cluster) -> None:
        self._before = {_key(obj): obj for obj in list_written(cluster)}
        self._least: dict[tuple[str, str, str], int] = {}

    def note(self, cluster: Cluster) -> None:
        """Note how it is after a write."""
        for obj in list_written(cluster):
            replicas = _replicas(obj)
            if replicas is not None:
                key = _key(obj)
                self._least[key] = min(replicas, self._least.get(key, replicas))

    def find_undone(self, cluster: Cluster) -> Iterator[str]:
        """Yield in words what has been undone since the start, though it is there before and after."""
        for obj in list_written(cluster):
            key = _key(obj)
            before = self._before.get(key)
            if before is None:
                continue
            name = f"{obj['kind']} {obj['metadata']['name']}"
            if before["metadata"]["uid"] != obj["metadata"]["uid"]:
                if before.get("spec") == obj.get("spec") and before.get("data") == obj.get("data"):
                    yield f"{name} is deleted and created again, though nothing in it changes"
                continue
            ends = [replicas for each in (before, obj) if (replicas := _replicas(each)) is not None]
            least = self._least.get(key, 0)
            if len(ends) == 2 and key in self._least and least < min(ends):
                yield f"{name} is scaled down to {least} on the way from {ends[0]} to {ends[1]} replicas"


def _key(obj: Mapping[str, Any]) -> tuple[str, str, str]:
    meta = obj["metadata"]
    return obj["kind"], meta.get("namespace", ""), meta["name"]


def _replicas(obj: Mapping[str, Any]) -> int | None:
    replicas = (obj.get("spec") or {}).get("replicas")
    workload = obj["kind"] in ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController")
    return replicas if workload and isinstance(replicas, int) else None


def find_lies(obj: Mapping[str, Any], objects: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield in which conditions an object says that it is ready, though a workload that it owns is not.

    A condition that is about an earlier generation is no lie: it says so.
    """
    claims = [claim for claim in _iterate_claims(obj) if claim[1] >= obj["metadata"].get("generation", 0)]
    if not claims:
        return
    uid = obj["metadata"]["uid"]
    for child in objects:
        owners = child["metadata"].get("ownerReferences", ())
        if child["kind"] not in WORKLOADS or not any(owner["uid"] == uid for owner in owners):
            continue
        if reason := _why_not_ready(child):
            yield f"{claims[0][0]} is True, while {child['kind']} {child['metadata']['name']} {reason}"


def _iterate_claims(obj: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the conditions that say that the object is ready, with the generation that they are about."""
    found = obj.get("status")
    status: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    conditions = status.get("conditions")
    for condition in conditions if isinstance(conditions, list) else ():
        if not (isinstance(condition, Mapping) and condition.get("status") == "True"):
            continue
        if condition.get("type") in _CLAIMS:
            observed = condition.get("observedGeneration", status.get("observedGeneration"))
            yield condition["type"], float("inf") if observed is None else observed


def _why_not_ready(child: Mapping[str, Any]) -> str | None:
    status, meta = child.get("status", {}), child["metadata"]
    if status.get("observedGeneration", 0) < meta.get("generation", 0):
        return "has not been observed in its newest generation"
    wanted = child.get("spec", {}).get("replicas", 1) if child["kind"] != "DaemonSet" else 0
    if wanted and not status.get("readyReplicas"):
        return f"has none of {wanted} replicas ready"
    return None


def find_outdated(obj: Mapping[str, Any]) -> Iterator[str]:
    """Yield which conditions say that an object is ready, in an earlier generation, though all is at rest."""
    generation = obj["metadata"].get("generation", 0)
    for name, observed in _iterate_claims(obj):
        if observed < generation:
            yield f"{name} is True for generation {observed}, and nobody looks at generation {generation}"
