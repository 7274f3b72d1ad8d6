"""The index gate: objects are handled when the indices are complete.

A kind that cannot be listed holds up only those kinds whose handlers declare an index of it.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import trio

from trioperator._handling.declaring.registry import declares_any
from trioperator._logs import get_logger
from trioperator._runtime.cache.cache import ObjectCache
from trioperator._runtime.watching.reflector import Reflector

_logger = get_logger("trioperator.runtime.indexing")

# Seconds without progress after which others go on without a first list: as long as a failing one is retried.
_PATIENCE = 120.0


class MissingIndices:
    """The indices that are not complete, for reviews, which come at any time: also before objects are handled."""

    def __init__(self) -> None:
        self._names: frozenset[str] | None = None
        self._waiting = trio.lowlevel.ParkingLot()

    def update(self, names: frozenset[str] | None) -> None:
        """Take the names of the indices that are not complete; None for all of them, whatever they are."""
        self._names = names
        self._waiting.unpark_all()

    async def wait_complete(self, names: frozenset[str]) -> None:
        """Wait until all of these indices are complete."""
        while self._names is None or not names.isdisjoint(self._names):
            await self._waiting.park()


class IndexGate:
    """Keeps objects from being handled until all objects that are to be indexed are.

    ``opened`` is set when the indices are complete, except for kinds that cannot be listed. *missing* is told which
    are not.
    """

    def __init__(self, missing: MissingIndices) -> None:
        self._missing = missing
        self.opened = trio.Event()
        self.opened.set()
        self._held: list[ObjectCache] = []
        self._incomplete: set[ObjectCache] = set()  # their first lists are not in the indices yet
        self._unlistable: set[ObjectCache] = set()  # of these, the ones that cannot be listed

    def hold(self, nursery: trio.Nursery, watches: Collection[tuple[ObjectCache, Reflector]]) -> None:
        """Keep the objects of new watches waiting if there is anything to be indexed before."""
        indexed = [(cache, reflector) for cache, reflector in watches if cache.kind.handlers.indices]
        if not indexed and not self._incomplete:
            self._missing.update(frozenset())
            return
        for cache, _ in watches:
            cache.backlog.hold()
            self._held.append(cache)
        for cache, reflector in indexed:
            self._incomplete.add(cache)
            nursery.start_soon(self._await_list, cache, reflector, name=f"await indices of {reflector.path}")
        if indexed and self.opened.is_set():
            self.opened = trio.Event()
        self._release()

    async def _await_list(self, cache: ObjectCache, reflector: Reflector) -> None:
        """Wait until the first list of a watch is in the indices."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._give_up, cache, reflector, name="watch for a list that is refused")
            await cache.listed.wait()
            nursery.cancel_scope.cancel(reason="it is listed")
        self._unlistable.discard(cache)
        self._incomplete.discard(cache)
        self._release()

    async def _give_up(self, cache: ObjectCache, reflector: Reflector) -> None:
        """Continue without a kind that cannot be listed, as soon as that is certain."""
        await _find_unlistable(reflector)
        self._unlistable.add(cache)
        names = _index_names(cache)
        waiting = sorted({str(held.kind.resource) for held in self._held if declares_any(held.kind.handlers, names)})
        fate = f"{', '.join(waiting)} will be handled when it can be" if waiting else "no handlers depend on that"
        _logger.warning(
            "The objects at %s cannot be listed, so there is nothing of them in %s: %s. %s",
            reflector.path,
            " and ".join(f"the index {name!r}" for name in sorted(names)),
            fate,
            reflector.status.trouble or f"There has been no response for {_PATIENCE:g} seconds.",
        )
        self._release()

    def _release(self) -> None:
        """Release the objects that no longer need to wait for an index."""
        missing = _index_names(*self._incomplete)
        self._missing.update(missing)
        if self._incomplete - self._unlistable:
            return
        self.opened.set()
        held, self._held = self._held, []
        for cache in held:
            if cache in self._incomplete or declares_any(cache.kind.handlers, missing):
                self._held.append(cache)
            else:
                cache.backlog.release()


async def _find_unlistable(reflector: Reflector) -> None:
    """Wait until a kind is permanently refused, or its first list has made no progress for a while."""
    began = trio.current_time()
    while True:
        # Once all objects are listed, they are being indexed: that may take long, and is not a problem of the list.
        progressed_at = began if reflector.status.progressed_at == math.inf else reflector.status.progressed_at
        until = math.inf if reflector.status.is_synced else progressed_at + _PATIENCE
        if trio.current_time() >= until:
            return
        with trio.move_on_at(until):
            await reflector.status.unlistable.wait()
            return


def _index_names(*caches: ObjectCache) -> frozenset[str]:
    return frozenset(handler.id for cache in caches for handler in cache.kind.handlers.indices)
