"""The work queue: which object is reconciled next, by how many workers, and when an object is due again.

As in client-go, an item is with one worker at a time, and an item that is added meanwhile is queued again afterwards.
When all workers are busy, the flows of items (objects of one kind in one namespace) take turns.
A worker is a task that lives while there is work; an item that waits for its due time has none.
"""

from __future__ import annotations

import contextlib
import enum
import heapq
import itertools
import math
from collections.abc import AsyncIterator, Awaitable, Hashable, Iterator
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec
import trio

from trioperator._concurrency.clock import find_clock
from trioperator._concurrency.core_tasks import keep
from trioperator._concurrency.fair_queue import FairQueue
from trioperator._concurrency.pulse import Pulse
from trioperator._runtime.result import DONE, Again, RequeueAt, Result


class _Item(Hashable, Protocol):
    """An item with its flow: items of other flows never wait for more than one item of this flow in a row."""

    @property
    def flow(self) -> Hashable: ...


T = TypeVar("T", bound=_Item)
T_contra = TypeVar("T_contra", contravariant=True)

# After this many fresh items in a row, one is taken from the initial lane.
_FRESH_IN_A_ROW = 4
# After this many reconciles in a row that ended with a newer state, the object waits for this many seconds.
_LOOP_LIMIT, _LOOP_BACKOFF = 10, 1.0
# After this many reconciles in a row, or seconds, a worker lets other tasks run: perhaps none had a checkpoint.
_BATCH, _LONG = 64, 0.005
# The requeue heap is not searched for stale entries below this size.
_FEW = 256
_STRAY: Final = "A worker was cancelled by a scope that a handler left open: perhaps an async generator yielded in it."


class Lane(enum.Enum):
    """Priority of a queued item: what changes now comes before what an initial list has brought."""

    FRESH = enum.auto()
    INITIAL = enum.auto()


# To read a global is several times faster than to read a member of an enumeration.
FRESH: Final = Lane.FRESH
INITIAL: Final = Lane.INITIAL


class Reconciles(Protocol[T_contra]):
    """A reconciler, as the work queue uses it."""

    def reconcile(self, item: T_contra, /) -> Awaitable[Result]: ...
    def has_work(self, item: T_contra, /) -> bool: ...
    def is_unsaved(self, item: T_contra, /) -> bool: ...
    def report_loop(self, item: T_contra, /, *, writes: int, backoff: float) -> None: ...


class QueueObserver(Protocol[T_contra]):
    """Something that is notified of what a work queue does, such as metrics. No method waits or raises."""

    def queued(self, item: T_contra, lane: Lane, /) -> None:
        """Note that an item waits for a worker in a lane, or waits in this more urgent one now."""

    def requeued(self, item: T_contra, /) -> None:
        """Note that an item is due later."""

    def began(self, item: T_contra, /) -> None:
        """Note that a reconcile begins, in the task of its worker."""

    def ended(self, item: T_contra, result: Result | None, /) -> None:
        """Note that a reconcile has ended, in the same task; without a result: by cancellation."""


class _Entry(msgspec.Struct, Generic[T], eq=False):
    """An item that is queued, running, or due later.

    ``dirty`` is its lane after the running reconcile, ``alarm`` its newest time in the requeue heap.
    """

    item: T
    lane: Lane | None = None
    processing: bool = False
    dirty: Lane | None = None
    due: float | None = None
    alarm: float | None = None


class _Lanes(Generic[T]):
    """The entries that wait for a worker, and their ``count`` in both lanes."""

    def __init__(self) -> None:
        self.fresh: FairQueue[_Entry[T]] = FairQueue()
        self.initial: FairQueue[_Entry[T]] = FairQueue()
        self.count = 0
        self._since_initial = 0

    def clear(self) -> None:
        """Drop all entries."""
        self.fresh.clear()
        self.initial.clear()
        self.count = 0

    def next(self) -> _Entry[T] | None:
        """Take the entry whose turn it is; None if there is none."""
        while self.count:
            self.count -= 1
            fresh = self.fresh
            if (fresh.direct or fresh.ring) and (self._since_initial < _FRESH_IN_A_ROW or not self.initial):
                self._since_initial += 1
                return fresh.direct.popleft() if fresh.direct else fresh.popleft()
            self._since_initial = 0
            entry = self.initial.popleft()
            if entry.lane is INITIAL:  # else it has become urgent, and is in the other lane, too
                return entry
        return None


class _Requeues(Generic[T]):
    """The requeue heap: when entries are due. ``closing`` is cancelled when it is closed."""

    def __init__(self) -> None:
        self.closing = trio.CancelScope()
        self.changed = Pulse()
        self._heap: list[tuple[float, int, _Entry[T]]] = []
        self._many = _FEW
        self._order = itertools.count()

    @property
    def next_due(self) -> float:
        """When the next entry may be due, unless that has ``changed``."""
        return self._heap[0][0] if self._heap else math.inf

    def close(self) -> None:
        """Drop all entries."""
        self._heap.clear()
        self.closing.cancel(reason="the work queue is closed")

    def set(self, entry: _Entry[T], time: float) -> None:
        """Let an entry be due at a time on Trio's clock."""
        entry.alarm = time
        heapq.heappush(self._heap, (time, next(self._order), entry))
        if self._heap[0][2] is entry:
            self.changed.set()
        if len(self._heap) > self._many:
            self._drop_stale_alarms()

    def _drop_stale_alarms(self) -> None:
        """Drop the alarms of items that no longer wait, and may be gone: their times may be far off."""
        for time, _, entry in self._heap:
            if entry.alarm == time and entry.due is None:
                entry.alarm = None
        self._heap = [alarm for alarm in self._heap if alarm[2].alarm == alarm[0]]
        heapq.heapify(self._heap)
        self._many = max(_FEW, 2 * len(self._heap))

    def pop_due(self, now: float) -> Iterator[_Entry[T]]:
        """Yield the entries whose newest time has come."""
        while self._heap and self._heap[0][0] <= now:
            time, _, entry = heapq.heappop(self._heap)
            if entry.alarm == time:  # else an earlier alarm of the item has gone off
                entry.alarm = None
                yield entry


class QueuedItem(NamedTuple, Generic[T]):
    """An item of a work queue: queued in a lane, at work, or due later, on Trio's clock."""

    item: T
    lane: Lane | None
    at_work: bool
    due: float | None


class WorkQueue(Generic[T]):
    """Items to be reconciled, in two lanes and a requeue heap. Made by :func:`open_workqueue`.

    Adding never waits. At most *limit* workers run at the same time, over all kinds. A fresh item that has nothing else
    to do waits for *window* seconds, so that what is added meanwhile is reconciled together with it.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        reconciler: Reconciles[T],
        *,
        limit: int | None,
        window: float = 0.0,
        observer: QueueObserver[T] | None = None,
    ) -> None:
        self._nursery = nursery
        self._reconciler = reconciler
        self._observer = observer
        self._limit: float = math.inf if limit is None else limit
        self._window = window
        self._entries: dict[T, _Entry[T]] = {}
        self._lanes = _Lanes[T]()
        self._requeues = _Requeues[T]()
        self._running = self._starting = 0  # workers, and those of them that have not begun to look for an item
        self._now = find_clock()
        self.closed = False

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def at_work(self) -> list[T]:
        """The items that are being reconciled."""
        return [entry.item for entry in self._entries.values() if entry.processing]

    def items(self) -> Iterator[QueuedItem[T]]:
        """Yield all items, in no order."""
        for entry in self._entries.values():
            yield QueuedItem(entry.item, entry.lane, entry.processing, entry.due)

    def add(self, item: T, lane: Lane = FRESH, *, at_once: bool = False) -> None:
        """Queue an item, or queue it again after the running reconcile. With *at_once*, it does not wait for others."""
        entry = self._entries.get(item)
        if entry is None:
            entry = self._entries[item] = _Entry(item)
        if entry.processing:
            entry.dirty = FRESH if entry.dirty is FRESH else lane
        elif self._window and not at_once and lane is FRESH and entry.lane is None and not self.closed:
            self._wait_until(entry, min(self._now() + self._window, entry.due or math.inf))
        elif self._enqueue(entry, lane) and not self._starting and self._running < self._limit:
            self._start_worker()

    def _enqueue(self, entry: _Entry[T], lane: Lane) -> bool:
        if self.closed:
            self._save_last(entry)
            return False
        if entry.lane is FRESH or entry.lane is lane:
            return False
        entry.lane = lane
        lanes = self._lanes
        queue = lanes.fresh if lane is FRESH else lanes.initial
        if self._running - self._starting + lanes.count < self._limit:  # it is given a worker at once
            queue.direct.append(entry)
        else:
            queue.append(entry, entry.item.flow)
        lanes.count += 1
        if self._observer is not None:
            self._observer.queued(entry.item, lane)
        return True

    def requeue_at(self, item: T, time: float) -> None:
        """Queue an item at *time* on Trio's clock, unless it is reconciled earlier."""
        entry = self._entries.get(item)
        if entry is None:
            entry = self._entries[item] = _Entry(item)
        self._wait_until(entry, time)
        if self._observer is not None:
            self._observer.requeued(item)

    def _wait_until(self, entry: _Entry[T], time: float) -> None:
        entry.due = time
        if entry.alarm is None or time < entry.alarm:
            self._requeues.set(entry, time)

    def close(self, *, give_up_at: float = math.inf) -> None:
        """Begin no more reconciles but to save what is unsaved; cancel those at work at a time on Trio's clock."""
        self.closed = True
        self.give_up_at(give_up_at)
        waiting = [entry for entry in self._entries.values() if not entry.processing]
        self._lanes.clear()
        self._requeues.close()
        for entry in waiting:
            self._save_last(entry)

    def give_up_at(self, time: float) -> None:
        """Cancel the reconciles that have not ended at a time on Trio's clock."""
        self._nursery.cancel_scope.deadline = time

    def _save_last(self, entry: _Entry[T]) -> None:
        """Reconcile an item whose state is unsaved: at once and beyond the limit, as the operator is stopping."""
        if not self._reconciler.is_unsaved(entry.item):
            self._entries.pop(entry.item, None)
        elif not entry.processing:
            entry.processing = True
            self._start_worker(entry)

    def _start_worker(self, entry: _Entry[T] | None = None) -> None:
        self._running += 1
        self._starting += entry is None
        self._nursery.start_soon(self._work, entry, name="worker")

    def _begin(self) -> _Entry[T] | None:
        """Return the first item of a worker, and let two others begin if there is more to do: it may take long.

        So all that can run have begun soon. But if the first item waits for nothing, this worker goes on with the next
        ones before any other has begun.
        """
        self._starting -= 1
        first = self._lanes.next()
        for _ in range(min(2, self._lanes.count - self._starting)):
            if self._running < self._limit:
                self._start_worker()
        return first

    async def _work(self, entry: _Entry[T] | None) -> None:
        """Reconcile *entry*, and then what is queued, until nothing is."""
        batch, began, observer, lanes = 0, self._now(), self._observer, self._lanes
        result: Result | None
        try:
            entry = entry or self._begin()
            while entry is not None:
                writes = 0
                entry.lane = entry.due = None
                while writes < _LOOP_LIMIT:
                    entry.processing, entry.dirty, result = True, None, None
                    if observer is not None:
                        observer.began(entry.item)
                    try:
                        result = await self._reconciler.reconcile(entry.item)
                    finally:
                        entry.processing = False
                        if observer is not None:
                            observer.ended(entry.item, result)
                    if type(result) is not Again:
                        break
                    writes += not result.progress
                assert result is not None
                self._settle(entry, result)
                batch += 1
                if (batch == _BATCH or self._now() - began > _LONG) and lanes.count:
                    await trio.lowlevel.checkpoint()
                    batch, began = 0, self._now()
                entry = lanes.next()
        finally:
            self._running -= 1

    def _settle(self, entry: _Entry[T], result: Result) -> None:
        """Do with an item what the result of its reconcile says, or queue it where it was added meanwhile."""
        if result is DONE and entry.dirty is None:
            del self._entries[entry.item]
            return
        match result:
            case Again() if not self.closed:
                self._reconciler.report_loop(entry.item, writes=_LOOP_LIMIT, backoff=_LOOP_BACKOFF)
                self.requeue_at(entry.item, self._now() + _LOOP_BACKOFF)
            case _ if entry.dirty is not None and (self.closed or self._reconciler.has_work(entry.item)):
                self._enqueue(entry, entry.dirty)  # for this worker, or another that comes to it first
            case RequeueAt(time):
                self.requeue_at(entry.item, time)
            case _:
                del self._entries[entry.item]

    async def serve_due(self) -> None:
        """Queue the items whose due time has come, until the queue is closed."""
        with self._requeues.closing:
            await keep("requeue", self._requeue)

    async def _requeue(self) -> None:
        while True:
            with trio.move_on_at(self._requeues.next_due):
                await self._requeues.changed.wait()
            self._queue_due()

    def _queue_due(self) -> None:
        for entry in self._requeues.pop_due(self._now()):
            if entry.due is not None and entry.due > self._now():
                self._requeues.set(entry, entry.due)
            elif entry.due is not None and entry.processing:
                entry.dirty = FRESH
            elif entry.due is not None:
                self._enqueue(entry, FRESH)
        if self._lanes.count and not self._starting and self._running < self._limit:
            self._start_worker()


@contextlib.asynccontextmanager
async def open_workqueue(
    reconciler: Reconciles[T], *, limit: int | None, window: float = 0.0, observer: QueueObserver[T] | None = None
) -> AsyncIterator[WorkQueue[T]]:
    """Open a work queue, and wait at the end of the block for the running reconciles, or close it with ``give_up_at``.

    Raises RuntimeError if a worker is cancelled by a scope that a handler has left open: Trio would end the queue.
    """
    is_over = False
    async with trio.open_nursery() as nursery:
        queue = WorkQueue(nursery, reconciler, limit=limit, window=window, observer=observer)
        nursery.start_soon(queue.serve_due, name="requeue")
        try:
            yield queue
            is_over = True
        finally:
            queue.close(give_up_at=nursery.cancel_scope.deadline)
    if not is_over and trio.current_time() < nursery.cancel_scope.deadline:
        raise RuntimeError(_STRAY)
