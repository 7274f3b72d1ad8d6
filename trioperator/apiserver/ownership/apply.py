"""Server-side apply: what an applier wants becomes part of the object, and the applier its manager. Pure.

The order of what happens is that of the real server: what is wanted is merged in, what the applier has wanted before
and nobody has now is taken out, and what others have set to other values is a conflict, unless it is forced.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from trioperator.errors import ApiError

from ..model.errors import bad_request
from ..model.kinds import Kind, kind_of
from ..model.metadata import ANNOTATIONS_LIMIT
from .comparison import Comparison, Scope, compare, fields_of
from .field_sets import FieldSet, contains, difference, exclude, union
from .field_types import FieldType, UntypedItemError, typing_problems
from .managed_fields import Conflict, Entry, Manager, conflicts_with, take_by_apply
from .merge import merge, prune

__all__ = ["Application", "apply", "check_wanted"]

_KUBECTL: Final = "kubectl"
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_encode: Final = msgspec.json.Encoder(order="sorted").encode


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """One apply: what is wanted, by whom, of an object of which type."""

    root: FieldType
    scope: Scope
    manager: Manager
    wanted: dict[str, Any]
    force: bool
    time: str


def check_wanted(kind: Kind, root: FieldType, wanted: Any) -> None:
    """Refuse what cannot be applied to an object of the kind."""
    title = _title(wanted)
    if kind_of(wanted) != (kind.api_version, kind.kind):
        raise bad_request(f"invalid object type: {title}")
    meta = wanted.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    if meta.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    problems = list(typing_problems(root, wanted))
    if problems:
        text = problems[0] if len(problems) == 1 else "\n  ".join(["errors:", *problems])
        place = f"{meta.get('namespace') or ''}/{meta.get('name') or ''}"
        raise ApiError.of(f"failed to create typed patch object ({place}; {title}): {text}", status=500)


def _title(wanted: Mapping[str, Any]) -> str:
    api_version, name = kind_of(wanted)
    group, _, version = api_version.rpartition("/")
    return f"{group}/{version}, Kind={name}"


def apply(
    application: Application, live: dict[str, Any], entries: Sequence[Entry]
) -> tuple[dict[str, Any], list[Entry]]:
    """Return the live object with what is wanted in it, and the entries of its managers; refuse conflicts with 409.

    The live object itself comes back if nothing has changed.
    """
    try:
        merged = merge(application.root, live, application.wanted)
        fields = exclude(fields_of(application.root, application.wanted), application.scope.fields)
        last: FieldSet = {}
        owned = fields
        for entry in entries:
            if application.manager.has(entry):
                last = entry["fieldsV1"]
            else:
                owned = union(owned, entry["fieldsV1"])
        merged = prune(application.root, merged, last=last, owned=owned)
        comparison = compare(application.root, live, merged, application.scope)
    except UntypedItemError as error:
        raise ApiError.of(f"failed to merge config: {error}", status=500) from None
    if not application.force:
        _check_conflicts(application, live, entries, comparison)
    is_same = merged == live
    time = None if is_same else application.time
    entries = take_by_apply(entries, application.manager, fields, comparison, time)
    return _with_last_applied(application, live if is_same else merged), entries


def _check_conflicts(
    application: Application, live: Mapping[str, Any], entries: Sequence[Entry], comparison: Comparison
) -> None:
    conflicts = conflicts_with(entries, application.manager, comparison)
    if conflicts and application.manager.name == _KUBECTL:
        allowed = _fields_last_applied(application, live)
        conflicts = [conflict for conflict in conflicts if not contains(allowed, conflict.path)]
    if conflicts:
        raise _refusal(conflicts)


def _refusal(conflicts: list[Conflict]) -> ApiError:
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {item.manager}", "field": item.field}
        for item in conflicts
    ]
    if len(conflicts) == 1:
        text = f"Apply failed with 1 conflict: conflict with {conflicts[0].manager}: {conflicts[0].field}"
    else:
        lines: list[str] = []
        for shown in sorted({item.manager for item in conflicts}):
            lines.append(f"conflicts with {shown}:")
            lines.extend(f"- {item.field}" for item in conflicts if item.manager == shown)
        text = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
    return ApiError.of(text, status=409, reason="Conflict", details={"causes": causes})


# -- kubectl's own record ------------------------------------------------------------------------------------------
# kubectl's client-side apply notes in an annotation what it has applied. Who goes over to server-side apply shall not
# get conflicts with oneself, and who goes back shall find the annotation as it would have been.


def _fields_last_applied(application: Application, live: Mapping[str, Any]) -> FieldSet:
    """Return the fields that client-side apply has set and nobody has changed since."""
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(_LAST_APPLIED)
    try:
        applied = msgspec.json.decode(text) if text else None
        if not isinstance(applied, dict) or applied.get("apiVersion") != application.manager.api_version:
            return {}
        since = compare(application.root, applied, live, Scope())
        fields = fields_of(application.root, applied)
    except (msgspec.DecodeError, UntypedItemError):
        return {}
    return difference(difference(fields, since.changed), since.removed)


def _with_last_applied(application: Application, obj: dict[str, Any]) -> dict[str, Any]:
    meta = obj.get("metadata") or {}
    annotations = meta.get("annotations") or {}
    if application.manager.name != _KUBECTL or not annotations.get(_LAST_APPLIED):
        return obj
    wanted = application.wanted
    wanted_meta = wanted.get("metadata") or {}
    kept = {key: value for key, value in (wanted_meta.get("annotations") or {}).items() if key != _LAST_APPLIED}
    wanted_meta = {key: value for key, value in wanted_meta.items() if key != "annotations"}
    noted = {**wanted, "metadata": {**wanted_meta, **({"annotations": kept} if kept else {})}}
    annotations = {**annotations, _LAST_APPLIED: _encode(noted).decode() + "\n"}
    if sum(len(key.encode()) + len(str(value).encode()) for key, value in annotations.items()) > ANNOTATIONS_LIMIT:
        del annotations[_LAST_APPLIED]
    return {**obj, "metadata": {**meta, "annotations": annotations}}
