"""Caches of related objects: of children, and of others whose changes concern the objects to be reconciled.

Only small records are kept: whose the object is, and which of its fields the operator has applied. Whoever sets one of
these to another value takes its ownership away, as server-side apply keeps account of that: so a record says whether a
child is still as it was applied, which a change of its status does not affect.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import trio

from trioperator._kube.objects import RawObject, parse_object
from trioperator._model.resource import Resource
from trioperator._reconciling.claims import CLAIM


class _Owner(msgspec.Struct, gc=False):
    uid: str = ""


class _Managed(msgspec.Struct, gc=False):
    manager: str = ""
    operation: str = ""
    subresource: str = ""
    time: str = ""
    fields: msgspec.Raw = msgspec.field(name="fieldsV1", default_factory=msgspec.Raw)


class _Annotations(msgspec.Struct, gc=False):
    claim: str | None = msgspec.field(name=CLAIM, default=None)


class _Metadata(msgspec.Struct, gc=False):
    annotations: _Annotations | None = None
    owners: list[_Owner] | None = msgspec.field(name="ownerReferences", default=None)
    managed: list[_Managed] | None = msgspec.field(name="managedFields", default=None)


class _Labels(msgspec.Struct, gc=False):
    labels: dict[str, str | None] | None = None


class _Labelled(msgspec.Struct, gc=False):
    metadata: _Labels


class _Head(msgspec.Struct, gc=False):
    metadata: _Metadata


_decode_head: Final = msgspec.json.Decoder(_Head).decode
_decode_labels: Final = msgspec.json.Decoder(_Labelled).decode


class Target(NamedTuple):
    """An object to be reconciled, as a mapper names it."""

    namespace: str
    name: str


class Writer(NamedTuple):
    """Writer of a related object: a handler, for an object by its uid and name."""

    handler: Any
    uid: str
    target: Target


class OwnWrite:
    """An own write that is on its way, and what the watch brings meanwhile: it may know more than the response."""

    __slots__ = ("gone", "relisted", "writer")

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.gone: set[str] = set()  # the keys of objects that were deleted
        self.relisted = False


class _Unseen(NamedTuple):
    """Own writes that the watch has not shown yet: by one *writer*, or by several if that is None, since *former*."""

    writer: Writer | None
    former: RelatedRecord | None


class RelatedRecord:
    """The kept parts of one related object.

    ``fields`` is a digest of which fields the operator has applied and when, None if it has applied none. ``claim`` is
    what the object says of who applies it. ``whole`` is the object itself, for kinds that are kept as a whole.
    ``targets`` are what the mappers have made of it.
    """

    __slots__ = (
        "claim",
        "deleting",
        "fields",
        "name",
        "namespace",
        "owners",
        "targets",
        "uid",
        "unseen",
        "version",
        "whole",
    )

    def __init__(self, obj: RawObject, *, owners: tuple[str, ...], fields: int | None, whole: bool) -> None:
        self.uid = obj.uid or obj.key
        self.namespace = obj.namespace
        self.name = obj.name
        self.version = int(obj.resource_version) if obj.resource_version.isdecimal() else -1
        self.deleting = obj.deleting
        self.owners = owners
        self.fields = fields
        self.claim: str | None = None
        self.whole = obj if whole else None
        self.targets: frozenset[tuple[Any, Target]] = frozenset()
        self.unseen: _Unseen | None = None

    def identify(self) -> RawObject:
        """Return an object with nothing but its name, namespace and uid."""
        metadata = {"name": self.name, "namespace": self.namespace, "uid": self.uid}
        return parse_object(msgspec.json.encode({"metadata": metadata}))

    @property
    def identity(self) -> dict[str, str]:
        """The precondition for this very object: its uid, or nothing where an aggregated API has no uids."""
        return {} if "/" in self.uid else {"uid": self.uid}

    def decode(self) -> Mapping[str, Any]:
        """Return the whole object; an empty one if it is not kept, or cannot be read."""
        return {} if self.whole is None else self.whole.decode()


def read_record(obj: RawObject, *, manager: str, whole: bool) -> RelatedRecord:
    """Return the record of an object. *manager* is the operator's name as a manager of fields."""
    metadata = _decode_head(obj.raw).metadata
    ours = [
        (each.time, bytes(each.fields))  # the same fields at another time may have other values: of a late apply
        for each in metadata.managed or ()
        if each.manager == manager and each.operation == "Apply" and not each.subresource
    ]
    owners = tuple(owner.uid for owner in metadata.owners or ())
    fields = hash(tuple(ours)) if ours else None
    record = RelatedRecord(obj, owners=owners, fields=fields, whole=whole)
    claim = None if metadata.annotations is None else metadata.annotations.claim
    record.claim = None if claim is None else sys.intern(claim)  # there are few of them
    return record


class RelatedObserver(Protocol):
    """Observer of changes of related objects. It must neither wait nor raise.

    A change by a *writer* is no news to that one, but to all others. An object that is gone has its last state, unless
    a list was the first to show that.
    """

    def changed(
        self, record: RelatedRecord, before: RelatedRecord | None, obj: RawObject, *, writer: Writer | None = None
    ) -> None: ...
    def removed(self, record: RelatedRecord, obj: RawObject | None = None) -> None: ...
    def completed(self) -> None: ...


class RelatedCache:
    """The related objects of one kind that have some *labels*, in one namespace or in all of them; a reader of a view.

    The view may be of all objects of the kind, as others read it, too.
    """

    def __init__(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        manager: str,
        whole: bool,
        labels: Mapping[str, str] | None = None,
        observer: RelatedObserver,
    ) -> None:
        self.resource = resource
        self.namespace = namespace
        self.listed = trio.Event()
        self._manager = manager
        self._whole = whole
        self._labels = labels or {}
        self._observer = observer
        self._records: dict[str, RelatedRecord] = {}
        self._names: dict[tuple[str, str], RelatedRecord] = {}
        self._owned: dict[str, tuple[RelatedRecord, ...]] = {}
        self._writes: list[OwnWrite] = []
        self._rewinds = 0

    def succeed(self, former: RelatedCache) -> None:
        """Begin with the objects of a cache that is no longer filled: the first list shows which are gone."""
        self._rewinds = former._rewinds
        for record in former._records.values():
            record.version = -1  # all that is listed is news to this cache
            self._put(record, None)

    def __len__(self) -> int:
        return len(self._records)

    def find(self, namespace: str, name: str) -> RelatedRecord | None:
        """Return the record of an object by its name."""
        return self._names.get((namespace, name))

    def owned_by(self, uid: str) -> tuple[RelatedRecord, ...]:
        """Return the records of the objects with an owner of this uid."""
        return self._owned.get(uid, ())

    def observe(self, type: str | None, obj: RawObject) -> str:
        """Take what a reflector has seen; returns the object's key. The echo of an own write is news to all others."""
        key = obj.key
        before = self._records.get(key)
        if type == "DELETED" or (self._labels and not self._selects(obj)):
            for write in self._writes:
                write.gone.add(key)
            if before is not None:
                self._remove(before)
                self._observer.removed(before, obj)
            return key
        try:
            record = self._read(obj)
        except msgspec.MsgspecError:
            return key  # the server has never stored such metadata
        unseen = None if before is None else before.unseen
        if unseen is not None and before is not None and record.version == before.version:
            self._put(record, before)
            self._observer.changed(record, unseen.former, obj, writer=unseen.writer)
        elif before is None or _is_news(type, record, before):
            self._put(record, before)
            self._observer.changed(record, before if unseen is None else unseen.former, obj)
        return key

    def refresh(self, obj: RawObject) -> None:
        """Notify of an object again, as the indices have changed since."""
        record = self._records.get(obj.key)
        if record is not None:
            self._observer.changed(record, record, obj)

    def rewind(self) -> None:
        """Take the next list as it is: other states of the objects may have the same versions as those before.

        The same fields may be the operator's, with other values. So none of these states counts as applied.
        """
        self._rewinds += 1
        for record in self._records.values():
            record.version = -1

    def _read(self, obj: RawObject) -> RelatedRecord:
        record = read_record(obj, manager=self._manager, whole=self._whole)
        if self._rewinds and record.fields is not None:
            record.fields = hash((record.fields, self._rewinds))
        return record

    def _selects(self, obj: RawObject) -> bool:
        try:
            labels = _decode_labels(obj.raw).metadata.labels or {}
        except msgspec.MsgspecError:
            return False
        return labels.items() >= self._labels.items()

    @contextlib.contextmanager
    def writing(self, writer: Writer) -> Iterator[OwnWrite]:
        """Follow what happens in the block, while an own write is on its way."""
        write = OwnWrite(writer)
        self._writes.append(write)
        try:
            yield write
        finally:
            self._writes.remove(write)

    def take_written(self, raw: bytes, write: OwnWrite) -> RelatedRecord:
        """Take the response to an own write, unless the object is gone. Raises ``msgspec.MsgspecError``."""
        record = self._read(parse_object(raw))
        before = self._records.get(record.uid)
        if before is None and (write.relisted or record.uid in write.gone):
            self._observer.removed(record)  # if it was only not listed yet, the watch is going to bring it
        elif before is None or record.version > before.version:
            self._put(record, before)
            if record.version != -1:
                record.unseen = _merge(before, write.writer)
        return record

    def note_deletion(self, record: RelatedRecord) -> None:
        """Note that an object was deleted by an own request. It may have changed since its record was found."""
        if record.identity and record.uid in self._records:
            self._records[record.uid].deleting = True

    def replace(self, listed: Collection[str]) -> None:
        """Take the keys of a complete list: what is cached and not listed is gone."""
        for write in self._writes:
            write.relisted = True
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
            if before.deleting and before.version != -1 and record.identity:
                record.deleting = True  # nothing ends that but a restore of etcd: this is an earlier state, shown late
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


def _is_news(type: str | None, record: RelatedRecord, before: RelatedRecord) -> bool:
    """Check whether a state is another one. A list is right in any case: versions go back if etcd is restored."""
    if record.version == -1:
        return True
    return record.version != before.version if type is None else record.version > before.version


def _merge(before: RelatedRecord | None, writer: Writer) -> _Unseen:
    """Return what the watch has not shown after a write, if it has not shown the writes before that, either."""
    if before is None or before.unseen is None:
        return _Unseen(writer, before)
    return _Unseen(writer if before.unseen.writer == writer else None, before.unseen.former)
