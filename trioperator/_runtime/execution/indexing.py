"""Indexing: calls of index handlers, and their results in the indices.

An object is indexed before anything else is done for it (see :mod:`trioperator._runtime.watching.view`). At the start,
all objects of the indexed kinds are indexed before any handler is called for any object.
"""

from __future__ import annotations

import datetime
import functools
import itertools
from collections.abc import Callable, Collection, Hashable
from typing import Any, Final

import msgspec

from trioperator._concurrency.clock import find_clock, steady_now
from trioperator._handling.arguments.cause import ObjectCause
from trioperator._handling.arguments.context import current_cause
from trioperator._handling.arguments.indexing import Indices, discard, owners, replace, sort
from trioperator._handling.calls.handler_state import add_seconds
from trioperator._handling.calls.invoke import Attempt, Invoker
from trioperator._handling.declaring.registry import handler_identity, select_matching
from trioperator._handling.handlers.handler import IndexHandler
from trioperator._handling.handlers.outcome import Outcome
from trioperator._kube.objects import RawObject
from trioperator._runtime.cache.cache import ObjectCache
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.causes import make_cause


class _Failure(msgspec.Struct, frozen=True):
    """Failure of an index handler for an object: tried again at ``due`` on Trio's clock, or never if that is None."""

    retries: int
    started: datetime.datetime
    due: float | None = None
    wakes: bool = False


class _ObjectFailures(msgspec.Struct, eq=False):
    """Failures of index handlers for one object, and the state of it that they have failed for."""

    object: RawObject
    failures: dict[Hashable, _Failure] = msgspec.field(default_factory=dict)


_NEW: Final = ("", None)
_GONE: Final = ("", -1)


class Indexing:
    """Indices of an operator, kept up to date with the objects."""

    def __init__(self, indices: Indices, invoker: Invoker, *, by_id: bool = False) -> None:
        self.indices = indices
        self._invoker = invoker
        self._by_id = by_id
        # The version of each object that is in the indices, and how many objects have come before it.
        self._indexed: dict[ObjectState, tuple[str, int]] = {}
        self.failed: dict[ObjectState, _ObjectFailures] = {}
        self._identify = functools.lru_cache(functools.partial(handler_identity, by_id=by_id))
        self._order = itertools.count()
        self.running = self._done = 0  # objects that are being indexed, and those that were
        self._has_late = False
        self._now: Callable[[], float] = self._find_now

    def take(self, state: ObjectState, obj: RawObject) -> bool:
        """Take a state of an object. Returns whether it is to be indexed: it is not the one that is indexed."""
        version, (indexed, place) = obj.resource_version, self._indexed.get(state, _NEW)
        if version and indexed == version:
            return False
        self._indexed[state] = version, next(self._order) if place is None else place
        return True

    async def retry(self, state: ObjectState) -> RawObject | None:
        """Call the index handlers again that have failed for an object and are due. Returns the object if any was."""
        due = self.due(state)
        if due is None or due > self._now():
            return None
        obj = self.failed[state].object
        await self.index(state, obj, again=True)
        return obj

    def due(self, state: ObjectState) -> float | None:
        """Return when index handlers that have failed for an object are due again; None if none are."""
        failed = self.failed.get(state)
        if failed is None:
            return None
        return min((f.due for f in failed.failures.values() if f.wakes and f.due is not None), default=None)

    def forget(self, state: ObjectState) -> None:
        """Remove an object that is gone."""
        for handler in state.cache.kind.handlers.indices:
            self._discard(state, handler)
        self._indexed.pop(state, None)
        self.failed.pop(state, None)

    def rewind(self, cache: ObjectCache) -> None:
        """Forget which versions of the objects of a cache are in the indices: others may have the same numbers."""
        self._indexed |= {state: ("", place) for state, (_, place) in self._indexed.items() if state.cache is cache}

    def clear(self) -> None:
        """Remove all objects."""
        for index in self.indices.values():
            for owner in owners(index):
                discard(index, owner)
        self._indexed.clear()
        self.failed.clear()

    def drop(self, cache: ObjectCache) -> None:
        """Remove the objects of a cache that is no longer watched."""
        for index in self.indices.values():
            for owner in owners(index):
                if isinstance(owner, _Owner) and owner.state.cache is cache:
                    discard(index, owner)
        for remembered in (self._indexed, self.failed):
            for state in [state for state in remembered if state.cache is cache]:
                del remembered[state]

    async def index(self, state: ObjectState, obj: RawObject, *, again: bool = False) -> None:
        """Call the index handlers of an object: all of them, or *again* only those that have failed. Log errors.

        When no others are being indexed, sort the values of those whose functions took longer.
        """
        self.running += 1
        token = None
        try:
            cause = make_cause(ObjectCause, state, obj.decode())
            token = current_cause.set(cause)
            await self._call(state, obj, cause, again=again)
        except (msgspec.MsgspecError, ValueError) as error:
            state.make_logger().error("The object cannot be read, and is not indexed: %r", error)
        except Exception as error:  # noqa: BLE001 -- errors of one object do not concern the others
            state.make_logger().error("The object could not be indexed.", exc_info=error)
        finally:
            if token is not None:
                current_cause.reset(token)
            self.running -= 1
            self._done += 1
            if self._has_late and not self.running:
                self._has_late = False
                for index in self.indices.values():
                    sort(index, lambda owner: self._indexed.get(owner.state, _GONE)[1])

    async def _call(self, state: ObjectState, obj: RawObject, cause: ObjectCause, *, again: bool) -> None:
        """Call the index handlers that match."""
        done, handlers = self._done, state.cache.kind.handlers.indices
        chosen = select_matching(handlers, cause)
        if self._by_id and len(chosen) > 1:
            chosen = tuple({handler.id: handler for handler in chosen}.values())
        if len(chosen) < len(handlers):
            self._drop_others(state, handlers, chosen)
        failures = {} if (failed := self.failed.get(state)) is None else failed.failures
        for handler in chosen:
            owner = _Owner(state, self._identify(handler))
            failure = failures.get(owner.identity)
            if again if failure is None else failure.due is None or failure.due > self._now():
                continue
            retry, started = (failure.retries, failure.started) if failure else (0, None)
            flow = None if handler.is_async else state.flow
            attempt, began = Attempt(retry, started, flow=flow, kind=cause.resource), self._now()
            outcome = await self._invoker.invoke(handler, cause.kwargs, attempt=attempt, logger=cause.logger)
            if state not in self._indexed or handler not in state.cache.kind.handlers.indices:
                continue  # it was removed meanwhile
            if outcome.error is None:
                self._store(owner, handler, outcome.result, late=again or self._done != done)
            else:
                discard(self.indices[handler.id], owner)
                failed = self.failed.setdefault(state, _ObjectFailures(obj))
                failed.failures[owner.identity] = self._make_failure(attempt, outcome, began)
        if self.failed and (failed := self.failed.get(state)) is not None:
            failed.object = obj

    def _store(self, owner: _Owner, handler: IndexHandler, result: Any, *, late: bool) -> None:
        """Put a result into the index; a *late* one is to be sorted: others were indexed meanwhile."""
        if result is not None:
            replace(self.indices[handler.id], owner, result, late=late)
            self._has_late = self._has_late or late
        if self.failed:
            self._forget_failure(owner.state, owner.identity)

    def _forget_delay(self, state: ObjectState, identity: Hashable) -> None:
        """Forget a delay: should the object match again, it is indexed at once, unless its handler gave up."""
        failed = self.failed.get(state)
        failure = None if failed is None else failed.failures.get(identity)
        if failure is not None and failure.due is not None:
            self._forget_failure(state, identity)

    def _forget_failure(self, state: ObjectState, identity: Hashable) -> None:
        if (failed := self.failed.get(state)) is not None:
            failed.failures.pop(identity, None)
            if not failed.failures:
                del self.failed[state]

    def _drop_others(
        self, state: ObjectState, handlers: Collection[IndexHandler], chosen: Collection[IndexHandler]
    ) -> None:
        """Remove the values of the functions that are not chosen for an object."""
        kept = {self._identify(handler) for handler in chosen}
        for handler in handlers:
            identity = self._identify(handler)
            if identity not in kept:
                discard(self.indices[handler.id], _Owner(state, identity))
                self._forget_delay(state, identity)

    def _make_failure(self, attempt: Attempt, outcome: Outcome, began: float) -> _Failure:
        now = self._now()
        return _Failure(
            retries=attempt.retry + 1,
            started=attempt.started or add_seconds(steady_now(), began - now),
            due=None if outcome.final else now + outcome.delay,
            wakes=outcome.delay > 0,
        )

    def _find_now(self) -> float:
        """Return the time on Trio's clock, which is remembered."""
        self._now = find_clock()
        return self._now()

    def _discard(self, state: ObjectState, handler: IndexHandler) -> None:
        discard(self.indices[handler.id], _Owner(state, self._identify(handler)))


class _Owner(msgspec.Struct, frozen=True):
    """Owner of values in an index: an object, by one of the index's functions."""

    state: ObjectState
    identity: Hashable
