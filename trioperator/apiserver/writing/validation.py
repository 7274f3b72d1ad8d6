"""What every write is held to, whatever it writes: names, locks, validity. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..builtin.strategies import check_object
from ..custom.validation import null_causes
from ..model import metadata
from ..model.errors import bad_request, conflict, invalid
from ..model.kinds import Kind
from ..model.status_causes import StatusCause
from ..store.storage import Stored

__all__ = ["check_lock", "is_ready_to_go", "match_name", "match_namespace", "refuse_nulls", "uid_text", "validate"]


def check_lock(kind: Kind, new: Mapping[str, Any], old: Stored) -> None:
    """Refuse a change of another version than that which is stored."""
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
    """Refuse an object that is not of the name in the URL."""
    own = meta.get("name")
    if not own:
        raise bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if own != name:
        raise bad_request(f"the name of the object ({own}) does not match the name on the URL ({name})")


def match_namespace(kind: Kind, meta: dict[str, Any], namespace: str) -> None:
    """Give the object the namespace of the URL; refuse one that says it is in another."""
    own = meta.get("namespace") or ""
    if not kind.namespaced:
        meta.pop("namespace", None)
    elif own and own != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    else:
        meta["namespace"] = namespace


def validate(kind: Kind, obj: dict[str, Any], old: Mapping[str, Any] | None, warnings: list[str]) -> None:
    """Refuse an object that is not valid, or not as a change of the old one; add what is just to be warned of."""
    meta = obj["metadata"]
    causes = [] if old is None else metadata.check_metadata_update(meta, old["metadata"])
    causes += [*metadata.check_metadata(kind, meta), *check_object(kind, obj, old, warnings)]
    if causes:
        raise invalid(kind.kind, kind.group, str(obj["metadata"].get("name") or ""), causes)


def refuse_nulls(kind: Kind, obj: Mapping[str, Any]) -> None:
    """Refuse what an apply has left of parts whose fields are all gone, where the schema wants a value."""
    if kind.custom is not None and kind.custom.structure is not None:
        causes = list(null_causes(kind.custom.structure, obj))
        if causes:
            raise invalid(kind.kind, kind.group, str(obj["metadata"].get("name") or ""), causes)


def is_ready_to_go(kind: Kind, obj: Mapping[str, Any]) -> bool:
    """Tell whether nothing holds the object any more, which is being deleted."""
    meta = obj["metadata"]
    if "deletionTimestamp" not in meta or meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
        return False
    return not (kind.resource == ("", "namespaces") and (obj.get("spec") or {}).get("finalizers"))


def uid_text(kind: Kind, old: Stored, uid: str) -> str:
    """Say that the object is another one than was meant."""
    group = f"{kind.group}/" if kind.custom else ""
    return (
        f"StorageError: invalid object, Code: 4, Key: /registry/{group}{kind.plural}/{old.key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {old.uid}"
    )
