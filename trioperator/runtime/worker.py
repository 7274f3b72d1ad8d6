"""Workers: the tasks that take the turns of objects.

A worker is there while there is work and gone when there is none. At most ``limit`` of them run at once, over all
kinds; an object is with one worker at a time; an object that waits for a due time is with none.
"""

from __future__ import annotations

import collections
import contextlib
import heapq
import itertools
import math
from collections.abc import AsyncIterator, Awaitable, Callable

import trio

from trioperator.runtime.table import Known, Lane

__all__ = ["Workers", "open_workers"]

# Of so many turns in a row one belongs to an object of an initial list, however many fresh events there are.
_FRESH_IN_A_ROW = 4
# So many alarms are not worth a look whether anybody waits for them still.
_FEW = 256


class Workers:
    """Bring objects that have something to do to *take_turns*, which does it and tells when there is more to do.

    Fresh events come before those of an initial list, which may be thousands; but both go on. ``add`` and ``add_at``
    never wait. Made by :func:`open_workers`.
    """

    def __init__(
        self, nursery: trio.Nursery, take_turns: Callable[[Known], Awaitable[float | None]], *, limit: int | None
    ) -> None:
        self._nursery = nursery
        self._take_turns = take_turns
        self._limit: float = math.inf if limit is None else limit
        self._fresh: collections.deque[Known] = collections.deque()
        self._initial: collections.deque[Known] = collections.deque()
        self._since_initial = 0
        self._delayed: list[tuple[float, int, Known]] = []
        self._many = _FEW
        self._order = itertools.count()
        self._running = 0
        self._changed = trio.Event()
        self.closed = False

    def close(self, *, give_up_at: float = math.inf) -> None:
        """Begin no more turns but to store something; cancel what has not ended at a time on Trio's clock."""
        self.closed = True
        self._nursery.cancel_scope.deadline = give_up_at
        waiting = [*self._fresh, *self._initial, *(known for _, _, known in self._delayed)]
        self._fresh.clear()
        self._initial.clear()
        self._delayed.clear()
        for known in waiting:
            self.add(known)
        self._changed.set()

    def give_up_at(self, time: float) -> None:
        """Cancel the turns that have not ended at a time on Trio's clock."""
        self._nursery.cancel_scope.deadline = time

    def add(self, known: Known) -> None:
        """Have a turn taken for an object, as soon as a worker is free."""
        if self._enqueue(known) and self._running < self._limit:
            self._running += 1
            self._nursery.start_soon(self._work, name="worker")

    def _enqueue(self, known: Known) -> bool:
        if self.closed:
            self._part_with(known)
            return False
        if known.busy or known.queued is Lane.FRESH or (known.queued and not known.fresh):
            return False
        known.queued = Lane.FRESH if known.fresh else Lane.INITIAL
        (self._fresh if known.fresh else self._initial).append(known)
        return True

    def add_at(self, known: Known, due: float) -> None:
        """Have a turn taken for an object at a time on Trio's clock, or earlier when there is news of it."""
        known.due = due
        if known.alarm is None or due < known.alarm:
            self._set_alarm(known, due)

    def _set_alarm(self, known: Known, due: float) -> None:
        known.alarm = due
        heapq.heappush(self._delayed, (due, next(self._order), known))
        if self._delayed[0][2] is known:
            self._changed.set()
        if len(self._delayed) > self._many:
            self._drop_stale()

    def _drop_stale(self) -> None:
        """Let go of the objects that do not wait any more, and may be gone: their alarms may be far off."""
        for due, _, known in self._delayed:
            if known.alarm == due and known.due is None:
                known.alarm = None
        self._delayed = [entry for entry in self._delayed if entry[2].alarm == entry[0]]
        heapq.heapify(self._delayed)
        self._many = max(_FEW, 2 * len(self._delayed))

    async def _work(self) -> None:
        try:
            while (known := self._next()) is not None:
                known.queued = None
                known.busy = True
                await self._work_for(known)
        finally:
            self._running -= 1

    async def _work_for(self, known: Known) -> None:
        known.due = None
        try:
            due = await self._take_turns(known)
        finally:
            known.busy = False
        if known.has_work:
            self._enqueue(known)  # for this worker, or another that comes to it first
        elif due is not None:
            self.add_at(known, due)

    def _part_with(self, known: Known) -> None:
        """Have what is unsaved of an object stored: now, whatever the limit is, as there is not much time."""
        if known.is_unsaved and not known.busy:
            known.busy = True
            self._nursery.start_soon(self._work_for, known, name="last turn")

    def _next(self) -> Known | None:
        while self._fresh or self._initial:
            if self._fresh and (not self._initial or self._since_initial < _FRESH_IN_A_ROW):
                self._since_initial += 1
                return self._fresh.popleft()
            self._since_initial = 0
            known = self._initial.popleft()
            if known.queued is Lane.INITIAL:  # else it has become urgent meanwhile, and stands in the other lane
                return known
        return None

    async def serve_due(self) -> None:
        """Wake the objects that wait for a due time, until closed."""
        while not self.closed:
            with trio.move_on_at(self._delayed[0][0] if self._delayed else math.inf):
                await self._changed.wait()
            self._changed = trio.Event()
            now = trio.current_time()
            while self._delayed and self._delayed[0][0] <= now:
                due, _, known = heapq.heappop(self._delayed)
                if known.alarm != due:
                    continue  # there was an earlier one, and it has gone off
                known.alarm = None
                if known.due is None:
                    continue  # it had a turn meanwhile, and has nothing more to do
                if known.due > now:
                    self._set_alarm(known, known.due)
                else:
                    known.fresh = True
                    self.add(known)


@contextlib.asynccontextmanager
async def open_workers(
    take_turns: Callable[[Known], Awaitable[float | None]], *, limit: int | None
) -> AsyncIterator[Workers]:
    """Offer workers, and wait at the end until those at work have ended their turns.

    To limit that wait, close them with a time to give up.
    """
    async with trio.open_nursery() as nursery:
        workers = Workers(nursery, take_turns, limit=limit)
        nursery.start_soon(workers.serve_due, name="alarm")
        try:
            yield workers
        finally:
            workers.close(give_up_at=nursery.cancel_scope.deadline)
