"""The state of the handling of one object, for people to read."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec

from trioperator._handling.calls.handler_state import HandlerState
from trioperator._handling.handlers.handler import Reason, SpawningHandler
from trioperator._runtime.daemons.manager import DaemonManager
from trioperator._runtime.error_backoff import LastError
from trioperator._runtime.object_state import ObjectState
from trioperator._runtime.progress.progress import Progress
from trioperator._runtime.progress.states import CauseProgress


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


def find_failed(progress: CauseProgress | None) -> LastError | None:
    """Return the error of a change handler that is to be called again. Its class is not known, as it is not stored."""
    for name, each in () if progress is None else progress.states.items():
        if each.message and not each.finished:
            return LastError(name, each.retries - 1, "", each.message)
    return None


def inspect_handling(
    state: ObjectState, progress: Progress, daemons: DaemonManager, *, errors: int, unsaved: bool
) -> Handling:
    """Return the state of the handling of an object. That includes a body, even if it is idle."""
    unfinished = progress.get(state)
    body = state.body or state.decode_newer() or daemons.body_of(state)
    if body is None and state.last_object is not None:
        with contextlib.suppress(msgspec.MsgspecError, ValueError):
            body = state.last_object.decode()
    return Handling(
        purpose=None if unfinished is None else unfinished.purpose,
        handlers={} if unfinished is None else dict(unfinished.states),
        daemons=tuple((handler, due) for _, handler, due in daemons.schedule(state)),
        errors=errors,
        unsaved=unsaved,
        body=None if body is None else dict(body),
    )
