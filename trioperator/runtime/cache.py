"""The cache: the objects of one watch, each with its identity, its versions and the watch events still to be handled.

An idle object has neither a task nor a body. Nothing here waits: a watch event is in the cache and its object in the
work queue before the next one is read.
"""

from __future__ import annotations

import collections
import contextlib
import copy
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import Any, Protocol

import msgspec
import trio

from trioperator.handling.indexing import Indices
from trioperator.handling.registry import KindHandlers
from trioperator.kube.objects import parse_object
from trioperator.kube.watch import RawObject
from trioperator.logs import Logger, ObjectRef, object_logger
from trioperator.runtime.kind import Kind, Memory
from trioperator.runtime.watch_event import WatchEvent
from trioperator.runtime.workqueue import Lane

__all__ = ["Kind", "Memory", "ObjectCache", "ObjectState", "Queue", "WatchEvent"]


class ObjectState:
    """Cached state of one object: its identity, its versions, its pending watch events, its newest body, its memo.

    ``version`` is the newest known version, from the watch or from the response to an own write; ``seen_version`` the
    newest one from the watch. ``body`` is kept only while something is left to do for that state. ``initial`` objects
    existed before the operator, which has not handled them since.
    """

    __slots__ = (
        "_listener",
        "_memo",
        "body",
        "cache",
        "events",
        "expected",
        "gone",
        "initial",
        "last_object",
        "name",
        "namespace",
        "seen_version",
        "uid",
        "version",
    )

    def __init__(
        self, cache: ObjectCache, uid: str, obj: RawObject, *, initial: bool, memory: Memory | None = None
    ) -> None:
        self.cache = cache
        self.uid = uid
        self.namespace = obj.namespace
        self.name = obj.name
        self.version: int = -1
        self.seen_version: int = -1
        self.expected: tuple[str, float] | None = None  # an own write's opaque version, and how long to wait for it
        self.events: collections.deque[WatchEvent] | None = None
        self.body: Mapping[str, Any] | None = None
        self.last_object: RawObject | None = None  # for optional delete and reconcile handlers, and for shards
        self.gone = False
        self.initial = initial and (memory is None or memory.initial)
        self._listener: Callable[[WatchEvent], None] | None = None
        self._memo: Any = None if memory is None else memory.memo

    @property
    def flow(self) -> Hashable:
        """The flow for fair queuing: the objects of the kind in the namespace."""
        return self.cache, self.namespace

    def get_memo(self) -> Any:
        """Return the memo that all handlers of the object share: a copy of the operator's, made on first use."""
        if self._memo is None:
            self._memo = copy.copy(self.cache.memo)
        return self._memo

    def remember(self) -> Memory:
        """Return what is remembered of the object while the operator is paused."""
        return Memory(self._memo, self.initial)

    @property
    def ref(self) -> ObjectRef:
        """The reference of the object in logs."""
        resource = self.cache.kind.resource
        return {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "name": self.name,
            "uid": self.uid,
            "namespace": self.namespace,
        }

    def make_logger(self, *, local: bool = True) -> Logger:
        """Return a logger that is bound to the object. Messages are posted as events unless it is *local*."""
        return object_logger(self.ref, local=local)

    def requeue(self) -> None:
        """Queue the object for a reconcile though there is no watch event for it."""
        if not self.gone:
            self.cache.requeue(self)

    @property
    def newest_event(self) -> WatchEvent | None:
        """The newest state that the watch has brought and that is not handled, or is kept; None if there is none."""
        if self.events:
            return self.events[-1]
        return None if self.last_object is None else WatchEvent(None, self.seen_version, self.last_object)

    def keep(self, obj: RawObject, version: int) -> None:
        """Keep the newest state as the server has sent it: it may have to be handled later."""
        self.last_object = obj
        self.seen_version = version

    def keep_newest(self, obj: RawObject, version: int) -> None:
        """Keep a state as the server has sent it, unless that of a newer own write is kept."""
        if version >= self.version or not self.cache.kind.handlers.reconciles:
            self.last_object = obj

    def restart(self) -> None:
        """Drop all states but the one that is kept: the object is going to be handled from there, or by others."""
        self.events = self.body = self.expected = None
        self.version = -1

    def take_events(self) -> Collection[WatchEvent]:
        """Take all pending watch events, in order."""
        events, self.events = self.events, None
        return events or ()

    def advance(self, event: WatchEvent, body: Mapping[str, Any] | None = None) -> None:
        """Make the state of a watch event the newest one, unless a newer one is known. *body* is it, if decoded."""
        if event.type == "DELETED":
            self.gone = True
            self.body = event.decode() if body is None else body
        elif event.version > self.version and not self.gone:
            self.version = event.version
            self.body = event.decode() if body is None else body

    def update(self, body: Mapping[str, Any]) -> None:
        """Make the response to an own write the newest state."""
        self.body = body
        self.cache.wrote(self, body)
        if self._listener is not None:
            self._listener(WatchEvent("MODIFIED", self.version, body=body))

    def restore(self, body: Mapping[str, Any] | None) -> None:
        """Take up a state again that was released."""
        self.body = body

    def release(self) -> None:
        """Drop the body: nothing is left to do for this state."""
        self.body = None

    def mark_handled(self) -> None:
        """Record that the object has been handled since the operator started."""
        self.initial = False

    def has_newer(self) -> bool:
        """Check whether a watch event with a newer state is pending."""
        return any(event.type == "DELETED" or event.version > self.version for event in self.events or ())

    def has_vanished(self) -> bool:
        """Check whether the object is gone, by all watch events so far."""
        return self.gone or any(event.type == "DELETED" for event in self.events or ())

    @contextlib.contextmanager
    def listening(self, listener: Callable[[WatchEvent], None]) -> Iterator[None]:
        """Pass newer states to *listener* as soon as they are known, within the block. It must not wait or raise."""
        before, self._listener = self._listener, listener
        try:
            yield
        finally:
            self._listener = before

    def _push(self, event: WatchEvent, *, replace: bool) -> None:
        if self.events is None:
            self.events = collections.deque()
        elif replace and self.events and self.events[-1].type != "DELETED":
            self.events.pop()
        self.events.append(event)
        if self._listener is not None and (event.type == "DELETED" or event.version > self.version):
            self._listener(event)


class Queue(Protocol):
    """A work queue, as the cache uses it."""

    def add(self, item: ObjectState, lane: Lane = Lane.FRESH) -> None: ...


class ObjectCache:
    """Objects of one watch: of one kind, in one namespace or in all of them.

    ``observe`` and ``replace`` take what a reflector has seen, and queue the objects that have something new. Where
    there are handlers of raw events, at most *backlog_limit* events of an object are pending: further changes replace
    the newest one. An addition and a deletion are never replaced.

    *memories* are of an operator that was paused, by the keys of objects; each is taken when its object is seen.
    """

    keeps_objects = False

    def __init__(
        self,
        kind: Kind,
        queue: Queue,
        *,
        memo: Any,
        consistency_timeout: float,
        backlog_limit: int = 100,
        indices: Indices | None = None,
        memories: dict[str, Memory] | None = None,
    ) -> None:
        self.kind = kind
        self.memo = memo
        self.indices: Indices = {} if indices is None else indices
        self.listed = trio.Event()  # set when the first list is complete, or will never be
        self.retired = False
        self.served_since: float | None = None
        self.objects: dict[str, ObjectState] = {}
        self._held: dict[ObjectState, Lane] | None = None
        self._drop: Callable[[ObjectState], None] | None = None  # on standby only
        self._memories = {} if memories is None else memories
        self._queue = queue
        self._consistency_timeout = consistency_timeout
        self._backlog_limit = backlog_limit
        self._backlogged: set[ObjectState] = set()
        self.echoes = 0  # of own writes, which were dropped
        self._count = 0  # of opaque resource versions, which are numbered by their arrival

    def __len__(self) -> int:
        return len(self.objects)

    def __iter__(self) -> Iterator[ObjectState]:
        return iter(self.objects.values())

    def observe(self, type: str | None, obj: RawObject) -> str:
        """Take a watch event, or with type None an object of a list. Queue the object if that is new to any handler.

        Returns the object's key in the cache: its uid, or its name where an aggregated API has no uids.
        """
        uid = obj.uid or obj.key
        if self._drop is not None:
            self._observe_on_standby(uid, type, obj, self._drop)
            return uid
        state = self.objects.get(uid)
        if state is None:
            if type == "DELETED" and not self.kind.handlers.events:
                return uid
            state = self._add(uid, obj, initial=type is None)
        version = self._number(state, type, obj.resource_version)
        if type is None and version <= state.seen_version:
            return uid  # listed again, unchanged
        state.seen_version = max(state.seen_version, version)
        if self.keeps_objects or self.kind.handlers.keep_objects:
            state.keep_newest(obj, version)
        if type == "DELETED":
            self.objects.pop(uid, None)
        elif version <= state.version and not self.kind.handlers.needs_own_writes:
            self.echoes += 1
            return uid  # the echo of an own write, and no handler of raw events
        self._push(state, WatchEvent(type, version, obj), Lane.INITIAL if type is None else Lane.FRESH)
        return uid

    def _add(self, uid: str, obj: RawObject, *, initial: bool) -> ObjectState:
        state = ObjectState(self, uid, obj, initial=initial, memory=self._memories.pop(uid, None))
        self.objects[uid] = state
        return state

    def _observe_on_standby(
        self, uid: str, type: str | None, obj: RawObject, drop: Callable[[ObjectState], None]
    ) -> None:
        """Keep the newest state of an object, as if it came from the list of the moment when the operator is active."""
        if type == "DELETED":
            if uid in self.objects:
                self._drop_object(self.objects[uid], drop)
            return
        state = self.objects.get(uid) or self._add(uid, obj, initial=True)
        version = self._number(state, type, obj.resource_version)
        if type is not None or version > state.seen_version:
            state.seen_version = version
            if self.kind.handlers.reconciles:
                state.last_object = obj
            state.take_events()
            self._push(state, WatchEvent(None, version, obj), Lane.INITIAL)

    def _drop_object(self, state: ObjectState, drop: Callable[[ObjectState], None]) -> None:
        del self.objects[state.uid]
        if self._held is not None:
            self._held.pop(state, None)
        drop(state)

    def replace(self, listed: Collection[str]) -> None:
        """Take the keys of a complete list: what is cached and not listed was deleted unseen."""
        for state in [state for uid, state in self.objects.items() if uid not in listed]:
            if self._drop is not None:
                self._drop_object(state, self._drop)
                continue
            del self.objects[state.uid]
            self._push(state, WatchEvent("DELETED", state.version, body=self._last_state(state)), Lane.FRESH)
        self.listed.set()

    def update_kind(self, kind: Kind) -> None:
        """Replace the kind: its definition, or the handlers for it, have changed."""
        self.kind = kind

    def retire(self) -> None:
        """Handle the objects no more, though they still exist. Each is reconciled once more, to be cleaned up."""
        self.retired = True
        self.kind = msgspec.structs.replace(self.kind, handlers=KindHandlers())
        for state in self.objects.values():
            self.requeue(state)

    def serve(self) -> float:
        """Return the time, on Trio's clock, when daemons and timers were first matched with objects of the cache."""
        if self.served_since is None:
            self.served_since = trio.current_time()
        return self.served_since

    def hold(self) -> None:
        """Keep objects from being queued, until :meth:`release`."""
        self._held = {}

    def stand_by(self, drop: Callable[[ObjectState], None]) -> None:
        """Keep objects for an operator on standby, in their newest states, until :meth:`release`.

        Objects that are deleted meanwhile are passed to *drop*: another operator has handled that.
        """
        self._held = {}
        self._drop = drop

    def release(self) -> None:
        """Queue the objects that were held, as far as they have pending watch events."""
        self._drop = None
        held, self._held = self._held, None
        for state, lane in (held or {}).items():
            if state.events:
                self._queue.add(state, lane)

    def requeue(self, state: ObjectState) -> None:
        """Queue an object without a watch event."""
        self._queue.add(state)

    def wrote(self, state: ObjectState, body: Mapping[str, Any]) -> None:
        """Record the version that an own write has led to, and drop its echo if that came before the response."""
        text = str((body.get("metadata") or {}).get("resourceVersion") or "")
        state.version = max(state.version, self._number_written(state, text))
        if self.kind.handlers.reconciles:
            state.last_object = parse_object(msgspec.json.encode(body))
        if state.events and not self.kind.handlers.needs_own_writes and not state.has_newer():
            self.echoes += len(state.events)
            state.events = None

    def _number_written(self, state: ObjectState, text: str) -> int:
        try:
            return int(text)
        except ValueError:
            # Opaque versions cannot be compared: until the watch brings just this one, what it brings is older.
            for event in state.events or ():
                if event.object is not None and event.object.resource_version == text:
                    return event.version  # it came before the response
            state.expected = (text, trio.current_time() + self._consistency_timeout)
            return self._next_number()

    def _number(self, state: ObjectState, type: str | None, text: str) -> int:
        """Return a resource version as a number that grows: an opaque one is numbered by its arrival."""
        if state.expected is not None:
            expected, until = state.expected
            if text != expected and type is not None and trio.current_time() < until:
                return state.version
            state.expected = None
            if text == expected:
                return state.version
        try:
            return int(text)
        except ValueError:
            return self._next_number()

    def _next_number(self) -> int:
        self._count += 1
        return self._count

    def _push(self, state: ObjectState, event: WatchEvent, lane: Lane) -> None:
        if not self.kind.handlers.events:
            replace = not self._count  # only the newest state counts
        else:
            replace = self._is_backlogged(state, event)
        state._push(event, replace=replace)
        if event.type == "DELETED":
            self._backlogged.discard(state)
        if self._held is None:
            self._queue.add(state, lane)
        elif self._held.get(state) is not Lane.FRESH:
            self._held[state] = lane

    def _is_backlogged(self, state: ObjectState, event: WatchEvent) -> bool:
        """Check whether a watch event takes the place of the one before it, as handlers do not keep up."""
        if state.events is None or len(state.events) < self._backlog_limit:
            self._backlogged.discard(state)
            return False
        if state not in self._backlogged:
            self._backlogged.add(state)
            text = "Event handlers do not keep up: %d watch events are pending. Further changes replace the newest one."
            state.make_logger().warning(text, len(state.events))
        return event.type == "MODIFIED" and state.events[-1].type == "MODIFIED"

    def _last_state(self, state: ObjectState) -> Mapping[str, Any]:
        if state.last_object is not None:
            with contextlib.suppress(msgspec.MsgspecError, ValueError):
                return state.last_object.decode()
        resource = self.kind.resource
        metadata = {"name": state.name, "namespace": state.namespace, "uid": state.uid}
        return {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {key: value for key, value in metadata.items() if value},
        }
