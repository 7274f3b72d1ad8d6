"""The way of watch events from the cache to the work queue: they are limited, and held while indices are incomplete."""

from __future__ import annotations

from typing import Protocol

from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.cache.watch_event import WatchEvent
from trioperator._runtime.workqueue import FRESH, Lane


class Queue(Protocol):
    """The work queues of shards, as the cache uses them."""

    @property
    def is_divided(self) -> bool: ...  # whether objects are handled by several replicas
    def find_shard(self, uid: str, /) -> int: ...
    def owns(self, uid: str, /) -> bool: ...  # whether objects with this uid are to be handled here
    def add(self, item: ObjectState, lane: Lane = FRESH, *, at_once: bool = False) -> None: ...


class Backlog:
    """Objects with pending watch events, at most *limit* of each, until the *queue* has them."""

    def __init__(self, queue: Queue, limit: int) -> None:
        self.queue = queue
        self._limit = limit
        self._full: set[ObjectState] = set()
        self._held: dict[ObjectState, Lane] | None = None

    def is_full(self, state: ObjectState, event: WatchEvent) -> bool:
        """Check whether a watch event takes the place of the one before it, as handlers do not keep up."""
        if state.events is None or len(state.events) < self._limit or event.type == "DELETED":
            self._full.discard(state)
            return False
        if state not in self._full:
            self._full.add(state)
            text = "Event handlers do not keep up: %d watch events are pending. Further changes replace the newest one."
            state.make_logger().warning(text, len(state.events))
        return event.type == "MODIFIED" and state.events[-1].type == "MODIFIED"

    def add(self, state: ObjectState, lane: Lane) -> None:
        """Queue an object with a new watch event, or hold it."""
        if self._held is None:
            self.queue.add(state, lane)
        elif self._held.get(state) is not FRESH:
            self._held[state] = lane

    def hold(self) -> None:
        """Keep objects from being queued, until :meth:`release`."""
        self._held = {}

    def release(self) -> None:
        """Queue the objects that were held, as far as they have pending watch events."""
        held, self._held = self._held, None
        for state, lane in (held or {}).items():
            if state.events:
                self.queue.add(state, lane)
