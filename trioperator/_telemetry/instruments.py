"""The parts of an operator that are counted: they do what those of their base classes do, and count it.

An operator without metrics has the base classes, and pays nothing.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from trioperator._handling.arguments.reconciling import ReconcileHandler
from trioperator._handling.calls.interruption import Interruption
from trioperator._handling.calls.invoke import Attempt, Clients, Invoker, RunningCall
from trioperator._handling.calls.thread_limiter import ThreadLimiter
from trioperator._handling.handlers.handler import ChangeHandler, EventHandler, Handler, IndexHandler, SpawningHandler
from trioperator._handling.handlers.outcome import Outcome
from trioperator._handling.reviews.admission import AdmissionHandler
from trioperator._handling.reviews.conversion import ConversionHandler
from trioperator._handling.reviews.webhook_configuration import WebhookFn
from trioperator._kube.api_client import ApiClient
from trioperator._logs import Logger
from trioperator._runtime.cache import ObjectCache, ObjectState
from trioperator._runtime.reconciler import Reconciler
from trioperator._runtime.result import Again, RequeueAt, Result
from trioperator._runtime.watching.reflector import Observer
from trioperator._runtime.workqueue import Lane, WorkQueue, serve_workqueue
from trioperator._telemetry.changes import Changes
from trioperator._telemetry.failures import Failures
from trioperator._telemetry.requests import CountingClient
from trioperator._telemetry.reviews import CountingReviews
from trioperator._telemetry.statistics import BATCH, CallStatistics, KindStatistics, Reconcile, Statistics
from trioperator.errors import HandlerRetriesError, HandlerTimeoutError, TrioperatorError, UserCodeError

if TYPE_CHECKING:
    from trioperator._telemetry.tracing import Tracing

# Handlers that can be cancelled on request. Reviews cannot: the write would be allowed then.
_CANCELLABLE: Final = (ChangeHandler, EventHandler, SpawningHandler)
# Errors of these handlers are those of the reconcile that has called them.
_IN_RECONCILES: Final = (ChangeHandler, EventHandler, IndexHandler, ReconcileHandler)


class Live:
    """What the live view needs besides statistics: when something changes, and the newest errors of handlers."""

    def __init__(self) -> None:
        self.changes = Changes()
        self.failures = Failures()


class Instruments:
    """The statistics of an operator, and the parts that count. With *live*, calls of handlers can be interrupted."""

    def __init__(self, handlers: Collection[str], tracing: Tracing | None = None, *, live: bool = False) -> None:
        self.tracing = tracing
        self.live = Live() if live else None
        self.statistics = Statistics()
        self.handlers = frozenset(handlers)
        self.failed: set[str | None] = (
            set()
        )  # the uids of objects for which a handler has failed in the reconcile at work
        self.now = trio.lowlevel.current_clock().current_time
        self.reconciles: list[Reconcile] = []  # that are not counted yet
        self._kinds: dict[ObjectCache, KindStatistics] = {}
        self._calls: dict[tuple[ObjectCache | None, str], CallStatistics] = {}

    def fold(self) -> None:
        """Count all that is pending: call it before the statistics are read."""
        by_cache: dict[ObjectCache, list[Reconcile]] = {}
        for reconcile in self.reconciles:
            by_cache.setdefault(reconcile[0], []).append(reconcile)
        self.reconciles.clear()
        for cache, reconciles in by_cache.items():
            self.kind_of(cache).count_reconciles(reconciles)
        self.statistics.fold()

    def kind_of(self, cache: ObjectCache) -> KindStatistics:
        """Return the statistics of the kind of the objects in a cache."""
        found = self._kinds.get(cache)
        if found is None:
            found = self._kinds[cache] = self.statistics.kind(name_kind(cache))
        return found

    def calls_of(self, handler: Handler, attempt: Attempt) -> CallStatistics:
        """Return the statistics of the calls of a handler for the kind of an object, if the attempt is for one."""
        flow: Any = attempt.flow
        cache = None if flow is None else flow[0]  # see ObjectState.flow
        found = self._calls.get((cache, handler.id))
        if found is None:
            name = self.name_handler(handler)
            found = self.statistics.call("" if cache is None else self.kind_of(cache).name, name)
            if name == handler.id:  # there may be any number of sub-handlers
                self._calls[cache, name] = found
        return found

    def name_handler(self, handler: Handler) -> str:
        """Return the name of a handler for statistics: the parent's for sub-handlers, of which there may be many."""
        name = handler.id
        while name not in self.handlers and "/" in name:
            name = name.rpartition("/")[0]
        return name

    def observe(self, cache: ObjectCache) -> Observer:
        """Return what observes a watch in place of its cache, and passes on to that, if anything needs it."""
        observer: Observer = cache if self.tracing is None else self.tracing.observe(cache)
        return observer if self.live is None else self.live.changes.observe(observer)

    def announce(self) -> None:
        """Announce to those who watch the operator live that its state may have changed."""
        if self.live is not None:
            self.live.changes.announce()

    def wrap_client(self, client: ApiClient) -> ApiClient:
        """Return a client that counts its requests, on the same connections."""
        return CountingClient(client, self.statistics, self.tracing)

    def make_invoker(
        self,
        *,
        limiter: ThreadLimiter,
        backoff: float,
        running: MutableMapping[Attempt, RunningCall],
        clients: Clients | None = None,
    ) -> Invoker:
        """Return an invoker that counts its calls."""
        return CountingInvoker(self, limiter=limiter, backoff=backoff, running=running, clients=clients)

    def count_reviews(self, fn: WebhookFn, handlers: Iterable[str], *, converts: bool) -> WebhookFn:
        """Return a function for reviews that counts the calls of *fn* by the ids of the handlers of reviews."""
        return CountingReviews(fn, handlers, self.statistics, converts=converts)

    def open_workqueue(
        self, reconciler: Reconciler, *, limit: int | None
    ) -> contextlib.AbstractAsyncContextManager[WorkQueue[ObjectState]]:
        """Open a work queue that counts what it does, and what the reconciler does."""
        self.fold()
        self._kinds.clear()
        self._calls.clear()
        self.statistics.queued.clear()

        def make(nursery: trio.Nursery) -> WorkQueue[ObjectState]:
            return CountingQueue(nursery, CountingReconciler(reconciler, self), self, limit=limit)

        return serve_workqueue(make)


def name_kind(cache: ObjectCache) -> str:
    """Return the name of the kind of the objects in a cache, as that of its CRD."""
    resource = cache.kind.resource
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


class CountingQueue(WorkQueue[ObjectState]):
    """A work queue that counts what is added, and remembers since when."""

    def __init__(
        self, nursery: trio.Nursery, reconciler: CountingReconciler, instruments: Instruments, *, limit: int | None
    ) -> None:
        super().__init__(nursery, reconciler, limit=limit)
        self._instruments = instruments
        self._queued_at = instruments.statistics.queued
        self._announce = instruments.announce

    def _enqueue(self, entry: Any, lane: Lane) -> bool:
        queued = WorkQueue._enqueue(self, entry, lane)
        self._announce()
        if queued and entry.item not in self._queued_at:
            self._queued_at[entry.item] = self._instruments.now()
            self._instruments.kind_of(entry.item.cache).adds += 1
        return queued

    def requeue_at(self, item: ObjectState, time: float) -> None:
        """See :meth:`WorkQueue.requeue_at`."""
        self._instruments.kind_of(item.cache).retries += 1
        super().requeue_at(item, time)


class CountingReconciler:
    """A reconciler that counts and times the reconciles of another one."""

    def __init__(self, reconciler: Reconciler, instruments: Instruments) -> None:
        self._reconciler = reconciler
        self._instruments = instruments
        self._now = instruments.now
        self._queued_at = instruments.statistics.queued
        self._at_work = instruments.statistics.at_work
        self._reconciles, self._failed = instruments.reconciles, instruments.failed
        tracing = instruments.tracing
        self._reconcile = reconciler.reconcile if tracing is None else functools.partial(self._trace, tracing)
        self.has_work = reconciler.has_work
        self.is_unsaved = reconciler.is_unsaved
        self.report_loop = reconciler.report_loop

    async def reconcile(self, state: ObjectState) -> Result:
        """See :meth:`Reconciler.reconcile`."""
        queued = self._queued_at.pop(state, None)
        began = self._at_work[state] = self._now()
        name = None
        try:
            result = await self._reconcile(state)
            name = "requeue" if isinstance(result, Again) and not self._failed else self._classify(state, result)
            return result
        finally:
            del self._at_work[state]
            self._reconciles.append((state.cache, queued, began, self._now(), name))
            self._instruments.announce()
            if len(self._reconciles) >= BATCH:
                self._instruments.fold()

    async def _trace(self, tracing: Tracing, state: ObjectState) -> Result:
        with tracing.reconciling(state, self._instruments.kind_of(state.cache).name):
            return await self._reconciler.reconcile(state)

    def _classify(self, state: ObjectState, result: Result) -> str:
        """Return the result in the words of controller-runtime. An error of a handler is one of its reconcile."""
        failed = self._instruments.failed
        if failed and state.uid in failed:
            failed.discard(state.uid)
            return "error"
        if type(result) is Again:
            return "requeue"
        if self._reconciler.has_failed(state):
            return "error"
        return "requeue_after" if type(result) is RequeueAt else "success"


class CountingInvoker(Invoker):
    """An invoker that counts and times its calls."""

    def __init__(
        self,
        instruments: Instruments,
        *,
        limiter: ThreadLimiter,
        backoff: float,
        running: MutableMapping[Attempt, RunningCall],
        clients: Clients | None = None,
    ) -> None:
        super().__init__(limiter=limiter, backoff=backoff, running=running, clients=clients)
        self._instruments = instruments
        self._now = instruments.now
        self._tracing = instruments.tracing

    async def invoke(self, handler: Handler, kwargs: Mapping[str, Any], *, attempt: Attempt, logger: Logger) -> Outcome:
        """See :meth:`Invoker.invoke`."""
        calls = self._instruments.calls_of(handler, attempt)
        if self._instruments.live is not None and attempt.interruption is None and isinstance(handler, _CANCELLABLE):
            attempt = msgspec.structs.replace(attempt, interruption=Interruption())
        began = self._now()
        self._instruments.announce()
        result = "cancelled"
        try:
            if self._tracing is None:
                outcome = await Invoker.invoke(self, handler, kwargs, attempt=attempt, logger=logger)
            else:
                with self._tracing.calling(handler, logger.object_ref) as span:
                    outcome = await super().invoke(handler, kwargs, attempt=attempt, logger=logger)
                    self._tracing.record_outcome(span, outcome)
            result = "succeeded" if outcome.final and outcome.error is None else _name_outcome(outcome)
        finally:
            calls.count(result, self._now() - began)
            self._instruments.announce()
        if outcome.error is not None:
            self._count_failure(handler, outcome, attempt, logger)
        return outcome

    def _count_failure(self, handler: Handler, outcome: Outcome, attempt: Attempt, logger: Logger) -> None:
        unexpected = _is_unexpected(outcome.error)
        if self._instruments.live is not None and not outcome.awaits_subhandlers and not _is_verdict(handler, outcome):
            self._instruments.live.failures.record(handler, outcome, attempt, logger)
        if isinstance(handler, AdmissionHandler):
            self._instruments.statistics.admission_panics += unexpected
        elif isinstance(handler, ConversionHandler):
            self._instruments.statistics.conversion_panics += unexpected
        flow: Any = attempt.flow
        if not isinstance(handler, _IN_RECONCILES) or outcome.awaits_subhandlers or flow is None:
            return
        if logger.object_ref is not None and not isinstance(handler, IndexHandler):
            self._instruments.failed.add(logger.object_ref["uid"])
        kind = self._instruments.kind_of(flow[0])
        kind.terminal_errors += outcome.final
        kind.panics += unexpected
        kind.timeouts += isinstance(outcome.error, HandlerTimeoutError)


def _name_outcome(outcome: Outcome) -> str:
    """Return the result of a call that has not succeeded."""
    if outcome.interrupted:
        return "interrupted"
    if outcome.awaits_subhandlers:
        return "unfinished"
    return "failed" if outcome.final else "retried"


def _is_verdict(handler: Handler, outcome: Outcome) -> bool:
    """Check whether a handler of reviews has denied a write, rather than failed."""
    return isinstance(handler, AdmissionHandler) and not _is_unexpected(outcome.error)


def _is_unexpected(error: BaseException | None) -> bool:
    """Check whether a handler has raised what it did not mean to: in Go, it would have panicked."""
    if isinstance(error, HandlerRetriesError | HandlerTimeoutError):
        error = error.__cause__
    return error is not None and (isinstance(error, UserCodeError) or not isinstance(error, TrioperatorError))
