"""Progress of handlers: in memory for each object, and stored on the object no later than it is due."""

from __future__ import annotations

import collections
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from trioperator._concurrency.clock import steady_now
from trioperator._handling.arguments.cause import ChangeCause
from trioperator._handling.calls.handler_state import HandlerState, states_for_cause
from trioperator._handling.handlers.handler import ChangeHandler, Reason
from trioperator._logs import Logger
from trioperator._model.body import Body
from trioperator._model.patch import Patch
from trioperator._runtime.cache.kind import Memory
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.causes import TITLES
from trioperator._runtime.patching.contention_guard import HeldError
from trioperator._runtime.patching.patcher import Patcher
from trioperator._runtime.patching.sending import is_invalid
from trioperator._runtime.progress.last_handled import LastHandled
from trioperator._runtime.progress.records import RecordStore
from trioperator._runtime.progress.states import CauseProgress
from trioperator.errors import ApiError


class Progress:
    """Progress of the handling of objects, for as long as they are in the cache."""

    def __init__(self, records: RecordStore, patcher: Patcher) -> None:
        self._records = records
        self._patcher = patcher
        self._unfinished: dict[ObjectState, CauseProgress] = {}
        self._last_handled: dict[ObjectState, LastHandled] = {}

    def get(self, state: ObjectState) -> CauseProgress | None:
        """Return the progress of the unfinished cause of an object, if there is one."""
        return self._unfinished.get(state)

    def last_handled(self, state: ObjectState) -> LastHandled:
        """Return what is known of the last-handled configuration of an object."""
        found = self._last_handled.get(state)
        if found is None:
            found = self._last_handled[state] = LastHandled()
        return found

    def recall(self, state: ObjectState, stored: Mapping[str, Any] | None, current: bytes) -> Mapping[str, Any] | None:
        """Return the last-handled configuration of an object: the *stored* one, else the one in memory."""
        found = self._last_handled.get(state)
        if found is not None and found.is_recorded and state.initial:
            found.rewind()
            return stored
        return stored if found is None else found.recall(stored, current)

    def is_withheld(self, state: ObjectState) -> bool:
        """Check whether it must not be stored yet that the last cause of an object was handled."""
        found = self._last_handled.get(state)
        return found is not None and found.is_withheld

    def confirm(self, state: ObjectState) -> None:
        """Note that the current configuration of an object is stored on it as the last-handled one."""
        if state in self._last_handled:
            self._last_handled[state].confirm()

    def is_due(self, state: ObjectState) -> bool:
        """Check whether states of handlers are to be stored that are not stored yet."""
        progress = self._unfinished.get(state)
        return progress is not None and progress.save_at is not None

    def begin(self, state: ObjectState, cause: ChangeCause, selected: Sequence[ChangeHandler]) -> CauseProgress:
        """Begin the progress of a cause, from what is known of its handlers: in memory, else on the object."""
        before, last_handled = self._unfinished.get(state), self.last_handled(state)
        recorded, states = False, dict[str, HandlerState]()
        if before is None:
            _warn_of_shared_ids(selected, cause.logger)
            recorded = self._records.may_exist(cause.body)
            found = recorded and not last_handled.is_withheld  # else they are of a cause whose handlers have all ended
            states, seen = self._records.fetch(state, cause.body) if found else (states, ())
            _take_up(last_handled, seen, states, reason=cause.reason)
            if cause.initial:
                _forget_resumed(state, selected, states)
        else:
            states = before.states
            if before.purpose is not cause.reason:
                title, newer = TITLES[before.purpose].capitalize(), TITLES[cause.reason]
                cause.logger.info("%s is superseded by %s.", title, newer)
                if cause.reason is not Reason.RESUME:  # what was taken back was still seen
                    last_handled.supersede()
        taken = states_for_cause(selected, states, reason=cause.reason, now=steady_now())
        progress = CauseProgress(cause.reason, _with_subhandlers(taken, states), before=before, recorded=recorded)
        self._unfinished[state] = progress
        return progress

    def take_up(self, state: ObjectState, body: Body) -> bool:
        """Take up what is stored of a cause that is over: it began before a pause, or with another owner of the shard.

        Returns whether anything is stored that is to be removed.
        """
        last_handled = self.last_handled(state)
        if last_handled.is_recorded:
            return self._records.are_left(body)  # the response to an earlier write was lost
        if not self._records.may_exist(body):
            return False
        states, seen = self._records.fetch(state, body)
        last_handled.resume(seen)
        return bool(states or seen)

    def finish(self, state: ObjectState) -> None:
        """Forget the progress of a cause whose handlers have all ended."""
        if self._unfinished.pop(state, None) is not None:
            self._last_handled[state].supersede()

    def forget(self, state: ObjectState) -> None:
        """Forget everything about an object that is gone, or is no longer handled."""
        self._unfinished.pop(state, None)
        self._last_handled.pop(state, None)

    async def save(self, state: ObjectState, logger: Logger) -> None:
        """Store the states of handlers that are not stored yet, together with the pending patch.

        If none are, what an attempt has seen that has not ended is stored: it may end with this process.
        """
        if state.body is None:
            return
        records, progress = Patch(), self._unfinished.get(state)
        if progress is None or progress.save_at is None:
            await self._save_pending(state, progress, logger)
            return
        save_at = progress.save_at
        progress.plan_save(None)
        if state.initial:
            _note_resumed(state, progress.states)
        try:
            seen = self.last_handled(state).to_store
            self._records.store(state, progress.states, seen=seen, body=Body(state.body), patch=records)
            await self._patcher.store(state, records, logger, instead=functools.partial(self.mark_seen, state))
        except BaseException:
            progress.plan_save(save_at)
            raise

    async def _save_pending(self, state: ObjectState, progress: CauseProgress | None, logger: Logger) -> None:
        """Store the pending patch, with what an attempt has seen that has not ended, if there is room for that."""
        mark = Patch() if progress is None or not progress.takes_marks else self.mark_seen(state)
        if progress is None or not mark:
            await self._patcher.store(state, Patch(), logger)
            return
        progress.plan_save(None)
        try:
            await self._patcher.store(state, mark, logger, instead=lambda: mark)
        except HeldError:
            pass  # the mark is stored all the same
        except ApiError as error:
            if not is_invalid(error):
                raise
            progress.refuse_marks()

    def mark_seen(self, state: ObjectState) -> Patch:
        """Return what is stored where records are held: what handlers have seen, so that they see it taken back.

        The object may be changed back to what is recorded on it while no operator runs.
        """
        assert state.body is not None
        return self._records.make_mark(state, self.last_handled(state).to_store, body=Body(state.body))

    def mark_missed(self, state: ObjectState, missed: bytes, records: Patch) -> None:
        """Store what some handler has seen last although it is not what is recorded as handled, by a patch."""
        assert state.body is not None
        self._records.store_seen(state, [missed], body=Body(state.body), patch=records)

    def purge(self, state: ObjectState, records: Patch) -> None:
        """Remove the stored states of handlers, by a patch."""
        assert state.body is not None
        progress = self._unfinished.get(state)
        if progress is not None and not progress.recorded:
            return
        states: Mapping[str, HandlerState] = {} if progress is None else progress.states
        self._records.purge(state, states, body=Body(state.body), patch=records)

    def record_handled(
        self,
        state: ObjectState,
        configuration: bytes,
        records: Patch,
        logger: Logger,
        *,
        essence: dict[str, Any] | None = None,
    ) -> None:
        """Record a configuration as the last-handled one: by a patch, or in memory where somebody removes it.

        *essence* is the configuration, decoded, where it is known not to be stored on the object.
        """
        assert state.body is not None
        last_handled, body = self.last_handled(state), Body(state.body)
        if last_handled.is_kept:
            last_handled.keep(configuration)
            return
        is_digested = self._records.record_handled(state, configuration, body=body, patch=records, essence=essence)
        if is_digested and not last_handled.is_withheld:  # else it has been said, and is tried again
            logger.warning(
                "The last-handled configuration is too big for annotations, and is stored as digests: of big fields it"
                " is known that they have changed, but not from what."
            )


def _take_up(
    last_handled: LastHandled, seen: Sequence[bytes], states: Mapping[str, HandlerState], *, reason: Reason
) -> None:
    """Take up what handlers have seen, as it was stored with their states.

    If none of them has ended, another cause has, whose configuration is not the one that was recorded.
    """
    is_over = not any(state.finished for state in states.values()) and reason is not Reason.RESUME
    last_handled.resume(() if is_over or _is_superseded(states, by=reason) else seen)
    if is_over and seen:
        last_handled.miss(seen[0])


def _is_superseded(states: Mapping[str, HandlerState], *, by: Reason) -> bool:
    """Check whether stored states are of a cause that another one takes over. What was taken back was still seen."""
    purposes = {state.purpose for state in states.values()}
    return by is not Reason.RESUME and bool(purposes) and purposes.isdisjoint({None, by.value})


def _note_resumed(state: ObjectState, states: Mapping[str, HandlerState]) -> None:
    """Remember which resume handlers have ended, as their records count only in this life of the operator."""
    resuming = (handler.id for handler in state.cache.kind.last_handlers.changes if handler.initial)
    ended = frozenset(key for key in resuming if key in states and states[key].finished)
    if not ended <= state.remember().resumed:
        state.inherit(Memory(memo=None, initial=True, resumed=ended))


def _forget_resumed(state: ObjectState, selected: Sequence[ChangeHandler], states: dict[str, HandlerState]) -> None:
    """Let resume handlers start over that have ended in a former life of the operator, or in another replica."""
    for handler in selected:
        found = states.get(handler.id) if handler.initial else None
        if found is not None and found.finished and handler.id not in state.remember().resumed:
            states[handler.id] = HandlerState(started=steady_now(), purpose=found.purpose, subrefs=found.subrefs)
            for ref in found.subrefs:
                states.pop(ref, None)


def _warn_of_shared_ids(handlers: Sequence[ChangeHandler], logger: Logger) -> None:
    if len(handlers) < 2 or len({handler.id for handler in handlers}) == len(handlers):
        return
    for name, count in collections.Counter(handler.id for handler in handlers).items():
        if count > 1:
            logger.warning(
                "%d functions are handlers with the id %r: they share one progress, so that some may not be called, or"
                " not be tried again. Give each an id=... of its own.",
                count,
                name,
            )


def _with_subhandlers(states: dict[str, HandlerState], known: Mapping[str, HandlerState]) -> dict[str, HandlerState]:
    if not known:
        return states
    refs = (ref for state in states.values() for ref in state.subrefs)
    return {ref: known[ref] for ref in refs if ref in known} | states
