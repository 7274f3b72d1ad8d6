"""Interruption of running handlers that asked for it, when their object changes to a state that they have not seen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import trio

from trioperator._handling.arguments.cause import ChangeCause
from trioperator._handling.calls.interruption import Interruption
from trioperator._model.finalizer import is_deleting
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.cache.watch_event import WatchEvent
from trioperator._runtime.causes import Essences
from trioperator.errors import UserCodeError


class Interrupter:
    """Interrupts a call when its object is deleted, or changes to a state that the handler has not seen.

    A generation that is not newer is not a change. If it is newer, or missing, the essences are compared: the handler
    has already seen what the operator itself has stored meanwhile. Changes, but not the deletion, interrupt only a call
    that has taken longer than its *patience*, in seconds.
    """

    def __init__(
        self,
        state: ObjectState,
        cause: ChangeCause,
        interruption: Interruption,
        *,
        essences: Essences,
        patience: float = 0.0,
    ) -> None:
        self._state = state
        self._interruption = interruption
        self._essences = essences
        self._patient_until = trio.current_time() + patience if patience else -math.inf
        self._shown: Mapping[str, Any] = cause.body._raw
        self._generation = (cause.raw.get("metadata") or {}).get("generation")
        self._deleting = is_deleting(cause.raw)

    def handle(self, event: WatchEvent) -> None:
        """Take a watch event, or the response to an own write. Never raises."""
        if event.type == "DELETED":
            self._interruption.interrupt("the object is gone")
        elif event.deleting and not self._deleting:
            self._interruption.interrupt("the object is being deleted")
        elif self._is_newer(event):
            self._interruption.interrupt("the object has changed", at=self._patient_until)

    def _is_newer(self, event: WatchEvent) -> bool:
        before, after = self._generation, event.generation
        if isinstance(before, int) and isinstance(after, int):
            if event.type is None and after < before:  # a list has older objects if the cluster was restored
                self._generation = after
            elif after <= before:
                return False
        try:
            encode = self._essences.encode
            return encode(self._state, event.decode()) != encode(self._state, self._shown)
        except (msgspec.MsgspecError, ValueError, RecursionError, UserCodeError):
            return False  # it is reported when the event is handled
