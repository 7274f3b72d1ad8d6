"""Whether objects are paused now, or by what is on its way to their next reconcile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trioperator._concurrency.clock import wall_now
from trioperator._model.finalizer import is_deleting
from trioperator._model.pause import Pause, find_annotation, parse_pause
from trioperator._runtime.cache.object_state import ObjectState
from trioperator.errors import PausedError
from trioperator.settings.pausing import PausingSettings


def find_current(body: Mapping[str, Any] | None, settings: PausingSettings) -> Pause | None:
    """Return the pause that a state of an object is in now; None if it is in none."""
    value = None if body is None else find_annotation(body, settings.annotation)
    if body is None or value is None:
        return None
    pause = parse_pause(value)
    if pause is None or pause.is_over(wall_now()):
        return None
    return None if is_deleting(body) and not settings.holds_deletion else pause


def is_coming(state: ObjectState, settings: PausingSettings) -> bool:
    """Check whether a pause is on its way to the next reconcile, while something is being done for an object.

    It comes by a watch event, or by the response to an own write, which may have been sent after the pause.
    """
    return find_current(state.decode_newer() or state.body, settings) is not None


def check_pause(state: ObjectState, settings: PausingSettings) -> None:
    """Raise PausedError if a pause is on its way, so that nothing more is to be written for the object."""
    if is_coming(state, settings):
        raise PausedError("it is paused by its annotation")
