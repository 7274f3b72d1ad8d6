"""Server-side apply: merging a configuration into an object, and its ownership. Pure.

The steps are the same as on the real server: merge the configuration, remove fields that the applier applied before and
that nobody owns now, and report conflicts with other managers unless the apply is forced.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from trioperator.errors import ApiError

from ..model.errors import bad_request
from ..model.json_text import decode_json
from ..model.kinds import Kind, kind_of
from ..model.metadata import ANNOTATIONS_LIMIT
from .comparison import Comparison, Scope, compare, fields_of
from .field_sets import FieldSet, contains, difference, exclude, union_of
from .field_types import FieldType, UntypedItemError, typing_problems
from .managed_fields import Conflict, Entry, Manager, conflicts_with, entries_after_apply
from .merge import merge, prune

_SHOWN_CONFLICTS: Final = 1_000
_SHOWN_SIZE: Final = 256 * 1024  # characters of their managers and fields
_KUBECTL: Final = "kubectl"
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_encode: Final = msgspec.json.Encoder(order="sorted").encode


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """One apply: the configuration, its manager, and the type of the object."""

    root: FieldType
    scope: Scope
    manager: Manager
    configuration: dict[str, Any]
    force: bool
    time: str


def check_configuration(kind: Kind, root: FieldType, configuration: Any) -> None:
    """Raise ApiError if the configuration cannot be applied to objects of the kind."""
    title = _title(configuration)
    if kind_of(configuration) != (kind.api_version, kind.kind):
        raise bad_request(f"invalid object type: {title}")
    meta = configuration.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    if meta.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    problems = list(itertools.islice(typing_problems(root, configuration), _SHOWN_CONFLICTS))
    if problems:
        text = problems[0] if len(problems) == 1 else "\n  ".join(["errors:", *problems])
        raise ApiError.of(f"failed to create typed patch object ({_place(configuration)}; {title}): {text}", status=500)


def unconvertible(configuration: Mapping[str, Any], problem: str) -> ApiError:
    """Return the error for a configuration whose values the object of a built-in kind cannot have."""
    title = _title(configuration)
    text = f"({_place(configuration)}; {title}) to proper version: unable to convert unstructured object to {title}"
    return ApiError.of(f"failed to convert new object {text}: {problem}", status=500)


def _place(configuration: Mapping[str, Any]) -> str:
    meta = configuration.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    return f"{meta.get('namespace') or ''}/{meta.get('name') or ''}"


def _title(configuration: Mapping[str, Any]) -> str:
    api_version, name = kind_of(configuration)
    group, _, version = api_version.rpartition("/")
    return f"{group}/{version}, Kind={name}"


def apply(
    application: Application, live: dict[str, Any], entries: Sequence[Entry]
) -> tuple[dict[str, Any], list[Entry]]:
    """Return the merged object and its managed fields. Raises ApiError (409) for conflicts.

    If nothing changes, the merged object is the live object itself.
    """
    try:
        merged = merge(application.root, live, application.configuration)
        fields = exclude(fields_of(application.root, application.configuration), application.scope.fields)
        last: FieldSet = {}
        others = []
        for entry in entries:
            if application.manager.owns(entry):
                last = entry["fieldsV1"]
            else:
                others.append(entry["fieldsV1"])
        owned = union_of([fields, *others])
        merged = prune(application.root, merged, last=last, owned=owned)
        comparison = compare(application.root, live, merged, application.scope)
    except UntypedItemError as error:
        raise ApiError.of(f"failed to merge config: {error}", status=500) from None
    if not application.force:
        _check_conflicts(application, live, entries, comparison)
    is_same = merged == live
    time = None if is_same else application.time
    entries = entries_after_apply(entries, application.manager, fields, comparison, time)
    return _with_last_applied(application, live if is_same else merged), entries


def _check_conflicts(
    application: Application, live: Mapping[str, Any], entries: Sequence[Entry], comparison: Comparison
) -> None:
    conflicts = conflicts_with(entries, application.manager, comparison)
    if conflicts and application.manager.name == _KUBECTL:
        allowed = _fields_last_applied(application, live)
        conflicts = [conflict for conflict in conflicts if not contains(allowed, conflict.path)]
    if conflicts:
        raise _conflict_error(conflicts)


def _conflict_error(conflicts: list[Conflict]) -> ApiError:
    """Return the error; of very many conflicts, only the first are listed."""
    causes: list[dict[str, str]] = []
    fields: dict[str, list[str]] = {}
    size = 0
    for item in conflicts[:_SHOWN_CONFLICTS]:
        manager, field = item.manager, item.field
        fields.setdefault(manager, []).append(f"- {field}")
        causes.append({"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": field})
        size += len(manager) + len(field)
        if size > _SHOWN_SIZE:
            break
    if len(conflicts) == 1:
        text = f"Apply failed with 1 conflict: conflict with {conflicts[0].manager}: {conflicts[0].field}"
    else:
        lines = [line for manager in sorted(fields) for line in (f"conflicts with {manager}:", *fields[manager])]
        text = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
    return ApiError.of(text, status=409, reason="Conflict", details={"causes": causes})


# kubectl's client-side apply stores the last applied configuration in an annotation. Users who switch to server-side
# apply must not get conflicts with their own changes, and users who switch back need an up-to-date annotation.


def _fields_last_applied(application: Application, live: Mapping[str, Any]) -> FieldSet:
    """Return the fields that client-side apply has set and that have not changed since."""
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(_LAST_APPLIED)
    try:
        applied = decode_json(text.encode()) if text else None
        if not isinstance(applied, dict) or not isinstance(applied.get("metadata") or {}, dict):
            return {}
        if applied.get("apiVersion") != application.manager.api_version:
            return {}
        since = compare(application.root, applied, live, Scope())
        fields = fields_of(application.root, applied)
    except (ValueError, UntypedItemError):
        return {}
    return difference(difference(fields, since.changed), since.removed)


def _with_last_applied(application: Application, obj: dict[str, Any]) -> dict[str, Any]:
    meta = obj.get("metadata") or {}
    annotations = meta.get("annotations") or {}
    if application.manager.name != _KUBECTL or not annotations.get(_LAST_APPLIED):
        return obj
    configuration = application.configuration
    config_meta = configuration.get("metadata") or {}
    kept = {key: value for key, value in (config_meta.get("annotations") or {}).items() if key != _LAST_APPLIED}
    config_meta = {key: value for key, value in config_meta.items() if key != "annotations"}
    last_applied = {**configuration, "metadata": {**config_meta, **({"annotations": kept} if kept else {})}}
    annotations = {**annotations, _LAST_APPLIED: _encode(last_applied).decode() + "\n"}
    if sum(len(key.encode()) + len(str(value).encode()) for key, value in annotations.items()) > ANNOTATIONS_LIMIT:
        del annotations[_LAST_APPLIED]
    return {**obj, "metadata": {**meta, "annotations": annotations}}
