"""Execution: calls of the handlers of a cause that are due, one after another, with their sub-handlers and progress."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import trio

from trioperator._concurrency.clock import steady_now
from trioperator._handling.arguments.cause import ChangeCause, EventCause
from trioperator._handling.arguments.context import current_cause
from trioperator._handling.calls.handler_state import HandlerState, add_seconds, apply_outcome
from trioperator._handling.calls.interruption import Interruption
from trioperator._handling.calls.invoke import Attempt, Invoker
from trioperator._handling.declaring.subhandlers import Subhandlers, current_subhandlers
from trioperator._handling.handlers.handler import ChangeHandler, EventHandler, Reason
from trioperator._handling.handlers.lifecycles import Lifecycle, apply_lifecycle
from trioperator._handling.handlers.outcome import Outcome
from trioperator._model.body import Body
from trioperator._model.lazy_object import conserve, outline_of
from trioperator._model.patch import preview
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.cache.watch_event import WatchEvent
from trioperator._runtime.causes import CauseFactory, Essences
from trioperator._runtime.execution.handler_patch import HandlerPatch
from trioperator._runtime.execution.interrupter import Interrupter
from trioperator._runtime.execution.io_mark import IoMark
from trioperator._runtime.patching.patcher import Patcher
from trioperator._runtime.patching.pending import PendingPatches
from trioperator._runtime.patching.requests import not_found
from trioperator._runtime.pausing import is_coming
from trioperator._runtime.progress.progress import Progress
from trioperator._runtime.progress.saver import Saver
from trioperator.errors import ApiError, ConnectionLostError, LoginError
from trioperator.settings import OperatorSettings

# After so many interruptions in a row by changes of its object, a handler has so many seconds before the next one, and
# twice as many after each further one: an object that changes constantly is handled, too, and yet no handler waits
# forever for what is no longer wanted.
_INTERRUPTIONS, _PATIENCE, _MOST_DOUBLINGS = 3, 60.0, 20
_NOT_LISTENING: Final = contextlib.nullcontext()


class Executor(msgspec.Struct, frozen=True, eq=False):
    """Shared parts of executions. ``stopping`` is set when no further handlers are to be called.

    The ``lifecycle`` is the operator's, for handlers that are not sub-handlers.
    """

    invoker: Invoker
    progress: Progress
    pending: PendingPatches
    essences: Essences
    causes: CauseFactory
    patcher: Patcher
    settings: OperatorSettings
    stopping: trio.Event
    lifecycle: Lifecycle

    async def call_event_handler(self, state: ObjectState, cause: EventCause, handler: EventHandler) -> None:
        """Call a handler of raw events, once."""
        own = HandlerPatch(self.pending, state, cause, handler)
        token = current_cause.set(cause)
        try:
            attempt = Attempt(0, None, patch=own.patch, flow=state.flow, kind=cause.resource)
            kwargs = cause.kwargs_for(handler, own.patch)
            outcome = await self.invoker.invoke(handler, kwargs, attempt=attempt, logger=cause.logger)
        finally:
            current_cause.reset(token)
        own.finish(outcome.result)


class Execution:
    """Calls of handlers for one state of an object, including sub-handlers.

    *seen* is the configuration that the handlers see. Without a *saver* the object is gone, and nothing is stored.
    The *nursery* is the worker's, for the threads of sub-handlers, whose parents may be cancelled.

    Each handler sees what those before it have written, by whatever client: if one may have done I/O, the object is
    read again before the next one. If it has changed, no more handlers are called: a reconcile of the newest state
    calls those that are left. Then it is ``superseded``; there is ``progress`` if any has ended for good.
    """

    def __init__(
        self,
        executor: Executor,
        state: ObjectState,
        *,
        nursery: trio.Nursery,
        saver: Saver | None = None,
        seen: bytes | None = None,
    ) -> None:
        progress = executor.progress.get(state)
        assert progress is not None
        self._executor = executor
        self._state = state
        self._progress = progress
        self._nursery = nursery
        self._saver = saver
        self._seen = seen
        self._began = self._shown = state.revision
        self._at_work: dict[str, IoMark] = {}
        self._interrupted = False
        self.superseded = self.progress = False

    async def run(
        self,
        handlers: Sequence[ChangeHandler],
        cause: ChangeCause,
        lifecycle: Lifecycle | None = None,
        *,
        parent: HandlerPatch | None = None,
    ) -> None:
        """Call the *handlers* that are due, each once, in the order and the groups of *lifecycle*.

        The default is the operator's. They are sub-handlers if there is the patch of a *parent*.
        """
        lifecycle = self._executor.lifecycle if lifecycle is None else lifecycle
        if not self._at_work:
            self._show_pending(cause)  # of those that were called for an earlier state
        states = self._progress.states
        left = [handler for handler in handlers if _is_due(states[handler.id])]
        called = False
        while left:
            group = apply_lifecycle(lifecycle, left, state=states, kwargs=cause.kwargs, logger=cause.logger)
            if not group:
                self._postpone(left, cause)
                return
            for handler in group:
                if self._must_end(called):
                    return
                if self._is_touched() and (await self._has_changed(cause, called) or self._must_end(called)):
                    return
                called = True
                await self._attempt(handler, cause, lifecycle, parent=parent)
            # Functions with one id share its progress: the first of them may have ended it.
            left = [handler for handler in left if handler not in group and _is_due(states[handler.id])]

    def _must_end(self, called: bool) -> bool:
        """Check whether to call no more handlers now. At least one is called for each state, to make progress.

        Where the object is being paused, none is: not even the first sub-handler.
        """
        if self._saver is None:
            return False
        is_outdated = self._state.has_newer() if called else self._state.has_vanished()
        is_left = is_outdated or self._interrupted or self._executor.stopping.is_set()
        return is_left or is_coming(self._state, self._executor.settings.pausing)

    def _is_touched(self) -> bool:
        """Check whether handlers may have written to the object by other means than their patches."""
        return self._saver is not None and self._executor.patcher.is_touched(self._state)

    async def _has_changed(self, cause: ChangeCause, called: bool) -> bool:
        """Check whether the object has changed since the handlers were selected, by what they have written themselves.

        A parent is not called again for what does not matter to its sub-handlers: they are shown the newest state.
        """
        state = self._state
        try:
            await self._executor.patcher.look(state)
        except (ApiError, ConnectionLostError, LoginError) as error:
            if not self._at_work:
                raise
            # The parent has not failed: it is called again when the object can be read.
            cause.logger.debug("Sub-handlers wait until the object can be read: %s", error)
            return True
        if not self._at_work or state.body is None:
            self.superseded = state.revision != self._began
        elif state.revision != self._shown:
            self._shown = state.revision
            cause.body._replace_raw(state.body)
            self._show_pending(cause)
            self.superseded = called and self._executor.essences.encode(state, state.body) != self._seen
        return self.superseded

    def _postpone(self, handlers: Sequence[ChangeHandler], cause: ChangeCause) -> None:
        """Make the handlers due later, as the lifecycle has chosen none of them."""
        backoff = self._executor.settings.execution.default_backoff
        names = ", ".join(str(handler) for handler in handlers)
        cause.logger.warning("The lifecycle has chosen none of %s: they are due again in %g seconds.", names, backoff)
        until = add_seconds(steady_now(), backoff)
        for handler in handlers:
            self._move(handler, msgspec.structs.replace(self._progress.states[handler.id], delayed=until))

    async def _attempt(
        self, handler: ChangeHandler, cause: ChangeCause, lifecycle: Lifecycle, *, parent: HandlerPatch | None
    ) -> None:
        own, state = self._make_patch(handler, cause, parent), self._progress.states[handler.id]
        subhandlers = self._make_subhandlers(own, cause, handler, lifecycle)
        nursery = self._nursery if self._at_work else None  # the outermost one ends with the reconcile
        mark = self._begin(handler, cause)
        tokens = current_cause.set(cause), current_subhandlers.set(subhandlers)
        try:
            interruption = Interruption() if handler.interruptible else None
            with self._listening(handler, cause, interruption):
                attempt = Attempt(
                    state.retries,
                    state.started,
                    after=subhandlers.finish,
                    patch=own.patch,
                    interruption=interruption,
                    nursery=nursery,
                    flow=self._state.flow,
                    kind=cause.resource,
                    find_end=None if self._saver is None else self._state.find_end,
                )
                subhandlers.begin()
                kwargs = cause.kwargs_for(handler, own.patch)
                outcome = await self._executor.invoker.invoke(handler, kwargs, attempt=attempt, logger=cause.logger)
        finally:
            current_subhandlers.reset(tokens[1])
            current_cause.reset(tokens[0])
            del self._at_work[handler.id]
            own.expire()
            cause.rest()
            self._note_io(handler, mark)
        self._finish(handler, cause, own, outcome)

    def _begin(self, handler: ChangeHandler, cause: ChangeCause) -> IoMark:
        """Begin an attempt: while it runs, due progress of earlier ones is stored."""
        if handler.id in self._at_work:
            raise RuntimeError(f"{handler} is executed while it is at work already.")
        self._at_work[handler.id] = mark = IoMark()
        if self._seen is not None and cause.reason is Reason.UPDATE:  # what it begins is to be taken back if that is
            self._executor.progress.last_handled(self._state).attempt(self._seen)
        if self._saver is not None:
            self._saver.notify()
        return mark

    def _note_io(self, handler: ChangeHandler, *since: IoMark) -> None:
        """Note that the object has to be read again if a handler may have done I/O since any of these moments."""
        if not handler.is_async or any(map(IoMark.is_past, since)):
            self._executor.patcher.touch(self._state)

    def _make_patch(self, handler: ChangeHandler, cause: ChangeCause, parent: HandlerPatch | None) -> HandlerPatch:
        store = functools.partial(self._store, cause)
        own = HandlerPatch(self._executor.pending, self._state, cause, handler, store=store)
        if parent is not None and self._executor.settings.inherit_patches:
            own.inherit(parent)
        return own

    def _finish(self, handler: ChangeHandler, cause: ChangeCause, own: HandlerPatch, outcome: Outcome) -> None:
        """Take the outcome of an attempt into the progress. The patch of an interrupted one is dropped."""
        self._progress.count_interruption(handler.id, interrupted=outcome.interrupted)
        if outcome.final and self._seen is not None:
            self._executor.progress.last_handled(self._state).see(self._seen)
        if outcome.interrupted:
            self._interrupted = True
            if outcome.delay:  # not stored: nothing can be, as others may have taken over
                due = add_seconds(steady_now(), outcome.delay)
                self._progress.move(handler.id, msgspec.structs.replace(self._progress.states[handler.id], delayed=due))
            return
        own.finish(outcome.result)
        self._move(handler, apply_outcome(self._progress.states[handler.id], outcome, now=steady_now()))
        self.progress = self.progress or outcome.final
        self._show_pending(cause)

    def _make_subhandlers(
        self, own: HandlerPatch, cause: ChangeCause, handler: ChangeHandler, lifecycle: Lifecycle
    ) -> Subhandlers:
        inner, default = cause.narrowed_to(handler.field), lifecycle

        async def run(handlers: Sequence[ChangeHandler], *, lifecycle: Lifecycle | None) -> float | None:
            if not handler.interruptible:  # else what it wants may still be dropped
                own.contribute()
                self._show_pending(cause)
            self._note_io(handler, *self._at_work.values())
            self._progress.add_subhandlers(handlers, parents=self._at_work, now=steady_now())
            await self.run(handlers, inner, lifecycle or default, parent=own)
            return self._progress.wait(handlers, now=steady_now())

        return Subhandlers(handler, inner, run)

    def _listening(
        self, handler: ChangeHandler, cause: ChangeCause, interruption: Interruption | None
    ) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the deletion of the object interrupts the handler, and so do its changes."""
        if interruption is None:
            return _NOT_LISTENING
        many = self._progress.interruptions(handler.id) - _INTERRUPTIONS
        patience = 0.0 if many < 0 else _PATIENCE * 2 ** min(many, _MOST_DOUBLINGS)
        essences = self._executor.essences
        interrupter = Interrupter(self._state, cause, interruption, essences=essences, patience=patience)
        return self._state.listening(interrupter.handle)

    def _move(self, handler: ChangeHandler, state: HandlerState) -> None:
        """Set a handler's new state, to be stored soon."""
        self._progress.move(handler.id, state)
        if self._saver is not None:
            if self._progress.save_at is None:
                self._progress.plan_save(trio.current_time() + self._executor.settings.persistence.write_delay)
            if self._at_work:  # a parent that goes on; without one, the next handler notifies
                self._saver.notify()

    async def _store(self, cause: ChangeCause, own: HandlerPatch) -> Body:
        """Store the patch of a running handler, and return the new body."""
        own.release()
        if self._saver is not None and self._executor.pending.get(self._state):
            expected = self._preview(cause.body._raw)
            await self._wait_stored(self._saver, cause)
            cause.body._replace_raw(self._state.body or cause.raw)
            self._note_other(cause.body._raw, expected)
            self._show_pending(cause)
        else:
            await trio.lowlevel.checkpoint()
        return cause.body

    async def _wait_stored(self, saver: Saver, cause: ChangeCause) -> None:
        """Wait until what is pending is stored. Raises NotFoundError if the object is gone, or goes meanwhile."""
        pending, state = self._executor.pending, self._state

        def note(event: WatchEvent) -> None:
            if event.type == "DELETED":
                pending.forget(state)

        stored = pending.wait_for(state)
        with state.listening(note):
            saver.notify()
            await stored.wait()
        if stored.dropped:
            raise not_found(cause.raw)

    def _note_other(self, body: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
        """Note that a running handler sees what others have changed: that may be taken back before it ends."""
        other = self._executor.essences.find_other(self._state, body, expected=expected)
        if other is not None and self._seen is not None and other != self._seen:
            self._executor.progress.last_handled(self._state).see(other)

    def _show_pending(self, cause: ChangeCause) -> None:
        """Show the later handlers what the earlier ones want stored."""
        if self._executor.pending.get(self._state):
            cause.body._replace_raw(self._preview(self._state.body or cause.raw))

    def _preview(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        pending = self._executor.pending.get(self._state)
        return conserve(preview(outline_of(body), pending), like=body) if pending else body


def _is_due(state: HandlerState) -> bool:
    """Check whether the next attempt is due; without the time, which few have to wait for."""
    return not state.finished if state.delayed is None else state.is_due(steady_now())


def find_nursery() -> trio.Nursery:
    """Return the nursery of the current task, a worker: what it starts ends with the work queue at the latest."""
    nursery = trio.lowlevel.current_task().parent_nursery
    assert nursery is not None
    return nursery
