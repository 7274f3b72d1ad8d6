"""Indexing: calls of index handlers, and their results in the indices.

An object is indexed before anything else is done for it. At the start, all objects of the indexed kinds are indexed
before any handler is called for any object; that takes no workers (see :mod:`trioperator.runtime.watches`).
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Any

import msgspec
import trio

from trioperator.clock import wall_now
from trioperator.handling.cause import ObjectCause
from trioperator.handling.context import current_cause
from trioperator.handling.handler import IndexHandler
from trioperator.handling.indexing import Indices, discard, owners, replace
from trioperator.handling.invoke import Attempt, Invoker
from trioperator.handling.outcome import Outcome
from trioperator.handling.registry import handler_identity, select_index_handlers
from trioperator.runtime.cache import ObjectCache, ObjectState, WatchEvent
from trioperator.runtime.causes import CauseFactory

__all__ = ["Indexing"]

# So many objects are indexed at the same time at the start: sync handlers take a thread each.
_AT_ONCE = 16


class _Failure(msgspec.Struct, frozen=True):
    """Failure of an index handler for an object: tried again at ``due`` on Trio's clock, or never if that is None."""

    retries: int
    started: datetime.datetime
    due: float | None = None
    wakes: bool = False


class _ObjectFailures(msgspec.Struct, eq=False):
    """Failures of index handlers for one object, and the watch event that they have failed for."""

    event: WatchEvent
    failures: dict[Hashable, _Failure] = msgspec.field(default_factory=dict)


class Indexing:
    """Indices of an operator, kept up to date with the objects."""

    def __init__(self, indices: Indices, invoker: Invoker, *, causes: CauseFactory) -> None:
        self.indices = indices
        self._invoker = invoker
        self._causes = causes
        self._indexed: dict[ObjectState, int] = {}  # the newest version of each object that is in the indices
        self._failed: dict[ObjectState, _ObjectFailures] = {}

    async def process(self, state: ObjectState, event: WatchEvent) -> Mapping[str, Any] | None:
        """Update the indices by a watch event of an object. Returns the object, if it had to be decoded."""
        if event.type == "DELETED":
            self.forget(state)
            return None
        if event.version <= self._indexed.get(state, -1):
            return None
        self._indexed[state] = event.version
        body = event.decode()
        await self._index(state, event, body, again=False)
        return body

    async def retry(self, state: ObjectState) -> None:
        """Call the index handlers again that have failed for an object and are due."""
        due = self.due(state)
        if due is not None and due <= trio.current_time():
            event = self._failed[state].event
            await self._index(state, event, event.decode(), again=True)

    def due(self, state: ObjectState) -> float | None:
        """Return when index handlers that have failed for an object are due again; None if none are."""
        failed = self._failed.get(state)
        if failed is None:
            return None
        return min((f.due for f in failed.failures.values() if f.wakes and f.due is not None), default=None)

    async def populate(self, caches: Collection[ObjectCache]) -> None:
        """Index all objects of the first lists of some caches."""
        everything = iter([state for cache in caches for state in cache])
        async with trio.open_nursery() as nursery:
            for number in range(_AT_ONCE):
                nursery.start_soon(self._populate, everything, name=f"index {number}")

    async def _populate(self, objects: Iterator[ObjectState]) -> None:
        for state in objects:
            event = state.newest_event
            if event is None or event.type == "DELETED":
                continue  # a deletion is for the reconcile of the object
            try:
                await self.process(state, event)
            except (msgspec.MsgspecError, ValueError) as error:
                state.make_logger().error("The object cannot be read, and is not indexed: %r", error)
            except Exception as error:  # noqa: BLE001 -- errors of one object do not concern the others
                state.make_logger().error("The object could not be indexed.", exc_info=error)
            if state.cache.kind.handlers.is_index_only and state.events and state.events[-1] is event:
                state.take_events()  # there are no other handlers

    def forget(self, state: ObjectState) -> None:
        """Remove an object that is gone."""
        for handler in state.cache.kind.handlers.indices:
            self._discard(state, handler)
        self._indexed.pop(state, None)
        self._failed.pop(state, None)

    def clear(self) -> None:
        """Remove all objects."""
        for index in self.indices.values():
            for owner in owners(index):
                discard(index, owner)
        self._indexed.clear()
        self._failed.clear()

    def drop(self, cache: ObjectCache) -> None:
        """Remove the objects of a cache that is not watched any more."""
        for index in self.indices.values():
            for owner in owners(index):
                if isinstance(owner, _Owner) and owner.state.cache is cache:
                    discard(index, owner)
        for remembered in (self._indexed, self._failed):
            for state in [state for state in remembered if state.cache is cache]:
                del remembered[state]

    async def _index(self, state: ObjectState, event: WatchEvent, body: Mapping[str, Any], *, again: bool) -> None:
        """Call the index handlers that match: all of them, or *again* only those that have failed."""
        cause = self._causes.make_index_cause(state, body)
        handlers = state.cache.kind.handlers
        chosen = {handler_identity(handler): handler for handler in select_index_handlers(handlers, cause)}
        for handler in handlers.indices:
            if handler_identity(handler) not in chosen:
                self._discard(state, handler)
                self._forget_delay(state, handler_identity(handler))
        failures = {} if (failed := self._failed.get(state)) is None else failed.failures
        for identity, handler in chosen.items():
            failure = failures.get(identity)
            if again if failure is None else failure.due is None or failure.due > trio.current_time():
                continue
            retry, started = (failure.retries, failure.started) if failure else (0, wall_now())
            attempt = Attempt(retry, started, flow=state.flow)
            outcome = await self._invoke(cause, handler, attempt)
            is_newest = self._indexed.get(state) == event.version  # else it has changed or was removed meanwhile
            if is_newest and handler in state.cache.kind.handlers.indices:
                self._settle(state, handler, attempt=attempt, outcome=outcome, event=event)
        if (failed := self._failed.get(state)) is not None:
            failed.event = event

    async def _invoke(self, cause: ObjectCause, handler: IndexHandler, attempt: Attempt) -> Outcome:
        token = current_cause.set(cause)
        try:
            return await self._invoker.invoke(handler, cause.kwargs, attempt=attempt, logger=cause.logger)
        finally:
            current_cause.reset(token)

    def _settle(
        self, state: ObjectState, handler: IndexHandler, *, attempt: Attempt, outcome: Outcome, event: WatchEvent
    ) -> None:
        """Put the result into the index; after an error, remove the object's values, and note when to try again."""
        identity = handler_identity(handler)
        if outcome.error is None:
            if outcome.result is not None:
                replace(self.indices[handler.id], _Owner(state, identity), outcome.result)
            self._forget_failure(state, identity)
            return
        self._discard(state, handler)
        failure = _Failure(
            retries=attempt.retry + 1,
            started=attempt.started,
            due=None if outcome.final else trio.current_time() + outcome.delay,
            wakes=outcome.delay > 0,
        )
        self._failed.setdefault(state, _ObjectFailures(event)).failures[identity] = failure

    def _forget_delay(self, state: ObjectState, identity: Hashable) -> None:
        """Forget a delay: should the object match again, it is indexed at once, unless its handler gave up."""
        failed = self._failed.get(state)
        failure = None if failed is None else failed.failures.get(identity)
        if failure is not None and failure.due is not None:
            self._forget_failure(state, identity)

    def _forget_failure(self, state: ObjectState, identity: Hashable) -> None:
        """Forget that a handler has failed for an object."""
        if (failed := self._failed.get(state)) is not None:
            failed.failures.pop(identity, None)
            if not failed.failures:
                del self._failed[state]

    def _discard(self, state: ObjectState, handler: IndexHandler) -> None:
        discard(self.indices[handler.id], _Owner(state, handler_identity(handler)))


class _Owner(msgspec.Struct, frozen=True):
    """Owner of values in an index: an object, by one of the index's functions."""

    state: ObjectState
    identity: Hashable
