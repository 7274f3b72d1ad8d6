"""Pauses of single objects: an annotation keeps everything from being done for an object.

Theory of operation
===================

Whether an object is paused is decided by its newest state alone, so that it holds over restarts, for another leader,
and for the next owner of a shard. Work in progress when the pause comes is not lost: a handler that runs ends, daemons
and timers are stopped, and what they want is stored. Then the pause is *in effect*: it is told, by an Event and a
condition, and nothing else is written. Changes meanwhile are only remembered: the last-handled configuration on the
object is the one before the pause, and what triggers reconcile handlers stays triggered. So there is no list of what
was missed.

============================  ==========================================================================================
the newest state              what is done
============================  ==========================================================================================
is paused; something is at    daemons and timers are stopped; what is pending is stored
work
is paused; nothing is         it is told, once; what abandoned daemons still want is kept for later
is paused until a time        the same, and it is requeued at that time, or within a minute
is no longer paused           the condition is removed with the next write; the clocks of timeouts start again
is being deleted              it is not paused, unless ``settings.pausing.holds_deletion``
is gone, or has left the      it is not paused: nothing would show the end of the pause, and the finalizer would stay
selector of its watch
============================  ==========================================================================================
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import trio

from trioperator._concurrency.clock import steady_now, wall_now
from trioperator._handling.arguments.conditions import Conditions
from trioperator._handling.arguments.context import current_recorder
from trioperator._kube.status_schemas import StatusSchemas
from trioperator._model.patch import Patch
from trioperator._model.pause import Pause, format_time
from trioperator._model.references import build_object_reference
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.daemons.manager import DaemonManager
from trioperator._runtime.patching.pending import PendingPatches
from trioperator._runtime.pausing import find_current
from trioperator._runtime.progress.progress import Progress
from trioperator._runtime.progress.states import CauseProgress
from trioperator._runtime.result import AGAIN, DONE, RequeueAt, Result
from trioperator.errors import ApiError
from trioperator.settings.pausing import PausingSettings

# Seconds between looks at the wall clock, by which pauses end: it may be set forward.
_WALL_PERIOD: Final = 60.0
# Our reasons for the condition. With another reason, it belongs to somebody else.
_READABLE, _UNREADABLE = "PausedByAnnotation", "InvalidAnnotation"
_OURS: Final = (_READABLE, _UNREADABLE)
_BY: Final = "The pause"


class _Held(msgspec.Struct):
    """A paused object: what its pause is, *since* when it is noticed, on Trio's clock, and whether that is told.

    It ``is_in_effect`` when nothing is at work. Where the condition was forbidden, it is tried again at ``retry_at``.
    """

    pause: Pause
    since: float
    is_told: bool = False
    is_in_effect: bool = False
    retry_at: float = math.inf


class ObjectPauses:
    """The objects that are paused, of those that are handled here."""

    def __init__(
        self,
        settings: PausingSettings,
        schemas: StatusSchemas,
        *,
        pending: PendingPatches,
        progress: Progress,
        daemons: DaemonManager,
    ) -> None:
        self._settings = settings
        self._schemas = schemas
        self._pending = pending
        self._progress = progress
        self._daemons = daemons
        self.held: dict[ObjectState, _Held] = {}
        self._resumed: set[ObjectState] = set()

    def get(self, state: ObjectState) -> Pause | None:
        """Return the pause of an object that is paused, as far as that has been noticed."""
        return self.held[state].pause if state in self.held else None

    def list_held(self) -> Iterator[tuple[ObjectState, float]]:
        """Yield the objects that are paused, with since when that is known, on Trio's clock."""
        return ((state, held.since) for state, held in self.held.items())

    @property
    def all(self) -> Mapping[ObjectState, Pause]:
        """The objects that are paused, with their pauses."""
        return {state: held.pause for state, held in self.held.items()}

    def find(self, body: Mapping[str, Any] | None) -> Pause | None:
        """Return the pause that a state of an object is in now; None if it is in none."""
        return find_current(body, self._settings)

    async def hold(self, state: ObjectState, pause: Pause) -> Result:
        """Do nothing for a paused object but to end what is at work, and to tell that it is paused."""
        held = self.held.setdefault(state, _Held(pause, trio.current_time()))
        self._resumed.discard(state)
        self._daemons.pause(state)
        revision = state.revision
        if not held.is_in_effect or held.pause != pause or held.retry_at <= trio.current_time():
            await self._save(state, held)  # what was at work until now
            if state.revision != revision:
                return AGAIN
            if not self._daemons.has_unended(state):
                await self._tell(state, held, pause)
                await self._save(state, held)
                held.is_in_effect = True
        if state.revision != revision:
            return AGAIN
        due = min(_find_look(pause), math.inf if self._daemons.has_unended(state) else held.retry_at)
        return DONE if due == math.inf else RequeueAt(due)

    async def _save(self, state: ObjectState, held: _Held) -> None:
        """Store what is pending. If the condition is forbidden, it is not set for a while."""
        logger, resource, pending = state.make_logger(), state.cache.kind.resource, self._pending.get(state)
        has_condition = pending is not None and any(each.by == _BY for each in pending.contributions)
        try:
            await self._progress.save(state, logger)
        except ApiError as error:
            if error.status != 403 or not self._pending.withdraw(state, _BY):
                raise
            log = logger.warning if self._schemas.deny(resource) else logger.debug
            log("The condition %s cannot be set, and is tried again: %s", self._settings.condition, error)
            held.retry_at = self._schemas.find_retry(resource) or math.inf
        else:
            if has_condition:
                self._schemas.permit(resource)

    async def _tell(self, state: ObjectState, held: _Held, pause: Pause) -> None:
        """Report that an object is paused: in the log, by an Event, and in its conditions, to be stored.

        The Event is left out where a condition shows that it is told already: by an earlier process.
        """
        has_condition = await self._has_condition(state)
        logger, body = state.make_logger(), state.body
        is_told, held.pause, held.is_told = held.is_told and held.pause == pause, pause, True
        is_known, held.retry_at = is_told and held.retry_at == math.inf, math.inf
        if is_known or body is None:
            return
        level, sort = (logging.WARNING, "Warning") if pause.problem else (logging.INFO, "Normal")
        message, reason = _describe(pause), _UNREADABLE if pause.problem else _READABLE
        if not is_told:
            logger.log(level, "The object is paused%s.", f": {message}" if message else "")
        present = _find_condition(body, self._settings.condition) or {}
        if has_condition and (present.get("reason"), present.get("message")) == (reason, message):
            return
        if not is_told:
            _post(body, level, sort=sort, reason="Paused", message=message or "It is paused.")
        if not has_condition:
            held.retry_at = self._schemas.find_retry(state.cache.kind.resource) or math.inf
        elif present.get("reason") in (None, *_OURS):
            patch = Patch()
            Conditions(body, patch).set(str(self._settings.condition), True, reason=reason, message=message)
            self._schemas.claim(state.cache.kind.resource)
            self._contribute(state, patch)

    def _contribute(self, state: ObjectState, patch: Patch) -> None:
        """Schedule the condition, in place of an earlier one that may have been held for long."""
        self._pending.withdraw(state, _BY)
        self._pending.contribute(state, patch, patch.fns, by=_BY, logger=state.make_logger())

    async def _has_condition(self, state: ObjectState) -> bool:
        handlers = state.cache.kind.handlers
        if self._settings.condition is None or not (handlers.changes or handlers.reconciles):
            return False  # of other kinds, nothing but what handlers want is written to the status
        return await self._schemas.has_conditions(state.cache.kind.resource)

    def end(self, state: ObjectState, *, is_first: bool) -> bool:
        """Note that an object is not paused in its newest state. Returns whether it was before, as far as is known.

        If it *is_first*, nothing of it is known but what is on it: an earlier process may have left the condition.
        """
        assert state.body is not None
        held = self.held.pop(state, None)
        if held is not None:
            self._daemons.resume(state)
        present = _find_condition(state.body, self._settings.condition) if held is not None or is_first else None
        is_left = present is not None and present.get("status") == "True" and present.get("reason") in _OURS
        if is_left:
            patch = Patch()
            Conditions(state.body, patch).remove(str(self._settings.condition))
            self._contribute(state, patch)
        if held is None and not is_left:
            return False
        self._resumed.add(state)
        state.make_logger().info("The object is no longer paused.")
        _post(state.body, logging.INFO, sort="Normal", reason="Resumed", message="It is no longer paused.")
        return True

    def restart_clocks(self, state: ObjectState, progress: CauseProgress) -> None:
        """Let the timeouts of unfinished handlers begin again: a pause is no time in which they could be called."""
        if state in self._resumed:
            self._resumed.discard(state)
            progress.restart(steady_now())

    def forget(self, state: ObjectState) -> None:
        """Forget an object that is gone, or is no longer handled."""
        self.held.pop(state, None)
        self._resumed.discard(state)


def _find_look(pause: Pause) -> float:
    """Return when to check whether a pause is over, on Trio's clock; infinite if it has no end."""
    if pause.until is None:
        return math.inf
    return trio.current_time() + min(_WALL_PERIOD, max(0.0, (pause.until - wall_now()).total_seconds()))


def _describe(pause: Pause) -> str:
    until = "" if pause.until is None else f"until {format_time(pause.until)}"
    return ": ".join(filter(None, (until, pause.problem or pause.reason)))


def _find_condition(body: Mapping[str, Any], type: str | None) -> Mapping[str, Any] | None:
    status = body.get("status")
    found = status.get("conditions") if type and isinstance(status, Mapping) else None
    for each in found if isinstance(found, list | tuple) else ():
        if isinstance(each, Mapping) and each.get("type") == type:
            return each
    return None


def _post(body: Mapping[str, Any], level: int, *, sort: str, reason: str, message: str) -> None:
    recorder = current_recorder.get(None)
    if recorder is not None and recorder.posting.enabled and level >= recorder.posting.level:
        recorder.record(build_object_reference(body), type=sort, reason=reason, message=message)
