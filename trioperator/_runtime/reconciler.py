"""The reconciler: what is done for one object when it has changed, is due, or is requeued.

Theory of operation
===================

First, every pending watch event is processed, in order: its ``on.event`` handlers are called, and its state becomes the
newest one. All else is decided by the newest state. One thing is done for it: the first of this table that applies. The
result says what is left, and whether the object is idle or open (see :mod:`trioperator._runtime.object_state`).

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
                                        :mod:`trioperator._runtime.pauses`             until it expires
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

import contextlib
import logging
from collections.abc import Sequence

import trio

from trioperator._concurrency.clock import steady_now
from trioperator._handling.declaring.registry import any_prematches, select_change_handlers
from trioperator._handling.handlers.handler import ChangeHandler, Reason
from trioperator._handling.handlers.lifecycles import Lifecycle, get_default_lifecycle
from trioperator._logs import Logger
from trioperator._model.finalizer import has_finalizer, is_deleting
from trioperator._model.patch import Patch
from trioperator._runtime.causes import TITLES, CauseFactory, Change, report_begin
from trioperator._runtime.completion import Completion
from trioperator._runtime.daemons.manager import DaemonManager
from trioperator._runtime.error_backoff import ErrorBackoff, LastError
from trioperator._runtime.execution import Execution, Executor, find_nursery
from trioperator._runtime.finalizers import Finalizers
from trioperator._runtime.gone_objects import GoneObjects
from trioperator._runtime.handling import Handling, find_failed, inspect_handling
from trioperator._runtime.incoming import Incoming
from trioperator._runtime.index_wait import IndexWait
from trioperator._runtime.ledger import Ledger
from trioperator._runtime.object_state import ObjectState
from trioperator._runtime.patching.contention_guard import ContentionGuard, HeldError
from trioperator._runtime.patching.patcher import Patcher
from trioperator._runtime.patching.requests import StaleError
from trioperator._runtime.pauses import ObjectPauses
from trioperator._runtime.pending_events import PendingEvents, ReconcilesLevel
from trioperator._runtime.pokes import Pokes
from trioperator._runtime.progress.saver import Saver
from trioperator._runtime.result import AGAIN, DONE, ONWARD, Again, RequeueAt, Result, earlier
from trioperator._runtime.succession import AtWork
from trioperator._runtime.takeover import Takeover
from trioperator.errors import NotFoundError, TrioperatorError

# How long a cancelled reconcile may take to store which handlers have ended: in seconds, and as a part of the grace.
_LAST_SAVE, _LAST_SAVE_SHARE = 1.0, 0.2


class Reconciler:
    """Reconciles objects: one reconcile at a time for each object, many objects at the same time.

    ``reconcile`` never raises for what concerns one object only: such errors are logged, and the object is requeued
    with a backoff. When the executor is stopping, a reconcile ends after the running handler.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        causes: CauseFactory,
        patcher: Patcher,
        daemons: DaemonManager,
        level: ReconcilesLevel,
        takeover: Takeover,
        pauses: ObjectPauses,
        pokes: Pokes,
        ledger: Ledger,
        guard: ContentionGuard,
        lifecycle: Lifecycle | None = None,
    ) -> None:
        self._executor = executor
        self._causes = causes
        self._patcher = patcher
        self._daemons = daemons
        self._ledger, self._guard = ledger, guard
        self._incoming = incoming = Incoming(ledger, executor.pending, level.is_due, self.is_retrying)
        self._level = level
        self._lifecycle = lifecycle = get_default_lifecycle() if lifecycle is None else lifecycle
        self._settings = settings = executor.settings
        self._progress, self._pending = progress, pending = executor.progress, executor.pending
        self._finalizer = settings.persistence.finalizer
        self._finalizers = Finalizers(self._finalizer, patcher=patcher, pending=pending, progress=progress)
        self._completion = Completion(progress, patcher=patcher, pending=pending, finalizers=self._finalizers)
        self._gone = GoneObjects(executor, causes=causes, daemons=daemons, takeover=takeover, lifecycle=lifecycle)
        self._errors = ErrorBackoff(settings.queueing)
        self._at_work = AtWork()
        self._index_wait = IndexWait(timeout=settings.persistence.consistency_timeout)
        self.pauses = pauses
        self._events = PendingEvents(
            executor,
            causes=causes,
            daemons=daemons,
            level=level,
            errors=self._errors,
            pauses=pauses,
            pokes=pokes,
            incoming=incoming,
            guard=guard,
        )
        self.takeover = takeover

    async def reconcile(self, state: ObjectState) -> Result:
        """Do what there is to do for an object now, and return when there will be more."""
        if not self._at_work.begin(state):  # it is in another cache, too, as its CRD gets other versions: it waits
            return DONE
        run = self._incoming.begin(state)
        try:
            pause = await self._events.take(state)
            if state.gone or self._executor.stopping.is_set() or state.cache.retired:
                result = await (self._gone.handle(state) if state.gone else self._save_last(state))
            elif pause is not None:
                result = await self.pauses.hold(state, pause)
            elif state in self._errors.failures and (wait := self._errors.find_wait(state)) is not None:
                return wait
            elif state.is_outdated(self._finalizer):
                result = await self._catch_up(state)
            elif (early := self._find_early(state)) is not None:
                result = early
            else:
                try:
                    result = await self._reconcile_newest(state)
                except HeldError as held:  # others undo what is to be written
                    result = RequeueAt(held.due)
                if state.cache.kind.handlers.reconciles and type(result) is not Again:
                    result = _join(state, result, await self._level.run(state))
        except StaleError as stale:
            result = self._accept(state, stale)
        except Exception as error:  # noqa: BLE001 -- errors of one object do not concern the others
            return self._fail(state, error)
        finally:
            self._ledger.end(run)
            self._at_work.end(state)
        return self._conclude(state, result)

    def _accept(self, state: ObjectState, stale: StaleError) -> Result:
        """Take the newer state that an object turned out to have, and return the result."""
        self._patcher.accept(state, stale.body)
        return AGAIN

    def _find_early(self, state: ObjectState) -> Result | None:
        """Return the result for an object that is idle, as it was handled meanwhile, or that waits for its index."""
        if state.body is None:
            return DONE
        until = self._index_wait.find(state)
        return None if until is None else RequeueAt(until)

    def _conclude(self, state: ObjectState, result: Result) -> Result:
        """Return the result of a reconcile without an error, unless more has come, and forget what is over."""
        if state in self._errors.failures:
            self._errors.forget(state)
        if result is DONE:
            state.close()
        if state.events:
            # Others may come first, as this object had a reconcile. But what is unsaved must not wait for long.
            result = AGAIN if self._progress.is_due(state) else DONE
        elif result is DONE and (state.gone or state.cache.retired or self._has_left(state)):
            self._forget(state)
        if state in self._guard.watched:
            result = self._guard.join(state, result)
        if not (state.events or type(result) is Again):
            self._patcher.settle(state)  # what handlers have written is brought by the watch
        return result

    def has_work(self, state: ObjectState) -> bool:
        """Check whether anything has come for an object since its last reconcile."""
        is_triggered = self._level.has_work(state) or self._daemons.changed_body(state) is not None
        return bool(state.events) or state.cache.retired or state in state.cache.leaving or is_triggered

    def has_failed(self, state: ObjectState) -> bool:
        """Check whether the last reconcile of an object has failed, and is to be repeated."""
        return state in self._errors.failures or self._level.has_failed(state)

    def find_error(self, state: ObjectState) -> LastError | None:
        """Return the error after which an object is reconciled again; None if there is none."""
        last = self._errors.find_last(state) or find_failed(self._progress.get(state))
        return last or self._level.find_error(state)

    def is_retrying(self, state: ObjectState) -> bool:
        """Check whether anything is to be tried again for an object: a reconcile, or a handler of a change."""
        if self.has_failed(state):
            return True
        progress = self._progress.get(state)
        return progress is not None and any(each.message and not each.success for each in progress.states.values())

    def inspect(self, state: ObjectState) -> Handling:
        """Return what is known of the handling of an object, for people to read."""
        errors, unsaved = self._errors.count(state), self.is_unsaved(state)
        return inspect_handling(state, self._progress, self._daemons, errors=errors, unsaved=unsaved)

    def expedite(self, state: ObjectState) -> bool:
        """Make due now what an object waits for: retries of handlers or reconciles. Returns whether it waits."""
        return self._events.expedite(state)

    def is_unsaved(self, state: ObjectState) -> bool:
        """Check whether something is to be stored on an object that is not stored yet."""
        return bool(self._pending.get(state)) or self._progress.is_due(state)

    def report_loop(self, state: ObjectState, *, writes: int, backoff: float) -> None:
        """Warn that an object is changed repeatedly by its own reconciles."""
        text = "Possible reconcile loop (%d writes in a row): backing off for %g s."
        state.make_logger().warning(text, writes, backoff)

    def _forget(self, state: ObjectState) -> None:
        """Forget an object that is gone, or is no longer handled. Its daemons forget it when they have ended."""
        self._pending.forget(state)
        self._progress.forget(state)
        self._daemons.forget(state)
        self._level.forget(state)
        self.takeover.forget(state)
        state.cache.forget_left(state)
        self._errors.forget(state)
        self._guard.forget(state)
        self._index_wait.forget(state)
        self.pauses.forget(state)
        self._events.forget(state)

    def _has_left(self, state: ObjectState) -> bool:
        """Check whether an object has left the selector of its watch, and nothing runs for it."""
        return state in state.cache.leaving and not self._daemons.runs_any(state)

    def _fail(self, state: ObjectState, error: Exception) -> Result:
        """Return the result of a reconcile with an error."""
        if isinstance(error, NotFoundError) and error.details and state in state.cache.leaving:
            self._progress.finish(state)  # it is gone, which its watch does not show
            self._pending.forget(state)
            return self._conclude(state, DONE)
        return self._errors.back_off(state, error)

    async def _catch_up(self, state: ObjectState) -> Result:
        """Read an object again whose state is outdated."""
        self._patcher.touch(state)
        try:
            await self._patcher.look(state)
        except NotFoundError as error:
            if not error.details:  # its kind is not served just now
                raise
            return DONE
        state.caught_up(is_restored=state.is_outdated(self._finalizer))
        return AGAIN

    async def _save_last(self, state: ObjectState) -> Result:
        """Store what is not stored yet, and leave everything else to the next operator, or to another version."""
        if state.body is not None:
            try:
                await self._progress.save(state, state.make_logger())
            except NotFoundError as error:
                if not (state.cache.retired and error.details):  # a watch tells, or its kind is not served just now
                    raise
                state.make_logger().debug("Nothing is stored, as the object is gone: %s", error)
        return DONE

    async def _reconcile_newest(self, state: ObjectState) -> Result:
        """Do the next thing for the newest state of an object."""
        handlers = state.cache.kind.handlers
        blocked = bool(handlers.spawning) and self._daemons.match(state)
        if not handlers.changes:
            return await self._reconcile_daemons(state, blocked=blocked)
        # The finalizer comes before all handlers: what they make elsewhere is to be removed, whatever happens next.
        if handlers.mandatory_deletes and (result := await self._finalizers.add_early(state)) is not None:
            return result
        withheld = self._progress.is_withheld(state)
        change = self._causes.detect_change(state, self._progress.recall, withheld=withheld)
        if change.current:
            self._progress.confirm(state)
        cause = change.cause
        blocked = blocked or any_prematches(handlers.mandatory_deletes, cause)
        result = await self._finalizers.adjust(state, cause.logger, blocked=blocked, finalized=change.finalized)
        if result is not None:
            return result
        if self._progress.get(state) is None and not (withheld or any_prematches(handlers.changes, cause)):
            return await self._store_pending(state, cause.logger)
        if cause.reason in TITLES:
            return await self._handle_cause(state, change)
        return await self._completion.settle(state, change)

    async def _reconcile_daemons(self, state: ObjectState, *, blocked: bool) -> Result:
        """Store what event handlers, daemons and timers want stored, where there are no handlers of changes."""
        assert state.body is not None
        handlers, is_pending = state.cache.kind.handlers, bool(self._pending.get(state))
        finalized = has_finalizer(state.body, self._finalizer)
        if not (handlers.spawning or handlers.reconciles or is_pending or finalized):  # as for most watch events
            return DONE
        logger, is_adjusted = state.make_logger(), bool(handlers.spawning)
        if finalized and not state.cache.retired:  # an earlier version had others; what is only looked at has others
            is_adjusted = is_adjusted or bool(handlers.reconciles) or is_deleting(state.body)
        if is_adjusted:
            result = await self._finalizers.adjust(state, logger, blocked=blocked, finalized=finalized)
            if result is not None:
                return result
        result = await self._store_pending(state, logger)
        return result if handlers.spawning or handlers.reconciles else DONE  # raw events do not depend on the state

    async def _store_pending(self, state: ObjectState, logger: Logger) -> Result:
        """Store the pending patch, if there is one, without what is recorded of handlers on an object that has left."""
        records = Patch()
        if state in state.cache.leaving:
            self._progress.purge(state, records)
        return DONE if await self._patcher.store(state, records, logger) is None else AGAIN

    async def _handle_cause(self, state: ObjectState, change: Change) -> Result:
        """Call the handlers of a cause that are due."""
        cause = change.cause
        if cause.reason is not Reason.RESUME and self.takeover.may_be_stale(state):
            return await self.takeover.verify(state, self._patcher)
        self._incoming.note_update(cause)
        selected = select_change_handlers(state.cache.kind.handlers.changes, cause)
        progress = self._progress.begin(state, cause, selected)
        self._events.adjust(state, progress)
        if cause.logger.isEnabledFor(logging.DEBUG):
            report_begin(cause, [progress.states[handler.id] for handler in selected])
        nursery = find_nursery()
        saver = Saver(self._progress, self._pending, state=state, nursery=nursery, logger=cause.logger)
        try:
            with saver:
                execution = Execution(self._executor, state, nursery=nursery, saver=saver, seen=change.encoded)
                await execution.run(selected, cause, self._lifecycle)
            await saver.wait()
        except BaseException:  # cancelled: which handlers have ended has to be stored
            limit = min(_LAST_SAVE, self._settings.process.grace * _LAST_SAVE_SHARE)
            with trio.move_on_after(limit, shield=True), contextlib.suppress(TrioperatorError, StaleError):
                await saver.wait()
                await self._progress.save(state, cause.logger)
            raise
        return await self._after_handling(state, change, selected, execution=execution)

    async def _after_handling(
        self, state: ObjectState, change: Change, selected: Sequence[ChangeHandler], *, execution: Execution
    ) -> Result:
        """Finish a cause whose handlers have all ended, or store how far they have come."""
        cause, progress = change.cause, self._progress.get(state)
        if state.body is None or progress is None:  # its shard was given up meanwhile: it is the next owner's
            return DONE
        ended = all(progress.states[handler.id].finished for handler in selected)
        waits_for_daemons = ended and cause.reason is Reason.DELETE and self._daemons.block_deletion(state)
        if ended and not waits_for_daemons:
            return await self._completion.finish(state, change, [progress.states[handler.id] for handler in selected])
        if state.has_newer() or execution.superseded:
            # The progress is stored with what comes next. It is kept in memory until then, and is due to be saved.
            return ONWARD if execution.progress else AGAIN
        with contextlib.suppress(HeldError):  # the progress is kept in memory, and what is due meanwhile is called
            await self._progress.save(state, cause.logger)
        if state.revision != change.revision or self._executor.stopping.is_set():
            return AGAIN  # a response, to this or to the saver, may show what others have changed
        if waits_for_daemons:
            return DONE  # it is requeued when the last one has ended
        wait = progress.wait(selected, now=steady_now())
        return RequeueAt(trio.current_time() + wait) if wait else AGAIN


def _join(state: ObjectState, changes: Result, level: Result) -> Result:
    """Return the result of both parts, of which the first is not to be repeated at once.

    An object that only waits for reconcile handlers is idle: its body can be decoded again, see ``find_body``.
    """
    if type(level) is Again:
        return level
    if changes is DONE:
        state.close()
    return earlier(changes, level)
