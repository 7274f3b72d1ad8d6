"""Execution: calls of the handlers of a cause that are due, one after another, with their sub-handlers and progress."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import trio

from trioperator.clock import wall_now
from trioperator.handling.cause import ChangeCause, EventCause, ObjectCause
from trioperator.handling.context import current_cause
from trioperator.handling.handler import ChangeHandler, EventHandler, ResourceHandler
from trioperator.handling.handler_state import HandlerState, add_seconds, apply_outcome, build_result_patch
from trioperator.handling.interruption import Interruption
from trioperator.handling.invoke import Attempt, Invoker
from trioperator.handling.lifecycles import Lifecycle, apply_lifecycle
from trioperator.handling.outcome import Outcome
from trioperator.handling.storing import StorablePatch, make_patch
from trioperator.handling.subhandlers import Subhandlers, current_subhandlers
from trioperator.model.body import Body
from trioperator.model.patch import Patch, merge_patches, preview
from trioperator.runtime.cache import ObjectState
from trioperator.runtime.causes import Essences
from trioperator.runtime.interrupter import Interrupter
from trioperator.runtime.patching.pending import PendingPatches
from trioperator.runtime.progress.progress import Progress
from trioperator.runtime.progress.saver import Saver
from trioperator.runtime.result import Result
from trioperator.settings import OperatorSettings

__all__ = ["Execution", "Executor", "ReconcilesLevel"]

# How often in a row a handler is interrupted by changes of its object, before it may finish in spite of them.
_INTERRUPTIONS = 3
# What a handler has contributed at first.
_NOTHING = Patch()


class HandlerPatch:
    """The patch of one attempt of a handler: what it contributes to the pending patch of its object.

    With *store*, the handler can have that stored before it ends.
    """

    def __init__(
        self,
        pending: PendingPatches,
        state: ObjectState,
        cause: ObjectCause,
        handler: ResourceHandler,
        *,
        store: Callable[[HandlerPatch], Awaitable[Body]] | None = None,
    ) -> None:
        self.patch = Patch() if store is None else make_patch(lambda: store(self), is_async=handler.is_async)
        self._pending = pending
        self._state = state
        self._cause = cause
        self._handler = handler
        self._contributed = _NOTHING

    def contribute(self) -> None:
        """Contribute what the handler wants so far: what comes later is contributed at its end."""
        try:
            plain = msgspec.json.decode(msgspec.json.encode(self.patch))
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            return  # this is reported at the end
        self._contribute(plain)
        self._contributed = Patch(plain, fns=self.patch.fns)

    def release(self) -> None:
        """Contribute what the handler wants so far, and begin anew."""
        self._contribute(self.patch)
        self._contributed = _NOTHING
        self.patch.clear()

    def expire(self) -> None:
        """Note that the handler has ended, or was abandoned."""
        if isinstance(self.patch, StorablePatch):
            self.patch.expire()

    def finish(self, result: Any) -> None:
        """Contribute what the handler wants, with its *result*, and was not contributed before."""
        if result is None and not self.patch:
            return
        try:
            wanted = merge_patches(self.patch, build_result_patch(result, handler_id=self._handler.id))
        except Exception as error:  # noqa: BLE001 -- any mapping of the user's
            logger = self._cause.logger
            logger.error("%s has a result or a patch that cannot be read, and it is dropped: %r", self._handler, error)
            wanted = {}
        self._contribute(wanted)

    def _contribute(self, wanted: Mapping[str, Any]) -> None:
        wanted = _added(self._contributed, wanted)
        fns = self.patch.fns[len(self._contributed.fns) :]
        if wanted or fns:
            self._pending.contribute(self._state, wanted, fns, by=str(self._handler), logger=self._cause.logger)


class Executor(msgspec.Struct, frozen=True, eq=False):
    """What executions share. ``stopping`` is set when no further handlers are to be called."""

    invoker: Invoker
    progress: Progress
    pending: PendingPatches
    essences: Essences
    settings: OperatorSettings
    stopping: trio.Event

    async def call_event_handler(self, state: ObjectState, cause: EventCause, handler: EventHandler) -> None:
        """Call a handler of raw events, once."""
        own = HandlerPatch(self.pending, state, cause, handler)
        token = current_cause.set(cause)
        try:
            attempt = Attempt(retry=0, started=wall_now(), patch=own.patch, flow=state.flow)
            kwargs = cause.kwargs_for(handler, own.patch)
            outcome = await self.invoker.invoke(handler, kwargs, attempt=attempt, logger=cause.logger)
        finally:
            current_cause.reset(token)
        own.finish(outcome.result)


class ReconcilesLevel(Protocol):
    """What calls the reconcile handlers of objects, as the reconciler uses it. No method but ``run`` waits."""

    def find_body(self, state: ObjectState, /) -> Mapping[str, Any] | None: ...
    def has_work(self, state: ObjectState, /) -> bool: ...
    def has_failed(self, state: ObjectState, /) -> bool: ...
    def expedite(self, state: ObjectState, /) -> bool: ...
    def forget(self, state: ObjectState, /) -> None: ...
    async def run(self, state: ObjectState, /) -> Result: ...


class Execution:
    """Calls of handlers for one state of an object, those of sub-handlers included.

    *seen* is the configuration that the handlers see. Without a *saver* the object is gone, and nothing is stored.
    The *nursery* is the worker's, for the threads of sub-handlers, whose parents may be cancelled.
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
        self._at_work: list[str] = []
        self._interrupted = False

    async def run(self, handlers: Sequence[ChangeHandler], cause: ChangeCause, lifecycle: Lifecycle) -> None:
        """Call those of *handlers* that are due, each once, in the order and the groups of *lifecycle*."""
        states, now = self._progress.states, wall_now()
        left = [handler for handler in handlers if states[handler.id].is_due(now)]
        called = False
        while left:
            group = apply_lifecycle(lifecycle, left, state=states, kwargs=cause.kwargs, logger=cause.logger)
            if not group:
                self._postpone(left, cause)
                return
            for handler in group:
                if self._must_end(called):
                    return
                called = True
                await self._attempt(handler, cause, lifecycle)
            left = [handler for handler in left if handler not in group]

    def _must_end(self, called: bool) -> bool:
        """Check whether to call no more handlers now. At least one is called for each state, to make progress."""
        if self._saver is None:
            return False
        return self._interrupted or self._executor.stopping.is_set() or (called and self._state.has_newer())

    def _postpone(self, handlers: Sequence[ChangeHandler], cause: ChangeCause) -> None:
        """Make the handlers due later, as the lifecycle has chosen none of them."""
        backoff = self._executor.settings.execution.default_backoff
        names = ", ".join(str(handler) for handler in handlers)
        cause.logger.warning("The lifecycle has chosen none of %s: they are due again in %g seconds.", names, backoff)
        until = add_seconds(wall_now(), backoff)
        for handler in handlers:
            self._move(handler, msgspec.structs.replace(self._progress.states[handler.id], delayed=until))

    async def _attempt(self, handler: ChangeHandler, cause: ChangeCause, lifecycle: Lifecycle) -> None:
        """Make one attempt of a handler, and of its sub-handlers."""
        if handler.id in self._at_work:
            raise RuntimeError(f"{handler} is executed while it is at work already.")
        own = self._make_patch(handler, cause)
        subhandlers = self._make_subhandlers(own, cause, handler, lifecycle)
        # Only the end of the outermost handler is the end of the reconcile.
        nursery = self._nursery if self._at_work else None
        self._at_work.append(handler.id)
        if self._saver is not None:
            self._saver.notify()
        tokens = current_cause.set(cause), current_subhandlers.set(subhandlers)
        try:
            interruption = self._make_interruption(handler)
            with self._listening(cause, interruption):
                attempt = Attempt(
                    self._progress.states[handler.id].retries,
                    self._progress.states[handler.id].started,
                    after=subhandlers.finish,
                    patch=own.patch,
                    interruption=interruption,
                    nursery=nursery,
                    flow=self._state.flow,
                )
                subhandlers.begin()
                kwargs = cause.kwargs_for(handler, own.patch)
                outcome = await self._executor.invoker.invoke(handler, kwargs, attempt=attempt, logger=cause.logger)
        finally:
            current_subhandlers.reset(tokens[1])
            current_cause.reset(tokens[0])
            self._at_work.remove(handler.id)
            own.expire()
        self._finish(handler, cause, own, outcome)

    def _make_patch(self, handler: ChangeHandler, cause: ChangeCause) -> HandlerPatch:
        store = functools.partial(self._store, cause)
        return HandlerPatch(self._executor.pending, self._state, cause, handler, store=store)

    def _finish(self, handler: ChangeHandler, cause: ChangeCause, own: HandlerPatch, outcome: Outcome) -> None:
        """Take the outcome of an attempt into the progress. What an interrupted one wanted stored is dropped."""
        self._progress.count_interruption(handler.id, interrupted=outcome.interrupted)
        if outcome.interrupted:
            self._interrupted = True
            return
        own.finish(outcome.result)
        self._move(handler, apply_outcome(self._progress.states[handler.id], outcome, now=wall_now()))
        if outcome.succeeded and self._seen is not None:
            self._executor.progress.last_handled(self._state).see(self._seen)
        self._show_pending(cause)

    def _make_subhandlers(
        self, own: HandlerPatch, cause: ChangeCause, handler: ChangeHandler, lifecycle: Lifecycle
    ) -> Subhandlers:
        inner, default = cause.narrowed_to(handler.field), lifecycle

        async def run(handlers: Sequence[ChangeHandler], *, lifecycle: Lifecycle | None) -> float | None:
            if not handler.interruptible:  # else what it wants may still be dropped
                own.contribute()
                self._show_pending(cause)
            self._progress.add_subhandlers(handlers, parents=self._at_work, now=wall_now())
            await self.run(handlers, inner, lifecycle or default)
            return self._progress.wait(handlers, now=wall_now())

        return Subhandlers(handler, inner, run)

    def _make_interruption(self, handler: ChangeHandler) -> Interruption | None:
        """Return an interruption if changes of the object shall interrupt the handler: but not for ever."""
        if not handler.interruptible or self._progress.interruptions(handler.id) >= _INTERRUPTIONS:
            return None
        return Interruption()

    def _listening(
        self, cause: ChangeCause, interruption: Interruption | None
    ) -> contextlib.AbstractContextManager[None]:
        """Return a context in which changes of the object cause the interruption, if there is one."""
        if interruption is None:
            return contextlib.nullcontext()
        interrupter = Interrupter(self._state, cause, interruption, essences=self._executor.essences)
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
        """Store what a handler wants while it runs, and return the new body."""
        own.release()
        if self._saver is not None and self._executor.pending.get(self._state):
            stored = self._executor.pending.wait_for(self._state)
            self._saver.notify()
            await stored.wait()
            cause.body._replace_raw(self._state.body or cause.raw)
            self._show_pending(cause)
        else:
            await trio.lowlevel.checkpoint()
        return cause.body

    def _show_pending(self, cause: ChangeCause) -> None:
        """Show the later handlers what the earlier ones want stored."""
        if pending := self._executor.pending.get(self._state):
            cause.body._replace_raw(preview(self._state.body or cause.raw, pending))


def _added(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the merge patch *after* has that *before* has not."""
    added: dict[str, Any] = {}
    for key, value in after.items():
        if isinstance(value, Mapping) and isinstance(before.get(key), Mapping):
            inner = _added(before[key], value)
            if inner:
                added[key] = inner
        elif key not in before or before[key] != value:
            added[key] = value
    return added
