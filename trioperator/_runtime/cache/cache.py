"""The cache: the objects of one watch, and how a watch event reaches them, or is dropped.

Nothing here waits: a watch event is in the cache and its object in the work queue before the next one is read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec
import trio

from trioperator._handling.arguments.indexing import Indices
from trioperator._kube.objects import RawObject
from trioperator._runtime.cache.backlog import Backlog, Queue
from trioperator._runtime.cache.kind import Kind, Memory, Shared
from trioperator._runtime.cache.leaving import ENTERED, LEFT, Leaving
from trioperator._runtime.cache.object_state import Named, ObjectState
from trioperator._runtime.cache.succession import Predecessors
from trioperator._runtime.cache.versions import Versions
from trioperator._runtime.cache.watch_event import WatchEvent
from trioperator._runtime.workqueue import FRESH, INITIAL, Lane

# Types of events of objects that existed before the operator, and the API server's types in place of our own.
_INITIAL: Final = frozenset({None, ENTERED})
_OF_SERVER: Final[Mapping[str | None, str]] = {LEFT: "MODIFIED", ENTERED: "ADDED"}


class ObjectCache:
    """Objects of one watch: of one kind, in one namespace or in all of them.

    ``observe`` and ``replace`` take what a reflector has seen, and queue the objects that have something new. Where
    there are handlers of raw events, at most *backlog_limit* events of an object are pending: further changes replace
    the newest one. An addition and a deletion are never replaced.

    An object whose shard is not owned is followed, as are all of them on standby: its newest state is kept as the
    server has sent it, until :meth:`take_over`. Where objects are divided, it is also kept while the object is handled,
    as its shard may go and come back. That takes about as much memory as the objects' JSON. Where the API server
    divides the objects (``is_partial``), only objects of shards that are handled here are cached at all.

    *memories* are of an operator that was paused, by the keys of objects; each is taken when its object is seen.
    """

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
        self.shared = Shared(memo, {} if indices is None else indices)
        self.listed = trio.Event()  # set when the first list is complete, or will never be
        self.served_since: float | None = None
        self.objects: dict[str, ObjectState] = {}
        self.predecessors = Predecessors[ObjectState]()
        self._successor: ObjectCache | None = None
        self.twins: tuple[ObjectCache, ...] = ()  # of the same objects in other versions, which are handled as well
        self.leaving = Leaving(memories)
        self.is_partial = False  # only objects that are handled here come, and perhaps a few others
        self.versions = Versions(consistency_timeout=consistency_timeout)
        self.backlog = Backlog(queue, backlog_limit)

    def __len__(self) -> int:
        return len(self.objects)

    def __iter__(self) -> Iterator[ObjectState]:
        return iter(self.objects.values())

    def observe(self, type: str | None, obj: RawObject) -> str:
        """Take a watch event, or with type None an object of a list. Queue the object if that is new to any handler.

        Returns the object's key in the cache: its uid, or its name where an aggregated API has no uids.
        """
        uid = obj.uid or obj.key
        state = self.objects.get(uid)
        if self._successor is not None or not self.backlog.queue.owns(uid):
            if state is not None or not self.is_partial:
                self._follow(uid, type, obj)
            return uid
        if state is None:
            if type == "DELETED" and not self.kind.handlers.events:
                self.predecessors.tell(uid, WatchEvent(type, 0))
                return uid
            state = self._add(uid, obj, initial=type in _INITIAL)
        was_leaving, has_left = state in self.leaving, type == LEFT
        if has_left or was_leaving:
            self.leaving.note(state, has_left=has_left)
        version = self.versions.number(state, type, obj.resource_version)
        if type is None and version < state.seen_version:
            self._go_back(state, was_leaving=was_leaving)
        previous, is_unchanged = state.last_object, type is None and version <= state.seen_version
        if not is_unchanged or version == state.seen_version:
            state.see(version, obj if self._keeps else None)
        if is_unchanged:
            return uid  # listed again
        if type == "DELETED":
            self.objects.pop(uid, None)
        elif version <= state.version and not (self.kind.handlers.needs_own_writes or has_left):
            self.versions.count_echoes(1)
            return uid  # the echo of an own write, and no handler of raw events
        event = WatchEvent(_OF_SERVER.get(type, type), version, obj, previous=previous)
        self._push(state, event, INITIAL if type is None else FRESH)
        return uid

    def _go_back(self, state: ObjectState, *, was_leaving: bool) -> None:
        """Take an object as it is listed, which is older than it was: etcd was restored, and other watches go on.

        But one that has left was read, perhaps while the list was on its way.
        """
        state.rewind()
        if not was_leaving:
            self.versions.on_restored()

    def admit(self, type: str | None, obj: RawObject) -> ObjectState:
        """Return the state of an object that has come, and is going to be observed when it is indexed."""
        uid = obj.uid or obj.key
        state = self.objects.get(uid)
        if state is None:
            state = self._add(uid, obj, initial=type in _INITIAL or not self.backlog.queue.owns(uid))
            if self.predecessors.states:
                self.predecessors.lend(state)  # index functions see the memo
        return state

    def _add(self, uid: str, obj: Named, *, initial: bool) -> ObjectState:
        memory = self.leaving.take(uid)
        state = ObjectState(self, uid, obj, initial=initial, memory=memory)
        self.objects[uid] = state
        return state

    def _follow(self, uid: str, type: str | None, obj: RawObject) -> None:
        """Keep the newest state of an object that is not handled here, as if it came from the list of the takeover."""
        if type in ("DELETED", LEFT):
            self._drop(uid)
            return
        state = self.objects.get(uid) or self._add(uid, obj, initial=True)
        version = self.versions.number(state, type, obj.resource_version)
        if version > state.seen_version:
            state.keep(None if self.kind.handlers.is_index_only else obj, version)

    def _drop(self, uid: str) -> None:
        """Drop an object that is gone, or has left the selector: its owner has handled that."""
        state = self.objects.pop(uid, None)
        if state is not None:
            self.versions.forget(uid)
            # Work for the object may still go on here, while its shard is drained: let it know.
            state.push(WatchEvent("DELETED", state.seen_version, state.last_object), replace=False)

    def take_over(self, state: ObjectState) -> None:
        """Handle an object that was followed, as if it came from an initial list."""
        obj = state.last_object
        if obj is None:
            return
        state.restart()
        if not self._keeps:
            state.keep(None, state.seen_version)
        self._push(state, WatchEvent(None, state.seen_version, obj), INITIAL)

    @property
    def _keeps(self) -> bool:
        """Whether objects are kept while they are handled: for handlers, or to be handled once more from there."""
        return self.kind.handlers.keep_objects or (self.backlog.queue.is_divided and not self.is_partial)

    def be_partial(self) -> None:
        """Expect only objects that are handled here: others are not followed."""
        self.is_partial = True

    def be_whole(self) -> None:
        """Expect all objects, by the next list: those that are not handled here are followed."""
        self.is_partial = False

    def give_up(self, shard: int) -> None:
        """Stop handling the objects of a shard: from now on others do. Events that are not received are forgotten."""
        find_shard = self.backlog.queue.find_shard
        for state in [state for state in self.objects.values() if find_shard(state.uid) == shard]:
            state.restart()
            if self.is_partial:
                self.leaving.forget(state)
                del self.objects[state.uid]

    def handles(self, key: str) -> bool:
        """Check whether an object with this key is to be handled here, not by others, or in another version.

        One that has taken over lists what was indexed here until then.
        """
        return self._successor is None and self.backlog.queue.owns(key)

    def forget_left(self, state: ObjectState) -> None:
        """Forget an object that has left the selector of the watch, if it has, as nothing is left to do for it."""
        if state in self.leaving:
            self.leaving.forget(state)
            self.versions.forget(state.uid)
            self.objects.pop(state.uid, None)

    def replace(self, listed: Collection[str]) -> None:
        """Take the keys of a complete list: what is cached and not listed was deleted unseen."""
        self.recall(listed)
        missing = {uid: state for uid, state in self.objects.items() if uid not in listed}
        for state in missing.values():
            if not self.backlog.queue.owns(state.uid):
                self._drop(state.uid)
                continue
            del self.objects[state.uid]
            self._push(state, WatchEvent("DELETED", state.version, body=self._last_state(state)), FRESH)
        if self.predecessors.states:
            self.predecessors.keep({*listed, *missing})
        self.listed.set()

    def recall(self, listed: Collection[str]) -> None:
        """Add what is not listed, and was handled in an earlier version until its watch ended: it is gone, or has left.

        Only handlers of deletions without finalizers would miss it.
        """
        if self.kind.handlers.events or self.kind.handlers.optional_deletes:
            for before in self.predecessors.find_missing(listed):
                is_handled = before.cache.kind.retired and not before.has_vanished() and self.handles(before.uid)
                if is_handled and before.uid not in self.objects:
                    self._add(before.uid, before, initial=True).keep(before.last_object, -1)

    def rewind(self) -> None:
        """Take the next list as it is, though it is older than what was seen."""
        self.versions.forget_written()
        for state in self.objects.values():
            state.rewind()

    def forget_versions(self) -> None:
        """Treat the next states as newer, in other versions of the kind, too: etcd was restored."""
        self.versions.forget_written()
        for state in self.objects.values():
            state.forget_version()
        self.predecessors.forget_versions()

    def update_kind(self, kind: Kind) -> None:
        """Replace the kind: its definition, or the handlers for it, have changed."""
        self.kind = kind

    def succeed(self, before: ObjectCache) -> None:
        """Take over from another version, whose watch has ended.

        A state here is also told what is remembered there later: a daemon that was spawned there may end meanwhile.
        """
        self.predecessors.add(before)
        before._successor = self

    def find_newer(self, uid: str) -> ObjectState | None:
        """Return the state of an object in the version that has taken over from this one, if there is one."""
        newer = self._successor
        return None if newer is None else newer.objects.get(uid) or newer.find_newer(uid)

    def link(self, other: ObjectCache) -> None:
        """Note that the objects of another cache are the same ones, in another version that is handled as well."""
        self.twins = (*other.twins, other)
        for twin in self.twins:
            twin.twins = (*twin.twins, self)
        self.predecessors.add(other)

    def unlink(self) -> None:
        """Let those in other versions do without this cache, whose watch has ended."""
        for twin in self.twins:
            twin.twins = tuple(each for each in twin.twins if each is not self)
        self.twins = ()

    def retire(self) -> None:
        """Stop handling the objects, though they still exist. Each is reconciled once more, to be cleaned up."""
        self.kind = self.kind.retire()
        for state in self.objects.values():
            self.requeue(state)

    def serve(self) -> float:
        """Return the time, on Trio's clock, when daemons and timers were first matched with objects of the cache."""
        if self.served_since is None:
            self.served_since = trio.current_time()
        return self.served_since

    def requeue(self, state: ObjectState, *, at_once: bool = False) -> None:
        """Queue an object without a watch event."""
        self.backlog.queue.add(state, at_once=at_once)

    def _push(self, state: ObjectState, event: WatchEvent, lane: Lane) -> None:
        handlers = self.kind.handlers
        if handlers.is_index_only:
            return
        # Without handlers of raw events, only the newest state counts.
        replace = self.backlog.is_full(state, event) if handlers.events else not self.versions.are_opaque
        state.push(event, replace=replace)
        if event.type == "DELETED":
            self.versions.forget(state.uid)
        self.backlog.add(state, lane)

    def _last_state(self, state: ObjectState) -> Mapping[str, Any]:
        if state.last_object is not None:
            with contextlib.suppress(msgspec.MsgspecError, ValueError):
                return state.last_object.decode()
        return self.kind.make_stub(state.namespace, state.name, state.uid)
