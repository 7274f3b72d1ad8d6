"""Watches: the changes of one resource from a revision on, as lines.

A watch keeps no queue: it is a place in the table's history, which is bounded. Who reads too slowly finds its place
gone, gets an in-stream 410, and the watch ends. Waiting is by the table's parking lot: no polling, no task.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import trio

from trioperator.errors import ApiError

from ..model.errors import expired, render_status
from ..model.kinds import Kind
from ..model.selectors import FieldSelector, LabelSelector
from ..store.state import State
from ..store.storage import Change, Expired, Stored
from ..webhooks.conversion import Converter
from .views import View

__all__ = ["BOOKMARK_INTERVAL", "Selection", "Watch"]

BOOKMARK_INTERVAL: Final = 60.0  # seconds
_CHUNK: Final = 65_536  # bytes; a chunk is as much as that, and may have one line beyond

_ALL_LABELS: Final = LabelSelector()
_ALL_FIELDS: Final = FieldSelector()

_encode: Final = msgspec.json.Encoder().encode


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which objects of a resource are asked for."""

    prefix: str = ""  # of keys: "namespace/", or empty
    labels: LabelSelector = _ALL_LABELS
    fields: FieldSelector = _ALL_FIELDS

    @property
    def is_everything(self) -> bool:
        """Return whether only the prefix selects."""
        return not self.labels and not self.fields

    def takes(self, stored: Stored | None) -> bool:
        """Return whether the object (if there is one) is selected, its prefix aside."""
        return (
            stored is not None
            and (not self.labels or self.labels.matches(stored.obj))
            and (not self.fields or self.fields.matches(stored.obj))
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """From where a watch begins, how long it lasts, and what it tells beside changes."""

    revision: int | None  # None: all that exists comes first, as ADDED
    timeout: float
    bookmarks: bool = False
    initial_end: bool = False  # mark the end of what comes first by a bookmark


class Watch:
    """One watch request; :meth:`receive` returns chunks of whole lines, and None at the end."""

    def __init__(
        self,
        state: State,
        kind: Kind,
        selection: Selection,
        view: View,
        options: WatchOptions,
        *,
        converter: Converter,
    ) -> None:
        self._state = state
        self._converter = converter
        self._found: list[Stored] = []  # what comes first, as long as it may have to be converted
        self._kind = kind
        self._table = state.table(kind)
        self._selection = selection
        self._view = view
        self._options = options
        now = trio.current_time()
        self._deadline = now + options.timeout
        self._bookmark_at = now + BOOKMARK_INTERVAL if options.bookmarks else float("inf")
        self._initial: Iterator[bytes] | None = None
        self._at = 0
        self._over = False
        self._with_head = True  # the first table of a watch tells its columns
        self._shared = f"{kind.version}:{view.form}"
        self._begin()

    def _begin(self) -> None:
        revision = self._options.revision
        if revision is None:
            self._at = self._table.end
            found = [self._table.objects[key] for key in self._table.keys(self._selection.prefix)]
            self._found = found
            self._initial = self._initial_lines(found)
            return
        index = self._table.index_after(revision)
        if isinstance(index, Expired):
            self._initial = iter([self._error(expired(f"too old resource version: {revision} ({index.oldest})"))])
            self._over = True
        else:
            self._at = index

    def _initial_lines(self, stored: list[Stored]) -> Iterator[bytes]:
        revision = self._state.store.revision
        for item in stored:
            shown = self._converter.shown(self._kind, item)
            if self._selection.takes(shown):
                yield self._line("ADDED", shown)
        if self._options.initial_end and self._options.bookmarks:
            yield self._bookmark(revision, initial_end=True)

    async def receive(self) -> bytes | None:
        """Return the next lines; wait for them if there are none yet."""
        await trio.lowlevel.checkpoint_if_cancelled()
        has_waited = False
        while not self._over or self._initial is not None:
            chunk = await self._convert() or self._ready()
            if chunk:
                await self._state.saved()
                if not has_waited:
                    await trio.lowlevel.cancel_shielded_checkpoint()  # what was taken is not to be lost
                return chunk
            if self._over:
                break
            with trio.move_on_at(min(self._deadline, self._bookmark_at)):
                await self._table.changed.park()
                has_waited = True
                continue
            self._bookmark_at = trio.current_time() + BOOKMARK_INTERVAL
            self._over = trio.current_time() >= self._deadline
            if self._options.bookmarks:
                return self._bookmark(self._state.store.revision)
        await trio.lowlevel.cancel_shielded_checkpoint()
        return None

    async def _convert(self) -> bytes:
        """Let everything that is to be told be converted, where it has to be; return the error if that fails."""
        if self._kind.custom is None or self._kind.custom.conversion is None:
            return b""
        try:
            while not self._converter.is_prepared(self._kind, pending := self._pending()):
                await self._converter.prepare(self._kind, pending)
        except ApiError as error:
            self._over, self._initial = True, None
            return self._error(error)
        self._found = []
        return b""

    def _pending(self) -> list[Stored]:
        changes = self._table.changes_from(self._at) or ()
        both = [stored for change in changes for stored in (change.old, change.new) if stored is not None]
        return [stored for stored in (*self._found, *both) if stored.key.startswith(self._selection.prefix)]

    @property
    def _is_replaced(self) -> bool:
        """Return whether the kind is not served any more as it was: its definition has changed."""
        kind = self._kind
        return kind.custom is not None and self._state.catalog.get(kind.group, kind.version, kind.plural) is not kind

    def _ready(self) -> bytes:
        if self._initial is not None:
            chunk = _join(self._initial)
            if chunk:
                return chunk
            self._initial = None
            if self._over:
                return b""
        self._over = self._over or self._table.closed or self._is_replaced
        changes = self._table.changes_from(self._at)
        if changes is None:
            self._over = True
            return self._error(expired(f"too old resource version: the watch is behind ({self._table.oldest})"))
        self._over = self._over or trio.current_time() >= self._deadline
        return _join(self._change_lines(changes))

    def _change_lines(self, changes: Iterator[Change]) -> Iterator[bytes]:
        for change in changes:
            self._at += 1
            found = self._change_line(change)
            if found is not None:
                yield found

    def _change_line(self, change: Change) -> bytes | None:
        selection = self._selection
        if selection.prefix and not change.key.startswith(selection.prefix):
            return None
        old, new = self._shown(change.old), self._shown(change.new)
        if selection.is_everything:
            before, after = old is not None, new is not None
        else:
            before, after = selection.takes(old), selection.takes(new)
        if after:
            assert new is not None
            return self._shared_line(change, "MODIFIED" if before else "ADDED", new)
        if not before:
            return None
        assert old is not None
        return self._shared_line(change, "DELETED", change.gone if old is change.old else old.at(change.revision))

    def _shown(self, stored: Stored | None) -> Stored | None:
        return None if stored is None else self._converter.shown(self._kind, stored)

    def _shared_line(self, change: Change, event: str, stored: Stored) -> bytes:
        if self._view.is_plain and stored.raw.startswith(self._kind.head):
            return _frame(event, stored.raw)
        if self._view.form == "table":
            return self._line(event, stored)
        return change.line(event, self._shared, lambda: self._line(event, stored))

    def _line(self, event: str, stored: Stored) -> bytes:
        content = self._view.render(self._kind, stored, head=self._with_head)
        if self._view.form == "table":
            self._with_head = False
        return _frame(event, content)

    def _bookmark(self, revision: int, *, initial_end: bool = False) -> bytes:
        meta: dict[str, Any] = {"resourceVersion": str(revision), "creationTimestamp": None}
        if initial_end:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        obj = {"kind": self._kind.kind, "apiVersion": self._kind.api_version, "metadata": meta}
        return _encode({"type": "BOOKMARK", "object": obj}) + b"\n"

    @staticmethod
    def _error(error: ApiError) -> bytes:
        return _encode({"type": "ERROR", "object": render_status(error)}) + b"\n"


def _frame(event: str, content: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (event.encode(), content)


def _join(lines: Iterator[bytes]) -> bytes:
    """Take lines for one chunk; the others stay where they are."""
    taken = []
    size = 0
    for line in lines:
        taken.append(line)
        size += len(line)
        if size >= _CHUNK:
            break
    return b"".join(taken)
