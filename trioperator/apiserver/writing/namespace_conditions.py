"""Conditions of namespaces that are being deleted: what is left in them, and what it waits for. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

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
