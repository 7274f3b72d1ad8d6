"""Objects in a cache, without a cluster: watch events, bodies, and a queue that records what was added."""

from __future__ import annotations

from typing import Any

import msgspec

import trioperator
from trioperator._handling.declaring.registry import KindHandlers
from trioperator._kube.objects import RawObject, parse_object
from trioperator._model.resource import Resource
from trioperator._runtime.cache.cache import ObjectCache
from trioperator._runtime.cache.kind import Kind
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.workqueue import Lane

on = trioperator.on
WIDGETS = Resource("example.com", "v1", "widgets", kind="Widget", subresources=frozenset({"status"}))


class Queue:
    """A queue that records what was added, and in which lane. ``owned`` is whether it handles objects."""

    is_divided = False

    def __init__(self) -> None:
        self.added: list[ObjectState] = []
        self.lanes: list[Lane] = []
        self.owned = True

    def find_shard(self, uid: str) -> int:
        return 0

    def owns(self, uid: str) -> bool:
        return self.owned

    def add(self, item: ObjectState, lane: Lane = Lane.FRESH, *, at_once: bool = False) -> None:
        self.added.append(item)
        self.lanes.append(lane)


def make(*kinds: str) -> tuple[ObjectCache, Queue]:
    """Make a cache for handlers of these kinds, of changes by default."""
    registry = trioperator.OperatorRegistry()

    async def fn(**_: Any) -> None:
        pass

    for kind in kinds or ("create",):
        match kind:
            case "event":
                on.event("widgets", registry=registry)(fn)
            case "index":
                on.index("widgets", registry=registry)(fn)
            case "gone":
                on.delete("widgets", optional=True, registry=registry)(fn)
            case _:
                on.create("widgets", registry=registry)(fn)
    queue = Queue()
    kind_of = Kind(WIDGETS, KindHandlers.of(registry.resource_handlers()))
    return ObjectCache(kind_of, queue, memo=None, consistency_timeout=5.0), queue


def raw(version: int | str, *, name: str = "w", uid: str | None = "u", **spec: Any) -> RawObject:
    """Make an object as the server sends it."""
    return parse_object(msgspec.json.encode(body(version, name=name, uid=uid, **spec)))


def body(version: int | str, *, name: str = "w", uid: str | None = "u", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "resourceVersion": str(version)} | ({"uid": uid} if uid else {})
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": spec}


def take(state: ObjectState) -> list[tuple[str | None, int]]:
    """Take the pending watch events, as a reconcile does."""
    events = list(state.take_events())
    for event in events:
        state.version = max(state.version, event.version)
    return [(event.type, event.version) for event in events]


def cached(*kinds: str) -> tuple[ObjectCache, Queue, ObjectState]:
    """Make a cache with one object, whose watch events were taken."""
    cache, queue = make(*kinds)
    cache.observe("ADDED", raw(5))
    state = queue.added.pop()
    queue.lanes.clear()
    for event in state.take_events():
        state.advance(event)
    return cache, queue, state
