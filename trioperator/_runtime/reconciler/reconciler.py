"""The reconciler: what is done for one object when it has changed, is due, or is requeued.

Theory of operation
===================

First, every pending watch event is processed, in order: its ``on.event`` handlers are called, and its state becomes the
newest one. All else is decided by the newest state. One thing is done for it: the first of this table that applies. The
result says what is left, and whether the object is idle or open (see :mod:`trioperator._runtime.cache.object_state`).

======================================  =============================================  =========================
the object                              what is done                                   result, and the object
======================================  =============================================  =========================
is running in another version of its    nothing: the end of that requeues it           Done, as it was
kind
is gone                                 daemons are stopped, optional delete handlers  Done, forgotten; RequeueAt,
                                        are called                                     open, for a retry
is left to others: the operator stops,  what is unsaved is stored                      Done, idle
or the kind is no longer handled
is paused by its annotation             what is at work ends: see                      Done, idle; RequeueAt, open,
                                        :mod:`trioperator._runtime.reconciler.pauses`  until it expires
had an error, and is to wait            nothing                                        RequeueAt, as it was
is older than what is known to be done  it is read                                     Again, open; Done, idle,
(or may be, before a cause is handled)                                                 where it is not found
is idle                                 nothing: it was handled meanwhile              Done, idle
is not in indices that handlers use     nothing: its watch event is on its way         RequeueAt, open
needs our finalizer, or has it in vain  it is added or removed                         Again, open; Done, idle,
                                                                                       at the end of a deletion
has a cause with handlers               those that are due are called, and then
- and all have ended                    it is recorded as handled                      Done, idle; Again, open,
                                                                                       where there may be more
- and it has changed meanwhile          nothing: progress is stored with what is next  Again, open
- and some are to be called again       progress is stored                             RequeueAt, open
- and daemons block the deletion        progress is stored                             Done, idle: the end of a
                                                                                       daemon requeues it
has nothing to handle                   what is pending is stored                      Done, idle; Again, open,
                                                                                       if anything was
======================================  =============================================  =========================

Unless that is Again, reconcile handlers are called, if there are any. While it only waits for their retries and
resyncs, the object is idle: its body can be decoded again from what the cache has kept. With Done, an object that is
gone, that has left the selector of its watch, or whose kind is no longer handled, is forgotten.

An error concerns one object, and never leaves its reconcile: the object stays as it was, and is requeued with a
backoff. A ``StaleError`` brings a newer state, and is Again.

**Why is it Again after a response?** A response to a write is the newest state. It may show what others have changed,
and nothing else will: by its version, the watch event of that change is an echo. So whatever replaces the newest
state in a reconcile is reconciled itself, at once, by the same worker. That is left out only where a response shows
nothing but our own records, as there would be nothing to find.

**What can happen at an await?** Watch events come, and wait for the next reconcile. The operator is told to stop.
Daemons contribute to the pending patch. While handlers run, the saver stores what is due, which gives the object
another revision: a cause that was detected before is out of date then (:class:`Change`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from trioperator._model.pause import Pause
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.cache.succession import AtWork
from trioperator._runtime.daemons.manager import DaemonManager
from trioperator._runtime.execution.execution import Executor
from trioperator._runtime.patching.contention_guard import ContentionGuard, HeldError
from trioperator._runtime.patching.requests import StaleError
from trioperator._runtime.patching.sending import is_invalid
from trioperator._runtime.pokes import Pokes
from trioperator._runtime.reconciler.change_reconciler import ChangeReconciler
from trioperator._runtime.reconciler.error_backoff import ErrorBackoff
from trioperator._runtime.reconciler.gone_objects import GoneObjects
from trioperator._runtime.reconciler.handling import HandlingStatus, ReconcilesLevel
from trioperator._runtime.reconciler.incoming import Incoming
from trioperator._runtime.reconciler.pauses import ObjectPauses
from trioperator._runtime.reconciler.pending_events import PendingEvents
from trioperator._runtime.reconciler.takeover import Takeover
from trioperator._runtime.result import AGAIN, DONE, Again, RequeueAt, Result, earlier
from trioperator.errors import ApiError, NotFoundError


class _KeepsObjects(Protocol):
    """Keeper of state of objects until they are forgotten. Daemons keep it until they have ended."""

    def forget(self, state: ObjectState, /) -> None: ...


class Reconciler:
    """Reconciles objects: one reconcile at a time for each object, many objects at the same time.

    ``reconcile`` never raises for what concerns one object only: such errors are logged, and the object is requeued
    with a backoff. When the executor is stopping, a reconcile ends after the running handler.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        daemons: DaemonManager,
        level: ReconcilesLevel,
        takeover: Takeover,
        pauses: ObjectPauses,
        pokes: Pokes,
        guard: ContentionGuard,
    ) -> None:
        self._executor = executor
        self._guard = guard
        self._level = level
        self._errors = errors = ErrorBackoff(executor.settings.queueing)
        self._at_work = AtWork()
        self.pauses = pauses
        self.status = HandlingStatus(executor, daemons=daemons, errors=errors, level=level)
        self._incoming = incoming = Incoming(guard.ledger, executor.pending, level.is_due, self.status.is_retrying)
        self.events = PendingEvents(
            executor,
            daemons=daemons,
            level=level,
            errors=errors,
            pauses=pauses,
            pokes=pokes,
            incoming=incoming,
            guard=guard,
        )
        self._changes = changes = ChangeReconciler(
            executor,
            daemons=daemons,
            events=self.events,
            incoming=incoming,
            takeover=takeover,
        )
        self._gone = GoneObjects(executor, daemons=daemons, takeover=takeover)
        # All that keep state of objects, and forget it when an object is gone.
        parts = (executor.pending, executor.progress, daemons, level, errors, guard, pauses, self.events, changes)
        self._owners: Sequence[_KeepsObjects] = (*parts, incoming)

    async def reconcile(self, state: ObjectState) -> Result:
        """Do what there is to do for an object now, and return when there will be more."""
        if not self._at_work.begin(state):  # it is in another cache, too, as its CRD gets other versions: it waits
            return DONE
        run = self._incoming.begin(state)
        try:
            pause = await (self._take if state.cache.predecessors.states else self.events.take)(state)
            if state.gone or self._executor.stopping.is_set() or state.cache.kind.retired:
                result = await (self._gone.handle(state) if state.gone else self._save_last(state))
            elif pause is not None:
                result = await self.pauses.hold(state, pause)
            elif state in self._errors.failures and (wait := self._errors.find_wait(state)) is not None:
                return wait
            elif state.is_outdated(self._executor.settings.persistence.finalizer):
                result = await self._catch_up(state)
            elif (early := self._changes.find_early(state)) is not None:
                result = early
            else:
                try:
                    result = await self._changes.reconcile(state)
                except (ApiError, HeldError) as error:
                    result = await self._go_on(state, error)
                if state.cache.kind.handlers.reconciles and type(result) is not Again:
                    result = _join(state, result, await self._level.run(state))
        except StaleError as stale:
            result = self._accept(state, stale)
        except Exception as error:  # noqa: BLE001 -- errors of one object do not concern the others
            return self._fail(state, error)
        finally:
            self._guard.ledger.end(run)
            self._at_work.end(state)
        return self._conclude(state, result)

    async def _go_on(self, state: ObjectState, error: ApiError | HeldError) -> Result:
        """Return the result if others undo what is to be written. Raises all other errors.

        If a change is handled, but cannot be recorded, reconcile handlers are called before that: they need no records.
        """
        if isinstance(error, HeldError):
            return RequeueAt(error.due)
        if state.cache.kind.handlers.reconciles and self._is_handled(state, error):
            await self._level.run(state)
        try:
            raise error
        finally:
            del error  # its traceback has this frame: a circle would be left to the garbage collector

    def _is_handled(self, state: ObjectState, error: Exception) -> bool:
        """Check whether all that has failed is to record that a change is handled."""
        return isinstance(error, ApiError) and is_invalid(error) and self._executor.progress.is_withheld(state)

    def _accept(self, state: ObjectState, stale: StaleError) -> Result:
        """Take the newer state that an object turned out to have, and return the result."""
        self._executor.patcher.accept(state, stale.body)
        return AGAIN

    def _conclude(self, state: ObjectState, result: Result) -> Result:
        """Return the result of a reconcile without an error, unless more has come, and forget what is over."""
        if state in self._errors.failures:
            self._errors.forget(state)
        if result is DONE:
            state.close()
        if state.events:
            # Other objects may come first, as this one had a reconcile. But unsaved progress must not wait for long.
            result = AGAIN if self._executor.progress.is_due(state) else DONE
        elif result is DONE and self.status.is_over(state):
            self._forget(state)
        if state in self._guard.watched:
            result = self._guard.join(state, result)
        if type(result) is Again:
            self._incoming.note_newer(state)
        elif not state.events:
            self._executor.patcher.settle(state)  # what handlers have written is brought by the watch
        return result

    def has_work(self, state: ObjectState) -> bool:
        """Check whether anything has come for an object since its last reconcile."""
        return self.events.has_work(state)

    def is_unsaved(self, state: ObjectState) -> bool:
        """Check whether something is to be stored on an object that is not stored yet."""
        return self.status.is_unsaved(state)

    def report_loop(self, state: ObjectState, *, writes: int, backoff: float) -> None:
        """Warn that an object is changed repeatedly by its own reconciles."""
        text = "Possible reconcile loop (%d writes in a row): backing off for %g s."
        state.make_logger().warning(text, writes, backoff)

    def _forget(self, state: ObjectState) -> None:
        """Forget an object that is gone, or is no longer handled."""
        for owner in self._owners:
            owner.forget(state)
        state.cache.forget_left(state)

    def _fail(self, state: ObjectState, error: Exception) -> Result:
        if isinstance(error, NotFoundError) and error.details and state in state.cache.leaving:
            self._executor.progress.finish(state)  # it is gone, which its watch does not show
            self._executor.pending.forget(state)
            return self._conclude(state, DONE)
        return self._errors.back_off(state, error, is_handled=self._is_handled(state, error))

    async def _catch_up(self, state: ObjectState) -> Result:
        """Read an object again whose state is outdated."""
        self._executor.patcher.touch(state)
        try:
            await self._executor.patcher.look(state)
        except NotFoundError as error:
            if not error.details:  # its kind is not served just now
                raise
            return DONE
        state.caught_up(is_restored=state.is_outdated(self._executor.settings.persistence.finalizer))
        return AGAIN

    async def _take(self, state: ObjectState) -> Pause | None:
        """Take what has come for an object, once nothing is left to store in earlier versions of its kind.

        Else handlers would be called again that have succeeded, and what they want stored would replace what is newer.
        """
        for before in state.cache.predecessors.find(state):
            if before.cache.kind.retired and self.status.is_unsaved(before):
                try:
                    await self._save_last(before)
                except NotFoundError:  # its version is no longer served: this one is
                    before.cache.update_kind(replace(before.cache.kind, resource=state.cache.kind.resource))
                    raise
        state.cache.predecessors.hand_over(state)
        return await self.events.take(state)

    async def _save_last(self, state: ObjectState) -> Result:
        """Store what is not stored yet, and leave everything else to the next operator, or to another version."""
        if state.body is not None:
            try:
                await self._executor.progress.save(state, state.make_logger())
            except NotFoundError as error:
                if not (state.cache.kind.retired and error.details):  # a watch tells, or its kind is not served
                    raise
                state.make_logger().debug("Nothing is stored, as the object is gone: %s", error)
        return DONE


def _join(state: ObjectState, changes: Result, level: Result) -> Result:
    """Return the result of both parts, of which the first is not to be repeated at once.

    An object that only waits for reconcile handlers is idle: its body can be decoded again, see ``find_body``.
    """
    if type(level) is Again:
        return level
    if changes is DONE:
        state.close()
    return earlier(changes, level)
