"""Fair queuing: items wait in flows, and the flows take turns.

As with the API server's priority and fairness, a flow with many items delays itself, and hardly the others.
"""

from __future__ import annotations

import collections
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["FairQueue"]

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items in flows: round robin over the flows; first come, first served within a flow.

    Appending and popping take constant time, however many flows there are. A flow without items takes no memory.
    Items in ``direct`` come before all flows: it is an ordinary deque, for when there is no need to take turns.
    """

    __slots__ = ("_flows", "direct")

    def __init__(self) -> None:
        self.direct: collections.deque[T] = collections.deque()
        self._flows: collections.OrderedDict[Hashable, collections.deque[T]] = collections.OrderedDict()

    def __bool__(self) -> bool:
        return bool(self.direct or self._flows)

    def append(self, item: T, flow: Hashable) -> None:
        """Append an item to its flow; a flow that had none is the last to have its turn."""
        items = self._flows.get(flow)
        if items is None:
            self._flows[flow] = collections.deque((item,))
        else:
            items.append(item)

    def popleft(self) -> T:
        """Remove and return the first item of the flow whose turn it is. Raises IndexError if there is none."""
        if self.direct:
            return self.direct.popleft()
        for flow, items in self._flows.items():
            item = items.popleft()
            if items:
                self._flows.move_to_end(flow)
            else:
                del self._flows[flow]
            return item
        raise IndexError("pop from an empty queue")

    def remove(self, item: T, flow: Hashable) -> None:
        """Remove an item from its flow, in time linear in the flow's size. Raises ValueError if it is not there."""
        items = self._flows.get(flow)
        if items is None:
            raise ValueError(f"{item!r} is not in the queue")
        items.remove(item)
        if not items:
            del self._flows[flow]

    def clear(self) -> None:
        """Remove all items."""
        self.direct.clear()
        self._flows.clear()
