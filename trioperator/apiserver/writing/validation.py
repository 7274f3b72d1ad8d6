"""Checks of every write: names, optimistic locking, validation. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from ..builtin.strategies import check_object
from ..custom.validation import null_causes
from ..model import metadata
from ..model.errors import bad_request, conflict, invalid
from ..model.kinds import Kind
from ..model.nesting import TOO_DEEP, is_too_deep
from ..model.status_causes import StatusCause, first_causes
from ..store.storage import Stored


def check_lock(kind: Kind, new: Mapping[str, Any], old: Stored) -> None:
    """Raise ConflictError for a change of another version than the stored one."""
    version = new["metadata"].get("resourceVersion")
    name = str(old.obj["metadata"]["name"])
    if version is None or version == "0":
        if kind.needs_version:
            cause = StatusCause("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
            raise invalid(kind.plural, kind.group, name, [cause])
    elif version != old.obj["metadata"]["resourceVersion"]:
        if not version.isdigit():
            text = f'Invalid value: "{version}": strconv.ParseUint: parsing "{version}": invalid syntax'
            raise invalid(kind.plural, kind.group, name, [StatusCause("metadata.resourceVersion", text)])
        raise conflict(kind, name)


def match_name(meta: Mapping[str, Any], name: str) -> None:
    """Raise 400 for an object with another name than that in the URL."""
    own = meta.get("name")
    if not own:
        raise bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if own != name:
        raise bad_request(f"the name of the object ({own}) does not match the name on the URL ({name})")


def match_namespace(kind: Kind, meta: dict[str, Any], namespace: str) -> None:
    """Set the namespace of the URL on the object. Raises 400 if it has another one."""
    own = meta.get("namespace") or ""
    if not kind.namespaced:
        meta.pop("namespace", None)
    elif own and own != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    else:
        meta["namespace"] = namespace


def validate(kind: Kind, obj: dict[str, Any], old: Mapping[str, Any] | None, warnings: list[str]) -> None:
    """Raise ApiError for an object that is nested too deeply, InvalidError for an invalid one or an invalid change.

    Warnings are appended to *warnings*.
    """
    if is_too_deep(obj):
        raise bad_request(TOO_DEEP)
    meta = obj["metadata"]
    updates = () if old is None else metadata.check_metadata_update(meta, old["metadata"])
    parts = (updates, metadata.check_metadata(kind, meta), check_object(kind, obj, old, warnings))
    if causes := first_causes(itertools.chain.from_iterable(parts)):
        raise invalid(kind.kind, kind.resource[0], str(obj["metadata"].get("name") or ""), causes)


def check_nulls(kind: Kind, obj: Mapping[str, Any]) -> None:
    """Raise InvalidError for nulls that an apply has left where the schema requires a value."""
    structure = kind.custom.structure if kind.custom is not None else None
    if structure is not None and (causes := first_causes(null_causes(structure, obj))):
        raise invalid(kind.kind, kind.group, str(obj["metadata"].get("name") or ""), causes)


def is_removable(kind: Kind, obj: Mapping[str, Any]) -> bool:
    """Return whether the object is being deleted, and nothing blocks that."""
    meta = obj["metadata"]
    if "deletionTimestamp" not in meta or meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
        return False
    return not (kind.resource == ("", "namespaces") and (obj.get("spec") or {}).get("finalizers"))


def uid_mismatch_text(kind: Kind, old: Stored, uid: str) -> str:
    """Return the message for an object with another uid than expected."""
    group = f"{kind.group}/" if kind.custom else ""
    return (
        f"StorageError: invalid object, Code: 4, Key: /registry/{group}{kind.plural}/{old.key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {old.uid}"
    )
