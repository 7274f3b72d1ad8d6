"""The change reconciler: what is done for the newest state of one object, by what has changed in it.

It is the second half of the table of :mod:`trioperator._runtime.reconciler.reconciler`: from the objects that are idle
on.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence

import trio

from trioperator._concurrency.clock import steady_now
from trioperator._handling.declaring.registry import any_prematches, select_change_handlers
from trioperator._handling.handlers.handler import ChangeHandler, Reason
from trioperator._logs import Logger
from trioperator._model.finalizer import has_finalizer, is_deleting
from trioperator._model.patch import Patch
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.causes import TITLES, Change, report_begin
from trioperator._runtime.daemons.manager import DaemonManager
from trioperator._runtime.execution.execution import Execution, Executor, find_nursery
from trioperator._runtime.patching.contention_guard import HeldError
from trioperator._runtime.patching.requests import StaleError
from trioperator._runtime.patching.sending import is_invalid
from trioperator._runtime.progress.saver import Saver
from trioperator._runtime.reconciler.completion import Completion
from trioperator._runtime.reconciler.finalizers import Finalizers
from trioperator._runtime.reconciler.incoming import Incoming
from trioperator._runtime.reconciler.index_wait import IndexWait
from trioperator._runtime.reconciler.pending_events import PendingEvents
from trioperator._runtime.reconciler.takeover import Takeover
from trioperator._runtime.result import AGAIN, DONE, ONWARD, RequeueAt, Result
from trioperator.errors import ApiError, TrioperatorError

# Limits of the time in which a cancelled reconcile stores which handlers have ended: in seconds, and as a part of the
# grace period.
_LAST_SAVE, _LAST_SAVE_SHARE = 1.0, 0.2


class ChangeReconciler:
    """Detects what has changed in the newest states of objects, and calls the handlers of that.

    Before, it adds or removes the finalizer; afterwards, it stores what they want and records it as handled.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        daemons: DaemonManager,
        events: PendingEvents,
        incoming: Incoming,
        takeover: Takeover,
    ) -> None:
        self._executor = executor
        self._daemons = daemons
        self._events = events
        self._incoming = incoming
        self._takeover = takeover
        persistence, patcher, pending = executor.settings.persistence, executor.patcher, executor.pending
        self._progress = progress = executor.progress
        self._finalizers = Finalizers(persistence.finalizer, patcher=patcher, pending=pending, progress=progress)
        self._completion = Completion(progress, patcher=patcher, pending=pending, finalizers=self._finalizers)
        self._index_wait = IndexWait(timeout=persistence.consistency_timeout)

    def find_early(self, state: ObjectState) -> Result | None:
        """Return the result for an object without anything to do, as after most watch events, or waiting for its index.

        One that is idle was handled meanwhile.
        """
        if state.body is None:
            return DONE
        handlers = state.cache.kind.handlers
        if not (handlers.changes or handlers.spawning or handlers.reconciles or state.cache.twins):
            finalized = has_finalizer(state.body, self._executor.settings.persistence.finalizer)
            if not (finalized or self._executor.pending.get(state)):
                return DONE
        until = self._index_wait.find(state) if handlers.looks_up_own else None
        return None if until is None else RequeueAt(until)

    async def reconcile(self, state: ObjectState) -> Result:
        """Do the next thing for the newest state of an object."""
        assert state.body is not None
        handlers = state.cache.kind.handlers
        blocked = bool(handlers.spawning or state.cache.twins) and self._daemons.match(state)
        if not handlers.changes:
            finalized = has_finalizer(state.body, self._executor.settings.persistence.finalizer)
            return await self._reconcile_daemons(state, blocked=blocked, finalized=finalized)
        # The finalizer comes before all handlers, so that what they create elsewhere is cleaned up in any case.
        if handlers.mandatory_deletes and (result := await self._finalizers.add_early(state)) is not None:
            return result
        withheld = self._progress.is_withheld(state)
        change = self._executor.causes.detect_change(state, self._progress.recall, withheld=withheld)
        if change.current:
            self._progress.confirm(state)
        cause = change.cause
        blocked = blocked or any_prematches(handlers.mandatory_deletes, cause)
        result = await self._adjust_finalizer(state, cause.logger, blocked=blocked, finalized=change.finalized)
        if result is not None:
            return result
        needs_fields = self._executor.settings.persistence.needs_fields
        in_scope = withheld or any_prematches(handlers.changes, cause, needs_fields=needs_fields)
        if self._progress.get(state) is None and not in_scope:
            return await self._store_pending(state, cause.logger)
        if cause.reason in TITLES:
            return await self._handle_cause(state, change)
        return await self._completion.settle(state, change)

    async def _reconcile_daemons(self, state: ObjectState, *, blocked: bool, finalized: bool) -> Result:
        """Store what event handlers, daemons and timers want stored, where there are no handlers of changes."""
        assert state.body is not None
        handlers = state.cache.kind.handlers
        logger, is_adjusted = state.make_logger(), bool(handlers.spawning)
        if finalized and not state.cache.kind.retired:  # an earlier version had others; what is looked at has others
            is_adjusted = is_adjusted or bool(handlers.reconciles) or is_deleting(state.body)
        if is_adjusted:
            result = await self._adjust_finalizer(state, logger, blocked=blocked, finalized=finalized)
            if result is not None:
                return result
        result = await self._store_pending(state, logger)
        return result if handlers.spawning or handlers.reconciles else DONE  # raw events do not depend on the state

    async def _adjust_finalizer(
        self, state: ObjectState, logger: Logger, *, blocked: bool, finalized: bool
    ) -> Result | None:
        """Add or remove the finalizer. What only delete handlers in other versions of the kind need, these remove."""
        assert state.body is not None
        if not blocked and state.cache.twins:
            cause = self._executor.causes.detect_change(state, self._progress.recall).cause
            if any(any_prematches(twin.kind.handlers.mandatory_deletes, cause) for twin in state.cache.twins):
                return await self._store_pending(state, logger) if is_deleting(state.body) else None
        return await self._finalizers.adjust(state, logger, blocked=blocked, finalized=finalized)

    async def _store_pending(self, state: ObjectState, logger: Logger) -> Result:
        """Store the pending patch, if there is one, without what is recorded of handlers on an object that has left."""
        records = Patch()
        if state in state.cache.leaving:
            self._progress.purge(state, records)
        return DONE if await self._executor.patcher.store(state, records, logger) is None else AGAIN

    async def _handle_cause(self, state: ObjectState, change: Change) -> Result:
        """Call the handlers of a cause that are due."""
        cause = change.cause
        if cause.reason is not Reason.RESUME and self._takeover.may_be_stale(state):
            return await self._takeover.verify(state, self._executor.patcher)
        self._incoming.note_update(cause)
        selected = select_change_handlers(state.cache.kind.handlers.changes, cause)
        progress = self._progress.begin(state, cause, selected)
        self._events.adjust(state, progress)
        if cause.logger.isEnabledFor(logging.DEBUG):
            report_begin(cause, [progress.states[handler.id] for handler in selected])
        nursery = find_nursery()
        saver = Saver(self._progress, self._executor.pending, state=state, nursery=nursery, logger=cause.logger)
        try:
            with saver:
                execution = Execution(self._executor, state, nursery=nursery, saver=saver, seen=change.encoded)
                await execution.run(selected, cause)
            await saver.wait()
        except BaseException:  # cancelled: which handlers have ended has to be stored
            limit = min(_LAST_SAVE, self._executor.settings.process.grace * _LAST_SAVE_SHARE)
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
            ids = dict.fromkeys(handler.id for handler in selected)  # functions with one id have one state
            return await self._completion.finish(state, change, [progress.states[key] for key in ids])
        if state.has_newer() or execution.superseded:
            # The progress is kept in memory, and stored with the next write, at the latest when it is due to be saved.
            return ONWARD if execution.progress else AGAIN
        await self._save(state, cause.logger)
        if state.revision != change.revision or self._executor.stopping.is_set():
            return AGAIN  # a response, to this or to the saver, may show what others have changed
        if waits_for_daemons:
            return DONE  # it is requeued when the last one has ended
        wait = progress.wait(selected, now=steady_now())
        return RequeueAt(trio.current_time() + wait) if wait else AGAIN

    async def _save(self, state: ObjectState, logger: Logger) -> None:
        """Store the progress. If that cannot be stored, it is kept in memory, and what is due meanwhile is called."""
        try:
            await self._progress.save(state, logger)
        except HeldError:
            pass
        except ApiError as error:
            if not is_invalid(error):
                raise
            logger.error("The progress of handlers cannot be stored, and is lost at a restart: %s", error)

    def forget(self, state: ObjectState) -> None:
        """Forget an object that is gone, or is no longer handled."""
        self._takeover.forget(state)
        self._index_wait.forget(state)
        self._finalizers.forget(state)
