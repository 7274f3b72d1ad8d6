"""What lives around operators: kinds, definitions and manifests, and faults by their names."""

from __future__ import annotations

import copy
from typing import Any, Final

from trioperator.testing import Fault

GROUP = "lives.example.com"
# Plural names and scopes by kind.
KINDS = {
    "Widget": ("widgets", "Namespaced"),
    "Gizmo": ("gizmos", "Namespaced"),
    "App": ("apps", "Namespaced"),
    "Dash": ("dashes", "Namespaced"),
    "Tenant": ("tenants", "Cluster"),
    "Wait": ("waits", "Namespaced"),
    "Task": ("tasks", "Namespaced"),
    "Note": ("notes", "Namespaced"),
    "Member": ("members", "Namespaced"),
    "Order": ("orders", "Namespaced"),
    "Entry": ("entries", "Namespaced"),
    "Query": ("queries", "Namespaced"),
    "Lamp": ("lamps", "Namespaced"),
    "Pass": ("passes", "Namespaced"),
    "Ticket": ("tickets", "Namespaced"),
    "Tree": ("trees", "Namespaced"),
    "Leaf": ("leaves", "Namespaced"),
}
_ANYTHING: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_STATUS = {"observedGeneration": {"type": "integer"}, "conditions": {"type": "array", "items": _ANYTHING}}
# Kinds whose schema has conditions, which the operator sets.
_WITH_CONDITIONS = {"App"}


def definition(kind: str, *, versions: int = 1) -> dict[str, Any]:
    """Return the definition of a kind, with so many versions."""
    plural, scope = KINDS[kind]
    return _definition(GROUP, kind, plural, scope, versions=versions)


#: Kinds and plural names of the peering objects of clusters, and of namespaces.
CLUSTERS_PEERING: Final = ("ClusterKopfPeering", "clusterkopfpeerings")
NAMESPACES_PEERING: Final = ("KopfPeering", "kopfpeerings")


def peering_definition(kind: str, plural: str) -> dict[str, Any]:
    """Return the definition of peering objects."""
    scope = "Cluster" if kind == CLUSTERS_PEERING[0] else "Namespaced"
    return _definition("kopf.dev", kind, plural, scope, status=False)


def peering(kind: str, namespace: str | None) -> dict[str, Any]:
    """Return a peering object."""
    meta = {"name": "default"} if namespace is None else {"name": "default", "namespace": namespace}
    return {"apiVersion": "kopf.dev/v1", "kind": kind, "metadata": meta}


def _definition(
    group: str, kind: str, plural: str, scope: str, *, versions: int = 1, status: bool = True
) -> dict[str, Any]:
    schema = _ANYTHING
    if kind in _WITH_CONDITIONS:
        schema = {**_ANYTHING, "properties": {"status": {**_ANYTHING, "properties": _STATUS}}}
    version: dict[str, Any] = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    if status:
        version["subresources"] = {"status": {}}
    others = [{**copy.deepcopy(version), "name": f"v{number}", "storage": False} for number in range(2, versions + 1)]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [version, *others],
        },
    }


def manifest(kind: str, name: str, spec: dict[str, Any], *, namespace: str | None = "default") -> dict[str, Any]:
    """Return an object."""
    meta = (
        {"name": name} if namespace is None or KINDS[kind][1] == "Cluster" else {"name": name, "namespace": namespace}
    )
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": meta, "spec": spec}


def configmap(name: str, data: dict[str, str], *, kind: str = "ConfigMap", **meta: Any) -> dict[str, Any]:
    """Return a ConfigMap, or a Secret."""
    content = {"data": data} if kind == "ConfigMap" else {"stringData": data}
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, **meta}, **content}


def make_fault(name: str, number: float) -> Fault:
    """Return a fault by its name; the number is a code, or the seconds or lines that it is about."""
    match name:
        case "status":
            return Fault.status(int(number))
        case "before":
            return Fault.delay(before=number)
        case "after":
            return Fault.delay(after=number)
        case "lag":
            return Fault.lag(number)
        case "error_event":
            return Fault.error_event(410, lines=int(number))
        case "close" | "break_off" | "half_line" | "silence":
            made: Fault = getattr(Fault, name)(lines=int(number))
            return made
        case _:
            fault: Fault = getattr(Fault, name)()
            return fault
