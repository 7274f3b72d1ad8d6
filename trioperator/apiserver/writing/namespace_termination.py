"""Termination of namespaces: their objects are deleted, and they go when nothing is left in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from ..bodies.delete_options import DeleteOptions
from ..model.kinds import Kind
from ..model.user import system_account
from ..store.state import State
from ..store.storage import Change, Stored, Table
from .followups import FollowUps

# Conditions of a namespace in which nothing is left: types, reasons, messages.
_DONE: Final = (
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
)


def with_conditions(
    status: Mapping[str, Any], resources: Mapping[str, int], finalizers: Mapping[str, int], *, now: str
) -> dict[str, Any]:
    """Return the status of a namespace with these numbers of remaining objects, by resource and by finalizer."""
    remaining = {
        "NamespaceContentRemaining": (
            "SomeResourcesRemain",
            "Some resources are remaining: ",
            [f"{name} has {count} resource instances" for name, count in resources.items()],
        ),
        "NamespaceFinalizersRemaining": (
            "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining: ",
            [f"{name} in {count} resource instances" for name, count in finalizers.items()],
        ),
    }
    conditions: Sequence[Mapping[str, str]] = status.get("conditions") or ()
    found = {condition["type"]: condition for condition in conditions}
    for kind, done, text in _DONE:
        reason, prefix, parts = remaining.get(kind, ("", "", []))
        wanted = {"type": kind, "status": "False", "reason": done, "message": text}
        if parts:
            wanted |= {"status": "True", "reason": reason, "message": prefix + ", ".join(sorted(parts))}
        old = found.get(kind)
        moment = old["lastTransitionTime"] if old and old["status"] == wanted["status"] else now
        found[kind] = {**wanted, "lastTransitionTime": moment}
    return {**status, "conditions": list(found.values())}


_NAMESPACES: Final = ("", "namespaces")
_PODS: Final = ("", "pods")
_PODS_NAME: Final = "pods."  # in conditions
_USER: Final = system_account("namespace-controller")


class NamespaceTermination:
    """The namespaces that are being deleted."""

    def __init__(
        self, state: State, followups: FollowUps, *, delete: Callable[[Kind, Stored, DeleteOptions], None]
    ) -> None:
        self._state = state
        self._followups = followups
        self._delete = delete
        self._terminating: set[str] = set()

    def observe(self, table: Table, change: Change) -> None:
        """Queue the next step for a namespace that is being deleted, or that has lost an object."""
        old, new = change.old, change.new
        if table.resource == _NAMESPACES:
            if new is not None and "deletionTimestamp" in new.obj["metadata"]:
                self._terminating.add(change.key)
                self._followups.defer(partial(self._terminate, change.key))
            elif new is None:
                self._terminating.discard(change.key)
        elif new is None and old is not None:
            namespace = old.obj["metadata"].get("namespace")
            if namespace and namespace in self._terminating:
                self._followups.defer(partial(self._terminate, namespace))

    def _terminate(self, name: str) -> None:
        """Delete what is in the namespace; when nothing is left, the namespace itself."""
        namespaces = self._state.store.table(_NAMESPACES)
        stored = namespaces.objects.get(name)
        if stored is None or "deletionTimestamp" not in stored.obj["metadata"]:
            return
        resources: Counter[str] = Counter()
        finalizers: Counter[str] = Counter()
        for kind in sorted(self._namespaced_kinds(), key=lambda kind: kind.resource != _PODS):
            if resources[_PODS_NAME]:
                break  # what Pods may still need waits until they are gone
            table = self._state.table(kind)
            for key in tuple(table.keys(f"{name}/")):
                found = table.objects[key]
                if "deletionTimestamp" not in found.obj["metadata"]:
                    self._delete(kind, found, DeleteOptions(policy="Background", user=_USER))
            for key in table.keys(f"{name}/"):
                resources[f"{kind.plural}.{kind.group}"] += 1
                finalizers.update(table.objects[key].obj["metadata"].get("finalizers") or ())
        status = with_conditions(stored.obj["status"], resources, finalizers, now=self._state.timestamp())
        if status != stored.obj["status"]:
            stored = self._state.store.put(namespaces, name, {**stored.obj, "status": status})
        if not resources:
            self._finalize(stored)

    def _finalize(self, stored: Stored) -> None:
        """Remove Kubernetes' own finalizer from the spec of an empty namespace, and the namespace with the last one."""
        namespaces = self._state.store.table(_NAMESPACES)
        spec = stored.obj.get("spec") or {}
        left = [finalizer for finalizer in spec.get("finalizers") or () if finalizer != "kubernetes"]
        if not left and not stored.obj["metadata"].get("finalizers"):
            self._state.store.remove(namespaces, stored.key)
        elif left != (spec.get("finalizers") or []):
            self._state.store.put(namespaces, stored.key, {**stored.obj, "spec": {"finalizers": left} if left else {}})

    def _namespaced_kinds(self) -> Iterable[Kind]:
        for resource in tuple(self._state.store.tables):
            kind = self._state.catalog.by_resource(resource)
            if kind is not None and kind.namespaced:
                yield kind
