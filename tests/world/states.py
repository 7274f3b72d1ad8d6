"""The end states of operators, made comparable: what is stored, without what no two runs have in common."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

# What the API server adds, and what is part of every cluster.
_SERVERS = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "selfLink",
)
_KINDS = (
    "Event",
    "Lease",
    "ControllerRevision",
    "EndpointSlice",
    "Endpoints",
    "ReplicaSet",
    "CustomResourceDefinition",
)
_UID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?")
# Where the frameworks keep their state: the names differ natively, and the contents are tested by others. Kopf marks a
# prefix of an operator's own as soon as it calls a handler, the bridge when it has something to store there. The bridge
# also stores what has been seen, while handlers of that are retried.
_STORED = re.compile(r"^(kopf\.zalando\.org|trioperator\.dev)/|/(kopf-managed|(also-)?seen-configuration)$")
# What only one of them has in its records of progress: in the status, and as JSON in annotations of any prefix.
_RECORDED = re.compile(
    r'"attempted": "<time>", |,\\"attempted\\":\\"<time>\\"|"base": "[0-9a-f]*", |,\\"base\\":\\"[0-9a-f]*\\"'
)
# What Kopf leaves of its progress in the status when nothing is in progress any more.
_EMPTY: Final[tuple[dict[str, Any], ...]] = ({}, {"progress": {}})
_FINALIZERS = ("kopf.zalando.org/KopfFinalizerMarker", "trioperator.dev/finalizer")


def normalize(objects: Iterable[Mapping[str, Any]], before: Iterable[str], masks: Sequence[str] = ()) -> list[str]:
    """Return the objects as lines of JSON, sorted, without those whose uids are *before*.

    Uids become the names of their objects, times become ``<time>``, and what one of the patterns in *masks* matches
    becomes ``<…>``.
    """
    known, existed = list(objects), set(before)
    names = {obj["metadata"]["uid"]: f"<uid of {obj['kind']} {obj['metadata']['name']}>" for obj in known}
    pattern = re.compile("|".join(map(re.escape, names))) if names else None
    lines = []
    for obj in known:
        if obj["kind"] in _KINDS or obj["metadata"]["uid"] in existed or _is_standard(obj):
            continue
        line = json.dumps(_strip(obj), sort_keys=True)
        if pattern is not None:
            line = pattern.sub(lambda match: names[match.group()], line)
        line = _RECORDED.sub("", _TIME.sub("<time>", _UID.sub("<uid of what is gone>", line)))
        for mask in masks:
            line = re.sub(mask, "<…>", line)
        lines.append(line)
    return sorted(lines)


def _is_standard(obj: Mapping[str, Any]) -> bool:
    """Return whether a controller of Kubernetes has created the object in a new namespace."""
    return (obj["kind"], obj["metadata"]["name"]) in (("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default"))


def _strip(obj: Mapping[str, Any]) -> dict[str, Any]:
    meta = {key: value for key, value in obj["metadata"].items() if key not in _SERVERS}
    if "deletionTimestamp" in obj["metadata"]:
        meta["is deleted"] = True
    annotations = {key: value for key, value in meta.pop("annotations", {}).items() if not _STORED.search(key)}
    annotations |= {key: _sort(annotations[key]) for key in annotations if key.endswith("/last-handled-configuration")}
    if len(annotations) < len(obj["metadata"].get("annotations", {})):
        annotations["is handled"] = True
    finalizers = ["the framework's" if name in _FINALIZERS else name for name in meta.pop("finalizers", [])]
    found = {key: value for key, value in obj.items() if key != "metadata"}
    status = found.get("status")
    if isinstance(status, dict) and status.get("kopf") in _EMPTY:
        found["status"] = {key: value for key, value in status.items() if key != "kopf"}
    if found["kind"] == "Namespace":
        found = {"kind": "Namespace"}
    return {**found, "metadata": {**meta, "annotations": annotations, "finalizers": finalizers}}


def _sort(text: str) -> str:
    """Return a configuration with its keys in order: it keeps that in which others have written them."""
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except json.JSONDecodeError:
        return text


def compare(expected: Mapping[str, Sequence[str]], found: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the differences between the states after each step, as lines of a diff."""
    lines: list[str] = []
    for step in dict.fromkeys([*expected, *found]):
        before, after = (_pretty(states.get(step, ["(not reached)"])) for states in (expected, found))
        if before != after:
            lines += [*difflib.unified_diff(before, after, "Kopf", "found", lineterm="", n=2), f"^ {step}"]
    return lines


def _pretty(lines: Sequence[str]) -> list[str]:
    """Return the lines of objects, indented; after a mask, an object may not be JSON any more."""
    found: list[str] = []
    for line in lines:
        try:
            found += json.dumps(json.loads(line), indent=1, sort_keys=True).splitlines()
        except json.JSONDecodeError:
            found += line.split(", ")
    return found
