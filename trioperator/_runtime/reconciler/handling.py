"""How far objects are handled: whether they have failed, are retried or unsaved; and all of that for people to read."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from trioperator._handling.calls.handler_state import HandlerState
from trioperator._handling.handlers.handler import Reason, SpawningHandler
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.daemons.manager import DaemonManager
from trioperator._runtime.execution.execution import Executor
from trioperator._runtime.progress.states import CauseProgress
from trioperator._runtime.reconciler.error_backoff import ErrorBackoff, LastError
from trioperator._runtime.result import Result


class ReconcilesLevel(Protocol):
    """Caller of the reconcile handlers of objects. No method but ``run`` waits."""

    def find_body(self, state: ObjectState, /) -> Mapping[str, Any] | None: ...
    def has_work(self, state: ObjectState, /) -> bool: ...
    def has_failed(self, state: ObjectState, /) -> bool: ...
    def find_error(self, state: ObjectState, /) -> LastError | None: ...
    def is_due(self, state: ObjectState, /) -> bool: ...
    def expedite(self, state: ObjectState, /) -> bool: ...
    def poke(self, state: ObjectState, /) -> None: ...
    def resume(self, state: ObjectState, /) -> None: ...
    def forget(self, state: ObjectState, /) -> None: ...
    async def run(self, state: ObjectState, /) -> Result: ...


class Handling(msgspec.Struct, frozen=True, kw_only=True):
    """State of the handling of one object: its unfinished cause, if there is one, with the states of handlers.

    ``daemons`` are its daemons and timers, with when they are called next, on Trio's clock; None if they are at work.
    ``errors`` are failed reconciles in a row; ``unsaved`` is
    whether something is to be stored on it; ``body`` is its newest body, if one is kept.
    """

    purpose: Reason | None
    handlers: Mapping[str, HandlerState]
    daemons: tuple[tuple[SpawningHandler, float | None], ...]
    errors: int
    unsaved: bool
    body: Mapping[str, Any] | None


class HandlingStatus:
    """How far objects are handled, as their reconciles, change handlers, daemons and reconcile handlers have it."""

    def __init__(
        self, executor: Executor, *, daemons: DaemonManager, errors: ErrorBackoff, level: ReconcilesLevel
    ) -> None:
        self._progress, self._pending = executor.progress, executor.pending
        self._daemons = daemons
        self._errors = errors
        self._level = level

    def has_failed(self, state: ObjectState) -> bool:
        """Check whether the last reconcile of an object has failed, and is to be repeated."""
        return state in self._errors.failures or self._level.has_failed(state)

    def find_error(self, state: ObjectState) -> LastError | None:
        """Return the error after which an object is reconciled again; None if there is none."""
        last = self._errors.find_last(state) or _find_failed(self._progress.get(state))
        return last or self._level.find_error(state)

    def is_retrying(self, state: ObjectState) -> bool:
        """Check whether anything is to be tried again for an object: a reconcile, or a handler of a change."""
        if self.has_failed(state):
            return True
        progress = self._progress.get(state)
        return progress is not None and any(each.message and not each.success for each in progress.states.values())

    def is_unsaved(self, state: ObjectState) -> bool:
        """Check whether something is to be stored on an object that is not stored yet."""
        return bool(self._pending.get(state)) or self._progress.is_due(state)

    def is_over(self, state: ObjectState) -> bool:
        """Check whether an object is no longer handled here, once it is reconciled.

        It is gone, its kind is no longer handled, or it has left the selector of its watch and nothing runs for it.
        """
        has_left = state in state.cache.leaving and not self._daemons.runs_any(state)
        return state.gone or state.cache.kind.retired or has_left

    def inspect(self, state: ObjectState) -> Handling:
        """Return what is known of the handling of an object. That includes a body, even if it is idle."""
        unfinished = self._progress.get(state)
        body = state.body or state.decode_newer() or self._daemons.body_of(state)
        if body is None and state.last_object is not None:
            with contextlib.suppress(msgspec.MsgspecError, ValueError):
                body = state.last_object.decode()
        return Handling(
            purpose=None if unfinished is None else unfinished.purpose,
            handlers={} if unfinished is None else dict(unfinished.states),
            daemons=tuple((handler, due) for _, handler, due in self._daemons.schedule(state)),
            errors=self._errors.count(state),
            unsaved=self.is_unsaved(state),
            body=None if body is None else dict(body),
        )


def _find_failed(progress: CauseProgress | None) -> LastError | None:
    """Return the error of a change handler that is to be called again. Its class is not known, as it is not stored."""
    for name, each in () if progress is None else progress.states.items():
        if each.message and not each.finished:
            return LastError(name, each.retries - 1, "", each.message)
    return None
