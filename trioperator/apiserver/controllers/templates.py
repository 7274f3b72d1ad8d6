"""Pods from templates, and what Pods' conditions mean. Pure."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, Final

from .client import Object, Resource

__all__ = [
    "PODS",
    "condition_of",
    "has_ended",
    "has_selector",
    "is_active",
    "is_ready",
    "make_pod",
    "owner_reference",
    "parse_time",
    "set_condition",
    "template_hash",
    "until_available",
]

PODS: Final[Resource] = ("", "pods")
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"  # those of generated names: no word can come of them


def template_hash(template: Mapping[str, Any]) -> str:
    """Return a short text that tells templates apart. The real one is another, for it depends on Go's types."""
    text = json.dumps(template, sort_keys=True, separators=(",", ":"))
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    letters = ""
    while len(letters) < 10:
        number, rest = divmod(number, len(_LETTERS))
        letters += _LETTERS[rest]
    return letters


def owner_reference(owner: Object) -> Object:
    """Return the reference by which the owner controls what it makes."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def make_pod(owner: Object, template: Mapping[str, Any], *, name: str = "", labels: Mapping[str, str]) -> Object:
    """Make a Pod of the template with some more labels; without a name its owner's is the prefix of its own."""
    own = template.get("metadata") or {}
    meta: Object = {
        "namespace": owner["metadata"]["namespace"],
        "labels": {**(own.get("labels") or {}), **labels},
        "ownerReferences": [owner_reference(owner)],
    }
    for field in ("annotations", "finalizers"):
        if own.get(field):
            meta[field] = own[field]
    meta |= {"name": name} if name else {"generateName": f"{owner['metadata']['name']}-"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": dict(template["spec"])}


def has_ended(pod: Object) -> bool:
    """Tell whether the Pod has succeeded or failed."""
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def is_active(pod: Object) -> bool:
    """Tell whether the Pod still counts: it has not ended, and is not about to."""
    return not has_ended(pod) and "deletionTimestamp" not in pod["metadata"]


def is_ready(pod: Object) -> bool:
    """Tell whether the Pod is ready."""
    condition = condition_of(pod.get("status") or {}, "Ready")
    return condition is not None and condition["status"] == "True"


def until_available(pod: Object, seconds: float, *, now: datetime.datetime) -> float:
    """Return the seconds until the Pod has been ready for so many; it is not available before. Never if not ready."""
    condition = condition_of(pod.get("status") or {}, "Ready")
    if condition is None or condition["status"] != "True":
        return math.inf
    return seconds - (now - parse_time(condition["lastTransitionTime"])).total_seconds()


def parse_time(timestamp: str) -> datetime.datetime:
    """Read a timestamp of the API."""
    return datetime.datetime.fromisoformat(timestamp.replace("Z", "+00:00"))


def condition_of(status: Mapping[str, Any], name: str) -> Object | None:
    """Return the condition of that type."""
    for condition in status.get("conditions") or ():
        if condition["type"] == name:
            found: Object = condition
            return found
    return None


def set_condition(status: Object, condition: Object, *, now: str) -> Object:
    """Return the status with the condition, whose time changes when its status does."""
    old = condition_of(status, condition["type"])
    since = old["lastTransitionTime"] if old is not None and old["status"] == condition["status"] else now
    new = {**condition, "lastTransitionTime": since}
    if old is None:
        return {**status, "conditions": [*(status.get("conditions") or ()), new]}
    return {**status, "conditions": [new if item is old else item for item in status["conditions"]]}


def has_selector(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Tell whether the label selector of an object (``matchLabels``, ``matchExpressions``) takes the labels."""
    selector = selector or {}
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(_holds(expression, labels) for expression in selector.get("matchExpressions") or ())


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels
