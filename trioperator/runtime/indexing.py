"""Indexing: the calls of index handlers, and what comes of them.

An object is indexed before anything else is done for it. At the start, all objects of the indexed kinds are indexed
before any handler is called for any object; that takes no workers (see :mod:`trioperator.runtime.scopes`).
"""

from __future__ import annotations

import dataclasses
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
from trioperator.runtime.table import Known, Notice, ObjectTable

__all__ = ["Indexing"]

# So many objects are indexed at the same time at the start: sync handlers take a thread each.
_AT_ONCE = 16


@dataclasses.dataclass(frozen=True, slots=True)
class _Failure:
    """Remember that an object could not be indexed: until ``due`` on Trio's clock, or for good if that is None."""

    retries: int
    started: datetime.datetime
    due: float | None = None
    wakes: bool = False


@dataclasses.dataclass(slots=True, eq=False)
class _Troubles:
    """Remember which index handlers have failed for an object, and the state that they have failed for."""

    notice: Notice
    failures: dict[Hashable, _Failure] = dataclasses.field(default_factory=dict)


class Indexing:
    """Keep the indices of an operator up to date."""

    def __init__(self, indices: Indices, invoker: Invoker) -> None:
        self.indices = indices
        self._invoker = invoker
        self._troubles: dict[Known, _Troubles] = {}

    async def absorb(self, known: Known, notice: Notice) -> Mapping[str, Any] | None:
        """Bring the indices in line with a new state of an object; give the object, if it had to be decoded."""
        if notice.type == "DELETED":
            self._forget(known)
            return None
        if notice.version <= known.indexed:
            return None
        known.indexed = notice.version
        body = notice.decode()
        await self._index(known, notice, body, again=False)
        return body

    async def retry(self, known: Known) -> None:
        """Call the handlers that have failed for the object, and are due."""
        due = self.due(known)
        if due is not None and due <= trio.current_time():
            notice = self._troubles[known].notice
            await self._index(known, notice, notice.decode(), again=True)

    def due(self, known: Known) -> float | None:
        """Tell when handlers that have failed are to be called again for the object, on Trio's clock."""
        troubles = self._troubles.get(known)
        if troubles is None:
            return None
        return min((f.due for f in troubles.failures.values() if f.wakes and f.due is not None), default=None)

    async def populate(self, tables: Collection[ObjectTable]) -> None:
        """Index all objects that the tables have got with their first lists."""
        everything = iter([known for table in tables for known in table])
        async with trio.open_nursery() as nursery:
            for number in range(_AT_ONCE):
                nursery.start_soon(self._populate, everything, name=f"index {number}")

    async def _populate(self, objects: Iterator[Known]) -> None:
        for known in objects:
            notice = known.notices[-1] if known.notices else None
            if notice is None or notice.type == "DELETED":
                continue  # an end is for the turn of the object
            try:
                await self.absorb(known, notice)
            except (msgspec.MsgspecError, ValueError) as error:
                known.make_logger().error("The object cannot be read, and is not indexed: %r", error)
            except Exception as error:  # noqa: BLE001 -- one object's trouble is not the others'
                known.make_logger().error("The object could not be indexed.", exc_info=error)
            if known.table.kind.handlers.only_indices and known.notices and known.notices[-1] is notice:
                known.take()  # nobody else wants to see it

    def leave(self, table: ObjectTable) -> None:
        """Take out the objects of a table that is not followed any more."""
        for index in self.indices.values():
            for owner in owners(index):
                if isinstance(owner, _Owner) and owner.known.table is table:
                    discard(index, owner)
        for known in [known for known in self._troubles if known.table is table]:
            del self._troubles[known]

    async def _index(self, known: Known, notice: Notice, body: Mapping[str, Any], *, again: bool) -> None:
        """Call the index handlers that match: all of them, or *again* only those that have failed."""
        cause = ObjectCause(
            resource=known.table.kind.resource,
            raw=body,
            get_memo=lambda: known.memo,
            logger=known.make_logger(),
            indices=self.indices,
        )
        handlers = known.table.kind.handlers
        chosen = {handler_identity(handler): handler for handler in select_index_handlers(handlers, cause)}
        for handler in handlers.indices:
            if handler_identity(handler) not in chosen:
                self._discard(known, handler)
                self._forget_delay(known, handler_identity(handler))
        failures = {} if (troubles := self._troubles.get(known)) is None else troubles.failures
        for identity, handler in chosen.items():
            failure = failures.get(identity)
            if again if failure is None else failure.due is None or failure.due > trio.current_time():
                continue
            now = wall_now()
            attempt = Attempt(retry=failure.retries, started=failure.started) if failure else Attempt(0, now)
            outcome = await self._invoke(cause, handler, attempt)
            if handler in known.table.kind.handlers.indices:  # else the objects were taken out meanwhile
                self._settle(known, handler, attempt, outcome, notice)
        if (troubles := self._troubles.get(known)) is not None:
            troubles.notice = notice

    async def _invoke(self, cause: ObjectCause, handler: IndexHandler, attempt: Attempt) -> Outcome:
        token = current_cause.set(cause)
        try:
            return await self._invoker.invoke(handler, cause.kwargs, attempt=attempt, logger=cause.logger)
        finally:
            current_cause.reset(token)

    def _settle(self, known: Known, handler: IndexHandler, attempt: Attempt, outcome: Outcome, notice: Notice) -> None:
        """Put the result in its place; after an error, remember it, and have no values of the object."""
        identity = handler_identity(handler)
        if outcome.error is None:
            if outcome.result is not None:
                replace(self.indices[handler.id], _Owner(known, identity), outcome.result)
            self._forgive(known, identity)
            return
        self._discard(known, handler)
        failure = _Failure(
            retries=attempt.retry + 1,
            started=attempt.started,
            due=None if outcome.final else trio.current_time() + outcome.delay,
            wakes=outcome.delay > 0,
        )
        self._troubles.setdefault(known, _Troubles(notice)).failures[identity] = failure

    def _forget_delay(self, known: Known, identity: Hashable) -> None:
        """Have nothing to wait for: should the object match again, it is indexed at once, unless it failed for good."""
        troubles = self._troubles.get(known)
        failure = None if troubles is None else troubles.failures.get(identity)
        if failure is not None and failure.due is not None:
            self._forgive(known, identity)

    def _forgive(self, known: Known, identity: Hashable) -> None:
        """Forget that a handler has failed for the object."""
        if (troubles := self._troubles.get(known)) is not None:
            troubles.failures.pop(identity, None)
            if not troubles.failures:
                del self._troubles[known]

    def _discard(self, known: Known, handler: IndexHandler) -> None:
        discard(self.indices[handler.id], _Owner(known, handler_identity(handler)))

    def _forget(self, known: Known) -> None:
        for handler in known.table.kind.handlers.indices:
            self._discard(known, handler)
        self._troubles.pop(known, None)


@dataclasses.dataclass(frozen=True, slots=True)
class _Owner:
    """Name whose values they are in an index: an object's, by one of the index's functions."""

    known: Known
    identity: Hashable
