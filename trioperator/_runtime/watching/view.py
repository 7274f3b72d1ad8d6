"""The view of the objects at one path: all that read them see each state of an object after the indices have it.

A reflector fills the view. Where there are index handlers, an event waits until they have been called for it: so
whoever is notified of an event, and looks up an index, finds it there. The events of an object are passed on in their
order; events of others may overtake them. Where there are no index handlers, an event is passed on at once.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Awaitable, Callable, Collection, Hashable
from typing import Final, Protocol

import msgspec

from trioperator._handling.declaring.registry import KindHandlers
from trioperator._kube.objects import RawObject
from trioperator._runtime.cache.cache import ObjectCache
from trioperator._runtime.cache.leaving import LEFT
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.execution.indexing import Indexing
from trioperator._runtime.result import DONE, RequeueAt, Result
from trioperator._runtime.watching.index_gate import MissingIndices
from trioperator._runtime.watching.reflector import Observer
from trioperator._runtime.watching.targets import Read
from trioperator._runtime.workqueue import FRESH, INITIAL, WorkQueue, open_workqueue

# Limit of objects that are indexed at the same time: more threads of short functions would only wait for each other.
_AT_ONCE: Final = 16
# Number of listed objects that a worker indexes before others have their turn, if no function waits for anything.
_IN_A_BATCH: Final = 16
_NO_HANDLERS: Final = KindHandlers()
# Types of events that are not replaced by newer ones, and after which no index handler matches the object.
_KEPT: Final = frozenset({"DELETED", LEFT})


class _List:
    """The keys of a complete list, which is taken when all is indexed that came before it: what is *awaited*."""

    def __init__(self, keys: Collection[str], awaited: Collection[Unindexed]) -> None:
        self.keys = set(keys) if awaited else keys
        self.awaited = set(awaited)

    def add(self, key: str) -> None:
        """Add an object that has come since."""
        assert isinstance(self.keys, set)
        self.keys.add(key)


class Unindexed(msgspec.Struct, eq=False):
    """An object with events that are not indexed yet, in their order, or whose index handlers have failed.

    Objects of a list are *waiting* for a batch, until they are queued themselves.
    """

    view: View
    key: str
    namespace: str
    events: list[tuple[str | None, RawObject] | _List]  # nearly always one, at first
    is_waiting: bool
    is_running: bool = False

    @property
    def flow(self) -> Hashable:
        """The flow for fair queuing: the objects of the view in the namespace."""
        return self.view, self.namespace

    def process(self) -> Awaitable[Result]:
        """Index the events, and pass them on."""
        return self.view.process(self)

    def has_work(self) -> bool:
        """Check whether anything has come that is not indexed."""
        return bool(self.events)

    def add(self, type: str | None, obj: RawObject, *, limit: int) -> None:
        """Add an event. Beyond *limit*, a newer state replaces the one before it, which still tells if it is new."""
        last = self.events[-1] if self.events else None
        if isinstance(last, tuple) and len(self.events) >= limit and _KEPT.isdisjoint((type, last[0])):
            self.events[-1] = last[0], obj
        else:
            self.events.append((type, obj))

    def mark(self, listed: _List) -> None:
        """Add the end of a list: what comes before it is to be indexed first."""
        self.events.append(listed)

    def drop(self) -> None:
        """Drop the events: the server no longer knows them."""
        self.events = [event for event in self.events if isinstance(event, _List)]


class _Listed:
    """The objects of a view's list that are to be indexed, in batches: they need no items of the queue for themselves.

    There are as many batches as workers, so that a function that hangs for one object holds up no other. A batch ends
    early if functions wait: then others have their turn after each object.
    """

    def __init__(self, queue: WorkQueue[Unindexed | Batch], indexing: Indexing) -> None:
        self._queue = queue
        self._indexing = indexing
        self._batches = 0
        self.objects: collections.deque[Unindexed] = collections.deque()

    def add(self, item: Unindexed) -> None:
        """Add an object that waits."""
        self.objects.append(item)
        if self._batches < _AT_ONCE:
            self._batches += 1
            self._queue.add(Batch(self), INITIAL)

    async def process(self, batch: Batch) -> Result:
        """Index some objects, and queue the batch again if there are more."""
        for _ in range(_IN_A_BATCH):
            if not self.objects:
                break
            item = self.objects.popleft()
            if item.is_waiting:
                item.is_waiting = False
                result = await item.process()
                if isinstance(result, RequeueAt):
                    self._queue.requeue_at(item, result.time)
            if self._indexing.running:
                break
        if self.objects:
            self._queue.add(batch, INITIAL)
        else:
            self._batches -= 1
        return DONE


class Batch:
    """An item of the queue for listed objects: those that its worker finds when it begins."""

    __slots__ = ("_listed",)

    def __init__(self, listed: _Listed) -> None:
        self._listed = listed

    @property
    def flow(self) -> Hashable:
        """The flow for fair queuing: the listed objects of the view."""
        return self._listed

    def process(self) -> Awaitable[Result]:
        """Index some of the objects."""
        return self._listed.process(self)

    def has_work(self) -> bool:
        """Check whether any objects are left."""
        return bool(self._listed.objects)


def _observe_directly(cache: ObjectCache) -> Observer:
    return cache


class Stage(msgspec.Struct, frozen=True, eq=False):
    """Indexing of the objects of all views. At most *limit* events of an object wait for that.

    ``reindexed`` is called for objects that are indexed again though they have not changed, ``missing`` told which
    indices are not complete. ``observe`` returns what is notified in the place of a cache, if anything counts its watch
    events.
    """

    indexing: Indexing
    queue: WorkQueue[Unindexed | Batch]
    limit: int
    reindexed: Callable[[ObjectState], None]
    missing: MissingIndices
    observe: Callable[[ObjectCache], Observer] = _observe_directly


class Reader(Observer, Protocol):
    """A reader of a view for reconcile handlers of other objects, with the number of the objects that it has."""

    def __len__(self) -> int: ...
    def refresh(self, obj: RawObject) -> None: ...  # what the indices have of an object has changed, and nothing else
    def rewind(self) -> None: ...  # the next list is older than what was seen


class RelatedKind(Read, Protocol):
    """A kind whose objects concern others' objects: see :mod:`trioperator._reconciling`."""

    def open(self, namespace: str | None, indices: frozenset[str], /) -> Reader: ...
    def close(self, namespace: str | None, reader: Reader, /) -> None: ...
    def refuse(self, namespace: str | None, error: Exception, /) -> None: ...


class View:
    """The objects at one path, as a reflector brings them, for all that read them.

    ``cache`` has the objects, if they are handled or indexed. ``related`` are the kinds for whose
    reconcile handlers the view is read, too.
    """

    def __init__(self, namespace: str | None, stage: Stage, *, cache: ObjectCache | None = None) -> None:
        self.cache = cache
        self.related: dict[RelatedKind, Reader] = {}
        self._namespace = namespace
        self._stage = stage
        self._handlers = _NO_HANDLERS if cache is None else cache.kind.handlers
        self._observers: tuple[Observer, ...] = () if cache is None else (stage.observe(cache),)
        self._readers: tuple[Observer, ...] = self._observers  # objects are mapped to others before they are handled
        self._unindexed: dict[str, Unindexed] = {}
        self._listed = _Listed(stage.queue, stage.indexing)
        self._list: _List | None = None
        self._is_listed = False
        self._closed = False

    def adjust(self, related: Collection[RelatedKind]) -> bool:
        """Take the kinds that it is read for. Returns whether any of them is new, and needs to see a list."""
        for kind in self.related.keys() - set(related):
            kind.close(self._namespace, self.related.pop(kind))
        added = [kind for kind in related if kind not in self.related]
        indices = frozenset(handler.id for handler in self._handlers.indices)
        self.related |= {kind: kind.open(self._namespace, indices) for kind in added}
        self._readers = (*self.related.values(), *self._observers)
        self._is_listed = self._is_listed and not added
        return bool(added)

    def observe(self, type: str | None, obj: RawObject) -> str:
        """Take a watch event, or with type None an object of a list. Returns the object's key."""
        key = obj.uid or obj.key
        if self._list is not None:
            self._list.add(key)
        item = self._unindexed.get(key)
        if item is None:
            if not self._handlers.indices:
                for reader in self._readers:
                    reader.observe(type, obj)
                return key
            item = self._unindexed[key] = Unindexed(self, key, obj.namespace, [(type, obj)], type is None)
            if type is None:
                self._listed.add(item)
                return key
        else:
            item.add(type, obj, limit=self._stage.limit if self._handlers.events else 1)
        if type is not None:
            item.is_waiting = False
        if not (item.is_waiting or item.is_running):
            self._stage.queue.add(item, INITIAL if type is None else FRESH)
        return key

    def replace(self, listed: Collection[str]) -> None:
        """Take the keys of a complete list, when all is indexed that was seen until now.

        But for the first one that readers see, what need not be indexed is taken at once: index handlers may hang.
        """
        newest = self._list = _List(listed, self._unindexed.values())
        for item in newest.awaited:
            if not (item.events or item.is_running):  # else it is queued, or being indexed
                self._stage.queue.add(item, INITIAL)
            item.mark(newest)
        if newest.awaited and self._is_listed:
            self._take_list({*listed, *self._unindexed})
        self._finish_list(newest)

    def list_keys(self) -> set[str]:
        """Return the keys of the objects that are cached, or are going to be when they are indexed."""
        return {*self._unindexed, *(() if self.cache is None else self.cache.objects)}

    def rewind(self) -> None:
        """Take the next list as it is, though it is older than what was seen: as after a start."""
        for item in self._unindexed.values():
            item.drop()
        if self.cache is not None:
            self._stage.indexing.rewind(self.cache)
            self.cache.rewind()
        for reader in self.related.values():
            reader.rewind()

    def refuse(self, error: Exception) -> None:
        """Take note that the objects cannot be listed, and may not for long."""
        for kind in self.related:
            kind.refuse(self._namespace, error)

    def close(self, *, gone: bool) -> None:
        """Pass nothing more on, and take what has been indexed out of the indices. The objects may be *gone*, too."""
        self._closed = True
        self._unindexed.clear()
        if self.cache is not None:
            self._stage.indexing.drop(self.cache)
        for kind, reader in self.related.items():
            if gone:
                reader.replace(())
            kind.close(self._namespace, reader)
        self.related.clear()

    async def process(self, item: Unindexed) -> Result:
        """Index the events of an object, and pass them on, also those that come meanwhile."""
        item.is_running = True
        try:
            while True:
                while item.events:
                    event = item.events.pop(0)
                    if isinstance(event, _List):
                        event.awaited.discard(item)
                        self._finish_list(event)
                    elif not (self._closed or self._stage.queue.closed):
                        event_type, obj = event
                        await self._index(event_type, obj)
                due = await self._retry(item.key) if self._stage.indexing.failed and not self._is_over else None
                if not item.events:
                    break
        finally:
            item.is_running = False
        if due is not None:
            return RequeueAt(due)
        if self._unindexed.get(item.key) is item:
            del self._unindexed[item.key]
        return DONE

    @property
    def _is_over(self) -> bool:
        """Whether nothing more is to be indexed: the view is closed, or the operator is stopping."""
        return self._closed or self._stage.queue.closed

    async def _index(self, type: str | None, obj: RawObject) -> None:
        assert self.cache is not None
        if type not in _KEPT:
            state = self.cache.admit(type, obj)
            indexing = self._stage.indexing
            if indexing.take(state, obj):
                await indexing.index(state, obj)
        elif (gone := self.cache.objects.get(obj.key)) is not None:
            self._stage.indexing.forget(gone)
        if not self._closed:
            for reader in self._readers:
                reader.observe(type, obj)

    async def _retry(self, key: str) -> float | None:
        """Call index handlers again that have failed and are due. Returns when they are due again, if they are."""
        assert self.cache is not None
        state = self.cache.objects.get(key)
        if state is None:
            return None
        obj = await self._stage.indexing.retry(state)
        if obj is not None:
            for reader in self.related.values():
                reader.refresh(obj)
            self._stage.reindexed(state)
        return self._stage.indexing.due(state)

    def _finish_list(self, listed: _List) -> None:
        """Take a list if all is indexed that came before it, and no newer list has come."""
        if not listed.awaited and listed is self._list and not self._closed:
            self._list, self._is_listed = None, True
            self._take_list(listed.keys)

    def _take_list(self, keys: Collection[str]) -> None:
        """Treat all objects as gone except those with these *keys*."""
        if self.cache is not None and self._handlers.indices:
            for state in [state for key, state in self.cache.objects.items() if key not in keys]:
                self._stage.indexing.forget(state)
        for reader in self._readers:
            reader.replace(keys)


def open_indexing() -> contextlib.AbstractAsyncContextManager[WorkQueue[Unindexed | Batch]]:
    """Open a work queue of objects to be indexed, and wait at the end of the block for those that are running."""
    return open_workqueue(_Indexer(), limit=_AT_ONCE)


class _Indexer:
    """Reconciler of the objects that are to be indexed."""

    def reconcile(self, item: Unindexed | Batch) -> Awaitable[Result]:
        """Index an object, or several, and pass on what is indexed."""
        return item.process()

    def has_work(self, item: Unindexed | Batch) -> bool:
        """Check whether anything is left to be indexed."""
        return item.has_work()

    def is_unsaved(self, _: Unindexed | Batch) -> bool:
        """Check whether something is to be stored on an object: nothing ever is."""
        return False

    def report_loop(self, item: Unindexed | Batch, *, writes: int, backoff: float) -> None:
        """Do nothing: nothing is written."""
