"""Stored objects, the revision counter that they share, and the history of recent changes.

Objects are plain dicts, which are immutable once they are stored: a change stores a new dict. Every stored object
caches its JSON, so that it is encoded once. All functions are synchronous and therefore atomic. The module does not
interpret objects: names, validation and deletion are up to the callers.
"""

from __future__ import annotations

import bisect
import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec
import trio

from ..model.errors import object_too_large, version_too_large
from ..model.go_numbers import parse_uint64
from ..model.json_text import decode_json

_log: Final = logging.getLogger(__name__)

HISTORY_SIZE: Final = 64 * 1024 * 1024  # bytes of JSON for each resource
OBJECT_LIMIT: Final = 1536 * 1024  # bytes of JSON for each object, as etcd has it
_encode: Final = msgspec.json.Encoder().encode


class Stored:
    """One version of one object, with its JSON. Immutable."""

    __slots__ = ("converted", "key", "obj", "raw", "revision")

    def __init__(self, key: str, obj: dict[str, Any], revision: int, raw: bytes = b"") -> None:
        self.key = key
        self.obj = obj
        self.revision = revision
        self.converted: dict[object, Stored] = {}  # conversions to other API versions, by kind
        self.raw: bytes = raw or _encode(obj)

    @property
    def uid(self) -> str:
        """The uid of the object."""
        uid: str = self.obj["metadata"]["uid"]
        return uid

    def at(self, revision: int) -> Stored:
        """Return the object with another resource version, as DELETED events show it."""
        meta = {**self.obj["metadata"], "resourceVersion": str(revision)}
        return Stored(self.key, {**self.obj, "metadata": meta}, revision)


class Change:
    """One change of a table: creation (*old* is None), update, or deletion (*new* is None)."""

    __slots__ = ("_gone", "_lines", "key", "new", "old", "revision", "time")

    def __init__(self, key: str, old: Stored | None, new: Stored | None, *, revision: int, time: float) -> None:
        self.key = key
        self.old = old
        self.new = new
        self.revision = revision
        self.time = time
        self._gone: Stored | None = None
        self._lines: dict[tuple[str, str], bytes] | None = None

    @property
    def size(self) -> int:
        """The approximate number of bytes that the change keeps in memory."""
        stored = self.new or self.old
        return len(stored.raw) if stored is not None else 0

    @property
    def gone(self) -> Stored:
        """The last content of a deleted object, with the revision of its deletion."""
        if self._gone is None:
            assert self.old is not None
            self._gone = self.old.at(self.revision)
        return self._gone

    def line(self, kind: str, view: str, render: Callable[[], bytes]) -> bytes:
        """Return the watch line of the event type in the *view*, rendered once for all watches."""
        if self._lines is None:
            self._lines = {}
        line = self._lines.get((kind, view))
        if line is None:
            line = self._lines[kind, view] = render()
        return line


@dataclasses.dataclass(frozen=True, slots=True)
class Expired:
    """A revision is older than the history; *oldest* is the oldest one in it."""

    oldest: int


class Table:
    """The objects of one resource, by ``namespace/name`` (or ``name``), and their recent changes."""

    def __init__(self, resource: tuple[str, str], *, oldest: int) -> None:
        self.resource = resource
        self.objects: dict[str, Stored] = {}
        self.changes: list[Change] = []
        self.size = 0  # bytes that all changes keep in memory
        self.dropped = 0  # number of changes that were dropped from the start of the list
        self.oldest = oldest  # revision after which the history begins
        self.closed = False  # the resource is no longer served
        self.changed = trio.lowlevel.ParkingLot()
        self._keys: list[str] = []

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys with the prefix, in the order of lists."""
        if not prefix:
            return self._keys
        low = bisect.bisect_left(self._keys, prefix)
        return self._keys[low : bisect.bisect_left(self._keys, prefix + "\U0010ffff")]

    def state_at(self, revision: int) -> dict[str, Stored] | Expired:
        """Return the objects as they were at the revision."""
        if revision < self.oldest:
            return Expired(self.oldest)
        if not self.changes or self.changes[-1].revision <= revision:
            return self.objects
        objects = dict(self.objects)
        for change in reversed(self.changes):
            if change.revision <= revision:
                break
            if change.old is None:
                objects.pop(change.key, None)
            else:
                objects[change.key] = change.old
        return objects

    def index_after(self, revision: int) -> int | Expired:
        """Return the absolute index of the first change after the revision."""
        if revision < self.oldest:
            return Expired(self.oldest)
        return self.dropped + bisect.bisect_right(self.changes, revision, key=_revision_of)

    def changes_from(self, index: int) -> Iterator[Change] | None:
        """Return the changes from the absolute index on, or None if some of them were dropped."""
        if index < self.dropped:
            return None
        return iter(self.changes[index - self.dropped :])

    @property
    def end(self) -> int:
        """The absolute index of the next change."""
        return self.dropped + len(self.changes)

    def drop(self, count: int) -> None:
        """Drop the *count* oldest changes."""
        if count > 0:
            self.oldest = self.changes[count - 1].revision
            self.size -= sum(change.size for change in self.changes[:count])
            del self.changes[:count]
            self.dropped += count

    def forget(self, revision: int) -> None:
        """Begin the history after the revision: earlier watches and pages get 410."""
        self.drop(bisect.bisect_right(self.changes, revision, key=_revision_of))
        self.oldest = max(self.oldest, revision)

    def close(self) -> None:
        """End all watches of the resource."""
        self.closed = True
        self.changed.unpark_all()

    def put(self, key: str, new: Stored | None, change: Change) -> None:
        """Apply a change. Nothing else changes the objects."""
        if new is None:
            del self.objects[key]
            del self._keys[bisect.bisect_left(self._keys, key)]
        else:
            if key not in self.objects:
                bisect.insort(self._keys, key)
            self.objects[key] = new
        self.changes.append(change)
        self.size += change.size
        self.changed.unpark_all()


def _revision_of(change: Change) -> int:
    return change.revision


class Store:
    """All tables under one revision counter.

    ``history`` limits the number of changes that each table keeps, ``history_age`` their age in seconds,
    ``HISTORY_SIZE`` their size. All are checked with each change, so that no task is needed.
    """

    def __init__(self, *, clock: Callable[[], float], history: int = 5_000, history_age: float = 300) -> None:
        self.revision = 0
        self.tables: dict[tuple[str, str], Table] = {}
        self.history = history
        self.history_age = history_age
        self.on_change: list[Callable[[Table, Change], None]] = []
        self._clock = clock
        self._compacted = 0

    def table(self, resource: tuple[str, str]) -> Table:
        """Return the table of the resource (group, plural), which is created on demand."""
        table = self.tables.get(resource)
        if table is None:
            table = self.tables[resource] = Table(resource, oldest=self._compacted)
        return table

    def put(self, table: Table, key: str, obj: dict[str, Any], *, limit: int | None = None) -> Stored:
        """Store the object with the next revision as its resource version. It must not be modified afterwards.

        Raises 500 if its JSON has more bytes than the limit.
        """
        revision = self.revision + 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}
        new = Stored(key, obj, revision)
        if limit is not None and len(new.raw) > limit:
            raise object_too_large(len(new.raw))
        self.revision = revision
        self._record(table, key, new)
        return new

    def remove(self, table: Table, key: str) -> int:
        """Remove the object; return the revision of the removal."""
        self.revision += 1
        self._record(table, key, None)
        return self.revision

    def restore(self, objects: Mapping[tuple[str, str, str], bytes], revision: int) -> None:
        """Restore objects (JSON by group, plural name and key) with their resource versions, without history.

        Definitions come first, then namespaces, because listeners need them to interpret the others. Objects that
        cannot be decoded are logged and left out.
        """
        self.revision = revision
        for group, plural, key in sorted(objects, key=_restore_order):
            raw = objects[group, plural, key]
            try:
                obj = decode_json(raw)
                version = _version_of(key, obj)
            except ValueError as error:
                title = f"{plural}.{group}" if group else plural
                _log.error("The stored object %s of %s cannot be used, and is left out: %s", key, title, error)
                continue
            self._record(self.table((group, plural)), key, Stored(key, obj, version, raw))
        self.compact()

    def snapshot(self) -> Snapshot:
        """Return all objects as they are now."""
        return {resource: dict(table.objects) for resource, table in self.tables.items() if table.objects}

    def rewind(self, snapshot: Snapshot) -> None:
        """Make the objects what they were, by changes with new revisions, and compact the history.

        Watches of what has changed get 410. Objects that have not changed keep their resource versions.
        """
        order = sorted({*self.tables, *snapshot}, key=lambda resource: _restore_order((*resource, "")))
        for resource in order:
            table, wanted = self.table(resource), snapshot.get(resource, {})
            for key, stored in tuple(table.objects.items()):
                if key not in wanted or wanted[key].uid != stored.uid:
                    self.remove(table, key)
            for key, stored in wanted.items():
                if key not in table.objects or table.objects[key].at(stored.revision).obj != stored.obj:
                    self.put(table, key, stored.obj)
        self.compact()

    def check_version(self, revision: int) -> None:
        """Raise 504 for a revision in the future."""
        if revision > self.revision:
            raise version_too_large(revision, self.revision)

    def compact(self, revision: int | None = None) -> None:
        """Compact the history up to the revision (by default all of it): older watches and pages get 410."""
        limit = self.revision if revision is None else min(revision, self.revision)
        self._compacted = max(self._compacted, limit)
        for table in self.tables.values():
            table.forget(limit)
            table.changed.unpark_all()

    def _record(self, table: Table, key: str, new: Stored | None) -> None:
        now = self._clock()
        change = Change(key, table.objects.get(key), new, revision=self.revision, time=now)
        table.put(key, new, change)
        if len(table.changes) > self.history + self.history // 4:
            table.drop(len(table.changes) - self.history)
        elif table.changes[0].time < now - self.history_age * 1.25:
            table.drop(bisect.bisect_left(table.changes, now - self.history_age, key=lambda change: change.time))
        while table.size > HISTORY_SIZE:
            table.drop(max(len(table.changes) // 4, 1))
        for listener in self.on_change:
            listener(table, change)


#: Objects by resource (group, plural) and key.
Snapshot: TypeAlias = Mapping[tuple[str, str], Mapping[str, Stored]]


def _version_of(key: str, obj: Any) -> int:
    """Return the resource version of a stored object. Raises ValueError if it has not what all objects have."""
    meta = obj.get("metadata") if isinstance(obj, dict) else None
    if not isinstance(meta, dict):
        raise ValueError("it has no metadata")
    for field in ("name", "uid", "resourceVersion"):
        if not isinstance(meta.get(field), str):
            raise ValueError(f"its metadata.{field} is not a string")
    place = meta.get("namespace")
    if key != (f"{place}/{meta['name']}" if place else meta["name"]):
        raise ValueError("it has another name")
    return parse_uint64(meta["resourceVersion"])


_FIRST: Final = (("apiextensions.k8s.io", "customresourcedefinitions"), ("", "namespaces"))


def _restore_order(name: tuple[str, str, str]) -> tuple[int, str, str, str]:
    resource = name[:2]
    return (_FIRST.index(resource) if resource in _FIRST else len(_FIRST), *name)
