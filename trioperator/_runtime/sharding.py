"""Sharding of the runtime: each object is handled by the replica that owns its shard, and followed by all others.

An object that is followed is in the cache and in the indices in its newest state, but nothing else is done for it. When
its shard is acquired, it is handled as if it came from the list of that moment.
"""

from __future__ import annotations

import itertools
import weakref
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import msgspec

from trioperator._handling.arguments.stopping import DaemonStoppingReason
from trioperator._kube.objects import RawObject
from trioperator._runtime.cache import ObjectCache, Queue
from trioperator._runtime.daemons.manager import DaemonManager
from trioperator._runtime.kind import Kind
from trioperator._runtime.leaving import LEFT
from trioperator._runtime.object_state import ObjectState
from trioperator._runtime.reconciler import Reconciler
from trioperator._runtime.watch_event import WatchEvent
from trioperator._runtime.workqueue import Lane, QueuedItem, WorkQueue


def find_shard(key: str, shards: int) -> int:
    """Return the shard of an object by its uid. All replicas of all versions must agree on it."""
    return zlib.crc32(key.encode(errors="surrogatepass")) % shards


class Shard(msgspec.Struct, frozen=True, eq=False):
    """What handles the objects of one shard while this replica owns it."""

    queue: WorkQueue[ObjectState]
    daemons: DaemonManager
    reconciler: Reconciler


class ShardRouter:
    """Takes objects to the queues of their shards: those that are owned; the others are only followed."""

    def __init__(self, shards: int) -> None:
        self._count = shards
        self._open: dict[int, Shard] = {}
        self._owned: set[int] = set()
        self.daemons = ShardDaemons(self._open, self.find)
        self._numbers = itertools.count()
        self._caches: weakref.WeakValueDictionary[int, ShardedCache] = weakref.WeakValueDictionary()

    def make_cache(self, kind: Kind, queue: Queue, **options: Any) -> ShardedCache:
        """Return a cache whose objects are routed. It takes the options of :class:`ObjectCache`."""
        cache = self._caches[next(self._numbers)] = ShardedCache(kind, queue, router=self, **options)
        return cache

    def open(self, number: int, shard: Shard) -> None:
        """Begin to handle the objects of a shard."""
        self._open[number] = shard
        self._owned.add(number)
        for cache, state in self._list(number):
            cache.take_over(state)

    def withdraw(self, number: int) -> None:
        """Queue the objects of a shard only for what is already being done."""
        self._owned.discard(number)

    def close(self, number: int) -> None:
        """Follow the objects of a shard: nothing is done for them from now on."""
        self._owned.discard(number)
        self._open.pop(number, None)
        for _, state in self._list(number):
            state.restart()

    def _list(self, number: int) -> list[tuple[ShardedCache, ObjectState]]:
        caches = [cache for cache in self._caches.values() if not cache.retired]
        return [(cache, state) for cache in caches for state in cache if self._find(state.uid) == number]

    def _find(self, key: str) -> int:
        return find_shard(key, self._count)

    def owns(self, key: str) -> bool:
        """Check whether objects with this uid are to be handled."""
        return self._find(key) in self._owned

    def find(self, state: ObjectState) -> Shard | None:
        """Return what handles an object, if this replica does."""
        return self._open.get(self._find(state.uid))

    def find_reconciler(self, state: ObjectState) -> Reconciler | None:
        """Return the reconciler of an object, if it is handled here."""
        shard = self.find(state)
        return None if shard is None else shard.reconciler

    def items(self) -> Iterator[QueuedItem[ObjectState]]:
        """Return all items of all queues, in no order."""
        return itertools.chain.from_iterable(shard.queue.items() for shard in self._open.values())

    @property
    def at_work(self) -> list[ObjectState]:
        """The objects that are being reconciled."""
        return [state for shard in self._open.values() for state in shard.queue.at_work]

    def add(self, item: ObjectState, lane: Lane = Lane.FRESH) -> None:
        """Queue an object, if its shard is handled here."""
        if (shard := self.find(item)) is not None:
            shard.queue.add(item, lane)


class ShardDaemons:
    """The daemons and timers of all shards that are handled here."""

    def __init__(self, shards: Mapping[int, Shard], find: Callable[[ObjectState], Shard | None]) -> None:
        self._shards = shards
        self._find = find

    def __len__(self) -> int:
        return sum(len(shard.daemons) for shard in self._shards.values())

    def stop(self, state: ObjectState, reason: DaemonStoppingReason) -> None:
        """Stop all daemons and timers of an object."""
        if (shard := self._find(state)) is not None:
            shard.daemons.stop(state, reason)


class ShardedCache(ObjectCache):
    """A cache of which only some objects are handled here.

    It keeps the newest state of each object as the server has sent it, which takes about as much memory as the objects'
    JSON: so it need not list them again when a shard is acquired.
    """

    keeps_objects = True

    def __init__(self, kind: Kind, queue: Queue, *, router: ShardRouter, **options: Any) -> None:
        super().__init__(kind, queue, **options)
        self._router = router
        self._is_held = False

    def observe(self, type: str | None, obj: RawObject) -> str:
        """Take a watch event, or with type None an object of a list, and queue or index it."""
        key = obj.uid or obj.key
        if self._is_handled(key):
            super().observe(type, obj)
        elif type in ("DELETED", LEFT):
            self._remove(key)
        else:
            self._follow(key, type, obj)
        return key

    def _is_handled(self, key: str) -> bool:
        return not self._is_held and self._router.owns(key)

    def handles(self, key: str) -> bool:
        """Check whether an object with this key is to be handled here, not by others."""
        return self._is_handled(key)

    def admit(self, type: str | None, obj: RawObject) -> ObjectState:
        """Return the state of an object that has come, and is going to be observed when it is indexed."""
        return super().admit(type if self._is_handled(obj.key) else None, obj)

    def _follow(self, key: str, type: str | None, obj: RawObject) -> None:
        state = self.objects.get(key) or self._add(key, obj, initial=True)
        version = self.versions.number(state, type, obj.resource_version)
        if version > state.seen_version:
            state.keep(obj, version)

    def _remove(self, key: str) -> None:
        """Remove an object that was deleted: its owner has handled that."""
        state = self.objects.pop(key, None)
        if state is not None:
            self.versions.forget(key)
            state.push(WatchEvent("DELETED", state.seen_version, state.last_object), replace=False)

    def replace(self, listed: Collection[str]) -> None:
        """Take the keys of a complete list: what is cached and not listed was deleted unseen."""
        for key in [key for key in self.objects if key not in listed and not self._is_handled(key)]:
            self._remove(key)
        super().replace(listed)

    def hold(self) -> None:
        """Follow all objects, until :meth:`release`."""
        self._is_held = True

    def stand_by(self) -> None:
        """Follow all objects, until :meth:`release`."""
        self._is_held = True

    def release(self) -> None:
        """Handle the objects whose shards are owned."""
        self._is_held = False
        for state in self:
            self.take_over(state)

    def take_over(self, state: ObjectState) -> None:
        """Handle an object that was followed, as if it came from an initial list, if its shard is handled here."""
        shard = self._router.find(state)
        if shard is None or state.last_object is None or not self._is_handled(state.uid):
            return
        state.restart()
        self._push(state, WatchEvent(None, state.seen_version, state.last_object), Lane.INITIAL)
