"""Updates of ``metadata.managedFields`` by every kind of write.

Stored objects have them as JSON (``msgspec.Raw``): as many small dicts they would take several times the memory, and
slow down the garbage collector.

An object whose entries were reset, or that never had any, is not tracked until the first apply to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from trioperator.errors import InvalidError

from ..bodies.decoding import WriteOptions, decode_object, find_unconvertible
from ..builtin.events import as_served
from ..model.kinds import Kind
from ..ownership.apply import Application, apply, check_configuration, unconvertible
from ..ownership.comparison import Scope, compare
from ..ownership.field_types import FieldType, UntypedItemError, type_of_kind
from ..ownership.managed_fields import (
    BEFORE_APPLY,
    Entry,
    Manager,
    entries_after_update,
    equal_except_times,
    parse_entries,
)
from ..store.state import State

Object = dict[str, Any]

_INVALID_ENTRIES: Final = (
    ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating "
    "admission controller; please fix your requests: {}"
)

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode

# The status subresource of these does not take metadata.
_BARE_STATUS: Final = frozenset(
    {
        ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
        ("apiregistration.k8s.io", "apiservices"),
        ("flowcontrol.apiserver.k8s.io", "flowschemas"),
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
        ("networking.k8s.io", "servicecidrs"),
        ("resource.k8s.io", "resourceclaims"),
        ("storage.k8s.io", "volumeattachments"),
    }
)
# The fields that writes to the main resource, and to the status subresource, cannot change.
_EVERYTHING: Final = Scope()
_BUT_STATUS: Final = Scope("status")
_STATUS: Final = Scope("spec")
_STATUS_ALONE: Final = Scope("spec", "metadata")
_STATUS_SCOPES: Final[Mapping[tuple[str, str], Scope]] = {
    ("", "pods"): Scope("spec", metadata=("deletionTimestamp", "ownerReferences")),
    ("apps", "deployments"): Scope("spec", metadata=("labels",)),
    **dict.fromkeys(_BARE_STATUS, _STATUS_ALONE),
}


def _scope_of(kind: Kind, subresource: str) -> Scope:
    if subresource != "status":
        return _BUT_STATUS if "status" in kind.subresources else _EVERYTHING
    return _STATUS_ALONE if kind.custom is not None else _STATUS_SCOPES.get(kind.resource, _STATUS)


class FieldManager:
    """Field managers of all objects of one cluster."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.is_from_creation = True  # otherwise objects are tracked from their first apply on
        self._types: dict[tuple[str, str, str], tuple[Kind, FieldType]] = {}

    # -- create, update and patch ---------------------------------------------------------------------------------

    def created(self, kind: Kind, obj: dict[str, Any], options: WriteOptions) -> None:
        """Record the manager that creates the object, with defaults filled in; modifies *obj* in place."""
        sent = obj["metadata"].pop("managedFields", None)
        entries = [] if _is_reset(kind, sent) else _parsed(sent) or []
        if not entries and not self.is_from_creation:
            return
        self._record(kind, (_blank(kind, self.root(kind)), obj, entries), options, "")

    def updated(
        self, kind: Kind, new: dict[str, Any], old: Mapping[str, Any], options: WriteOptions, *, subresource: str = ""
    ) -> None:
        """Record the manager that changes the object from *old* to *new*; modifies *new* in place."""
        sent = new["metadata"].pop("managedFields", None)
        entries = None
        if not subresource and sent is not None:
            entries = [] if _is_reset(kind, sent) else _parsed(sent) or None
        if entries is None:
            entries = decoded(old["metadata"].get("managedFields"))
        if entries:
            self._record(kind, (old, new, entries), options, subresource)

    def _record(
        self,
        kind: Kind,
        change: tuple[Mapping[str, Any], dict[str, Any], list[Entry]],
        options: WriteOptions,
        subresource: str,
    ) -> None:
        old, new, entries = change
        is_translated = kind.api_version != kind.stored_api_version
        before, after = (as_served(kind, dict(old)), as_served(kind, new)) if is_translated else (old, new)
        try:
            comparison = compare(self.root(kind), before, after, _scope_of(kind, subresource))
        except UntypedItemError:
            return  # like the real server: no managers rather than wrong ones
        if comparison.changed or comparison.removed:
            manager = Manager(options.manager or "unknown", "Update", kind.api_version, subresource)
            entries = entries_after_update(entries, manager, comparison, self._state.timestamp())
        if entries:
            new["metadata"]["managedFields"] = as_stored(entries)

    # -- apply ----------------------------------------------------------------------------------------------------

    def applied(
        self, kind: Kind, live: Object | None, configuration: Object, options: WriteOptions, *, subresource: str
    ) -> tuple[Object, list[Entry]]:
        """Return the live object (None for a new one) with the configuration applied, and its entries.

        The returned object has no entries itself. Raises ConflictError for conflicts with other managers.
        """
        root, scope, time = self.root(kind), _scope_of(kind, subresource), self._state.timestamp()
        check_configuration(kind, root, configuration)
        blank = {**_blank(kind, root), "apiVersion": kind.api_version, "kind": kind.kind}
        base, entries = _split(blank if live is None else as_served(kind, live))
        if not entries and live is not None:
            first = Manager(BEFORE_APPLY, "Update", kind.api_version, subresource)
            entries = entries_after_update([], first, compare(root, blank, base, scope), time)
        application = Application(
            root=root,
            scope=scope,
            manager=Manager(options.manager, "Apply", kind.api_version, subresource),
            configuration=configuration,
            force=options.force,
            time=time,
        )
        obj, entries = apply(application, base, entries)
        return {**obj, "metadata": obj.get("metadata") or {}}, entries

    # -- types ----------------------------------------------------------------------------------------------------

    def root(self, kind: Kind) -> FieldType:
        """Return the type of the kind's objects."""
        place = (kind.group, kind.version, kind.plural)
        known = self._types.get(place)
        if known is None or known[0] is not kind:
            known = self._types[place] = (kind, type_of_kind(kind))
        return known[1]


def _blank(kind: Kind, root: FieldType) -> dict[str, Any]:
    return root.blank if kind.custom is None else {}


def _split(obj: dict[str, Any]) -> tuple[dict[str, Any], list[Entry]]:
    """Return the object without its entries, and the entries."""
    meta = obj.get("metadata")
    if not meta or "managedFields" not in meta:
        return obj, []
    meta = dict(meta)
    entries = decoded(meta.pop("managedFields"))
    return {**obj, "metadata": meta}, entries


def decoded(stored: msgspec.Raw | list[Entry] | None) -> list[Entry]:
    """Return the entries of a stored object, decoded if they are JSON."""
    if isinstance(stored, msgspec.Raw):
        entries: list[Entry] = _decode(stored)
        return entries
    return stored or []


def as_stored(entries: Any) -> msgspec.Raw:
    """Return the entries as JSON, for storage."""
    return msgspec.Raw(_encode(entries))


def _is_reset(kind: Kind, sent: Any) -> bool:
    """Return whether a client resets the managers: by an empty entry, or (built-in kinds) an empty list."""
    return isinstance(sent, list) and (sent == [{}] or (not sent and kind.custom is None))


def _parsed(sent: Any) -> list[Entry] | None:
    try:
        return parse_entries(sent) if isinstance(sent, list) else None
    except ValueError:
        return None


def without_entries(sent: Any, old: Mapping[str, Any]) -> Any:
    """Return a changed object without its entries if they are the same as the stored one's."""
    meta = sent.get("metadata") if isinstance(sent, dict) else None
    if not isinstance(meta, dict) or meta.get("managedFields") is None:
        return sent
    entries = meta["managedFields"]
    known = old["metadata"].get("managedFields")
    if entries is not known and not (isinstance(entries, list) and as_stored(entries) == known):
        return sent
    return {**sent, "metadata": {key: value for key, value in meta.items() if key != "managedFields"}}


def decode_applied(
    kind: Kind, sent: Mapping[str, Any], configuration: Mapping[str, Any], options: WriteOptions
) -> dict[str, Any]:
    """Return the stored form of an object that a configuration was merged into. Raises ApiError if it is invalid."""
    try:
        return decode_object(kind, sent, options, patched=True)
    except InvalidError:
        if problem := find_unconvertible(kind, sent):
            raise unconvertible(configuration, problem) from None
        raise


def settle_entries(obj: Object, before: msgspec.Raw | None, options: WriteOptions) -> None:
    """Normalize the entries of an object after admission; restore the earlier ones if they are invalid."""
    meta = obj["metadata"]
    entries = meta.get("managedFields")
    if entries is before or entries is None or isinstance(entries, msgspec.Raw):
        return
    try:
        meta["managedFields"] = as_stored(parse_entries(entries))
    except (TypeError, ValueError) as error:
        options.warnings.append(_INVALID_ENTRIES.format(error))
        meta.pop("managedFields")
        if before is not None:
            meta["managedFields"] = before


def reuse_times(new: dict[str, Any], old: Mapping[str, Any]) -> None:
    """Keep the old times of the managers if nothing else differs between the objects."""
    entries, known = new["metadata"].get("managedFields"), old["metadata"].get("managedFields")
    if entries is None or known is None or entries == known:
        return
    new["metadata"]["managedFields"] = known
    if new != old or not equal_except_times(decoded(entries), decoded(known)):
        new["metadata"]["managedFields"] = entries
