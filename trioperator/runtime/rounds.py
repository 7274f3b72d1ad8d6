"""Rounds: the handlers of a cause that are due, called one after another, with their progress."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import trio

from trioperator.clock import wall_now
from trioperator.handling.cause import ChangeCause
from trioperator.handling.handler import ChangeHandler, Reason
from trioperator.handling.handler_state import HandlerState, later, settle, take_over
from trioperator.handling.interruption import Interruption
from trioperator.handling.invoke import Attempt
from trioperator.handling.lifecycles import Lifecycle, choose
from trioperator.handling.subhandlers import Subhandlers
from trioperator.logs import Logger
from trioperator.model.patch import preview
from trioperator.runtime.caller import Call, Caller
from trioperator.runtime.detector import Change
from trioperator.runtime.listener import Listener
from trioperator.runtime.records import Records
from trioperator.runtime.saver import Saver, Saving
from trioperator.runtime.table import Known
from trioperator.runtime.unfinished import Unfinished
from trioperator.settings import OperatorSettings

__all__ = ["TITLES", "Rounds"]

TITLES: Final[Mapping[Reason, str]] = {
    Reason.CREATE: "creation",
    Reason.UPDATE: "updating",
    Reason.DELETE: "deletion",
    Reason.RESUME: "resuming",
}

# How often in a row a handler is called anew because of news, before it may finish in spite of them.
_INTERRUPTIONS = 3


class Rounds:
    """Call handlers and keep account of how they end. Set ``stopping`` to have rounds end after the handler at work."""

    def __init__(
        self,
        *,
        caller: Caller,
        saver: Saver,
        records: Records,
        encode: Callable[[Known, Mapping[str, Any]], bytes],
        settings: OperatorSettings,
        lifecycle: Lifecycle,
    ) -> None:
        self.caller = caller
        self.encode = encode
        self.lifecycle = lifecycle
        self.write_delay = settings.persistence.write_delay
        self.backoff = settings.execution.default_backoff
        self._saver = saver
        self._records = records
        self.stopping = False

    def resume(self, known: Known, cause: ChangeCause, selected: Sequence[ChangeHandler]) -> Unfinished:
        """Go on with what is known of the progress of handlers: in this process, else on the object."""
        before = known.unfinished
        if before is None:
            _warn_of_shared_ids(selected, cause.logger)
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
            states=_with_subhandlers(take_over(selected, states, reason=cause.reason, now=wall_now()), states),
            save_at=None if before is None else before.save_at,
            interruptions={} if before is None else before.interruptions,
            seen=seen,
            also_seen=also_seen,
        )
        return known.unfinished

    async def run(self, known: Known, change: Change, handlers: Sequence[ChangeHandler]) -> None:
        """Call the handlers that are due, until the object has changed or the operator is stopping."""
        async with self._saver.open_saving(known, change.cause.logger) as saving:
            this = _Round(self, known, nursery=saving.nursery, seen=change.encoded, saving=saving)
            await this.run(handlers, change.cause, self.lifecycle)

    async def run_last(self, known: Known, cause: ChangeCause, handlers: Sequence[ChangeHandler]) -> None:
        """Call the handlers of an object that is no more: nothing is stored, and nothing can come between."""
        async with trio.open_nursery() as nursery:
            await _Round(self, known, nursery=nursery).run(handlers, cause, self.lifecycle)


def _warn_of_shared_ids(handlers: Sequence[ChangeHandler], logger: Logger) -> None:
    for name, count in collections.Counter(handler.id for handler in handlers).items():
        if count > 1:
            logger.warning(
                "%d functions are handlers with the id %r: they share one progress, so that one that has to be tried"
                " again may not be. Give each an id=... of its own.",
                count,
                name,
            )


def _with_subhandlers(states: dict[str, HandlerState], known: Mapping[str, HandlerState]) -> dict[str, HandlerState]:
    """Add what is known of the sub-handlers."""
    refs = (ref for state in states.values() for ref in state.subrefs)
    return {ref: known[ref] for ref in refs if ref in known} | states


class _Round:
    """Be one round: what is called for one state of an object, sub-handlers included.

    *seen* is the essence that the handlers see. Without *saving* the object is no more. The *nursery* is around all of
    it, for the threads of sub-handlers, whose parents may be cancelled.
    """

    def __init__(
        self,
        rounds: Rounds,
        known: Known,
        *,
        nursery: trio.Nursery,
        seen: bytes | None = None,
        saving: Saving | None = None,
    ) -> None:
        assert known.unfinished is not None
        self._rounds = rounds
        self._known = known
        self._unfinished = known.unfinished
        self._seen = seen
        self._saving = saving
        self._nursery = nursery
        self._at_work: list[str] = []
        self._interrupted = False

    async def run(self, handlers: Sequence[ChangeHandler], cause: ChangeCause, lifecycle: Lifecycle) -> None:
        """Call those of *handlers* that are due, each once, in the order and the groups of *lifecycle*."""
        states, now = self._unfinished.states, wall_now()
        left = [handler for handler in handlers if states[handler.id].is_due(now)]
        called = False
        while left:
            group = choose(lifecycle, left, state=states, kwargs=cause.kwargs, logger=cause.logger)
            if not group:
                self._put_off(left, cause)
                return
            for handler in group:
                if self._must_end(called):
                    return
                called = True
                await self._attempt(handler, cause, lifecycle)
            left = [handler for handler in left if handler not in group]

    def _must_end(self, called: bool) -> bool:
        """Tell whether to call no more handlers now: at least one sees each state, so that it goes on for ever."""
        if self._saving is None:
            return False
        return self._interrupted or self._rounds.stopping or (called and self._known.has_newer())

    def _put_off(self, handlers: Sequence[ChangeHandler], cause: ChangeCause) -> None:
        """Take note that a lifecycle wants none of the handlers now: it is asked again after a while."""
        backoff = self._rounds.backoff
        names = ", ".join(str(handler) for handler in handlers)
        cause.logger.warning("The lifecycle has chosen none of %s: they are due again in %g seconds.", names, backoff)
        until = later(wall_now(), backoff)
        for handler in handlers:
            self._move(handler, dataclasses.replace(self._unfinished.states[handler.id], delayed=until))

    async def _attempt(self, handler: ChangeHandler, cause: ChangeCause, lifecycle: Lifecycle) -> None:
        """Make one attempt of a handler, and of its sub-handlers."""
        if handler.id in self._at_work:
            raise RuntimeError(f"{handler} is executed while it is at work already.")
        state = self._unfinished.states[handler.id]
        call = Call(self._known, cause, handler)
        inner = cause.narrowed_to(handler.field)

        async def run(handlers: Sequence[ChangeHandler], *, lifecycle: Lifecycle | None) -> float | None:
            if not handler.interruptible:  # else it may still be dropped
                call.collect()
                self._show_wanted(cause)
            return await self._run_subhandlers(handlers, inner, lifecycle or own_lifecycle)

        own_lifecycle = lifecycle
        nursery = self._nursery if self._at_work else None  # only the parent's end is the end of the turn
        self._at_work.append(handler.id)
        if self._saving is not None:
            self._saving.note()
        try:
            with self._listening(handler, cause) as interruption:
                attempt = Attempt(state.retries, state.started, interruption=interruption, nursery=nursery)
                outcome = await self._rounds.caller.make(call, attempt, Subhandlers(handler, inner, run))
        finally:
            self._at_work.remove(handler.id)
        if outcome.interrupted:
            self._interrupted = True
            self._unfinished.interruptions[handler.id] = self._unfinished.interruptions.get(handler.id, 0) + 1
            return
        self._unfinished.interruptions.pop(handler.id, None)
        self._move(handler, settle(self._unfinished.states[handler.id], outcome, now=wall_now()))
        if outcome.succeeded and self._seen is not None:
            self._unfinished.note_seen(self._seen)
        self._show_wanted(cause)

    @contextlib.contextmanager
    def _listening(self, handler: ChangeHandler, cause: ChangeCause) -> Iterator[Interruption | None]:
        """Have the call in the block interrupted by news of its object, if its handler wants that: but not for ever."""
        count = self._unfinished.interruptions.get(handler.id, 0)
        if not handler.interruptible or count >= _INTERRUPTIONS:
            yield None
            return
        interruption, before = Interruption(), self._known.listener
        self._known.listener = Listener(self._known, cause, interruption, self._rounds.encode).hear
        try:
            yield interruption
        finally:
            self._known.listener = before

    def _move(self, handler: ChangeHandler, state: HandlerState) -> None:
        """Put a handler's new state on account: it is stored soon."""
        self._unfinished.states[handler.id] = state
        if self._saving is not None:
            if self._unfinished.save_at is None:
                self._unfinished.save_at = trio.current_time() + self._rounds.write_delay
            if self._at_work:  # a parent that goes on; without one, the next handler is what could keep it waiting
                self._saving.note()

    def _show_wanted(self, cause: ChangeCause) -> None:
        """Show to the later handlers what the earlier ones want stored."""
        if self._known.pending:
            cause.body._replace_raw(preview(self._known.body or cause.raw, self._known.pending))

    async def _run_subhandlers(
        self, handlers: Sequence[ChangeHandler], cause: ChangeCause, lifecycle: Lifecycle
    ) -> float | None:
        """Call sub-handlers; tell in how many seconds the next ones are due, and None when all of them have ended."""
        states = self._unfinished.states
        states.update(take_over(handlers, states, reason=cause.reason, now=wall_now()))
        ids = [handler.id for handler in handlers]
        refs = {*ids, *(ref for key in ids for ref in states[key].subrefs)}
        for parent in self._at_work:
            states[parent] = states[parent].referring(ref for ref in refs if ref.startswith(f"{parent}/"))
        await self.run(handlers, cause, lifecycle)
        now = wall_now()
        return min((states[key].wait(now) for key in ids if not states[key].finished), default=None)
