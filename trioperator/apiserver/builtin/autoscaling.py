"""Conversion of HorizontalPodAutoscalers between ``autoscaling/v1`` and the stored version, v2. Pure.

Fields that ``autoscaling/v1`` does not have become annotations there: all metrics but CPU utilization, behavior,
conditions and current metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ..model.json_text import decode_json
from ..model.unmarshal import UnmarshalError, unmarshal_as

__all__ = ["from_v1", "to_v1"]

Object = dict[str, Any]

_V2: Final = "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler"
_PREFIX: Final = "autoscaling.alpha.kubernetes.io/"
# For each metric source: the paths of its fields in v2, and their names in v1.
_TARGET: Final = {"target.averageUtilization": "targetAverageUtilization", "target.averageValue": "targetAverageValue"}
_CURRENT: Final = {
    "current.averageUtilization": "currentAverageUtilization",
    "current.averageValue": "currentAverageValue",
}
_METRIC: Final = {"metric.name": "metricName"}
_SPEC_FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    "resource": {"name": "name", **_TARGET},
    "containerResource": {"name": "name", "container": "container", **_TARGET},
    "pods": {**_METRIC, "metric.selector": "selector", "target.averageValue": "targetAverageValue"},
    "object": {
        "describedObject": "target",
        **_METRIC,
        "metric.selector": "selector",
        "target.value": "targetValue",
        "target.averageValue": "averageValue",
    },
    "external": {
        **_METRIC,
        "metric.selector": "metricSelector",
        "target.value": "targetValue",
        "target.averageValue": "targetAverageValue",
    },
}
_STATUS_FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    "resource": {"name": "name", **_CURRENT},
    "containerResource": {"name": "name", "container": "container", **_CURRENT},
    "pods": {**_METRIC, "metric.selector": "selector", "current.averageValue": "currentAverageValue"},
    "object": {
        "describedObject": "target",
        **_METRIC,
        "metric.selector": "selector",
        "current.value": "currentValue",
        "current.averageValue": "averageValue",
    },
    "external": {
        **_METRIC,
        "metric.selector": "metricSelector",
        "current.value": "currentValue",
        "current.averageValue": "currentAverageValue",
    },
}
_TARGET_TYPES: Final = {"averageUtilization": "Utilization", "averageValue": "AverageValue", "value": "Value"}


def to_v1(obj: Mapping[str, Any]) -> Object:
    """Convert a stored autoscaler to ``autoscaling/v1``."""
    spec, status, notes = dict(obj["spec"]), dict(obj.get("status") or {}), {}
    metrics, behavior = spec.pop("metrics", []), spec.pop("behavior", None)
    cpu = next((metric for metric in metrics if _cpu(metric, "target") is not None), None)
    if cpu is not None:
        spec["targetCPUUtilizationPercentage"] = _cpu(cpu, "target")
    if others := [_metric_to_v1(metric, _SPEC_FIELDS) for metric in metrics if metric is not cpu]:
        notes["metrics"] = others
    if behavior is not None:
        notes["behavior"] = _capitalized(behavior)
    if conditions := status.pop("conditions", None):
        notes["conditions"] = conditions
    if current := status.pop("currentMetrics", None):
        notes["current-metrics"] = [_with_value(_metric_to_v1(metric, _STATUS_FIELDS)) for metric in current]
        usage = next((found for found in (_cpu(metric, "current") for metric in current) if found is not None), None)
        status |= {} if usage is None else {"currentCPUUtilizationPercentage": usage}
    meta = dict(obj["metadata"])
    if notes:
        texts = {f"{_PREFIX}{name}": msgspec.json.encode(value).decode() for name, value in notes.items()}
        meta["annotations"] = {**(meta.get("annotations") or {}), **texts}
    status = {"currentReplicas": 0, "desiredReplicas": 0, **status}
    return {**obj, "apiVersion": "autoscaling/v1", "metadata": meta, "spec": spec, "status": status}


def from_v1(obj: Mapping[str, Any]) -> Object:
    """Convert an ``autoscaling/v1`` object to the stored version."""
    spec, status, meta = dict(obj["spec"]), dict(obj.get("status") or {}), dict(obj.get("metadata") or {})
    notes = _pop_annotations(meta)
    metrics = list(notes.get("metrics") or ())
    percentage = spec.pop("targetCPUUtilizationPercentage", None)
    if percentage is not None or not metrics:
        target = {"type": "Utilization", "averageUtilization": 80 if percentage is None else percentage}
        metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": target}})
    spec["metrics"] = metrics
    if behavior := notes.get("behavior"):
        spec["behavior"] = behavior
    usage = status.pop("currentCPUUtilizationPercentage", None)
    current = [metric for metric in notes.get("current-metrics") or () if _cpu(metric, "current") is None]
    if usage is not None:
        resource = {"name": "cpu", "current": {"averageUtilization": usage}}
        current.append({"type": "Resource", "resource": resource})
    status["currentMetrics"] = current or None
    if conditions := notes.get("conditions"):
        status["conditions"] = conditions
    if not status.get("currentReplicas"):
        status.pop("currentReplicas", None)
    return {**obj, "metadata": meta, "spec": spec, "status": status}


def _pop_annotations(meta: Object) -> dict[str, Any]:
    """Remove the annotations of the conversion; return what they contain, in v2. Invalid ones are dropped, as in Go."""
    annotations = dict(meta.get("annotations") or {})
    notes = {}
    for name, (part, field, convert) in _NOTES.items():
        text = annotations.pop(f"{_PREFIX}{name}", None)
        try:
            value = None if text is None else convert(decode_json(text.encode()))
            if value:
                notes[name] = unmarshal_as(_V2, {part: {field: value}})[part][field]
        except (AttributeError, TypeError, ValueError, LookupError, UnmarshalError):
            continue  # a value of another type somewhere
    if "annotations" in meta:
        meta["annotations"] = annotations
    return notes


def _cpu(metric: Mapping[str, Any], part: str) -> int | None:
    resource = metric.get("resource") or {}
    value = (resource.get(part) or {}).get("averageUtilization")
    return value if metric.get("type") == "Resource" and resource.get("name") == "cpu" else None


def _metric_to_v1(metric: Mapping[str, Any], fields: Mapping[str, Mapping[str, str]]) -> Object:
    result: Object = {"type": metric["type"]}
    for source, names in fields.items():
        if source in metric:
            found = ((name, _at(metric[source], path)) for path, name in names.items())
            result[source] = {name: value for name, value in found if value is not None}
    return result


def _with_value(metric: Object) -> Object:
    """Return the current metric of v1 with its required value."""
    for source in {"resource", "containerResource"} & set(metric):
        metric[source].setdefault("currentAverageValue", "0")
    return metric


def _at(node: Mapping[str, Any], path: str) -> Any:
    first, _, rest = path.partition(".")
    value = node.get(first)
    return value if not rest or value is None else value.get(rest)


def _metric_from_v1(metric: Mapping[str, Any], fields: Mapping[str, Mapping[str, str]]) -> Object:
    result: Object = {"type": metric.get("type", "")}
    for source, names in fields.items():
        if (found := metric.get(source)) is None:
            continue
        made: Object = {}
        for path, name in names.items():
            first, _, rest = path.partition(".")
            if (value := found.get(name)) is None:
                continue
            if rest:
                made.setdefault(first, {})[rest] = value
            else:
                made[first] = value
        if "target" in made:
            kind = next((text for field, text in _TARGET_TYPES.items() if field in made["target"]), "")
            made["target"] = {"type": kind, **made["target"]}
        result[source] = made
    return result


def _capitalized(value: Any) -> Any:
    """Return the behavior with the Go field names that the real server uses in the annotation."""
    if isinstance(value, list):
        return [_capitalized(item) for item in value]
    if not isinstance(value, dict):
        return value
    renamed = {f"{name[0].upper()}{name[1:]}": _capitalized(item) for name, item in value.items()}
    return {**renamed, "Tolerance": renamed.get("Tolerance")} if "policies" in value else renamed


def _uncapitalized(value: Any) -> Any:
    if isinstance(value, list):
        return [_uncapitalized(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {f"{name[0].lower()}{name[1:]}": _uncapitalized(item) for name, item in value.items() if item is not None}


# For each annotation: where its content belongs to in v2, and its conversion.
_NOTES: Final[Mapping[str, tuple[str, str, Callable[[Any], Any]]]] = {
    "metrics": ("spec", "metrics", lambda items: [_metric_from_v1(item, _SPEC_FIELDS) for item in items or ()]),
    "behavior": ("spec", "behavior", _uncapitalized),
    "conditions": ("status", "conditions", lambda items: items),
    "current-metrics": (
        "status",
        "currentMetrics",
        lambda items: [_metric_from_v1(item, _STATUS_FIELDS) for item in items or ()],
    ),
}
