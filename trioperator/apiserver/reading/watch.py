"""Watches: the changes of one resource since a revision, as lines of JSON.

A watch has no queue of its own: it is a position in the table's bounded history. When a slow client's position has been
compacted, the watch sends an in-stream 410 and ends. It waits on the table's parking lot: no polling, no task.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import trio

from trioperator._model.shard_ranges import ShardRanges
from trioperator.errors import ApiError

from ..model.errors import expired, render_status, version_too_large
from ..model.kinds import Kind
from ..model.selectors import FieldSelector, LabelSelector
from ..store.state import State
from ..store.storage import Change, Expired, Stored
from ..webhooks.conversion import Converter
from .views import View

BOOKMARK_INTERVAL: Final = 60.0  # seconds
_CHUNK: Final = 65_536  # bytes; the last line of a chunk may exceed it

_ALL_LABELS: Final = LabelSelector()
_ALL_FIELDS: Final = FieldSelector()

_encode: Final = msgspec.json.Encoder().encode


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Namespace prefix and selectors of a request."""

    prefix: str = ""  # of keys: "namespace/", or empty
    labels: LabelSelector = _ALL_LABELS
    fields: FieldSelector = _ALL_FIELDS
    shards: ShardRanges | None = None

    @property
    def matches_everything(self) -> bool:
        """Return whether there are no selectors."""
        return not self.labels and not self.fields and self.shards is None

    def matches(self, stored: Stored | None) -> bool:
        """Return whether the selectors match the object, if there is one; the prefix is not checked."""
        return (
            stored is not None
            and (self.shards is None or _is_in(self.shards, stored))
            and (not self.labels or self.labels.matches(stored.obj))
            and (not self.fields or self.fields.matches(stored.obj))
        )


def _is_in(shards: ShardRanges, stored: Stored) -> bool:
    meta = stored.obj["metadata"]
    return shards.selects(uid=meta["uid"], namespace=meta.get("namespace", ""))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """Start, timeout and bookmarks of a watch."""

    revision: int | None  # None: existing objects come first, as ADDED
    timeout: float
    bookmarks: bool = False
    initial_end: bool = False  # send a bookmark after the initial events
    not_older: int = 0  # the revision that the initial events must have at least


class Lines:
    """The lines of one watch, one for each event, in its view of a kind."""

    def __init__(self, kind: Kind, view: View) -> None:
        self.kind = kind
        self._view = view
        self._shared = f"{kind.version}:{view.form}"
        self._needs_columns = True  # only the first table of a watch has column definitions

    def render_change(self, change: Change, event: str, stored: Stored) -> bytes:
        """Render an event of a change. All watches of the same kind and view share it."""
        if self._view.is_plain and stored.raw.startswith(self.kind.head):
            return _frame(event, stored.raw)
        if self._view.form == "table":
            return self.render(event, stored)
        return change.line(event, self._shared, lambda: self.render(event, stored))

    def render(self, event: str, stored: Stored) -> bytes:
        """Render an event."""
        content = self._view.render(self.kind, stored, head=self._needs_columns)
        if self._view.form == "table":
            self._needs_columns = False
        return _frame(event, content)

    def render_bookmark(self, revision: int, *, initial_end: bool = False) -> bytes:
        """Render a bookmark."""
        meta: dict[str, Any] = {"resourceVersion": str(revision)}
        if initial_end:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        obj = {"kind": self.kind.kind, "apiVersion": self.kind.api_version, "metadata": meta}
        return _encode({"type": "BOOKMARK", "object": obj}) + b"\n"


class Watch:
    """One watch request."""

    def __init__(
        self,
        state: State,
        lines: Lines,
        selection: Selection,
        options: WatchOptions,
        *,
        converter: Converter,
    ) -> None:
        self._state = state
        self._converter = converter
        self._unconverted: list[Stored] = []  # objects of the initial events, until they are converted
        self._kind = lines.kind
        self._table = state.table(lines.kind)
        self._selection = selection
        self._lines = lines
        now = trio.current_time()
        self._deadline = now + options.timeout
        self._bookmark_at = now + BOOKMARK_INTERVAL if options.bookmarks else float("inf")
        self._initial: Iterator[bytes] | None = None
        self._position = 0
        self._has_ended = False
        self._start(options)

    def _start(self, options: WatchOptions) -> None:
        revision = options.revision
        if revision is None and options.not_older > self._state.store.revision:
            too_large = version_too_large(options.not_older, self._state.store.revision)
            self._initial = iter([_frame_error(too_large)])
            self._has_ended = True
            return
        if revision is None:
            self._position = self._table.end
            found = [self._table.objects[key] for key in self._table.keys(self._selection.prefix)]
            self._unconverted = found
            ends = options.initial_end and options.bookmarks
            self._initial = self._initial_lines(found, self._state.store.revision, ends=ends)
            return
        index = self._table.index_after(revision)
        if isinstance(index, Expired):
            self._initial = iter([_frame_error(expired(f"too old resource version: {revision} ({index.oldest})"))])
            self._has_ended = True
        else:
            self._position = index

    def _initial_lines(self, stored: list[Stored], revision: int, *, ends: bool) -> Iterator[bytes]:
        for item in stored:
            shown = self._converter.shown(self._kind, item)
            if self._selection.matches(shown):
                yield self._lines.render("ADDED", shown)
        if ends:
            yield self._lines.render_bookmark(revision, initial_end=True)

    async def receive(self) -> bytes | None:
        """Wait for the next lines and return them in one chunk; return None when the watch has ended."""
        await trio.lowlevel.checkpoint_if_cancelled()
        has_waited = False
        while not self._has_ended or self._initial is not None:
            chunk = await self._convert() or self._ready_lines()
            if chunk:
                await self._state.saved()
                if not has_waited:
                    await trio.lowlevel.cancel_shielded_checkpoint()  # these lines must not be lost
                return chunk
            if self._has_ended:
                break
            with trio.move_on_at(min(self._deadline, self._bookmark_at)) as scope:
                await self._table.changed.park()
            has_waited = True
            if not scope.cancelled_caught or self._position < self._table.end:
                continue  # a change at the very time of a bookmark comes first: the bookmark would hide it
            self._has_ended = trio.current_time() >= self._deadline
            if self._bookmark_at < float("inf"):
                self._bookmark_at = trio.current_time() + BOOKMARK_INTERVAL
                return self._lines.render_bookmark(self._state.store.revision)
        await trio.lowlevel.cancel_shielded_checkpoint()
        return None

    async def _convert(self) -> bytes:
        """Convert all pending objects through the webhook, if there is one; return the error event if that fails."""
        if self._kind.custom is None or self._kind.custom.conversion is None:
            return b""
        try:
            while not self._converter.is_prepared(self._kind, pending := self._pending()):
                await self._converter.prepare(self._kind, pending)
        except ApiError as error:
            self._has_ended, self._initial = True, None
            return _frame_error(error)
        self._unconverted = []
        return b""

    def _pending(self) -> list[Stored]:
        changes = self._table.changes_from(self._position) or ()
        both = [stored for change in changes for stored in (change.old, change.new) if stored is not None]
        return [stored for stored in (*self._unconverted, *both) if stored.key.startswith(self._selection.prefix)]

    @property
    def _is_replaced(self) -> bool:
        """Return whether the definition of the kind has changed since the watch started."""
        kind = self._kind
        return kind.custom is not None and self._state.catalog.get(kind.group, kind.version, kind.plural) is not kind

    def _ready_lines(self) -> bytes:
        if self._initial is not None:
            chunk = _join_chunk(self._initial)
            if chunk:
                return chunk
            self._initial = None
            if self._has_ended:
                return b""
        self._has_ended = self._has_ended or self._table.closed or self._is_replaced
        changes = self._table.changes_from(self._position)
        if changes is None:
            self._has_ended = True
            return _frame_error(expired(f"too old resource version: the watch is behind ({self._table.oldest})"))
        self._has_ended = self._has_ended or trio.current_time() >= self._deadline
        return _join_chunk(self._change_lines(changes))

    def _change_lines(self, changes: Iterator[Change]) -> Iterator[bytes]:
        for change in changes:
            self._position += 1
            found = self._change_line(change)
            if found is not None:
                yield found

    def _change_line(self, change: Change) -> bytes | None:
        selection = self._selection
        if selection.prefix and not change.key.startswith(selection.prefix):
            return None
        old, new = self._convert_one(change.old), self._convert_one(change.new)
        if selection.matches_everything:
            before, after = old is not None, new is not None
        else:
            before, after = selection.matches(old), selection.matches(new)
        if after:
            assert new is not None
            return self._lines.render_change(change, "MODIFIED" if before else "ADDED", new)
        if not before:
            return None
        assert old is not None
        gone = change.gone if old is change.old else old.at(change.revision)
        return self._lines.render_change(change, "DELETED", gone)

    def _convert_one(self, stored: Stored | None) -> Stored | None:
        return None if stored is None else self._converter.shown(self._kind, stored)


def _frame_error(error: ApiError) -> bytes:
    return _encode({"type": "ERROR", "object": render_status(error)}) + b"\n"


def _frame(event: str, content: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (event.encode(), content)


def _join_chunk(lines: Iterator[bytes]) -> bytes:
    """Join the lines of one chunk; the others stay in the iterator."""
    taken = []
    size = 0
    for line in lines:
        taken.append(line)
        size += len(line)
        if size >= _CHUNK:
            break
    return b"".join(taken)
