"""The reconciler: what is done for one object when it has changed, is due, or is requeued.

First every pending watch event, in order; then, for the newest state only: detect the cause, select the handlers, call
them, and store what they want in one patch. The response to a patch is the newest state, and is reconciled at once:
nothing waits for an echo.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import trio

from trioperator._concurrency.clock import steady_now
from trioperator._handling.arguments.stopping import DaemonStoppingReason
from trioperator._handling.calls.handler_state import HandlerState
from trioperator._handling.declaring.registry import (
    prematches_any,
    requires_finalizer,
    select_event_handlers,
    select_handlers,
)
from trioperator._handling.handlers.handler import ChangeHandler, Reason, SpawningHandler
from trioperator._handling.handlers.lifecycles import Lifecycle, get_default_lifecycle
from trioperator._logs import Logger
from trioperator._model.finalizer import add_finalizer, has_finalizer, is_deleting, remove_finalizer
from trioperator._model.patch import Patch, is_result
from trioperator._runtime.cache import ObjectState, WatchEvent
from trioperator._runtime.causes import TITLES, CauseFactory, Change, report_begin
from trioperator._runtime.daemons.manager import DaemonManager
from trioperator._runtime.execution import Execution, Executor, ReconcilesLevel
from trioperator._runtime.index_wait import IndexWait
from trioperator._runtime.patching.patcher import Patcher
from trioperator._runtime.patching.requests import StaleError
from trioperator._runtime.progress.saver import Saver
from trioperator._runtime.result import AGAIN, DONE, ONWARD, Again, RequeueAt, Result, earlier
from trioperator._runtime.succession import AtWork
from trioperator._runtime.takeover import Takeover
from trioperator.errors import NotFoundError, PausedError, TrioperatorError, UserCodeError

__all__ = ["Handling", "Reconciler"]

# How long a cancelled reconcile may take to store which handlers have ended: in seconds, and as a part of the grace.
_LAST_SAVE, _LAST_SAVE_SHARE = 1.0, 0.2


class Handling(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the handling of one object: its unfinished cause, if there is one, with the states of handlers.

    ``daemons`` are the daemons and timers that run for it; ``errors`` are failed reconciles in a row; ``unsaved`` is
    whether something is to be stored on it; ``body`` is its newest body, if one is kept.
    """

    purpose: Reason | None
    handlers: Mapping[str, HandlerState]
    daemons: tuple[SpawningHandler, ...]
    errors: int
    unsaved: bool
    body: Mapping[str, Any] | None


class Reconciler:
    """Reconciles objects: one reconcile at a time for each object, many objects at the same time.

    ``reconcile`` never raises for what concerns one object only: such errors are logged, and the object is requeued
    with a backoff. When the executor is stopping, a reconcile ends after the handler at work.
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
        lifecycle: Lifecycle | None = None,
    ) -> None:
        self._executor = executor
        self._causes = causes
        self._patcher = patcher
        self._daemons = daemons
        self._level = level
        self._lifecycle = get_default_lifecycle() if lifecycle is None else lifecycle
        self._settings = executor.settings
        self._progress = executor.progress
        self._pending = executor.pending
        self._finalizer = executor.settings.persistence.finalizer
        self._at_work = AtWork()
        self._index_wait = IndexWait(timeout=executor.settings.persistence.consistency_timeout)
        self._failures: dict[ObjectState, tuple[int, float]] = {}  # how many in a row, and when to try again
        self.takeover = takeover

    async def reconcile(self, state: ObjectState) -> Result:
        """Do what there is to do for an object now, and return when there will be more.

        An object may be in two caches, as a CRD gets other versions: what is done for it in one waits for the other.
        """
        if not self._at_work.begin(state):
            return DONE
        try:
            state.cache.predecessors.hand_over(state)
            for event in state.take_events():
                await self._process_event(state, event)
            if state.body is None:
                state.restore(self._daemons.changed_body(state) or self._level.find_body(state))
            if state.gone:
                result = await self._handle_gone(state)
            elif self._executor.stopping.is_set() or state.cache.retired:
                result = await self._save_last(state)
            elif state in self._failures and self._failures[state][1] > trio.current_time():
                return RequeueAt(self._failures.pop(state)[1])  # errors after a change are counted from zero
            elif self._is_outdated(state):
                result = await self._catch_up(state)
            elif state.body is not None and (until := self._index_wait.find(state)) is not None:
                result = RequeueAt(until)
            else:
                newest = self._reconcile_level if state.cache.kind.handlers.reconciles else self._reconcile_newest
                result = DONE if state.body is None else await newest(state)
        except StaleError as stale:
            self._patcher.accept(state, stale.body)
            result = AGAIN
        except Exception as error:  # noqa: BLE001 -- errors of one object do not concern the others
            return self._back_off(state, error)
        finally:
            self._at_work.end(state)
        return self._conclude(state, result)

    def _conclude(self, state: ObjectState, result: Result) -> Result:
        """Return the result of a reconcile without an error, unless more has come, and forget what is over."""
        if state in self._failures:
            del self._failures[state]
        if state.events:  # they are handled when it is the object's turn again; at once if something is unsaved
            result = AGAIN if self._progress.is_due(state) else DONE
        elif result is DONE and (state.gone or state.cache.retired or self._has_left(state)):
            self._forget(state)
        if not (state.events or isinstance(result, Again)):
            self._patcher.settle(state)
        return result

    def has_work(self, state: ObjectState) -> bool:
        """Check whether anything has come for an object since its last reconcile."""
        is_triggered = self._level.has_work(state) or self._daemons.changed_body(state) is not None
        return bool(state.events) or state.cache.retired or state in state.cache.leaving or is_triggered

    def has_failed(self, state: ObjectState) -> bool:
        """Check whether the last reconcile of an object has failed, and is to be repeated."""
        return state in self._failures or self._level.has_failed(state)

    def is_retrying(self, state: ObjectState) -> bool:
        """Check whether a handler has failed for the unfinished cause of an object, and is to be called again."""
        progress = self._progress.get(state)
        return progress is not None and any(each.message and not each.success for each in progress.states.values())

    def inspect(self, state: ObjectState) -> Handling:
        """Return what is known of the handling of an object, for people to read."""
        progress = self._progress.get(state)
        body = state.body or state.decode_newer() or self._daemons.body_of(state)
        if body is None and state.last_object is not None:
            with contextlib.suppress(msgspec.MsgspecError, ValueError):
                body = state.last_object.decode()
        return Handling(
            purpose=None if progress is None else progress.purpose,
            handlers={} if progress is None else dict(progress.states),
            daemons=tuple(self._daemons.handlers_of(state)),
            errors=self._failures[state][0] if state in self._failures else 0,
            unsaved=self.is_unsaved(state),
            body=None if body is None else dict(body),
        )

    def expedite(self, state: ObjectState) -> bool:
        """Let be due now what an object waits for: retries of handlers or reconciles. Returns whether it waits."""
        expedited = self._level.expedite(state)
        if state.body is None:
            return expedited
        self._failures.pop(state, None)
        progress = self._progress.get(state)
        if progress is not None:
            progress.expedite()
        state.requeue()
        return True

    def is_unsaved(self, state: ObjectState) -> bool:
        """Check whether something is to be stored on an object that is not stored yet."""
        return bool(self._pending.get(state)) or self._progress.is_due(state)

    def report_loop(self, state: ObjectState, *, writes: int, backoff: float) -> None:
        """Warn that an object is changed again and again by its own reconciles."""
        text = "Possible reconcile loop (%d writes in a row): backing off for %g s."
        state.make_logger().warning(text, writes, backoff)

    def _back_off(self, state: ObjectState, error: Exception) -> Result:
        """Report an error, and requeue the object with the backoff for errors in a row."""
        if isinstance(error, NotFoundError) and error.details and state in state.cache.leaving:
            self._release(state)  # it is gone, which its watch does not show
            return self._conclude(state, DONE)
        logger = state.make_logger()
        failures = self._failures[state][0] + 1 if state in self._failures else 1
        delays = list(itertools.islice(self._settings.queueing.error_delays, failures))
        fate = f"It is tried again in {delays[-1]:g} seconds." if delays else "It is handled again when it changes."
        if isinstance(error, PausedError):
            # Everything is drained now, as a rule. But a renewal may succeed in the very moment when it is too late.
            logger.debug("The object is left to another operator: %s", error)
        elif isinstance(error, NotFoundError) and failures == 1:
            # The watch will bring it if it is true: servers also say so of kinds that they do not serve just now.
            logger.debug("The object is not found, and is gone as a rule: %s. %s", error, fate)
        elif isinstance(error, TrioperatorError):
            cause = error.__cause__ if isinstance(error, UserCodeError) else None
            logger.error("The object could not be handled: %s. %s", error, fate, exc_info=cause)
        else:
            logger.error("The object could not be handled. %s", fate, exc_info=error)
        not_before = trio.current_time() + delays[-1] if delays else 0.0
        self._failures[state] = failures, not_before
        return RequeueAt(not_before) if delays else DONE

    def _forget(self, state: ObjectState) -> None:
        """Forget an object that is gone, or is not handled any more. Its daemons forget it when they have ended."""
        self._release(state)
        self._progress.forget(state)
        self._daemons.forget(state)
        self._level.forget(state)
        self.takeover.forget(state)
        state.cache.forget_left(state)
        self._failures.pop(state, None)
        self._index_wait.forget(state)

    def _has_left(self, state: ObjectState) -> bool:
        """Check whether an object has left the selector of its watch, and nothing runs for it any more."""
        return state in state.cache.leaving and not self._daemons.handlers_of(state)

    def _is_outdated(self, state: ObjectState) -> bool:
        """Check whether the newest state is older than what is known to have been done in another version of the kind.

        What is newer is on its way, as a rule. But it never comes if etcd was restored: so it is not waited for.
        """
        if state.body is None or not state.cache.kind.handlers.needs_state:
            return False
        return state.is_behind or (state.deletion_handled and has_finalizer(state.body, self._finalizer))

    async def _catch_up(self, state: ObjectState) -> Result:
        """Read an object again whose state is outdated."""
        self._patcher.touch(state)
        try:
            await self._patcher.look(state)
        except NotFoundError as error:
            if not error.details:  # its kind is not served just now
                raise
            state.release()
            return DONE
        state.caught_up(is_restored=self._is_outdated(state))
        return self._next(state)

    async def _save_last(self, state: ObjectState) -> Result:
        """Store what is not stored yet, and leave everything else to the next operator, or to another version."""
        if state.body is not None:
            try:
                await self._progress.save(state, state.make_logger())
            except NotFoundError as error:
                if not (state.cache.retired and error.details):  # a watch tells, or its kind is not served just now
                    raise
                state.make_logger().debug("Nothing is stored, as the object is gone: %s", error)
        state.release()
        return DONE

    def _release(self, state: ObjectState) -> None:
        """Leave nothing to do for an object until the next watch event."""
        state.release()
        self._progress.finish(state)
        self._pending.forget(state)

    # The first part of a reconcile: watch events.

    async def _process_event(self, state: ObjectState, event: WatchEvent) -> None:
        handlers = state.cache.kind.handlers
        try:
            body = None
            if handlers.events:
                body = event.decode()
                cause = self._causes.make_event_cause(state, body, type=event.type)
                for handler in select_event_handlers(handlers, cause):
                    await self._executor.call_event_handler(state, cause, handler)
                if handlers.needs_state or self._pending.get(state):
                    body = None  # they may have changed it: decode another
            state.advance(event, body)
        except (msgspec.MsgspecError, ValueError) as error:
            state.make_logger().error("The object cannot be read, and this state is passed over: %r", error)

    # The second part: the newest state.

    async def _reconcile_level(self, state: ObjectState) -> Result:
        """Do the next thing for the newest state of an object, and call its reconcile handlers that are due."""
        body = state.body
        result = await self._reconcile_newest(state)
        if isinstance(result, Again):
            return result
        is_released = state.body is None
        if is_released:
            state.restore(body)
        due = await self._level.run(state)
        if state.body is not body:
            return self._next(state)
        if is_released:
            state.release()
        return earlier(result, due)

    async def _reconcile_newest(self, state: ObjectState) -> Result:
        """Do the next thing for the newest state of an object."""
        handlers = state.cache.kind.handlers
        blocked = bool(handlers.spawning) and self._daemons.match(state)
        if not handlers.changes:
            return await self._reconcile_daemons(state, blocked=blocked)
        if handlers.mandatory_deletes and await self._add_finalizer(state):  # a tenth of the time of a creation
            return self._next(state)
        change = self._causes.detect_change(state, self._progress.recall)
        if change.current:
            self._progress.confirm(state)
        cause = change.cause
        blocked = blocked or requires_finalizer(handlers, cause)
        if await self._adjust_finalizer(state, cause.logger, blocked=blocked, finalized=change.finalized):
            return self._next(state)
        if self._progress.get(state) is None and not prematches_any(handlers, cause):
            return await self._store_pending(state, cause.logger)
        if cause.reason in TITLES:
            return await self._handle_cause(state, change)
        return await self._settle(state, change)

    @staticmethod
    def _next(state: ObjectState) -> Result:
        return DONE if state.body is None else AGAIN

    async def _reconcile_daemons(self, state: ObjectState, *, blocked: bool) -> Result:
        """Store what event handlers, daemons and timers want stored, where there are no handlers of changes."""
        assert state.body is not None
        handlers, is_pending = state.cache.kind.handlers, bool(self._pending.get(state))
        finalized = has_finalizer(state.body, self._finalizer)
        if not (handlers.spawning or handlers.reconciles or is_pending or finalized):  # as for most watch events
            state.release()
            return DONE
        logger, is_adjusted = state.make_logger(), bool(handlers.spawning)
        if finalized and not state.cache.retired:  # an earlier version had others; what is only looked at has others
            is_adjusted = is_adjusted or bool(handlers.reconciles) or is_deleting(state.body)
        if is_adjusted and await self._adjust_finalizer(state, logger, blocked=blocked, finalized=finalized):
            return self._next(state)
        result = await self._store_pending(state, logger)
        if handlers.spawning or handlers.reconciles:
            return result
        state.release()
        return DONE

    async def _store_pending(self, state: ObjectState, logger: Logger) -> Result:
        """Store the pending patch, if there is one."""
        before = state.body
        await self._patcher.store(state, Patch(), logger)
        if state.body is before:
            state.release()
        return self._next(state)

    async def _adjust_finalizer(self, state: ObjectState, logger: Logger, *, blocked: bool, finalized: bool) -> bool:
        """Add the finalizer where it is missing, or remove it where it is not needed. Returns whether it was so."""
        assert state.body is not None
        if blocked and not finalized and not is_deleting(state.body):
            logger.debug("Adding the finalizer, thus preventing the actual deletion.")
            await self._patcher.store(state, Patch(), logger, lambda body: add_finalizer(body, self._finalizer))
        elif finalized and not blocked:
            await self._remove_finalizer(state, Patch(), logger)
        else:
            return False
        return True

    async def _add_finalizer(self, state: ObjectState) -> bool:
        """Add the finalizer where all objects need it, whatever has happened to them. Returns whether it was so."""
        assert state.body is not None
        if has_finalizer(state.body, self._finalizer) or not state.cache.kind.handlers.finalizes_all:
            return False
        return await self._adjust_finalizer(state, state.make_logger(local=False), blocked=True, finalized=False)

    async def _remove_finalizer(self, state: ObjectState, records: Patch, logger: Logger) -> None:
        logger.debug("Removing the finalizer, thus allowing the actual deletion.")
        await self._patcher.store(state, records, logger, lambda body: remove_finalizer(body, self._finalizer))
        if state.body is not None and is_deleting(state.body):
            state.mark_deletion_handled()
            self._release(state)

    async def _settle(self, state: ObjectState, change: Change) -> Result:
        """Record that there is nothing to handle, and clean up what an unfinished cause has left."""
        cause, records = change.cause, Patch()
        if cause.reason is Reason.FREE:
            cause.logger.debug("Deletion, but we are done with it, and we do not care.")
        else:
            cause.logger.debug("Something has changed, but we are not interested (the essence is the same).")
        if self._progress.get(state) is not None:
            self._progress.purge(state, records)
        last_handled = self._progress.last_handled(state)
        handled = last_handled.settle(change.encoded)
        if handled != change.encoded:
            # A change that was taken back: the handlers that have seen it must see that, too.
            self._progress.record_handled(state, handled, records, cause.logger)
        before = state.body
        await self._patcher.store(state, records, cause.logger)
        last_handled.record(handled, change.encoded, finished=False)
        self._progress.finish(state)
        if state.body is before and handled == change.encoded:
            state.release()
        return self._next(state)

    async def _handle_cause(self, state: ObjectState, change: Change) -> Result:
        """Call the handlers of a cause that are due."""
        cause = change.cause
        if cause.reason is not Reason.RESUME and self.takeover.may_be_stale(state):
            return await self.takeover.verify(state, self._patcher)
        selected = select_handlers(state.cache.kind.handlers, cause)
        progress = self._progress.begin(state, cause, selected)
        if cause.logger.isEnabledFor(logging.DEBUG):
            report_begin(cause, [progress.states[handler.id] for handler in selected])
        nursery = _find_nursery()
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
        if state.body is None or progress is None:
            return DONE
        ended = all(progress.states[handler.id].finished for handler in selected)
        waits_for_daemons = ended and cause.reason is Reason.DELETE and self._daemons.block_deletion(state)
        if ended and not waits_for_daemons:
            await self._finish(state, change, [progress.states[handler.id] for handler in selected])
            return self._next(state)
        if state.has_newer() or execution.superseded:  # what is not saved yet is stored with what comes next
            return ONWARD if execution.progress else AGAIN
        await self._progress.save(state, cause.logger)
        if state.body is not cause.raw or self._executor.stopping.is_set():
            return self._next(state)  # a response, also to the saver, may have what others have changed
        if waits_for_daemons:
            state.release()  # it is requeued when the last one has ended
            return DONE
        wait = progress.wait(selected, now=steady_now())
        return RequeueAt(trio.current_time() + wait) if wait else AGAIN

    async def _finish(self, state: ObjectState, change: Change, states: Sequence[HandlerState]) -> None:
        """Record that a cause is handled."""
        cause, records = change.cause, Patch()
        if states:
            succeeded = sum(state.success for state in states)
            title = TITLES[cause.reason].capitalize()
            cause.logger.info("%s is processed: %d succeeded; %d failed.", title, succeeded, len(states) - succeeded)
        self._progress.purge(state, records)
        if cause.reason is Reason.DELETE:
            await self._remove_finalizer(state, records, cause.logger)
            self._progress.finish(state)
            return
        last_handled = self._progress.last_handled(state)
        handled = last_handled.finish(change.encoded)  # not cause.new: a handler may have changed what it was given
        if not (change.current and handled == change.encoded and state.body is cause.raw):  # else it is there already
            self._progress.record_handled(state, handled, records, cause.logger)
        before, is_alone = state.body, not self._pending.get(state)
        await self._patcher.store(state, records, cause.logger)
        last_handled.record(handled, change.encoded, finished=True)
        self._progress.finish(state)
        state.mark_handled()
        is_detected = before is cause.raw  # else the saver has stored something: its response may have what is new
        nothing_new = state.body is before or (is_alone and self._shows_nothing_new(state, before, records))
        if is_detected and nothing_new and handled == change.encoded:
            state.release()
        cause.logger.debug("Handling cycle is finished, waiting for new changes.")

    @staticmethod
    def _shows_nothing_new(state: ObjectState, before: Mapping[str, Any] | None, records: Patch) -> bool:
        """Check whether the response to a patch of our records is the object that was handled, as it mostly is.

        To detect that no change is left to be handled takes a sixth of the time of a creation, and gives the same.
        """
        handlers = state.cache.kind.handlers
        if before is None or state.body is None or handlers.spawning or handlers.reconciles:
            return False
        return is_result(state.body, before, records)

    # The end of an object.

    async def _handle_gone(self, state: ObjectState) -> Result:
        """Call the optional delete handlers of an object that is gone, if they were not called before."""
        self._daemons.stop(state, DaemonStoppingReason.RESOURCE_DELETED)
        handlers, logger = state.cache.kind.handlers, state.make_logger()
        is_handled = state.deletion_handled or self.takeover.was_gone(state) or _may_have_left(state)
        if handlers.optional_deletes and not is_handled and state.body is not None:
            cause = self._causes.make_deletion_cause(state)
            selected = [handler for handler in select_handlers(handlers, cause) if handler.is_optional_delete]
            progress = self._progress.begin(state, cause, selected)
            progress.plan_save(None)
            execution = Execution(self._executor, state, nursery=_find_nursery())
            await execution.run(selected, cause, self._lifecycle)
            wait = progress.wait(selected, now=steady_now())
            if wait is not None:
                return RequeueAt(trio.current_time() + wait)
        if handlers.changes:
            logger.debug("Deleted, really deleted, and we are notified.")
        return DONE


def _may_have_left(state: ObjectState) -> bool:
    """Check whether an object that is gone may exist still, without matching the selectors of the settings any more."""
    is_deleted = bool(((state.body or {}).get("metadata") or {}).get("deletionTimestamp"))
    return state.cache.kind.selected and not is_deleted


def _find_nursery() -> trio.Nursery:
    """Return the nursery of the current task, a worker: what it starts ends with the work queue at the latest."""
    nursery = trio.lowlevel.current_task().parent_nursery
    assert nursery is not None
    return nursery
