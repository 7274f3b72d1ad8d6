"""Completion of causes: what is recorded when all handlers have ended, or there are none.

What is recorded as handled decides what the next change is compared with: see :class:`LastHandled`. It is usually the
current configuration. If it is not, the difference is on purpose: the object is reconciled again at once, and finds it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from trioperator._handling.arguments.cause import ChangeCause
from trioperator._handling.calls.handler_state import HandlerState
from trioperator._handling.handlers.handler import Reason
from trioperator._logs import Logger
from trioperator._model.lazy_object import outline_of
from trioperator._model.patch import Patch, is_result
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.causes import TITLES, Change
from trioperator._runtime.patching.contention_guard import HeldError
from trioperator._runtime.patching.patcher import Patcher
from trioperator._runtime.patching.pending import PendingPatches
from trioperator._runtime.patching.sending import is_invalid
from trioperator._runtime.progress.progress import Progress
from trioperator._runtime.reconciler.finalizers import Finalizers
from trioperator._runtime.result import AGAIN, DONE, Result
from trioperator.errors import ApiError


class Completion:
    """Recording of causes as handled, together with the pending patch."""

    def __init__(
        self, progress: Progress, *, patcher: Patcher, pending: PendingPatches, finalizers: Finalizers
    ) -> None:
        self._progress = progress
        self._patcher = patcher
        self._pending = pending
        self._finalizers = finalizers

    async def settle(self, state: ObjectState, change: Change) -> Result:
        """Record that there is nothing to handle, and clean up what an unfinished cause has left."""
        cause, records = change.cause, Patch()
        if cause.reason is Reason.FREE:
            cause.logger.debug("Deletion, but we are done with it, and we do not care.")
            self._finalizers.report_former(cause.raw, cause.logger)
        else:
            cause.logger.debug("Something has changed, but we are not interested (the essence is the same).")
            self._report_others(state, change)
        last_handled = self._progress.last_handled(state)
        is_known = self._progress.get(state) is not None or last_handled.is_withheld or last_handled.is_missed
        if is_known or (cause.reason is Reason.NOOP and self._progress.take_up(state, cause.body)):
            self._progress.purge(state, records)
        handled = last_handled.settle(change.encoded)
        if handled != change.encoded or last_handled.is_withheld:
            # The change was reverted: handlers that have seen it must see the reversal, too.
            self._progress.record_handled(state, handled, records, cause.logger)
        stored = await self._record(state, change, handled, records, finished=False)
        self._progress.finish(state)
        # If nothing was stored, the record is only in memory, and its difference still has to be handled.
        return DONE if stored is None and handled == change.encoded else AGAIN

    def _report_others(self, state: ObjectState, change: Change) -> None:
        """Warn if a cause is recorded as handled by somebody else: its handlers are not called again."""
        progress = self._progress.get(state)
        is_change = progress is not None and progress.purpose is not Reason.CREATE
        if progress is None or (is_change and not self._progress.last_handled(state).has_other(change.encoded)):
            return  # the change was taken back
        if left := " and ".join(name for name, each in progress.states.items() if not each.finished):
            change.cause.logger.warning(
                "%s is recorded as handled by somebody else, before %s has finished, which is not called again. If"
                " another operator handles these objects, it needs another prefix and finalizer.",
                TITLES[progress.purpose].capitalize(),
                left,
            )

    async def finish(self, state: ObjectState, change: Change, states: Sequence[HandlerState]) -> Result:
        """Record that a cause is handled, whose handlers have ended with these states."""
        cause, records = change.cause, Patch()
        progress = self._progress.get(state)
        if states and (progress is None or progress.note_report()):  # once, however often it has to be stored
            _report_end(cause, states)
        self._progress.purge(state, records)
        if cause.reason is Reason.DELETE:
            result = await self._finalizers.remove(state, records, cause.logger)
            self._progress.finish(state)
            return result
        # The saver may have stored something since, and its response may contain changes by others.
        is_detected = state.revision == change.revision
        last_handled = self._progress.last_handled(state)
        is_resumed = cause.reason is Reason.RESUME  # others have handled the current configuration before
        # By change.encoded, not cause.new: a handler may have changed what it was given.
        handled = last_handled.settle(change.encoded) if is_resumed else last_handled.finish(change.encoded)
        if not (change.current and handled == change.encoded and is_detected):  # else it is there already
            is_new = is_detected and handled == change.encoded and not last_handled.is_withheld
            essence = cause.new if is_new and type(cause.new) is dict else None
            self._progress.record_handled(state, handled, records, cause.logger, essence=essence)
        is_alone = not self._pending.get(state)
        stored = await self._record(state, change, handled, records, finished=not is_resumed)
        self._progress.finish(state)
        state.mark_handled()
        cause.logger.debug("Handling cycle is finished, waiting for new changes.")
        is_known = stored is None or (is_alone and _shows_only(records, stored, state, before=cause.raw))
        return DONE if is_detected and is_known and handled == change.encoded else AGAIN

    async def _record(
        self, state: ObjectState, change: Change, handled: bytes, records: Patch, *, finished: bool
    ) -> Mapping[str, Any] | None:
        """Store the pending patch and records, with what handlers miss by them, and return the response."""
        last_handled = self._progress.last_handled(state)
        missed = last_handled.find_missed(handled, change.encoded, finished=finished)
        if missed is not None:
            self._progress.mark_missed(state, missed, records)
        record = functools.partial(last_handled.record, handled, change.encoded, finished=finished)
        try:
            stored, is_held = await self._store(state, records, change.cause.logger)
        except ApiError as error:
            if is_invalid(error):  # annotations are full, say: what comes next is handled
                record(withheld=True)
                self._progress.finish(state)
                state.mark_handled()
            raise
        record(withheld=is_held)
        return stored

    async def _store(self, state: ObjectState, records: Patch, logger: Logger) -> tuple[Mapping[str, Any] | None, bool]:
        """Store the pending patch and records, and return the response, and whether the records are held."""
        revision = state.revision
        try:
            instead = functools.partial(self._progress.mark_seen, state)
            return await self._patcher.store(state, records, logger, instead=instead), False
        except HeldError:
            return None if state.revision == revision else state.body, True


def _report_end(cause: ChangeCause, states: Sequence[HandlerState]) -> None:
    """Log how a cause has ended. After a restart, that is what the records of the handlers say, for each object."""
    succeeded = [each.success for each in states].count(True)
    is_routine = cause.reason is Reason.RESUME and succeeded == len(states)
    title, log = TITLES[cause.reason].capitalize(), cause.logger.debug if is_routine else cause.logger.info
    log("%s is processed: %d succeeded; %d failed.", title, succeeded, len(states) - succeeded)


def _shows_only(records: Patch, stored: Mapping[str, Any], state: ObjectState, *, before: Mapping[str, Any]) -> bool:
    """Check whether a response is what our records have made of the object that was handled, as it mostly is.

    To detect once more that no change is left takes a sixth of the time of a creation, and gives the same. Daemons,
    timers and reconcile handlers are to see the response itself.
    """
    handlers = state.cache.kind.handlers
    return not (handlers.spawning or handlers.reconciles) and is_result(outline_of(stored), outline_of(before), records)
