"""Work queue with due times on Trio's clock: the earliest first."""

from __future__ import annotations

import heapq
import itertools
import math
from typing import Generic, TypeVar

import trio

Item = TypeVar("Item")


class WorkQueue(Generic[Item]):
    """Queue of distinct items. An item that is added twice is due once, at the earlier time."""

    def __init__(self) -> None:
        self._due: dict[Item, float] = {}
        self._heap: list[tuple[float, int, Item]] = []
        self._numbers = itertools.count()  # items that are due at the same time are first in, first out
        self._changed = trio.Event()

    def add(self, item: Item, *, after: float = 0) -> None:
        """Add an item that is due after a delay in seconds. Never waits."""
        due = trio.current_time() + after
        if due < self._due.get(item, math.inf):
            self._due[item] = due
            heapq.heappush(self._heap, (due, next(self._numbers), item))
            self._changed.set()

    async def take(self) -> Item:
        """Wait until an item is due, remove it from the queue and return it."""
        await trio.lowlevel.checkpoint()
        while True:
            due = self._earliest()
            if due <= trio.current_time():
                _, _, item = heapq.heappop(self._heap)
                del self._due[item]
                return item
            self._changed = trio.Event()
            with trio.move_on_at(due):
                await self._changed.wait()

    def _earliest(self) -> float:
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)  # removed already, or added again with an earlier time
        return self._heap[0][0] if self._heap else math.inf
