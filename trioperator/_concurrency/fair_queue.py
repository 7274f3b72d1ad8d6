"""Fair queuing: items wait in flows, and the flows take turns.

As with the API server's priority and fairness, a flow with many items delays itself, and hardly the others.
"""

from __future__ import annotations

import collections
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items in flows: round robin over the flows; first come, first served within a flow.

    Appending and popping take constant time, however many flows there are. A flow without items takes no memory.
    Items in ``direct`` come before all flows: it is an ordinary deque, for when there is no need to take turns.
    ``ring`` has the flows with items: who asks often whether there are any looks at both.
    """

    __slots__ = ("_flows", "direct", "ring")

    def __init__(self) -> None:
        self.direct: collections.deque[T] = collections.deque()
        self._flows: dict[Hashable, collections.deque[T]] = {}
        self.ring: collections.deque[Hashable] = collections.deque()  # the flow whose turn it is comes first

    def __bool__(self) -> bool:
        return bool(self.direct or self.ring)

    def append(self, item: T, flow: Hashable) -> None:
        """Append an item to its flow; a flow that had none is the last to have its turn."""
        items = self._flows.get(flow)
        if items is None:
            self._flows[flow] = collections.deque((item,))
            self.ring.append(flow)
        else:
            items.append(item)

    def popleft(self) -> T:
        """Remove and return the first item of the flow whose turn it is. Raises IndexError if there is none."""
        if self.direct:
            return self.direct.popleft()
        flow = self.ring.popleft()
        items = self._flows[flow]
        item = items.popleft()
        if items:
            self.ring.append(flow)
        else:
            del self._flows[flow]
        return item

    def remove(self, item: T, flow: Hashable) -> None:
        """Remove an item from its flow, in time linear in the items and flows. Raises ValueError if it is not there."""
        items = self._flows.get(flow)
        if items is None:
            raise ValueError(f"{item!r} is not in the queue")
        items.remove(item)
        if not items:
            del self._flows[flow]
            self.ring.remove(flow)

    def clear(self) -> None:
        """Remove all items."""
        self.direct.clear()
        self._flows.clear()
        self.ring.clear()
