"""Progress of one unfinished cause, in memory: ahead of what is stored on the object."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from trioperator._handling.calls.handler_state import HandlerState, states_for_cause
from trioperator._handling.handlers.handler import ChangeHandler, Reason


class CauseProgress:
    """States of the handlers of a cause, until all of them have ended.

    ``save_at`` is set while states are ahead of the stored ones: they are to be stored by then, on Trio's clock.
    ``recorded`` is whether anything may be stored on the object. It ``takes_marks`` of what attempts have seen, until
    one is rejected.
    """

    __slots__ = ("_interruptions", "_is_reported", "purpose", "recorded", "save_at", "states", "takes_marks")

    def __init__(
        self,
        purpose: Reason,
        states: Mapping[str, HandlerState] | None = None,
        *,
        before: CauseProgress | None = None,
        recorded: bool = True,
    ) -> None:
        self.purpose = purpose
        self.states: dict[str, HandlerState] = dict(states or {})
        self.recorded: bool = recorded if before is None else before.recorded
        self.save_at: float | None = None if before is None else before.save_at
        self.takes_marks: bool = before is None or before.takes_marks
        self._interruptions: dict[str, int] = {} if before is None else before._interruptions
        self._is_reported: bool = before is not None and before.purpose is purpose and before._is_reported

    def add_subhandlers(
        self, handlers: Sequence[ChangeHandler], *, parents: Iterable[str], now: datetime.datetime
    ) -> None:
        """Begin or resume sub-handlers, and register them with their *parents*."""
        self.states.update(states_for_cause(handlers, self.states, reason=self.purpose, now=now))
        refs = {ref for handler in handlers for ref in (handler.id, *self.states[handler.id].subrefs)}
        for parent in parents:
            own = (ref for ref in refs if ref.startswith(f"{parent}/"))
            self.states[parent] = self.states[parent].with_subrefs(own)

    def expedite(self) -> None:
        """Let the handlers that wait for another attempt be due now."""
        for handler_id, state in list(self.states.items()):
            if state.delayed is not None and not state.finished:
                self.move(handler_id, msgspec.structs.replace(state, delayed=None))

    def restart(self, now: datetime.datetime) -> None:
        """Let the timeouts of unfinished handlers begin again."""
        for handler_id, state in list(self.states.items()):
            if not state.finished:
                self.move(handler_id, msgspec.structs.replace(state, started=now))

    def move(self, handler_id: str, state: HandlerState) -> None:
        """Set the state of a handler."""
        self.states[handler_id] = state
        self._is_reported = False

    def note_report(self) -> bool:
        """Note that the end of the cause is reported. Returns False if it was since the last state was set."""
        if self._is_reported:
            return False
        self._is_reported = True
        return True

    def plan_save(self, time: float | None) -> None:
        """Set by when the states are to be stored, on Trio's clock; None: they are stored."""
        self.save_at = time
        if time is None:
            self.recorded = True

    def refuse_marks(self) -> None:
        """Store no more of what attempts have seen: there is no room for it."""
        self.takes_marks = False

    def interruptions(self, handler_id: str) -> int:
        """Return how often in a row the handler was interrupted because its object had changed."""
        return self._interruptions.get(handler_id, 0)

    def count_interruption(self, handler_id: str, *, interrupted: bool) -> None:
        """Count an interruption of the handler, or start again from zero after an attempt that was not."""
        if interrupted:
            self._interruptions[handler_id] = self.interruptions(handler_id) + 1
        else:
            self._interruptions.pop(handler_id, None)

    def wait(self, handlers: Iterable[ChangeHandler], *, now: datetime.datetime) -> float | None:
        """Return the seconds until the next of *handlers* is due; None where all of them have ended."""
        states = (self.states[handler.id] for handler in handlers)
        return min((state.seconds_until_due(now) for state in states if not state.finished), default=None)
