"""The objects of an operator as people look for them: lists with filters, and all that is known of one object.

It contains names, times and states, and of the object itself only its metadata: no spec, no status, no annotations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import trio

from trioperator._handling.calls.handler_state import HandlerState
from trioperator._handling.handlers.handler import SpawningHandler
from trioperator._runtime.cache.cache import ObjectCache
from trioperator._runtime.cache.object_state import Cache, ObjectState
from trioperator._runtime.reconciler.handling import Handling
from trioperator._runtime.workqueue import QueuedItem
from trioperator._telemetry.failures import mask_message
from trioperator._telemetry.inspector import Inspector
from trioperator._telemetry.instruments import name_kind

#: Activities of objects, for filters.
STATES: Final = ("at work", "queued", "due later", "failing", "paused", "idle")
# More objects than this are shown in the order of the cache: sorting them would take too long.
_MAX_SORTED: Final = 20_000
_NO_HANDLING: Final = Handling(purpose=None, handlers={}, daemons=(), errors=0, unsaved=False, body=None)


class ObjectFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which objects to list: by the name of their kind, their namespace, a part of ``namespace/name``, their state."""

    kind: str = ""
    namespace: str = ""
    text: str = ""
    state: str = ""


class _Queue:
    """The work queue at this moment, by objects."""

    def __init__(self, parts: Inspector) -> None:
        self._parts = parts
        self._now = trio.current_time()
        self._items = {item.item: item for item in parts.shards.items()}

    def item(self, state: ObjectState) -> QueuedItem[ObjectState] | None:
        return self._items.get(state)

    def find(self, uid: str) -> ObjectState | None:
        return next((state for state in self._items if state.uid == uid), None)

    def is_failing(self, state: ObjectState) -> bool:
        reconciler = self._parts.shards.find_reconciler(state)
        return reconciler is not None and reconciler.status.is_retrying(state)

    def describe(self, state: ObjectState) -> dict[str, Any]:
        """Return what an object is doing, and in how many seconds it is due."""
        item = self._items.get(state)
        if item is None:
            return {"state": "idle", "due": None}
        if item.at_work:
            return {"state": "at work", "due": None}
        if item.lane is not None:
            return {"state": "queued", "due": 0.0}
        return {"state": "due later", "due": None if item.due is None else round(max(item.due - self._now, 0.0), 3)}

    def matches(self, state: ObjectState, wanted: str) -> bool:
        if wanted in ("failing", "paused"):
            return self.is_failing(state) if wanted == "failing" else bool(self.find_pause(state))
        return bool(self.describe(state)["state"] == wanted)

    def find_pause(self, state: ObjectState) -> str:
        """Return in words how an object is paused, empty if it is not."""
        reconciler = self._parts.shards.find_reconciler(state)
        pause = None if reconciler is None else reconciler.pauses.get(state)
        return "" if pause is None else mask_message(str(pause))


def find_objects(parts: Inspector, wanted: ObjectFilter, *, start: int, limit: int) -> tuple[int, list[dict[str, Any]]]:
    """Return how many objects match, and *limit* of them from the index *start* on, by kind, namespace and name."""
    queue = _Queue(parts)
    found = [(cache, state) for cache, state in _select(parts, wanted) if _fits(queue, state, wanted.state)]
    if len(found) <= _MAX_SORTED:
        found.sort(key=lambda pair: (name_kind(pair[0].kind.resource), pair[1].namespace or "", pair[1].name))
    return len(found), [_describe_row(queue, cache, state) for cache, state in found[start : start + limit]]


def _fits(queue: _Queue, state: ObjectState, wanted: str) -> bool:
    return not wanted or queue.matches(state, wanted)


def _select(parts: Inspector, wanted: ObjectFilter) -> Iterator[tuple[ObjectCache, ObjectState]]:
    text = wanted.text.lower()
    for cache, _ in () if parts.watches is None else parts.watches.caches():
        if wanted.kind and wanted.kind != name_kind(cache.kind.resource):
            continue
        for state in cache:
            if wanted.namespace and wanted.namespace != state.namespace:
                continue
            if not text or text in f"{state.namespace or ''}/{state.name}".lower():
                yield cache, state


def _describe_row(queue: _Queue, cache: Cache, state: ObjectState) -> dict[str, Any]:
    return {
        "kind": name_kind(cache.kind.resource),
        "namespace": state.namespace or "",
        "name": state.name,
        "uid": state.uid,
        "failing": queue.is_failing(state),
        "paused": queue.find_pause(state),
        **queue.describe(state),
    }


def find_object(parts: Inspector, *, uid: str = "", wanted: ObjectFilter | None = None, name: str = "") -> str | None:
    """Return the uid of a known object: one that is in the cache, or still at work. By its uid, else by its names."""
    if uid:
        return uid if parts.find_state(uid) is not None or _Queue(parts).find(uid) is not None else None
    if wanted is None or not name:
        return None
    return next((state.uid for _, state in _select(parts, wanted) if state.name == name), None)


def describe_object(parts: Inspector, uid: str) -> dict[str, Any] | None:
    """Return all that is known of an object; None if nothing is."""
    queue = _Queue(parts)
    state = parts.find_state(uid) or queue.find(uid)
    if state is None:
        return None
    reconciler = parts.shards.find_reconciler(state)
    handling = _NO_HANDLING if reconciler is None else reconciler.status.inspect(state)
    resource = state.cache.kind.resource
    return {
        **_describe_row(queue, state.cache, state),
        "api_version": resource.api_version,
        "kind_name": resource.kind or resource.plural,
        "handled_here": reconciler is not None,
        "deleted": state.has_vanished(),
        "new": not state.initial,
        "pending_events": len(state.events or ()),
        "version": state.version,
        "seen_version": state.seen_version,
        "awaits_echo": state.cache.versions.is_expected(state.uid),
        "cause": None if handling.purpose is None else str(handling.purpose),
        "progress": [_describe_progress(name, each) for name, each in handling.handlers.items()],
        "daemons": [_describe_daemon(handler, due) for handler, due in handling.daemons],
        "errors": handling.errors,
        "unsaved": handling.unsaved,
        "metadata": _describe_metadata(handling.body),
    }


def _describe_daemon(handler: SpawningHandler, due: float | None) -> dict[str, Any]:
    seconds = None if due is None else round(max(due - trio.current_time(), 0.0), 3)
    return {"kind": str(handler).partition(" ")[0], "id": handler.id, "due": seconds}


def _describe_progress(handler: str, state: HandlerState) -> dict[str, Any]:
    result = "succeeded" if state.success else "failed" if state.failure else "waiting"
    return {
        "handler": handler,
        "result": result,
        "retries": state.retries,
        "started": state.started,
        "stopped": state.stopped,
        "delayed": state.delayed,
        "message": mask_message(state.message or ""),
    }


def _describe_metadata(body: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the metadata of an object that say what it belongs to: whatever others have written into it."""
    meta = None if body is None else body.get("metadata")
    if not isinstance(meta, Mapping):
        return None
    owners = [owner for owner in _list(meta.get("ownerReferences")) if isinstance(owner, Mapping)]
    labels = meta.get("labels")
    return {
        "created": str(meta.get("creationTimestamp") or ""),
        "deleting": str(meta.get("deletionTimestamp") or ""),
        "generation": str(meta.get("generation") or ""),
        "labels": {str(name): str(value) for name, value in labels.items()} if isinstance(labels, Mapping) else {},
        "finalizers": [str(name) for name in _list(meta.get("finalizers"))],
        "owners": [f"{owner.get('kind', '')}/{owner.get('name', '')}" for owner in owners],
    }


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
