"""The simulated node of the cluster, and the check whether a Pod fits a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .client import Client, Object, Resource
from .templates import has_selector

ADDRESS: Final = "192.0.2.1"  # reserved for documentation: nothing answers
NODE_NAME: Final = "embedded"
NODES: Final[Resource] = ("", "nodes")

_CAPACITY: Final = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "10000"}
_LABELS: Final = {
    "kubernetes.io/hostname": NODE_NAME,
    "kubernetes.io/os": "linux",
    "kubernetes.io/arch": "amd64",
    "beta.kubernetes.io/os": "linux",
    "beta.kubernetes.io/arch": "amd64",
}
_INFO: Final = {
    "architecture": "amd64",
    "bootID": "",
    "containerRuntimeVersion": "simulated://1",
    "kernelVersion": "0",
    "kubeProxyVersion": "",
    "kubeletVersion": "v1.36.3",
    "machineID": "",
    "operatingSystem": "linux",
    "osImage": "simulated",
    "systemUUID": "",
}
_REASONS: Final = {
    "MemoryPressure": "KubeletHasSufficientMemory",
    "DiskPressure": "KubeletHasNoDiskPressure",
    "PIDPressure": "KubeletHasSufficientPID",
    "Ready": "KubeletReady",
}


def fits(pod_spec: Mapping[str, Any], node: Object) -> bool:
    """Return whether the node selector and the affinity of a Pod's spec match the node."""
    labels = node["metadata"].get("labels") or {}
    if not (pod_spec.get("nodeSelector") or {}).items() <= labels.items():
        return False
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    names = {"metadata.name": node["metadata"]["name"]}
    return any(
        has_selector({"matchExpressions": term.get("matchFields")}, names)
        and has_selector({"matchExpressions": term.get("matchExpressions")}, labels)
        for term in required["nodeSelectorTerms"]
    )


async def register_node(client: Client) -> None:
    """Create the node if it does not exist."""
    if client.get(NODES, NODE_NAME) is not None:
        return
    now = client.timestamp()
    conditions = [
        {
            "type": name,
            "status": "True" if name == "Ready" else "False",
            "reason": reason,
            "message": "The node is simulated.",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        for name, reason in _REASONS.items()
    ]
    status: Object = {
        "addresses": [{"type": "InternalIP", "address": ADDRESS}, {"type": "Hostname", "address": NODE_NAME}],
        "allocatable": _CAPACITY,
        "capacity": _CAPACITY,
        "conditions": conditions,
        "nodeInfo": _INFO,
    }
    meta = {"name": NODE_NAME, "labels": _LABELS}
    await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}, "status": status})
