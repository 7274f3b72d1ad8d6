"""The cache: the objects of one watch, each with its identity, its versions and the watch events still to be handled.

An idle object has neither a task nor a body. Nothing here waits: a watch event is in the cache and its object in the
work queue before the next one is read.
"""

from __future__ import annotations

import collections
import contextlib
import copy
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import Any, Final, Protocol

import msgspec
import trio

from trioperator._handling.arguments.indexing import Indices
from trioperator._handling.declaring.registry import KindHandlers
from trioperator._kube.objects import parse_object
from trioperator._kube.watch import RawObject
from trioperator._logs import Logger, ObjectRef, object_logger
from trioperator._runtime.kind import Kind, Memory
from trioperator._runtime.leaving import ENTERED, LEFT, Leaving
from trioperator._runtime.succession import Predecessors
from trioperator._runtime.versions import Versions
from trioperator._runtime.watch_event import WatchEvent
from trioperator._runtime.workqueue import Lane

__all__ = ["Kind", "Memory", "ObjectCache", "ObjectState", "Queue", "WatchEvent"]

# Types of events that bring objects which existed before the operator, and what servers would say for our own types.
_INITIAL: Final = frozenset({None, ENTERED})
_OF_SERVER: Final[Mapping[str | None, str]] = {LEFT: "MODIFIED", ENTERED: "ADDED"}
_OLD, _NEW = (Memory(memo=None, initial=initial) for initial in (True, False))
_DELETION_HANDLED = Memory(memo=None, initial=True, deletion_handled=True)


class ObjectState:
    """Cached state of one object: its identity, its versions, its pending watch events, its newest body, its memo.

    ``version`` is the newest known version, from the watch or from the response to an own write; ``seen_version`` the
    newest one from the watch. ``body`` is kept only while something is left to do for that state.
    """

    __slots__ = (
        "_listeners",
        "_memory",
        "body",
        "cache",
        "events",
        "expected",
        "gone",
        "known_elsewhere",
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
        self.known_elsewhere: int = -1  # the newest version that was known in another version of the kind
        self.expected: tuple[str, float] | None = None  # an own write's opaque version, and how long to wait for it
        self.events: collections.deque[WatchEvent] | None = None
        self.body: Mapping[str, Any] | None = None
        self.last_object: RawObject | None = None  # for optional delete and reconcile handlers, and for shards
        self.gone = False
        self._listeners: tuple[Callable[[WatchEvent], None], ...] = ()
        own = _OLD if initial else _NEW
        self._memory = own if memory is None else own.join(memory)

    @property
    def flow(self) -> Hashable:
        """The flow for fair queuing: the objects of the kind in the namespace."""
        return self.cache, self.namespace

    @property
    def initial(self) -> bool:
        """Whether the object existed before the operator, which has not handled it since."""
        return self._memory.initial

    def get_memo(self) -> Any:
        """Return the memo that all handlers of the object share: a copy of the operator's, made on first use."""
        if self._memory.memo is None:
            self.inherit(Memory(copy.copy(self.cache.memo), initial=True))
        return self._memory.memo

    def remember(self) -> Memory:
        """Return what is remembered of the object while the operator is paused, or the kind gets another version."""
        return self._memory

    def inherit(self, memory: Memory) -> None:
        """Add what is remembered of the object."""
        self._memory = self._memory.join(memory)

    @property
    def comparable_version(self) -> int:
        """The newest known version, if it can be compared with those in other caches; -1 if not."""
        return -1 if self.cache.versions.are_opaque else max(self.version, self.known_elsewhere)

    def catch_up(self, version: int) -> None:
        """Note which version is known in another version of the kind: an older state has to be read again."""
        self.known_elsewhere = max(self.known_elsewhere, version)

    @property
    def is_behind(self) -> bool:
        """Whether a newer state was known in another version of the kind. Its watch event may never come."""
        return self.version < self.known_elsewhere

    def caught_up(self, *, is_restored: bool) -> None:
        """Note that the object was read again. If etcd *is_restored*, nothing has been done for it since the backup."""
        self.known_elsewhere = -1
        if is_restored:
            self._forget_handling()

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

    def rewind(self) -> None:
        """Take the next state as it is, as after a start: etcd was restored, so that it may be older."""
        self.events = self.expected = None
        self.seen_version = -1
        self.forget_version()

    def forget_version(self) -> None:
        """Take whatever comes next for newer, as after a start: etcd was restored."""
        self.version = self.known_elsewhere = -1
        self._forget_handling()

    def _forget_handling(self) -> None:
        self._memory = msgspec.structs.replace(self._memory, initial=True, deletion_handled=False)

    def take_events(self) -> Collection[WatchEvent]:
        """Take all pending watch events, in order."""
        events, self.events = self.events, None
        return events or ()

    def advance(self, event: WatchEvent, body: Mapping[str, Any] | None = None) -> None:
        """Make the state of a watch event the newest one, unless a newer one is known. *body* is it, if decoded."""
        if event.type == "DELETED":
            self.gone = True
            self.body = event.load() if body is None else body
        elif event.version > self.version and not self.gone:
            self.version = event.version
            self.body = event.load() if body is None else body

    def update(self, body: Mapping[str, Any]) -> None:
        """Make the response to an own write the newest state."""
        self.body = body
        self.cache.wrote(self, body)
        if self._listeners:
            self._tell(WatchEvent("MODIFIED", self.version, body=body))

    def restore(self, body: Mapping[str, Any] | None) -> None:
        """Take up a state again that was released."""
        self.body = body

    def release(self) -> None:
        """Drop the body: nothing is left to do for this state."""
        self.body = None

    def mark_handled(self) -> None:
        """Record that the object has been handled since the operator started."""
        if self._memory.initial:
            self.inherit(_NEW)

    @property
    def deletion_handled(self) -> bool:
        """Whether all delete handlers have ended, and the finalizer is removed."""
        return self._memory.deletion_handled

    def mark_deletion_handled(self) -> None:
        """Record that all delete handlers have ended, and the finalizer is removed."""
        self.inherit(_DELETION_HANDLED)

    def has_newer(self) -> bool:
        """Check whether a watch event with a newer state is pending."""
        return any(event.type == "DELETED" or event.version > self.version for event in self.events or ())

    def decode_newer(self) -> Mapping[str, Any] | None:
        """Return the newest state that is known, if that is a pending watch event which can be decoded."""
        newest = max(self.events or (), key=lambda event: event.version, default=None)
        if newest is None or newest.type == "DELETED" or newest.version <= self.version:
            return None
        with contextlib.suppress(msgspec.MsgspecError, ValueError):
            return newest.load()
        return None

    def has_vanished(self) -> bool:
        """Check whether the object is gone, by all watch events so far."""
        return self.gone or any(event.type == "DELETED" for event in self.events or ())

    @contextlib.contextmanager
    def listening(self, listener: Callable[[WatchEvent], None]) -> Iterator[None]:
        """Pass newer states to *listener* as soon as they are known, within the block. It must not wait or raise."""
        self._listeners = (*self._listeners, listener)
        try:
            yield
        finally:
            self._listeners = tuple(other for other in self._listeners if other is not listener)

    def tell(self, event: WatchEvent) -> None:
        """Pass a state to what listens, if it is newer, and to what may be at work in another version of the kind."""
        if self._listeners and (event.type == "DELETED" or event.version > self.version):
            self._tell(event)
        self.cache.predecessors.tell(self.uid, event)

    def _tell(self, event: WatchEvent) -> None:
        for listener in self._listeners:
            listener(event)

    def _push(self, event: WatchEvent, *, replace: bool) -> None:
        if self.events is None:
            self.events = collections.deque()
        elif replace and self.events and self.events[-1].type != "DELETED":
            self.events.pop()
        self.events.append(event)
        self.tell(event)


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
        self.predecessors = Predecessors()
        self.leaving = Leaving()
        self._held: dict[ObjectState, Lane] | None = None
        self._is_standby = False
        self._memories = {} if memories is None else memories
        self._queue = queue
        self.versions = Versions(consistency_timeout=consistency_timeout)
        self._backlog_limit = backlog_limit
        self._backlogged: set[ObjectState] = set()
        self.echoes = 0  # of own writes, which were dropped

    def __len__(self) -> int:
        return len(self.objects)

    def __iter__(self) -> Iterator[ObjectState]:
        return iter(self.objects.values())

    def observe(self, type: str | None, obj: RawObject) -> str:
        """Take a watch event, or with type None an object of a list. Queue the object if that is new to any handler.

        Returns the object's key in the cache: its uid, or its name where an aggregated API has no uids.
        """
        uid = obj.uid or obj.key
        if self._is_standby:
            self._observe_on_standby(uid, type, obj)
            return uid
        state = self.objects.get(uid)
        if state is None:
            if type == "DELETED" and not self.kind.handlers.events:
                self.predecessors.tell(uid, WatchEvent(type, 0))
                return uid
            state = self._add(uid, obj, initial=type in _INITIAL)
        has_left = self.leaving.update(state, has_left=type == LEFT)
        version = self.versions.number(state, type, obj.resource_version)
        if type is None and version < state.seen_version:
            state.rewind()
        if type is None and version <= state.seen_version:
            return uid  # listed again, unchanged
        state.seen_version = max(state.seen_version, version)
        if self.keeps_objects or self.kind.handlers.keep_objects:
            state.keep_newest(obj, version)
        if type == "DELETED":
            self.objects.pop(uid, None)
        elif version <= state.version and not (self.kind.handlers.needs_own_writes or has_left):
            self.echoes += 1
            return uid  # the echo of an own write, and no handler of raw events
        event = WatchEvent(_OF_SERVER.get(type, type), version, obj)
        self._push(state, event, Lane.INITIAL if type is None else Lane.FRESH)
        return uid

    def admit(self, type: str | None, obj: RawObject) -> ObjectState:
        """Return the state of an object that has come, and is going to be observed when it is indexed."""
        uid = obj.key
        state = self.objects.get(uid)
        if state is None:
            state = self._add(uid, obj, initial=type in _INITIAL or self._is_standby)
            self.predecessors.lend(state)  # index functions see the memo
        return state

    def _add(self, uid: str, obj: RawObject, *, initial: bool) -> ObjectState:
        memory = self._memories.pop(uid, None) or self.leaving.take(uid)
        state = ObjectState(self, uid, obj, initial=initial, memory=memory)
        self.objects[uid] = state
        return state

    def _observe_on_standby(self, uid: str, type: str | None, obj: RawObject) -> None:
        """Keep the newest state of an object, as if it came from the list of the moment when the operator is active."""
        if type in ("DELETED", LEFT):
            if uid in self.objects:
                self._drop(self.objects[uid])
            return
        state = self.objects.get(uid) or self._add(uid, obj, initial=True)
        version = self.versions.number(state, type, obj.resource_version)
        if type is not None or version > state.seen_version:
            state.seen_version = version
            if self.kind.handlers.reconciles:
                state.last_object = obj
            state.take_events()
            self._push(state, WatchEvent(None, version, obj), Lane.INITIAL)

    def _drop(self, state: ObjectState) -> None:
        del self.objects[state.uid]
        if self._held is not None:
            self._held.pop(state, None)

    def handles(self, key: str) -> bool:
        """Check whether an object with this key is to be handled here, not by others."""
        return not self._is_standby

    def forget_left(self, state: ObjectState) -> None:
        """Forget an object that has left the selector of the watch, if it has, as nothing is left to do for it."""
        if state in self.leaving:
            self.leaving.forget(state)
            self.objects.pop(state.uid, None)

    def replace(self, listed: Collection[str]) -> None:
        """Take the keys of a complete list: what is cached and not listed was deleted unseen."""
        for state in [state for uid, state in self.objects.items() if uid not in listed]:
            if self._is_standby:
                self._drop(state)
                continue
            del self.objects[state.uid]
            self._push(state, WatchEvent("DELETED", state.version, body=self._last_state(state)), Lane.FRESH)
        self.predecessors.keep(listed)
        self.listed.set()

    def rewind(self) -> None:
        """Take the next list as it is, though it is older than what was seen."""
        for state in self.objects.values():
            state.rewind()

    def forget_versions(self) -> None:
        """Take whatever comes next for newer, also in other versions of the kind: etcd was restored."""
        for state in self.objects.values():
            state.forget_version()
        self.predecessors.forget_versions()

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

    def stand_by(self) -> None:
        """Keep objects for an operator on standby, in their newest states, until :meth:`release`.

        Objects that are deleted meanwhile are dropped: another operator has handled that.
        """
        self._held = {}
        self._is_standby = True

    def release(self) -> None:
        """Queue the objects that were held, as far as they have pending watch events."""
        self._is_standby = False
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
        state.version = max(state.version, self.versions.number_written(state, text))
        if self.kind.handlers.reconciles:
            state.last_object = parse_object(msgspec.json.encode(dict(body)))
        if state.events and not self.kind.handlers.needs_own_writes and not state.has_newer():
            self.echoes += len(state.events)
            state.events = None

    def _push(self, state: ObjectState, event: WatchEvent, lane: Lane) -> None:
        if self.kind.handlers.is_index_only:
            return
        if not self.kind.handlers.events:
            replace = not self.versions.are_opaque  # only the newest state counts
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
        return self.kind.make_stub(state.namespace, state.name, state.uid)
