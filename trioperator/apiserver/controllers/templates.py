"""Pods from templates, and conditions. Pure."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from ..model.selectors import selector_of
from .client import Client, Object, Resource

PODS: Final[Resource] = ("", "pods")
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"  # the alphabet of generated names: it spells no words


def template_hash(template: Mapping[str, Any]) -> str:
    """Return a hash of the template. It differs from the real one, which depends on Go's types."""
    text = json.dumps(template, sort_keys=True, separators=(",", ":"))
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    letters = ""
    while len(letters) < 10:
        number, rest = divmod(number, len(_LETTERS))
        letters += _LETTERS[rest]
    return letters


def owner_reference(owner: Object) -> Object:
    """Return a reference to the owner as the controller."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def make_pod(owner: Object, template: Mapping[str, Any], *, name: str = "", labels: Mapping[str, str]) -> Object:
    """Return a Pod from the template, with additional labels; without a name it gets a ``generateName``."""
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
    """Return whether the Pod has succeeded or failed."""
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def is_active(pod: Object) -> bool:
    """Return whether the Pod has neither finished nor is being deleted."""
    return not has_ended(pod) and "deletionTimestamp" not in pod["metadata"]


def is_ready(pod: Object) -> bool:
    """Return whether the Pod is ready."""
    condition = condition_of(pod.get("status") or {}, "Ready")
    return condition is not None and condition["status"] == "True"


def until_available(pod: Object, seconds: float, *, now: datetime.datetime) -> float:
    """Return the seconds until the Pod has been ready for *seconds*; infinity if that is not known."""
    condition = condition_of(pod.get("status") or {}, "Ready")
    if condition is None or condition["status"] != "True":
        return math.inf
    if not (since := condition.get("lastTransitionTime")):  # somebody else has set it
        return math.inf if seconds else 0.0
    return seconds - (now - parse_time(since)).total_seconds()


def parse_time(timestamp: str) -> datetime.datetime:
    """Parse a timestamp of the API."""
    return datetime.datetime.fromisoformat(timestamp.replace("Z", "+00:00"))


def condition_of(status: Mapping[str, Any], name: str) -> Object | None:
    """Return the condition of the type, or None."""
    for condition in status.get("conditions") or ():
        if condition["type"] == name:
            found: Object = condition
            return found
    return None


def set_condition(status: Object, condition: Object, *, now: str) -> Object:
    """Return the status with the condition set; its transition time changes only with its status."""
    old = condition_of(status, condition["type"])
    since = old["lastTransitionTime"] if old is not None and old["status"] == condition["status"] else now
    new = {**condition, "lastTransitionTime": since}
    if old is None:
        return {**status, "conditions": [*(status.get("conditions") or ()), new]}
    return {**status, "conditions": [new if item is old else item for item in status["conditions"]]}


def has_selector(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Return whether the label selector of an object (``matchLabels``, ``matchExpressions``) matches the labels."""
    return selector_of(selector or {}).matches({"metadata": {"labels": labels}})


async def adopt(client: Client, owner: Object, resource: Resource, *, kept: Callable[[Object], bool]) -> None:
    """Become the controller of objects without one that have the owner's selector, and are to be *kept*."""
    selector = owner["spec"].get("selector") or {}
    if owner["kind"] == "ReplicationController":
        selector = {"matchLabels": selector}
    for obj in client.orphans(resource, owner["metadata"]["namespace"]):
        if has_selector(selector, obj["metadata"].get("labels") or {}) and kept(obj):
            owners = [*(obj["metadata"].get("ownerReferences") or ()), owner_reference(owner)]
            await client.merge(resource, obj, {"metadata": {"ownerReferences": owners}})
