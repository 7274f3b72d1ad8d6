"""Status of custom resource definitions: accepted names, stored versions, conditions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..model.kinds import Catalog
from .definitions import versions_of

Condition = Mapping[str, str]


def initial_status(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status of a new definition."""
    spec = obj.get("spec")
    versions = versions_of(spec) if isinstance(spec, dict) else ()
    stored = [version.get("name") for version in versions if version.get("storage")]
    return {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored}


def updated_status(obj: Mapping[str, Any], catalog: Catalog, *, now: str) -> dict[str, Any]:
    """Return the status of the definition, given the kinds that are served, at the time *now*."""
    status: dict[str, Any] = dict(obj.get("status") or {})
    versions = [item["name"] for item in obj["spec"]["versions"] if item.get("storage")]
    old_versions = status.get("storedVersions") or []
    status["storedVersions"] = [*old_versions, *(name for name in versions if name not in old_versions)]
    conflict = _naming_conflict(obj, catalog)
    if conflict is None:
        status["acceptedNames"] = obj["spec"]["names"]
    for condition in _conditions(status, conflict, is_terminating="deletionTimestamp" in obj["metadata"]):
        status = _set_condition(status, condition, now=now)
    return status


def deleted_status(status: Mapping[str, Any], *, now: str) -> dict[str, Any]:
    """Return the status of a definition whose deletion was requested at the time *now*."""
    text = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
    condition = {"type": "Terminating", "status": "True", "reason": "InstanceDeletionPending", "message": text}
    return _set_condition(status, condition, now=now)


def is_established(status: Mapping[str, Any]) -> bool:
    """Return whether the kinds of the definition are served."""
    return any(item["type"] == "Established" and item["status"] == "True" for item in status.get("conditions") or ())


def _conditions(status: Mapping[str, Any], conflict: str | None, *, is_terminating: bool) -> Iterable[Condition]:
    if conflict is None:
        text = "no conflicts found"
        yield {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": text}
        text = "the initial names have been accepted"
        yield {"type": "Established", "status": "True", "reason": "InitialNamesAccepted", "message": text}
    else:
        yield {"type": "NamesAccepted", "status": "False", "reason": "NamesConflict", "message": conflict}
        if not is_established(status):
            text = "not all names are accepted"
            yield {"type": "Established", "status": "False", "reason": "NotAccepted", "message": text}
    if is_terminating:
        text = "CustomResource deletion is in progress"
        yield {"type": "Terminating", "status": "True", "reason": "InstanceDeletionInProgress", "message": text}


def _naming_conflict(obj: Mapping[str, Any], catalog: Catalog) -> str | None:
    """Return the message for a name that another resource of the group already has, or None."""
    spec, names = obj["spec"], obj["spec"]["names"]
    mine = (spec["group"], names["plural"])
    others = [
        kind
        for version in catalog.versions(spec["group"])
        for kind in catalog.kinds(spec["group"], version)
        if kind.resource != mine
    ]
    words = {word for kind in others for word in (kind.plural, kind.singular, *kind.short_names)}
    kinds = {word for kind in others for word in (kind.kind, kind.list_kind)}
    for name in (names["plural"], names.get("singular"), *(names.get("shortNames") or ())):
        if name in words:
            return f'"{name}" is already in use'
    for name in (names["kind"], names.get("listKind")):
        if name in kinds:
            return f'"{name}" is already in use'
    return None


def _set_condition(status: Mapping[str, Any], condition: Mapping[str, str], *, now: str) -> dict[str, Any]:
    """Return the status with the condition set; the transition time changes only with its value."""
    conditions = list(status.get("conditions") or ())
    for at, old in enumerate(conditions):
        if old["type"] == condition["type"]:
            moment = old["lastTransitionTime"] if old["status"] == condition["status"] else now
            conditions[at] = {**condition, "lastTransitionTime": moment}
            break
    else:
        conditions.append({**condition, "lastTransitionTime": now})
    return {**status, "conditions": conditions}
