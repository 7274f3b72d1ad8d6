"""Caches of related objects: of children, and of others whose changes concern the objects to be reconciled.

Only small records are kept: whose the object is, and which of its fields the operator has applied. Whoever sets one of
these to another value takes its ownership away, as server-side apply keeps account of that: so a record says whether a
child is still as it was applied, and a change of its status is none of that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import trio

from trioperator.kube.objects import RawObject, parse_object
from trioperator.model.resource import Resource

__all__ = ["RelatedCache", "RelatedObserver", "RelatedRecord", "Target", "read_record"]


class _Owner(msgspec.Struct, gc=False):
    uid: str = ""


class _Managed(msgspec.Struct, gc=False):
    manager: str = ""
    operation: str = ""
    subresource: str = ""
    fields: msgspec.Raw = msgspec.field(name="fieldsV1", default_factory=msgspec.Raw)


class _Metadata(msgspec.Struct, gc=False):
    owners: list[_Owner] | None = msgspec.field(name="ownerReferences", default=None)
    managed: list[_Managed] | None = msgspec.field(name="managedFields", default=None)


class _Head(msgspec.Struct, gc=False):
    metadata: _Metadata


_decode_head: Final = msgspec.json.Decoder(_Head).decode


class Target(NamedTuple):
    """An object to be reconciled, as a mapper names it."""

    namespace: str
    name: str


class RelatedRecord:
    """What is kept of one related object.

    ``fields`` is a digest of the fields that the operator has applied, None if it has applied none. ``whole`` is the
    object itself, for kinds that are kept as a whole. ``targets`` are what the mappers have made of it.
    """

    __slots__ = ("deleting", "fields", "name", "namespace", "owners", "targets", "uid", "version", "whole")

    def __init__(self, obj: RawObject, *, owners: tuple[str, ...], fields: int | None, whole: bool) -> None:
        self.uid = obj.uid or obj.key
        self.namespace = obj.namespace
        self.name = obj.name
        self.version = int(obj.resource_version) if obj.resource_version.isdecimal() else -1
        self.deleting = obj.deleting
        self.owners = owners
        self.fields = fields
        self.whole = obj if whole else None
        self.targets: frozenset[tuple[Any, Target]] = frozenset()

    def decode(self) -> Mapping[str, Any]:
        """Return the whole object; an empty one if it is not kept, or cannot be read."""
        return {} if self.whole is None else self.whole.decode()


def read_record(obj: RawObject, *, manager: str, whole: bool) -> RelatedRecord:
    """Return the record of an object. *manager* is the operator's name as a manager of fields."""
    metadata = _decode_head(obj.raw).metadata
    ours = [
        bytes(each.fields)
        for each in metadata.managed or ()
        if each.manager == manager and each.operation == "Apply" and not each.subresource
    ]
    owners = tuple(owner.uid for owner in metadata.owners or ())
    fields = hash(b"".join(ours)) if ours else None
    return RelatedRecord(obj, owners=owners, fields=fields, whole=whole)


class RelatedObserver(Protocol):
    """What is notified of changes of related objects. It must neither wait nor raise."""

    def changed(self, record: RelatedRecord, before: RelatedRecord | None, obj: RawObject) -> None: ...
    def removed(self, record: RelatedRecord) -> None: ...
    def completed(self) -> None: ...


class RelatedCache:
    """The related objects of one kind, in one namespace or in all of them; filled by a reflector."""

    def __init__(
        self, resource: Resource, namespace: str | None, *, manager: str, whole: bool, observer: RelatedObserver
    ) -> None:
        self.resource = resource
        self.namespace = namespace
        self.listed = trio.Event()
        self._manager = manager
        self._whole = whole
        self._observer = observer
        self._records: dict[str, RelatedRecord] = {}
        self._names: dict[tuple[str, str], RelatedRecord] = {}
        self._owned: dict[str, tuple[RelatedRecord, ...]] = {}

    def __len__(self) -> int:
        return len(self._records)

    def find(self, namespace: str, name: str) -> RelatedRecord | None:
        """Return the record of an object by its name."""
        return self._names.get((namespace, name))

    def owned_by(self, uid: str) -> tuple[RelatedRecord, ...]:
        """Return the records of the objects with an owner of this uid."""
        return self._owned.get(uid, ())

    def observe(self, type: str | None, obj: RawObject) -> str:
        """Take what a reflector has seen; returns the object's key. What an own write has returned is no news."""
        key = obj.uid or obj.key
        before = self._records.get(key)
        if type == "DELETED":
            if before is not None:
                self._remove(before)
                self._observer.removed(before)
            return key
        try:
            record = read_record(obj, manager=self._manager, whole=self._whole)
        except msgspec.MsgspecError:
            return key  # the server has never stored such metadata
        if before is None or record.version == -1 or record.version > before.version:
            self._put(record, before)
            self._observer.changed(record, before, obj)
        return key

    def take_written(self, raw: bytes) -> RelatedRecord:
        """Take the response to an own write: its echo in the watch is no news. Raises ``msgspec.MsgspecError``."""
        record = read_record(parse_object(raw), manager=self._manager, whole=self._whole)
        before = self._records.get(record.uid)
        if before is None or record.version > before.version:
            self._put(record, before)
        return record

    def replace(self, listed: Collection[str]) -> None:
        """Take the keys of a complete list: what is cached and not listed is gone."""
        for record in [record for key, record in self._records.items() if key not in listed]:
            self._remove(record)
            self._observer.removed(record)
        if not self.listed.is_set():
            self.listed.set()
            self._observer.completed()

    def _put(self, record: RelatedRecord, before: RelatedRecord | None) -> None:
        if before is not None:
            self._remove(before)
            record.targets = before.targets
        self._records[record.uid] = record
        self._names[record.namespace, record.name] = record
        for owner in record.owners:
            self._owned[owner] = (*self._owned.get(owner, ()), record)

    def _remove(self, record: RelatedRecord) -> None:
        del self._records[record.uid]
        key = record.namespace, record.name
        if self._names.get(key) is record:
            del self._names[key]
        for owner in record.owners:
            left = tuple(other for other in self._owned.get(owner, ()) if other is not record)
            if left:
                self._owned[owner] = left
            else:
                self._owned.pop(owner, None)
