"""HorizontalPodAutoscalers of ``autoscaling/v1``: the stored ones are of v2. Pure.

v1 has only a CPU utilization. Whatever else there is becomes annotations, as on the real server, but as v2 writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

Object = dict[str, Any]
V1: Final = ("autoscaling/v1", "HorizontalPodAutoscaler")
_PREFIX: Final = "autoscaling.alpha.kubernetes.io/"
_PARTS: Final = {  # by the names of annotations
    "metrics": ("spec", "metrics"),
    "behavior": ("spec", "behavior"),
    "conditions": ("status", "conditions"),
    "current-metrics": ("status", "currentMetrics"),
}


def to_v1(obj: Mapping[str, Any]) -> Object:
    """Convert a stored autoscaler to v1."""
    parts: dict[str, Object] = {name: dict(obj.get(name) or {}) for name in ("spec", "status")}
    metrics = parts["spec"].get("metrics") or []
    cpu = next((metric for metric in metrics if _utilization(metric) is not None), None)
    notes: dict[str, str] = {}
    for name, (part, field) in _PARTS.items():
        value = parts[part].pop(field, None)
        if name == "metrics":
            value = [metric for metric in metrics if metric is not cpu]
        if value:
            notes[_PREFIX + name] = msgspec.json.encode(value).decode()
    if cpu is not None:
        parts["spec"]["targetCPUUtilizationPercentage"] = _utilization(cpu)
    parts["status"] = {"currentReplicas": 0, "desiredReplicas": 0, **parts["status"]}
    meta = obj["metadata"]
    if notes:
        meta = {**meta, "annotations": {**(meta.get("annotations") or {}), **notes}}
    return {**obj, "apiVersion": V1[0], "metadata": meta, **parts}


def from_v1(obj: Mapping[str, Any]) -> Object:
    """Convert an autoscaler of v1 to the stored form. Annotations that are not ours to read are dropped."""
    parts: dict[str, Object] = {name: dict(obj.get(name) or {}) for name in ("spec", "status")}
    meta = dict(obj.get("metadata") or {})
    notes = dict(meta.get("annotations") or {})
    for name, (part, field) in _PARTS.items():
        try:
            parts[part][field] = msgspec.json.decode(notes.pop(_PREFIX + name, "null"))
        except msgspec.DecodeError:
            parts[part][field] = None
    if "annotations" in meta:
        meta["annotations"] = notes
    percentage = parts["spec"].pop("targetCPUUtilizationPercentage", None)
    metrics = parts["spec"].pop("metrics") or []
    if percentage is not None or not metrics:
        target = {"type": "Utilization", "averageUtilization": 80 if percentage is None else percentage}
        metrics = [*metrics, {"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    spec = {field: value for field, value in parts["spec"].items() if value is not None}
    return {**obj, "metadata": meta, "spec": {**spec, "metrics": metrics}, "status": parts["status"]}


def _utilization(metric: Mapping[str, Any]) -> int | None:
    resource = metric.get("resource") or {}
    found: int | None = (resource.get("target") or {}).get("averageUtilization")
    return found if metric.get("type") == "Resource" and resource.get("name") == "cpu" else None
