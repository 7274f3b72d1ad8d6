"""Causes of reconciles, for the ledger: watch events since the last reconcile, or why else an object is due."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from trioperator._handling.arguments.cause import ChangeCause
from trioperator._handling.handlers.handler import Reason
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.cache.watch_event import WatchEvent
from trioperator._runtime.ledger import Ledger, Run, current_run
from trioperator._runtime.patching.pending import PendingPatches


class Incoming:
    """Notes in the ledger why objects are reconciled, and what has changed."""

    def __init__(
        self,
        ledger: Ledger,
        pending: PendingPatches,
        is_resync: Callable[[ObjectState], bool],
        is_retry: Callable[[ObjectState], bool],
    ) -> None:
        self._ledger = ledger
        self._pending = pending
        self._is_resync = is_resync
        self._is_retry = is_retry
        self._newer: set[ObjectState] = set()

    def begin(self, state: ObjectState) -> Run:
        """Begin the run of a reconcile, with why it is made: what has come, the oldest first, else why it is due."""
        ledger, events = self._ledger, state.events
        causes = ledger.take_causes(state.uid) if ledger.noted else []
        if events:
            for event in events:
                causes.append((event.type or ("start" if state.initial else "listed"), event.version))
        elif not causes:
            pending = self._pending.get(state)
            if pending:
                causes = [("patch", contribution.by) for contribution in pending.contributions]
            else:
                causes = [(self._name_due(state), None)]
        self._newer.discard(state)
        return ledger.begin(state, causes)

    def note_newer(self, state: ObjectState) -> None:
        """Note that a reconcile has led to a newer state, usually by an own write: that is why the next one is made."""
        self._newer.add(state)

    def forget(self, state: ObjectState) -> None:
        """Forget an object that is gone, or is no longer handled."""
        self._newer.discard(state)

    def _name_due(self, state: ObjectState) -> str:
        if state in self._newer:
            return "own write"
        if self._is_retry(state):
            return "retry"
        return "resync" if self._is_resync(state) else "due"

    def note_request(self, state: ObjectState) -> None:
        """Note that somebody has asked for a reconcile."""
        self._ledger.note_cause(state.uid, "requested")

    def note_event(self, state: ObjectState, event: WatchEvent, *, before: Mapping[str, Any] | None) -> None:
        """Note what a watch event of a change has changed, as far as the state before is known."""
        if state.body is None:
            return
        run = current_run.get(None)
        if run is None or run.began <= self._ledger.found_after:
            return
        if before is None and event.previous is not None:
            with contextlib.suppress(msgspec.MsgspecError, ValueError):
                before = event.previous.decode()
        if before is not None or not state.cache.kind.handlers.changes:  # else the last-handled configuration tells
            self._ledger.note_change(run, before, state.body)

    def note_update(self, cause: ChangeCause) -> None:
        """Note what has changed since the last-handled configuration, if a watch event has brought that just now."""
        if cause.reason is not Reason.UPDATE:
            return
        run = current_run.get(None)
        if run is None or run.began <= self._ledger.found_after:
            return
        if run.changes or type(run.causes[-1][1]) is not int:
            return
        old, new, differences = cause.given()  # which the handlers get next: to decode large ones takes long
        managed = cause.raw.get("metadata")
        self._ledger.note_change(run, old, new or {}, managed=managed, differences=differences)
