"""Pending watch events: handlers of raw events are called, and the object is what the last one says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from trioperator._handling.arguments.cause import EventCause
from trioperator._handling.declaring.registry import select_matching
from trioperator._handling.handlers.handler import EventHandler
from trioperator._model.pause import Pause
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.cache.watch_event import WatchEvent
from trioperator._runtime.causes import make_cause
from trioperator._runtime.daemons.manager import DaemonManager
from trioperator._runtime.execution.execution import Executor
from trioperator._runtime.patching.contention_guard import ContentionGuard
from trioperator._runtime.pokes import Pokes
from trioperator._runtime.progress.states import CauseProgress
from trioperator._runtime.reconciler.error_backoff import ErrorBackoff
from trioperator._runtime.reconciler.handling import ReconcilesLevel
from trioperator._runtime.reconciler.incoming import Incoming
from trioperator._runtime.reconciler.pauses import ObjectPauses

# Types of events of objects that are new, or that existed before the operator.
_APPEARANCES: Final = ("ADDED", None)


class PendingEvents:
    """Processing of the pending watch events of objects, in order, and of what annotations ask for.

    While an object is paused, its handlers of raw events are not called. Then they are, once: with the first event
    afterwards, or the newest state if there is none. If the object has appeared meanwhile, the type says so.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        daemons: DaemonManager,
        level: ReconcilesLevel,
        errors: ErrorBackoff,
        pauses: ObjectPauses,
        pokes: Pokes,
        incoming: Incoming,
        guard: ContentionGuard,
    ) -> None:
        self._executor = executor
        self._daemons = daemons
        self._level = level
        self._errors = errors
        self._pauses = pauses
        self._pokes = pokes
        self._incoming = incoming
        self._guard = guard
        pausing = executor.settings.pausing
        self._marks = {name for name in (pausing.annotation, pausing.poke_annotation) if name is not None}
        self._missed: dict[ObjectState, str | None] = {}
        self._poked: set[ObjectState] = set()
        self._listed: set[ObjectState] = set()  # and paused since

    async def take(self, state: ObjectState) -> Pause | None:
        """Process the pending watch events; open the object if it is to be reconciled without any. Returns its pause.

        If it is not paused, what it waits for is made due by a poke.
        """
        if state in self._guard.watched:
            await self._guard.prepare(state)
            self._guard.observe(state)
        is_listed = await self._process(state)
        if state.body is None and (kept := self._find_body(state)):
            state.open(kept)
        if state.body is None or state.gone or state.is_outdated(self._executor.settings.persistence.finalizer):
            return None
        is_marked = self._is_marked(state.body)
        pause = self._pauses.find(state.body) if is_marked else None
        if pause is not None and state not in state.cache.leaving:  # its watch would not show the end of the pause
            if is_listed:
                self._listed.add(state)
            return pause
        if state in self._listed:
            is_listed = True
            self._listed.discard(state)
        has_conditions = is_listed and _has_conditions(state.body)  # perhaps of an earlier process
        if (has_conditions or state in self._pauses.held) and self._pauses.end(state, is_first=is_listed):
            self._level.resume(state)
        if has_conditions:
            self._guard.settle(state)
        if state in self._missed:
            event = WatchEvent("MODIFIED", state.version, body=state.body)
            await self._call_handlers(state, state.cache.kind.handlers.events, event.decode(), event.type)
        self._poked.discard(state)
        if (is_marked or state in self._pokes.taken) and self._pokes.take(state):
            self._poke(state)
        return None

    def _poke(self, state: ObjectState) -> None:
        """Make due what an object waits for, now and when its progress is read."""
        self._poked.add(state)
        self._level.poke(state)
        self._daemons.expedite(state)
        self._make_due(state)

    def has_work(self, state: ObjectState) -> bool:
        """Check whether anything has come for an object since its last reconcile."""
        is_triggered = self._level.has_work(state) or self._daemons.changed_body(state) is not None
        return bool(state.events) or state.cache.kind.retired or state in state.cache.leaving or is_triggered

    def _is_marked(self, body: Mapping[str, Any]) -> bool:
        """Check whether an object has an annotation that pauses or pokes it; few have."""
        annotations = (body.get("metadata") or {}).get("annotations")
        return annotations is not None and not self._marks.isdisjoint(annotations)

    def _find_body(self, state: ObjectState) -> Mapping[str, Any] | None:
        """Return the newest state of an idle object, if anybody who has kept it wants it to be reconciled."""
        return self._daemons.changed_body(state) or self._level.find_body(state) or self._guard.find_body(state)

    def adjust(self, state: ObjectState, progress: CauseProgress) -> None:
        """Adjust the progress of an object, which may have been read from it just now, to a poke or a pause."""
        self._pauses.restart_clocks(state, progress)
        if state in self._poked:
            self._poked.discard(state)
            progress.expedite()

    async def _process(self, state: ObjectState) -> bool:
        """Process the pending watch events, and return whether the object has come from a list."""
        is_listed = False
        for event in state.take_events():
            is_listed = is_listed or event.type is None
            try:
                body, before, kind = None, state.body, state.cache.kind
                if handlers := (kind.last_handlers if event.type == "DELETED" else kind.handlers).events:
                    body = event.decode()
                    await self._call_handlers(state, handlers, body, event.type)
                    if state.cache.kind.handlers.needs_state or self._executor.pending.get(state):
                        body = None  # they may have changed it: decode another
                state.advance(event, body)
                if state.body is None and event.version == state.version and self._executor.pending.get(state):
                    state.open(event.load())  # the echo of an own write, which was handled: its handlers want more
                if state in self._guard.watched:
                    self._guard.observe(state)
                if event.type == "MODIFIED":
                    self._incoming.note_event(state, event, before=before)
            except (msgspec.MsgspecError, ValueError) as error:
                state.make_logger().error("The object cannot be read, and this state is passed over: %r", error)
        return is_listed

    async def _call_handlers(
        self, state: ObjectState, handlers: tuple[EventHandler, ...], body: Mapping[str, Any], event_type: str | None
    ) -> None:
        """Call the handlers of raw events, unless the object is paused."""
        if event_type != "DELETED" and self._is_marked(body) and self._pauses.find(body) is not None:
            if self._missed.get(state, "MODIFIED") not in _APPEARANCES:
                self._missed[state] = event_type
            return
        missed = self._missed.pop(state, event_type)
        shown = missed if missed in _APPEARANCES and event_type != "DELETED" else event_type
        cause = make_cause(EventCause, state, body, type=shown)
        for handler in select_matching(handlers, cause):
            await self._executor.call_event_handler(state, cause, handler)

    def expedite(self, state: ObjectState) -> bool:
        """Make due now what an object waits for: retries of handlers or reconciles. Returns whether it waits."""
        expedited = self._level.expedite(state)
        if state.body is None:
            return expedited
        self._make_due(state)
        self._incoming.note_request(state)
        state.requeue(at_once=True)
        return True

    def _make_due(self, state: ObjectState) -> None:
        self._errors.forget(state)
        progress = self._executor.progress.get(state)
        if progress is not None:
            progress.expedite()

    def forget(self, state: ObjectState) -> None:
        """Forget an object that is gone, or is no longer handled."""
        self._missed.pop(state, None)
        self._poked.discard(state)
        self._listed.discard(state)
        self._pokes.forget(state)


def _has_conditions(body: Mapping[str, Any]) -> bool:
    status = body.get("status")
    return bool(status) and isinstance(status, Mapping) and "conditions" in status
