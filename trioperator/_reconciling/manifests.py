"""Desired children that are ready to be sent, and what the cache says of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from trioperator._handling import guard
from trioperator._handling.handlers.children import Child, Strategy
from trioperator._reconciling.related import RelatedCache, RelatedRecord, Writer
from trioperator._reconciling.schedules import Applied, ChildKey
from trioperator._reconciling.watches import RelatedKind


class Manifest(NamedTuple):
    """A desired child, ready to be sent. ``kind`` is the one that is owned, ``key`` may name another version of it."""

    child: Child
    kind: RelatedKind
    key: ChildKey
    body: bytes
    strategy: Strategy
    writer: Writer

    @property
    def path(self) -> str:
        return self.key.resource.get_path(self.key.namespace or None, self.key.name)

    @property
    def cache(self) -> RelatedCache | None:
        """The cache of the child's kind in its namespace; None if that is not served."""
        return self.kind.find_cache(self.key.namespace)

    def find(self) -> RelatedRecord | None:
        """Return what is cached of the child; None if it does not exist."""
        cache = self.cache
        return None if cache is None else cache.find(self.key.namespace, self.key.name)


def is_as_desired(record: RelatedRecord | None, manifest: Manifest, applied: Applied | None) -> bool:
    """Check whether a child need not be applied: it is as it was applied before, or stays as it is anyway."""
    if record is None:
        return False
    return manifest.strategy == "on_delete" or applied == Applied(record.uid, hash(manifest.body), record.fields)


def is_ready(record: RelatedRecord, manifest: Manifest) -> bool:
    """Check whether others need not wait for a child. One whose controller is behind its spec is not ready."""
    if record.deleting:
        return False
    if manifest.child.ready is None:
        return True
    body = record.decode()
    if _is_behind(body):
        return False
    return bool(guard.call("The function ready= of {}", manifest.key, manifest.child.ready, body))


def _is_behind(body: Mapping[str, Any]) -> bool:
    """Check whether the controller of a child has not done its newest generation, if it says which one it has seen."""
    generation, status = (body.get("metadata") or {}).get("generation"), body.get("status")
    observed = status.get("observedGeneration") if isinstance(status, Mapping) else None
    if not isinstance(observed, int) or not isinstance(generation, int):
        return False
    return observed < generation or _is_rolling_out(body)


def _is_rolling_out(body: Mapping[str, Any]) -> bool:
    """Check whether pods of a workload are of an older template, as ``kubectl rollout status`` does.

    Those that are ready say nothing of the newest template: with a broken one, they are of the one before.
    """
    spec, status = body.get("spec") or {}, body["status"]
    strategy = spec.get("updateStrategy") or {}
    if not str(body.get("apiVersion")).startswith("apps/") or strategy.get("type") == "OnDelete":
        return False
    wanted, updated = spec.get("replicas", 1), status.get("updatedReplicas", 0)
    match body.get("kind"):
        case "Deployment":
            return bool(updated < wanted or status.get("replicas", 0) > updated)
        case "StatefulSet":
            return bool(updated < wanted - ((strategy.get("rollingUpdate") or {}).get("partition") or 0))
        case "DaemonSet":
            return bool(status.get("updatedNumberScheduled", 0) < status.get("desiredNumberScheduled", 0))
    return False
