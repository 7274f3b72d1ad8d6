"""Indexing: calls of index handlers, and their results in the indices.

An object is indexed before anything else is done for it (see :mod:`trioperator._runtime.watching.view`). At the start,
all objects of the indexed kinds are indexed before any handler is called for any object.
"""

from __future__ import annotations

import datetime
import functools
import itertools
from collections.abc import Collection, Container, Hashable, Mapping
from typing import Any, Final

import msgspec
import trio

from trioperator._concurrency.clock import steady_now
from trioperator._handling.arguments.cause import ObjectCause
from trioperator._handling.arguments.context import current_cause
from trioperator._handling.arguments.indexing import Indices, discard, owners, replace, sort
from trioperator._handling.calls.invoke import Attempt, Invoker
from trioperator._handling.declaring.registry import handler_identity, select_matching
from trioperator._handling.handlers.handler import IndexHandler
from trioperator._handling.handlers.outcome import Outcome
from trioperator._kube.objects import RawObject
from trioperator._runtime.cache.cache import ObjectCache
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.causes import CauseFactory


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

    def __init__(self, indices: Indices, invoker: Invoker, *, causes: CauseFactory, by_id: bool = False) -> None:
        self.indices = indices
        self._invoker = invoker
        self._causes = causes
        self._identify = functools.partial(handler_identity, by_id=by_id)
        # The version of each object that is in the indices, and how many objects have come before it.
        self._indexed: dict[ObjectState, tuple[str, int]] = {}
        self.failed: dict[ObjectState, _ObjectFailures] = {}
        self._order = itertools.count()
        self._running = self._done = 0
        self._has_late = False

    async def process(self, state: ObjectState, obj: RawObject) -> None:
        """Index a state of an object, unless it is the one that is indexed. Errors are logged."""
        version, (indexed, place) = obj.resource_version, self._indexed.get(state, _NEW)
        if version and indexed == version:
            return
        self._indexed[state] = version, next(self._order) if place is None else place
        await self._index(state, obj, again=False)

    async def retry(self, state: ObjectState) -> RawObject | None:
        """Call the index handlers again that have failed for an object and are due. Returns the object if any was."""
        due = self.due(state)
        if due is None or due > trio.current_time():
            return None
        obj = self.failed[state].object
        await self._index(state, obj, again=True)
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

    async def _index(self, state: ObjectState, obj: RawObject, *, again: bool) -> None:
        """Index an object. When no others are being indexed, sort the values of those whose functions took longer."""
        self._running += 1
        try:
            await self._call(state, obj, obj.decode(), again=again)
        except (msgspec.MsgspecError, ValueError) as error:
            state.make_logger().error("The object cannot be read, and is not indexed: %r", error)
        except Exception as error:  # noqa: BLE001 -- errors of one object do not concern the others
            state.make_logger().error("The object could not be indexed.", exc_info=error)
        finally:
            self._running -= 1
            self._done += 1
            if self._has_late and not self._running:
                self._has_late = False
                for index in self.indices.values():
                    sort(index, lambda owner: self._indexed.get(owner.state, _GONE)[1])

    async def _call(self, state: ObjectState, obj: RawObject, body: Mapping[str, Any], *, again: bool) -> None:
        """Call the index handlers that match: all of them, or *again* only those that have failed."""
        done, cause = self._done, self._causes.make_index_cause(state, body)
        handlers = state.cache.kind.handlers
        chosen = {self._identify(handler): handler for handler in select_matching(handlers.indices, cause)}
        if len(chosen) < len(handlers.indices):
            self._drop_others(state, handlers.indices, chosen)
        failures = {} if (failed := self.failed.get(state)) is None else failed.failures
        for identity, handler in chosen.items():
            failure = failures.get(identity)
            if again if failure is None else failure.due is None or failure.due > trio.current_time():
                continue
            retry, started = (failure.retries, failure.started) if failure else (0, steady_now())
            attempt = Attempt(retry, started, flow=state.flow, kind=cause.resource)
            outcome = await self._invoke(cause, handler, attempt)
            if state not in self._indexed or handler not in state.cache.kind.handlers.indices:
                continue  # it was removed meanwhile
            if outcome.error is None:
                self._store(_Owner(state, identity), handler, outcome.result, late=again or self._done != done)
            else:
                discard(self.indices[handler.id], _Owner(state, identity))
                failed = self.failed.setdefault(state, _ObjectFailures(obj))
                failed.failures[identity] = _make_failure(attempt, outcome)
        if (failed := self.failed.get(state)) is not None:
            failed.object = obj

    async def _invoke(self, cause: ObjectCause, handler: IndexHandler, attempt: Attempt) -> Outcome:
        token = current_cause.set(cause)
        try:
            return await self._invoker.invoke(handler, cause.kwargs, attempt=attempt, logger=cause.logger)
        finally:
            current_cause.reset(token)

    def _store(self, owner: _Owner, handler: IndexHandler, result: Any, *, late: bool) -> None:
        """Put a result into the index; a *late* one is to be sorted: others were indexed meanwhile."""
        if result is not None:
            replace(self.indices[handler.id], owner, result, late=late)
            self._has_late = self._has_late or late
        if owner.state in self.failed:
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

    def _drop_others(self, state: ObjectState, handlers: Collection[IndexHandler], chosen: Container[Hashable]) -> None:
        """Remove the values of the functions that are not chosen for an object."""
        for handler in handlers:
            identity = self._identify(handler)
            if identity not in chosen:
                discard(self.indices[handler.id], _Owner(state, identity))
                self._forget_delay(state, identity)

    def _discard(self, state: ObjectState, handler: IndexHandler) -> None:
        discard(self.indices[handler.id], _Owner(state, self._identify(handler)))


class _Owner(msgspec.Struct, frozen=True):
    """Owner of values in an index: an object, by one of the index's functions."""

    state: ObjectState
    identity: Hashable


def _make_failure(attempt: Attempt, outcome: Outcome) -> _Failure:
    return _Failure(
        retries=attempt.retry + 1,
        started=attempt.started or steady_now(),
        due=None if outcome.final else trio.current_time() + outcome.delay,
        wakes=outcome.delay > 0,
    )
