"""The state of one object: what is known of it, and whether anything is left to do for it.

Theory of operation
===================

An object is *idle* or *open*, as long as it is in the cache. An idle one has no body: for its newest state, nothing is
left to do. An open one has its newest body, and is to be reconciled, now or later. Thousands of idle objects take a few
hundred bytes each, so an object becomes idle as soon as it can.

=====================================================  ==================================  =========================
what happens                                           an idle object                      an open one
=====================================================  ==================================  =========================
``advance``: a watch event is processed                opens, unless it is an older state  has that body, unless that
                                                                                           is an older state
``update``: the response to an own write, or to a      is never written to                 has that body
read, is there
``open``: it is requeued without a watch event, with   opens with it                       never happens
a body that a daemon or the cache has kept
``close``: a reconcile has found nothing left to do    stays idle                          becomes idle
``restart``: its shard is given up, or acquired        stays idle                          becomes idle
a DELETED event is processed                           is ``gone``, and open until it is   the same
                                                       forgotten
=====================================================  ==================================  =========================

Watch events do not change the state when they come: a reconcile may be running, which has decided by the body that it
was begun with. They wait in ``events`` until the next reconcile takes them. Only ``update`` and ``restart`` can happen
beside a reconcile: its handlers may be running while a saver stores what is due. So each new body has a new
``revision``: who has waited compares it with the revision that it has decided by.

Versions tell which of two states is newer. The newest known state has ``version``, whether from the watch or from a
response; the newest one that the watch has brought has ``seen_version``. The response to an own write is known before
its watch event comes. That event is an *echo*, and is dropped for not being newer.
"""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from trioperator._kube.objects import RawObject, parse_object
from trioperator._logs import Logger, ObjectRef, object_logger
from trioperator._model.finalizer import has_finalizer
from trioperator._model.memo import Memo
from trioperator._model.resource import Resource
from trioperator._runtime.cache.kind import Kind, Memory, Shared
from trioperator._runtime.cache.leaving import Leaving
from trioperator._runtime.cache.succession import Predecessors
from trioperator._runtime.cache.versions import Versions
from trioperator._runtime.cache.watch_event import WatchEvent

_OLD, _NEW = (Memory(memo=None, initial=initial) for initial in (True, False))
_DELETION_HANDLED = Memory(memo=None, initial=True, deletion_handled=True)


class Named(Protocol):
    """An object with its names."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...


class Cache(Protocol):
    """The cache of one watch, as the states of its objects use it."""

    shared: Shared

    @property
    def kind(self) -> Kind: ...
    @property
    def objects(self) -> Mapping[str, ObjectState]: ...
    @property
    def versions(self) -> Versions: ...
    @property
    def predecessors(self) -> Predecessors[ObjectState]: ...
    @property
    def twins(self) -> Collection[Cache]: ...
    @property
    def leaving(self) -> Leaving: ...
    def find_newer(self, uid: str, /) -> ObjectState | None: ...
    def forget_left(self, state: ObjectState, /) -> None: ...
    def requeue(self, state: ObjectState, /, *, at_once: bool) -> None: ...
    def update_kind(self, kind: Kind, /) -> None: ...
    def serve(self) -> float: ...


class ObjectState:
    """Cached state of one object: its identity, its versions, its pending watch events, its newest body, its memo."""

    __slots__ = (
        "_memory",
        "body",
        "cache",
        "events",
        "gone",
        "last_object",
        "name",
        "namespace",
        "revision",
        "seen_version",
        "uid",
        "version",
    )

    def __init__(self, cache: Cache, uid: str, obj: Named, *, initial: bool, memory: Memory | None = None) -> None:
        self.cache = cache
        self.uid = uid
        self.namespace = sys.intern(obj.namespace)  # the same one for thousands of objects
        self.name = obj.name
        self.version: int = -1
        self.seen_version: int = -1
        self.events: list[WatchEvent] | None = None
        self.body: Mapping[str, Any] | None = None  # None: it is idle
        self.revision = 0  # how many bodies it has had
        self.last_object: RawObject | None = None  # for optional delete and reconcile handlers, and for shards
        self.gone = False
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
        memory = self._memory
        if memory.memo is None:
            memo = self.cache.shared.memo
            memo = Memo(memo) if type(memo) is Memo else copy.copy(memo)  # which takes longer
            self._memory = msgspec.structs.replace(memory, memo=memo)
            if (newer := self.cache.find_newer(self.uid)) is not None:
                newer.inherit(Memory(memo, initial=True))
        return self._memory.memo

    def remember(self) -> Memory:
        """Return what is remembered of the object while the operator is paused, or the kind gets another version."""
        return self._memory

    def inherit(self, memory: Memory) -> None:
        """Add what is remembered of the object, also where another version of its kind has taken that over."""
        self._memory = self._memory.join(memory)
        if (newer := self.cache.find_newer(self.uid)) is not None:
            newer.inherit(memory)

    @property
    def comparable_version(self) -> int:
        """The newest known version, if it can be compared with those in other caches; -1 if not."""
        return -1 if self.cache.versions.are_opaque else max(self.version, self._memory.known_elsewhere)

    def catch_up(self, version: int) -> None:
        """Note which version is known in another version of the kind: an older state has to be read again."""
        if version > self._memory.known_elsewhere:
            self._memory = msgspec.structs.replace(self._memory, known_elsewhere=version)

    def is_outdated(self, finalizer: str | None) -> bool:
        """Check whether the newest state is older than what is known to have been done in another version of the kind.

        A newer state is on its way, as a rule. But it never comes if etcd was restored: so it is not waited for.
        """
        memory = self._memory
        is_behind, is_handled = self.version < memory.known_elsewhere, memory.deletion_handled
        if not (is_behind or is_handled) or self.body is None or not self.cache.kind.handlers.needs_state:
            return False
        return is_behind or has_finalizer(self.body, finalizer)

    def caught_up(self, *, is_restored: bool) -> None:
        """Note that the object was read again. If etcd *is_restored*, nothing has been done for it since the backup."""
        if is_restored:
            self._forget_handling()
        else:
            self._memory = msgspec.structs.replace(self._memory, known_elsewhere=-1)

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

    @property
    def subject(self) -> tuple[Resource, str, str]:
        """The kind, the namespace and the name of the object."""
        return self.cache.kind.resource, self.namespace, self.name

    def make_logger(self, *, local: bool = True) -> Logger:
        """Return a logger that is bound to the object. Messages are posted as events unless it is *local*."""
        return object_logger(self.ref, local=local)

    def requeue(self, *, at_once: bool = False) -> None:
        """Queue the object for a reconcile though there is no watch event for it.

        With *at_once*, it does not wait for ``queueing.batch_window``.
        """
        if not self.gone:
            self.cache.requeue(self, at_once=at_once)

    def keep(self, obj: RawObject | None, version: int) -> None:
        """Keep the newest state as the server has sent it, if it may have to be handled later."""
        self.last_object = obj
        self.seen_version = version

    def see(self, version: int, obj: RawObject | None) -> None:
        """Note a version that the watch has brought; keep *obj*, if given, unless a newer own write is kept."""
        if version > self.seen_version:
            self.seen_version = version
        if obj is not None and (version >= self.version or not self.cache.kind.handlers.reconciles):
            self.last_object = obj

    def restart(self) -> None:
        """Drop all states but the one that is kept: the object is going to be handled from there, or by others."""
        self.events = self.body = None
        self.revision += 1
        self.version = -1
        self.cache.versions.forget(self.uid)

    def rewind(self) -> None:
        """Take the next state as it is, as after a start: etcd was restored, so that it may be older."""
        self.events = None
        self.seen_version = -1
        self.cache.versions.forget(self.uid)
        self.forget_version()

    def forget_version(self) -> None:
        """Treat the next state as newer, as after a start: etcd was restored."""
        self.version = -1
        self._forget_handling()

    def _forget_handling(self) -> None:
        memory = self._memory
        self._memory = Memory(memory.memo, initial=True, ended=memory.ended)

    def take_events(self) -> Collection[WatchEvent]:
        """Take all pending watch events, in order."""
        events, self.events = self.events, None
        return events or ()

    def advance(self, event: WatchEvent, body: Mapping[str, Any] | None = None) -> None:
        """Make the state of a watch event the newest one, unless a newer one is known. *body* is it, if decoded."""
        if event.type == "DELETED":
            self.gone = True
            if body is None and self._memory.deletion_handled:
                return  # nothing is left to be done with the last state
        elif event.version > self.version and not self.gone:
            self.version = event.version
        else:
            return
        self.body = event.load() if body is None else body
        self.revision += 1

    def update(self, body: Mapping[str, Any]) -> None:
        """Make the response to an own write, or to a read, the newest state."""
        self.body = body
        self.revision += 1
        version = str((body.get("metadata") or {}).get("resourceVersion") or "")
        self.version = max(self.version, self.cache.versions.number_written(self, version))
        handlers = self.cache.kind.handlers
        if handlers.reconciles:
            self.last_object = parse_object(msgspec.json.encode(dict(body)))
        if self.events and not handlers.needs_own_writes and not self.has_newer():
            self.cache.versions.count_echoes(len(self.events))  # they came before the response
            self.events = None
        if self in self.cache.shared.listeners:
            self._tell(WatchEvent("MODIFIED", self.version, body=body))

    def open(self, body: Mapping[str, Any]) -> None:
        """Take up the newest state of an idle object again: something is to be done for it without a watch event."""
        self.body = body
        self.revision += 1

    def close(self) -> None:
        """Make the object idle: nothing is left to do for its newest state."""
        self.body = None

    def mark_handled(self) -> None:
        """Record that the object has been handled since the operator started."""
        memory = self._memory
        if memory.initial:  # without joining memories, which takes much longer: each object of a list comes here
            self._memory = _NEW if memory is _OLD else msgspec.structs.replace(memory, initial=False)
            if (newer := self.cache.find_newer(self.uid)) is not None:
                newer.inherit(_NEW)

    @property
    def deletion_handled(self) -> bool:
        """Whether all delete handlers have ended, and the finalizer is removed."""
        return self._memory.deletion_handled

    def mark_deletion_handled(self) -> None:
        """Record that all delete handlers have ended, and the finalizer is removed."""
        self.inherit(_DELETION_HANDLED)

    def has_newer(self) -> bool:
        """Check whether a watch event with a newer state is pending."""
        return any(map(self._is_newer, self.events or ()))

    def _is_newer(self, event: WatchEvent) -> bool:
        return event.type == "DELETED" or event.version > self.version

    def decode_newer(self) -> Mapping[str, Any] | None:
        """Return the newest state that is known, if that is a pending watch event which can be decoded."""
        if not self.events:
            return None
        newest = max(self.events, key=lambda event: event.version)
        if newest.type == "DELETED" or newest.version <= self.version:
            return None
        with contextlib.suppress(msgspec.MsgspecError, ValueError):
            return newest.load()
        return None

    def has_vanished(self) -> bool:
        """Check whether the object is gone, by all watch events so far."""
        return self.gone or (self.events is not None and any(event.type == "DELETED" for event in self.events))

    def find_end(self) -> str | None:
        """Return why handlers that are called for the object are not called again, if that is known."""
        return "the object is gone" if self.has_vanished() else None

    @contextlib.contextmanager
    def listening(self, listener: Callable[[WatchEvent], None]) -> Iterator[None]:
        """Pass newer states to *listener* as soon as they are known, within the block. It must not wait or raise.

        Those that are pending already are passed first: they came after the state that is being handled was taken.
        """
        listeners = self.cache.shared.listeners
        listeners[self] = (*listeners.get(self, ()), listener)
        try:
            for event in self.events or ():
                if self._is_newer(event):
                    listener(event)
            yield
        finally:
            listeners[self] = tuple(other for other in listeners[self] if other is not listener)
            if not listeners[self]:
                del listeners[self]

    def tell(self, event: WatchEvent) -> None:
        """Pass a state to what listens, if it is newer, and to what may be running in another version of the kind."""
        if self in self.cache.shared.listeners and self._is_newer(event):
            self._tell(event)
        if self.cache.predecessors.states:
            self.cache.predecessors.tell(self.uid, event)

    def _tell(self, event: WatchEvent) -> None:
        for listener in self.cache.shared.listeners[self]:
            listener(event)

    def push(self, event: WatchEvent, *, replace: bool) -> None:
        """Add a pending watch event, or *replace* the one before it, and pass it to what listens."""
        if self.events is None:
            self.events = [event]  # not a deque, which takes half a kilobyte: each object of a list comes here
        elif replace and self.events and self.events[-1].type != "DELETED":
            self.events[-1] = event
        else:
            self.events.append(event)
        if self.cache.shared.listeners or self.cache.predecessors.states:
            self.tell(event)
