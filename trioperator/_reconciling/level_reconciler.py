"""Level-triggered reconciling of objects: which reconcile handlers are due, their calls, and what they want.

A call sees the newest state and nothing else: it matters what is, not what has happened. So changes that come together
are one call, and nothing need be stored of what has been done.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import trio

from trioperator._concurrency.clock import steady_now
from trioperator._handling.arguments.conditions import Conditions
from trioperator._handling.arguments.context import current_cause
from trioperator._handling.arguments.reconciling import ReconcileCause, ReconcileHandler
from trioperator._handling.calls.invoke import Attempt
from trioperator._handling.calls.storable import check_storable
from trioperator._handling.declaring.registry import select_matching
from trioperator._handling.guard import forget_frames
from trioperator._handling.handlers.children import Desired
from trioperator._handling.handlers.outcome import Outcome, check_limits, describe
from trioperator._kube.api_client import ApiClient
from trioperator._logs.context import current_handler
from trioperator._model.body import Body
from trioperator._model.finalizer import is_deleting
from trioperator._model.patch import Patch
from trioperator._reconciling.applying import Applier, collect_children
from trioperator._reconciling.failures import ChildrenError, find_contended, name_error, reason_of
from trioperator._reconciling.kstatus import StatusReporter
from trioperator._reconciling.related import RelatedRecord, Target
from trioperator._reconciling.reporting import is_news, log_failure, make_report, post_failure, set_condition
from trioperator._reconciling.schedules import HandlerSchedule, ObjectSchedule, Report
from trioperator._reconciling.watches import RelatedWatches
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.causes import make_cause
from trioperator._runtime.execution.execution import Executor
from trioperator._runtime.execution.handler_patch import HandlerPatch
from trioperator._runtime.execution.io_mark import IoMark
from trioperator._runtime.patching.contention_guard import ContentionGuard
from trioperator._runtime.pausing import check_pause, is_coming
from trioperator._runtime.reconciler.error_backoff import LastError
from trioperator._runtime.result import AGAIN, DONE, RequeueAt, Result
from trioperator.errors import ConfigError, PausedError

# Seconds after which a forbidden request is retried at the latest: no event tells that rights were granted.
_MAX_DENIAL: Final = 30.0
_FORBIDDEN: Final = "Forbidden"

_Key = TypeVar("_Key")


class _Call(NamedTuple):
    """A call of a reconcile handler for an object."""

    state: ObjectState
    cause: ReconcileCause
    handler: ReconcileHandler
    schedule: HandlerSchedule


class LevelReconciler:
    """Calls reconcile handlers for objects, and makes the children what they return.

    It knows the objects for which that has begun. Related objects trigger them; all others are called anyway, as soon
    as they are reconciled for the first time.
    """

    def __init__(
        self,
        executor: Executor,
        watches: RelatedWatches,
        client: ApiClient,
        *,
        status: StatusReporter,
        guard: ContentionGuard,
    ) -> None:
        self._executor = executor
        self._watches = watches
        self._status = status
        self._guard, self._ledger = guard, guard.ledger
        self._schedules: dict[ObjectState, ObjectSchedule] = {}
        self._uids: dict[str, set[ObjectState]] = {}  # several if an object is watched in several versions
        self._applier = Applier(client, watches, guard.ledger, handled=self._uids)
        self._names: dict[Target, set[ObjectState]] = {}
        self._triggered: set[ObjectState] = set()
        self._waiting: set[ObjectState] = set()  # for the lists of related kinds
        self._blocked: set[ObjectState] = set()  # by others' objects that have the names of children
        watches.triggers.append(self)

    def close(self) -> None:
        """Stop being triggered by related objects."""
        self._watches.triggers.remove(self)

    # The interface of the reconciler.

    def find_body(self, state: ObjectState) -> Mapping[str, Any] | None:
        """Return the newest state of an object that has reconcile handlers, though its body was released."""
        found = state.last_object if state in self._schedules else None
        return None if found is None else found.load()

    def has_work(self, state: ObjectState) -> bool:
        """Check whether anything has triggered an object since its last reconcile."""
        return state in self._triggered

    def has_failed(self, state: ObjectState) -> bool:
        """Check whether a reconcile handler has failed for an object, and is to be called again."""
        return state in self._schedules and self._schedules[state].has_failed

    def find_error(self, state: ObjectState) -> LastError | None:
        """Return the error after which a reconcile handler is called for an object again; None if there is none."""
        for handler, schedule in self._schedules[state].list_failed() if state in self._schedules else ():
            error = schedule.error
            if error is not None:
                return LastError(handler.id, schedule.failures - 1, name_error(error), describe(error))
        return None

    def is_due(self, state: ObjectState) -> bool:
        """Check whether it is time to call reconcile handlers for an object again."""
        due = self._schedules[state].due if state in self._schedules else None
        return due is not None and due <= trio.current_time()

    def expedite(self, state: ObjectState) -> bool:
        """Let be due now what is due later for an object. Returns whether there can be anything."""
        if state not in self._schedules:
            return False
        self._schedules[state].expedite()
        self._requeue(state, "requested")
        return True

    def poke(self, state: ObjectState) -> None:
        """Let all handlers be due for an object that is being reconciled."""
        if state in self._schedules:
            self._schedules[state].trigger(self._schedules[state].handlers)

    def resume(self, state: ObjectState) -> None:
        """Let the timeouts of handlers that have failed begin again, as they were not called during a pause."""
        for schedule in self._schedules.get(state, ()):
            schedule.started = None

    def forget(self, state: ObjectState) -> None:
        """Forget an object that is gone, is being deleted, or is no longer handled."""
        if self._schedules.pop(state, None) is None:
            return
        self._guard.forget_children(state)
        _discard(self._uids, state.uid, state)
        _discard(self._names, Target(state.namespace or "", state.name), state)
        for states in (self._triggered, self._waiting, self._blocked):
            states.discard(state)

    async def run(self, state: ObjectState) -> Result:
        """Call the reconcile handlers that are due for the newest state of an object, and store what they want."""
        body, revision = state.body, state.revision
        assert body is not None
        if is_deleting(body):
            self.forget(state)
            return DONE
        if self._executor.stopping.is_set():
            return DONE
        schedule = self._begin(state)
        cause = make_cause(ReconcileCause, state, body)
        digest = self._executor.essences.digest(state, body)
        for handler, own in schedule.match(select_matching(state.cache.kind.handlers.reconciles, cause)).items():
            if not own.is_due(digest, trio.current_time()):
                continue
            if not self._watches.is_complete(handler, state.namespace):
                self._wait(_Call(state, cause, handler, own))
                continue
            await self._executor.patcher.look(state)
            if state.revision != revision or state.has_vanished() or self._must_end(state):
                break  # what others before it have written may matter to this handler
            own.begin(digest, steady_now(), at=trio.current_time())
            schedule.reported = None  # compared again after a call: others may have removed the conditions
            await self._call(_Call(state, cause, handler, own))
        self._follow(state, schedule)
        await self._guard.note_children(state, find_contended(own.error for own in schedule))
        await self._status.report(state, cause, schedule, digest)
        await self._status.store(state, self._executor.patcher, schedule, cause.logger)
        if state.revision != revision:  # by this, by a handler that stored meanwhile, or as it was read again
            return AGAIN
        return DONE if schedule.due is None else RequeueAt(schedule.due)

    def _wait(self, call: _Call) -> None:
        """Call a handler when its children can be known; say so on the object if that may take long."""
        obstacle = self._watches.find_obstacle(call.handler, call.state.namespace)
        call.schedule.wait(None if obstacle is None else Report("progressing", *obstacle))
        self._waiting.add(call.state)
        if obstacle is not None:
            self._contribute_condition(call)

    def _must_end(self, state: ObjectState) -> bool:
        """Check whether to call no more handlers for an object: the operator stops, or the object is being paused."""
        return self._executor.stopping.is_set() or is_coming(state, self._executor.settings.pausing)

    def _begin(self, state: ObjectState) -> ObjectSchedule:
        self._triggered.discard(state)
        self._waiting.discard(state)
        self._blocked.discard(state)
        schedule = self._schedules.get(state)
        if schedule is None:
            schedule = self._schedules[state] = ObjectSchedule()
            self._uids.setdefault(state.uid, set()).add(state)
            self._names.setdefault(Target(state.namespace or "", state.name), set()).add(state)
        return schedule

    def _follow(self, state: ObjectState, schedule: ObjectSchedule) -> None:
        """Note which events elsewhere call the handlers of an object again."""
        if any(own.children.blocked for own in schedule):
            self._blocked.add(state)
        if any(own.children.unserved for own in schedule):
            self._waiting.add(state)

    # Calls of one handler.

    async def _call(self, call: _Call) -> None:
        """Call a handler, and apply the children that it returns."""
        state, cause, handler, schedule = call
        store = functools.partial(self._store, call)
        own = HandlerPatch(self._executor.pending, state, cause, handler, store=store, repeats=True)
        tokens = current_cause.set(cause), current_handler.set(handler.id)
        try:
            kwargs, attempt = self._prepare(call, own)
            mark = IoMark()
            try:
                outcome = await self._executor.invoker.invoke(handler, kwargs, attempt=attempt, logger=cause.logger)
            finally:
                if not handler.is_async or mark.is_past():
                    self._executor.patcher.touch(state)
            self._status.note(handler, own.patch, kwargs["conditions"])
            if not outcome.interrupted:
                own.finish(None)
            if outcome.succeeded and isinstance(outcome.result, Desired):
                outcome = await self._apply(call, outcome.result)
        except PausedError:
            schedule.wait()
            raise
        except Exception as error:  # noqa: BLE001 -- whatever it is, the handler is due again
            outcome = self._fail(call, error)
        finally:
            current_cause.reset(tokens[0])
            current_handler.reset(tokens[1])
            own.expire()
        self._report(call, outcome)
        schedule.end(handler, outcome, now=trio.current_time())

    def _prepare(self, call: _Call, own: HandlerPatch) -> tuple[Mapping[str, Any], Attempt]:
        """Return the arguments of a call, and its attempt."""
        state, cause, handler, schedule = call
        assert schedule.started is not None

        async def check() -> None:
            check_storable(own.patch, None)  # the result is not stored

        attempt = Attempt(
            schedule.failures,
            schedule.started,
            after=check,
            flow=state.flow,
            kind=cause.resource,
            backoff=_delay_after(handler, schedule, schedule.error),  # what was forbidden before may be so again
            reports_success=False,
            is_news=functools.partial(is_news, schedule),
            find_end=state.find_end,
        )
        children = collect_children(self._watches, handler, cause)
        conditions = Conditions(self._executor.pending.preview(state, cause.body), own.patch)
        own_kwargs = {"children": children, "conditions": conditions, "last_error": schedule.error}
        return cause.kwargs_with(handler, own.patch, own_kwargs), attempt

    async def _store(self, call: _Call, own: HandlerPatch) -> Body:
        """Store the patch of a running handler, and return the new body."""
        state, cause, _, schedule = call
        own.release()
        expected = self._executor.pending.preview(state, cause.body._raw)
        await self._executor.patcher.store(state, Patch(), cause.logger)
        cause.body._replace_raw(state.body or cause.raw)
        if self._executor.essences.find_other(state, cause.body._raw, expected=expected) is not None:
            schedule.triggered = True  # what others have changed may be taken back before it ends
        return cause.body

    async def _apply(self, call: _Call, desired: Desired) -> Outcome:
        """Apply the children that a handler has returned, and return the outcome of the whole call."""
        state, cause, handler, schedule = call
        if desired.keep:
            return Outcome(final=True, result=desired)
        if desired.silent and handler.owns:
            raise ConfigError(f"{handler} {desired.silent}")
        if not self._watches.is_complete(handler, state.namespace):
            return Outcome(final=False, interrupted=True)  # a kind is gone meanwhile: it is waited for
        handlers, whole = state.cache.kind.handlers.reconciles, self._schedules[state]
        check = functools.partial(check_pause, state, self._executor.settings.pausing)
        prune = functools.partial(
            self._applier.pruner.prune, handlers, cause=cause, schedule=whole, own=schedule, check=check
        )
        try:
            await self._applier.apply(desired, handler, cause=cause, schedule=schedule, check=check)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{handler} has returned what cannot be sent: {describe(error)}") from error
        except ChildrenError:
            children = schedule.children
            if children.settled or children.released:  # others may move here, perhaps in exchange for these
                await prune()
            raise
        await prune()
        return Outcome(final=True, result=desired)

    def _fail(self, call: _Call, error: Exception) -> Outcome:
        """Log that returned children could not be applied, and return the outcome of the call."""
        state, cause, handler, schedule = call
        assert schedule.started is not None
        final = isinstance(error, ConfigError)
        delay = _delay_after(handler, schedule, error)
        if isinstance(error, ChildrenError):
            delay = max(delay, error.due - trio.current_time())
        refused = check_limits(
            handler, retry=schedule.failures + 1, runtime=(steady_now() - schedule.started).total_seconds() + delay
        )
        outcome = Outcome(final=final or refused is not None, error=error, delay=delay)
        log_failure(handler, outcome, schedule=schedule, cause=cause, end=state.find_end())
        return outcome

    def _report(self, call: _Call, outcome: Outcome) -> None:
        """Report the result of a call on the object, and to the next call."""
        state, cause, handler, schedule = call
        if outcome.interrupted:
            schedule.report = None
            return
        if outcome.error is not None:
            post_failure(cause, outcome.error)
        elif schedule.failures:
            cause.logger.info("%s succeeded.", handler)
        schedule.report = make_report(outcome, schedule)
        self._contribute_condition(call)
        if schedule.error is not None and outcome.error is None and "last_error" in handler.signature.names:
            schedule.triggered = True  # it is to see that the error is over
            self._requeue(state, "error over")
        schedule.error = outcome.error
        forget_frames(outcome.error)

    def _contribute_condition(self, call: _Call) -> None:
        """Set the condition of a handler that has one, as it was reported last."""
        own = HandlerPatch(self._executor.pending, call.state, call.cause, call.handler)
        set_condition(call.handler, call.schedule.report, cause=call.cause, patch=own.patch)
        own.finish(None)

    # Triggers by related objects.

    def trigger_owner(self, uid: str, handlers: Collection[ReconcileHandler], *, namespace: str, source: str) -> None:
        """Call handlers for an object by its uid, as a child in a namespace has changed."""
        for state in self._uids.get(uid, ()):
            if state.namespace and state.namespace != namespace:
                continue  # an object of another namespace is no child, whatever it says
            if self._schedules[state].trigger(handlers):
                self._requeue(state, "child", source)

    def trigger_target(self, target: Target, handlers: Collection[ReconcileHandler], *, source: str) -> None:
        """Call handlers for an object by its name, as a mapper has named it."""
        for state in self._names.get(target, ()):
            if self._schedules[state].trigger(handlers):
                self._requeue(state, "watched", source)

    def trigger_all(self, handlers: Collection[ReconcileHandler], *, source: str) -> None:
        """Call handlers for all objects, as it is not known which of them a change concerns."""
        for state, schedule in self._schedules.items():
            if schedule.trigger(handlers):
                self._requeue(state, "watched", source)

    def trigger_blocked(self, record: RelatedRecord) -> None:
        """Call handlers again for which an object was in the way that is gone."""
        for state in list(self._blocked):
            if self._schedules[state].unblock(record.namespace, record.name):
                self._requeue(state, "unblocked", record.name)

    def trigger_waiting(self) -> None:
        """Call handlers that wait for lists or namespaces: a list is complete, or is no longer needed."""
        for state in list(self._waiting):
            self._schedules[state].retry_unserved()
            self._requeue(state, "listed")

    def _requeue(self, state: ObjectState, why: str, source: str | None = None) -> None:
        self._ledger.note_cause(state.uid, why, source)
        self._triggered.add(state)
        state.requeue()


def _delay_after(handler: ReconcileHandler, schedule: HandlerSchedule, error: BaseException | None) -> float:
    """Return the delay in seconds after a failure of the call that has begun, with an error such as this one."""
    delay = schedule.get_backoff(handler)
    is_denied = handler.backoff is None and error is not None and reason_of(error) == _FORBIDDEN
    return min(delay, _MAX_DENIAL) if is_denied else delay


def _discard(states: dict[_Key, set[ObjectState]], key: _Key, state: ObjectState) -> None:
    """Take a state out of those with a key, and the key with the last one."""
    states[key].discard(state)
    if not states[key]:
        del states[key]
