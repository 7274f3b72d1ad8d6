"""Objects that a cluster has before clients create any."""

from __future__ import annotations

from typing import Any, Final

from .model.builtin_kinds import COMPONENTS, DEFAULT_NAMESPACES
from .store.state import State

#: The Service of the API itself.
API_SERVICE: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
    "spec": {"clusterIP": "10.0.0.1", "ports": [{"name": "https", "port": 443, "targetPort": 6443}]},
}


def create_namespaces(state: State) -> None:
    """Create the default namespaces that do not exist yet."""
    for name in DEFAULT_NAMESPACES:
        content = {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
        _create(state, "Namespace", name, content, labels={"kubernetes.io/metadata.name": name})


def create_component_statuses(state: State) -> None:
    """Create the status of each component of the control plane that has none yet."""
    for name in COMPONENTS:
        _create(state, "ComponentStatus", name, {"conditions": [{"type": "Healthy", "status": "True"}]})


def _create(state: State, kind: str, name: str, content: dict[str, Any], **metadata: Any) -> None:
    found = state.catalog.by_object("v1", kind)
    assert found is not None
    table = state.table(found)
    if name not in table.objects:
        meta = {"name": name, "uid": state.uid(), "creationTimestamp": state.timestamp(), **metadata}
        state.store.put(table, name, {"kind": kind, "apiVersion": "v1", "metadata": meta, **content})
