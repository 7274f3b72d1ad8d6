"""Listening to the stream while a handler is at work, for those that want to begin anew when their object changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from trioperator.handling.cause import ChangeCause
from trioperator.handling.interruption import Interruption
from trioperator.model.finalizer import is_deleting
from trioperator.runtime.table import Known, Notice

__all__ = ["Listener"]


class Listener:
    """Interrupt a call when its object is deleted, or is changed to what the handler has not been shown.

    A generation that is not newer is no change; where it is newer, or there is none, the essences are compared: for
    what the operator itself has stored meanwhile was shown already.
    """

    def __init__(
        self,
        known: Known,
        cause: ChangeCause,
        interruption: Interruption,
        encode: Callable[[Known, Mapping[str, Any]], bytes],
    ) -> None:
        self._known = known
        self._interruption = interruption
        self._encode = encode
        self._shown: Mapping[str, Any] = dict(cause.body)
        self._generation = (cause.raw.get("metadata") or {}).get("generation")
        self._deleting = is_deleting(cause.raw)

    def hear(self, notice: Notice) -> None:
        """Take note of what the stream, or an answer to a request, says of the object. It never raises."""
        if notice.type == "DELETED":
            self._interruption.interrupt("the object is gone")
        elif notice.deleting and not self._deleting:
            self._interruption.interrupt("the object is being deleted")
        elif self._is_newer(notice):
            self._interruption.interrupt("the object has changed")

    def _is_newer(self, notice: Notice) -> bool:
        before, after = self._generation, notice.generation
        if isinstance(before, int) and isinstance(after, int) and after <= before:
            return False
        try:
            return self._encode(self._known, notice.decode()) != self._encode(self._known, self._shown)
        except (msgspec.MsgspecError, ValueError):
            return False  # it is reported when the notice is taken
