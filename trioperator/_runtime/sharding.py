"""Sharding of the runtime: each object is handled by the replica that owns its shard, and followed by others.

An object that is followed is in the cache and in the indices in its newest state, but nothing else is done for it. When
its shard is acquired, it is handled as if it came from the list of that moment. Where the API server divides the
objects, other replicas' objects are not received at all, and what is acquired is listed then. Where objects are not
divided, all of them are in one shard, which the operator owns unless it is on standby.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from trioperator._handling.arguments.stopping import DaemonStoppingReason
from trioperator._handling.handlers.handler import SpawningHandler
from trioperator._model.pause import Pause
from trioperator._model.shard_ranges import ShardRanges, find_shard, range_of
from trioperator._runtime.cache.cache import ObjectCache
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.daemons.manager import DaemonManager
from trioperator._runtime.reconciler.reconciler import Reconciler
from trioperator._runtime.workqueue import FRESH, Lane, QueuedItem, WorkQueue


class Shard(msgspec.Struct, frozen=True, eq=False):
    """The handling of the objects of one shard while this replica owns it."""

    queue: WorkQueue[ObjectState]
    daemons: DaemonManager
    reconciler: Reconciler


class ShardRouter:
    """Takes objects to the queues of their shards: those that are owned; the others are only followed.

    It ``is_divided`` if there are several shards.
    """

    def __init__(self, shards: int) -> None:
        self._count = shards
        self.is_divided = shards > 1
        self._open: dict[int, Shard] = {}
        self._owned: set[int] = set()
        self.daemons = ShardDaemons(self._open, self.find)

    def open(self, number: int, shard: Shard, caches: Iterable[ObjectCache]) -> None:
        """Begin to handle the objects of a shard: those that are in the caches, and all that come."""
        self._open[number] = shard
        self._owned.add(number)
        for cache in caches:
            for state in [state for state in cache if self.find_shard(state.uid) == number]:
                cache.take_over(state)

    def withdraw(self, number: int) -> None:
        """Queue the objects of a shard only for what is already being done."""
        self._owned.discard(number)

    def close(self, number: int, caches: Iterable[ObjectCache]) -> None:
        """Follow the objects of a shard, or forget them: nothing is done for them from now on."""
        self._owned.discard(number)
        self._open.pop(number, None)
        for cache in caches:
            cache.give_up(number)

    @property
    def ranges(self) -> ShardRanges:
        """The ranges of hashes of the shards whose objects are handled, or being drained."""
        return ShardRanges.of(range_of(number, self._count) for number in self._open)

    def find_shard(self, uid: str) -> int:
        """Return the number of the shard of objects with this uid."""
        return find_shard(uid, self._count) if self._count > 1 else 0

    def owns(self, uid: str) -> bool:
        """Check whether objects with this uid are to be handled."""
        return (find_shard(uid, self._count) if self._count > 1 else 0) in self._owned

    def find(self, state: ObjectState) -> Shard | None:
        """Return what handles an object, if this replica does."""
        return self._open.get(self.find_shard(state.uid))

    def find_reconciler(self, state: ObjectState) -> Reconciler | None:
        """Return the reconciler of an object, if it is handled here."""
        shard = self.find(state)
        return None if shard is None else shard.reconciler

    def items(self) -> Iterator[QueuedItem[ObjectState]]:
        """Return all items of all queues, in no order."""
        return itertools.chain.from_iterable(shard.queue.items() for shard in self._open.values())

    def list_paused(self) -> Iterator[tuple[ObjectState, float]]:
        """Yield the objects that are paused, with since when that is known, on Trio's clock."""
        return itertools.chain.from_iterable(shard.reconciler.pauses.list_held() for shard in self._open.values())

    @property
    def paused(self) -> Mapping[ObjectState, Pause]:
        """The objects that are paused by their annotations, with their pauses."""
        return {state: pause for shard in self._open.values() for state, pause in shard.reconciler.pauses.all.items()}

    @property
    def at_work(self) -> list[ObjectState]:
        """The objects that are being reconciled."""
        return [state for shard in self._open.values() for state in shard.queue.at_work]

    def add(self, item: ObjectState, lane: Lane = FRESH, *, at_once: bool = False) -> None:
        """Queue an object, if its shard is handled here."""
        if (shard := self._open.get(find_shard(item.uid, self._count) if self._count > 1 else 0)) is not None:
            shard.queue.add(item, lane, at_once=at_once)


class ShardDaemons:
    """The daemons and timers of all shards that are handled here."""

    def __init__(self, shards: Mapping[int, Shard], find: Callable[[ObjectState], Shard | None]) -> None:
        self._shards = shards
        self._find = find

    def __len__(self) -> int:
        return sum(len(shard.daemons) for shard in self._shards.values())

    def schedule(self) -> Iterator[tuple[ObjectState, SpawningHandler, float | None]]:
        """Yield all daemons and timers: see :meth:`DaemonManager.schedule`."""
        return itertools.chain.from_iterable(shard.daemons.schedule() for shard in self._shards.values())

    def stop(self, state: ObjectState, reason: DaemonStoppingReason) -> None:
        """Stop all daemons and timers of an object."""
        if (shard := self._find(state)) is not None:
            shard.daemons.stop(state, reason)
