"""Rounds: the handlers of a cause that are due, called one after another, with their progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import trio

from trioperator.clock import wall_now
from trioperator.handling.cause import ChangeCause
from trioperator.handling.handler import ChangeHandler, Reason
from trioperator.handling.invoke import Attempt
from trioperator.handling.settle import settle, take_over
from trioperator.model.patch import apply_merge
from trioperator.runtime.caller import Caller
from trioperator.runtime.detector import Change
from trioperator.runtime.records import Records
from trioperator.runtime.saver import Saver
from trioperator.runtime.table import Known, Unfinished

__all__ = ["TITLES", "Rounds"]

TITLES: Final[Mapping[Reason, str]] = {
    Reason.CREATE: "creation",
    Reason.UPDATE: "updating",
    Reason.DELETE: "deletion",
    Reason.RESUME: "resuming",
}


class Rounds:
    """Call handlers and keep account of how they end. Set ``stopping`` to have rounds end after the handler at work."""

    def __init__(self, *, caller: Caller, saver: Saver, records: Records, write_delay: float) -> None:
        self._caller = caller
        self._saver = saver
        self._records = records
        self._write_delay = write_delay
        self.stopping = False

    def resume(self, known: Known, cause: ChangeCause, selected: Sequence[ChangeHandler]) -> Unfinished:
        """Go on with what is known of the progress of handlers: in this process, else on the object."""
        before = known.unfinished
        if before is None:
            states, seen = self._records.recall(known, cause.body)
            also_seen = None
        else:
            states, seen, also_seen = before.states, before.seen, before.also_seen
            if before.purpose is not cause.reason:
                title, newer = TITLES[before.purpose].capitalize(), TITLES[cause.reason]
                cause.logger.info("%s is superseded by %s.", title, newer)
                # What was taken back is no reason to forget that somebody has seen it.
                if cause.reason is not Reason.RESUME:
                    seen = also_seen = None
        known.unfinished = Unfinished(
            purpose=cause.reason,
            states=take_over(selected, states, reason=cause.reason, now=wall_now()),
            save_at=None if before is None else before.save_at,
            seen=seen,
            also_seen=also_seen,
        )
        return known.unfinished

    async def run(self, known: Known, change: Change, handlers: Sequence[ChangeHandler]) -> None:
        """Call handlers one after another, until the object has changed or the operator is stopping."""
        cause = change.cause
        for index, handler in enumerate(handlers):
            if self.stopping or (index and known.has_newer()):
                return
            unfinished = known.unfinished
            if unfinished is None:
                return
            state = unfinished.states[handler.id]
            attempt = Attempt(retry=state.retries, started=state.started)
            if unfinished.save_at is None and known.background is None:
                outcome = await self._caller.call(known, cause, handler=handler, attempt=attempt)
            else:
                async with self._saver.open_saving(known, cause.logger):
                    outcome = await self._caller.call(known, cause, handler=handler, attempt=attempt)
            unfinished.states[handler.id] = settle(state, outcome, now=wall_now())
            if unfinished.save_at is None:
                unfinished.save_at = trio.current_time() + self._write_delay
            if outcome.succeeded:
                unfinished.note_seen(change.encoded)
            if known.pending:
                cause.body._replace_raw(apply_merge(known.body or cause.raw, known.pending))

    async def run_last(self, known: Known, cause: ChangeCause, handlers: Sequence[ChangeHandler]) -> None:
        """Call handlers of an object that is no more: nothing is stored, and nothing can come between."""
        unfinished = known.unfinished
        assert unfinished is not None
        for handler in handlers:
            state = unfinished.states[handler.id]
            attempt = Attempt(retry=state.retries, started=state.started)
            outcome = await self._caller.call(known, cause, handler=handler, attempt=attempt)
            unfinished.states[handler.id] = settle(state, outcome, now=wall_now())
