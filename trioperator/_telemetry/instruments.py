"""Instruments: what counts and traces an operator's reconciles, calls of handlers, requests and reviews.

The work queue and the invoker notify them, by the protocols :class:`QueueObserver` and :class:`CallObserver`. They are
not wrapped: each wrapper would be one more frame between a worker and the user's function. An operator without metrics
has no observers, and pays nothing.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import msgspec
import trio

from trioperator._handling.arguments.reconciling import ReconcileHandler
from trioperator._handling.calls.interruption import Interruption
from trioperator._handling.calls.invoke import Attempt, Invoker
from trioperator._handling.handlers.handler import ChangeHandler, EventHandler, Handler, IndexHandler, SpawningHandler
from trioperator._handling.handlers.outcome import Outcome, name_outcome
from trioperator._handling.reviews.admission import AdmissionHandler
from trioperator._handling.reviews.conversion import ConversionHandler
from trioperator._handling.reviews.webhook_configuration import WebhookFn
from trioperator._kube.api_client import ApiClient
from trioperator._logs import Logger
from trioperator._model.resource import Resource
from trioperator._runtime.cache.cache import ObjectCache
from trioperator._runtime.cache.object_state import Cache, ObjectState
from trioperator._runtime.ledger import current_run
from trioperator._runtime.reconciler.reconciler import Reconciler
from trioperator._runtime.result import Again, RequeueAt, Result
from trioperator._runtime.watching.reflector import Observer
from trioperator._runtime.workqueue import Lane, WorkQueue, open_workqueue
from trioperator._telemetry.changes import Changes
from trioperator._telemetry.failures import Failures
from trioperator._telemetry.requests import CountingClient
from trioperator._telemetry.reviews import CountingReviews
from trioperator._telemetry.statistics import BATCH, CallStatistics, KindStatistics, Reconcile, Statistics
from trioperator.errors import HandlerRetriesError, HandlerTimeoutError, TrioperatorError, UserCodeError

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from trioperator._telemetry.tracing import Tracing

    _Tracked: TypeAlias = tuple[contextlib.AbstractContextManager[Span], Span]

# Handlers that can be cancelled on request. Reviews cannot: the write would be allowed then.
_CANCELLABLE: Final = (ChangeHandler, EventHandler, SpawningHandler)
# Errors of these handlers are errors of the reconcile that has called them.
_IN_RECONCILES: Final = (ChangeHandler, EventHandler, IndexHandler, ReconcileHandler)


class Live:
    """Needs of the live view besides statistics: when something changes, and the newest errors of handlers."""

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
        self.failed: set[str | None] = set()  # uids of objects: a handler has failed in the running reconcile
        self.now = trio.lowlevel.current_clock().current_time
        self.reconciles: list[Reconcile] = []  # that are not counted yet
        self._kinds: dict[tuple[str, str], KindStatistics] = {}  # by the plural and the group
        self._calls: dict[tuple[str, str, str], CallStatistics] = {}  # by these and the id of the handler

    def fold(self) -> None:
        """Count all that is pending: call it before the statistics are read."""
        by_cache: dict[Cache, list[Reconcile]] = {}
        for reconcile in self.reconciles:
            by_cache.setdefault(reconcile[0], []).append(reconcile)
        self.reconciles.clear()
        for cache, reconciles in by_cache.items():
            self.kind_of(cache.kind.resource).count_reconciles(reconciles)
        self.statistics.fold()

    def kind_of(self, resource: Resource) -> KindStatistics:
        """Return the statistics of a kind."""
        found = self._kinds.get((resource.plural, resource.group))
        if found is None:
            found = self.statistics.kind(name_kind(resource))
            self._kinds[resource.plural, resource.group] = found
        return found

    def calls_of(self, handler: Handler, attempt: Attempt) -> CallStatistics:
        """Return the statistics of the calls of a handler for the kind of an object, if the attempt is for one."""
        kind = attempt.kind
        key = ("", "", handler.id) if kind is None else (kind.plural, kind.group, handler.id)
        found = self._calls.get(key)
        if found is None:
            name = self.name_handler(handler)
            found = self.statistics.call("" if kind is None else self.kind_of(kind).name, name)
            if name == handler.id:  # there may be any number of sub-handlers
                self._calls[key] = found
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

    def make_invoker(self, **options: Any) -> Invoker:
        """Return an invoker, with the *options* of that, whose calls are counted."""
        return Invoker(observer=CallCounter(self), **options)

    def count_reviews(self, fn: WebhookFn, handlers: Iterable[str], *, converts: bool) -> WebhookFn:
        """Return a function for reviews that counts the calls of *fn* by the ids of the handlers of reviews."""
        return CountingReviews(fn, handlers, self.statistics, converts=converts)

    def open_workqueue(
        self, reconciler: Reconciler, *, limit: int | None, window: float = 0.0
    ) -> contextlib.AbstractAsyncContextManager[WorkQueue[ObjectState]]:
        """Open a work queue whose reconciles are counted."""
        self.fold()
        self._kinds.clear()
        self._calls.clear()
        self.statistics.queued.clear()
        self.statistics.pending.clear()
        observer = ReconcileCounter(self, reconciler.status)
        return open_workqueue(reconciler, limit=limit, window=window, observer=observer)


def name_kind(resource: Resource) -> str:
    """Return the name of a kind, such as ``widgets.example.com``: its CRD has the same name."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


class Retries(Protocol):
    """The status of a reconciler, which knows whether an object has to be tried again."""

    def has_failed(self, state: ObjectState, /) -> bool: ...
    def is_retrying(self, state: ObjectState, /) -> bool: ...


class ReconcileCounter:
    """Counts and times what a work queue does with objects, and makes spans of their reconciles."""

    def __init__(self, instruments: Instruments, reconciler: Retries) -> None:
        self._has_failed = reconciler.has_failed
        self._is_retrying = reconciler.is_retrying
        self._instruments = instruments
        self._announce = instruments.announce
        self._now = instruments.now
        self._queued_at = instruments.statistics.queued
        self._pending = instruments.statistics.pending
        self._due: dict[ObjectState, float] = {}  # of objects that are reconciled again by a schedule
        self._at_work = instruments.statistics.at_work
        self._began: dict[ObjectState, tuple[float | None, float, _Tracked | None]] = {}  # since when it was queued
        self._reconciles, self._failed = instruments.reconciles, instruments.failed

    def queued(self, state: ObjectState, lane: Lane) -> None:
        """See :class:`QueueObserver`."""
        if state not in self._queued_at:  # else it was moved to a more urgent lane
            now = self._queued_at[state] = self._now()
            if state not in self._pending:  # else it is tried again
                self._pending[state] = now, lane is Lane.FRESH and now < self._due.pop(state, math.inf)
            self._instruments.kind_of(state.cache.kind.resource).adds += 1
        self._announce()

    def requeued(self, state: ObjectState) -> None:
        """See :class:`QueueObserver`."""
        self._instruments.kind_of(state.cache.kind.resource).retries += 1

    def began(self, state: ObjectState) -> None:
        """See :class:`QueueObserver`."""
        began = self._at_work[state] = self._now()
        tracked = None
        if (tracing := self._instruments.tracing) is not None:
            reconciling = tracing.reconciling(state, self._instruments.kind_of(state.cache.kind.resource).name)
            tracked = reconciling, reconciling.__enter__()
        self._began[state] = self._queued_at.pop(state, None), began, tracked

    def ended(self, state: ObjectState, result: Result | None) -> None:
        """See :class:`QueueObserver`."""
        queued, began, tracked = self._began.pop(state)
        if tracked is not None:
            self._end_span(*tracked)
        name = None
        if type(result) is RequeueAt:
            self._due[state] = result.time
        if result is not None:
            name = "requeue" if type(result) is Again and not self._failed else self._classify(state, result)
        del self._at_work[state]
        since = None if name is None or type(result) is Again else self._finish(state, name)
        self._reconciles.append((state.cache, queued, began, self._now(), name, since))
        self._announce()
        if len(self._reconciles) >= BATCH:
            self._instruments.fold()

    def _finish(self, state: ObjectState, name: str) -> float | None:
        """Note that nothing is to be tried again for an object. Return since when it was pending, if that counts."""
        if self._is_retrying(state):
            return None
        since, counts = self._pending.pop(state, (None, False))
        return since if counts and name != "error" else None

    def _end_span(self, reconciling: contextlib.AbstractContextManager[Span], span: Span) -> None:
        """End the span of a reconcile, with what is on record of it."""
        assert self._instruments.tracing is not None
        if (run := current_run.get(None)) is not None:
            self._instruments.tracing.record_run(span, run)
        reconciling.__exit__(None, None, None)

    def _classify(self, state: ObjectState, result: Result) -> str:
        """Return the result in the words of controller-runtime. An error of a handler is one of its reconcile."""
        failed = self._failed
        if failed and state.uid in failed:
            failed.discard(state.uid)
            return "error"
        if type(result) is Again:
            return "requeue"
        if self._has_failed(state):
            return "error"
        return "requeue_after" if type(result) is RequeueAt else "success"


class CallCounter:
    """Counts and times calls of handlers, and makes spans of them. With a live view, calls can be interrupted."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._now = instruments.now
        self._began: dict[Attempt, float] = {}
        self._spans: dict[Attempt, tuple[contextlib.AbstractContextManager[Span], Span]] = {}

    def begin(self, handler: Handler, attempt: Attempt, logger: Logger) -> Attempt:
        """See :class:`CallObserver`."""
        instruments = self._instruments
        if instruments.live is not None and attempt.interruption is None and isinstance(handler, _CANCELLABLE):
            attempt = msgspec.structs.replace(attempt, interruption=Interruption())
        self._began[attempt] = self._now()
        if instruments.tracing is not None:
            calling = instruments.tracing.calling(handler, logger.object_ref)
            self._spans[attempt] = calling, calling.__enter__()
        instruments.announce()
        return attempt

    def end(self, handler: Handler, attempt: Attempt, logger: Logger, *, outcome: Outcome | None) -> None:
        """See :class:`CallObserver`."""
        instruments = self._instruments
        if instruments.tracing is not None:
            calling, span = self._spans.pop(attempt)
            if outcome is not None:
                instruments.tracing.record_outcome(span, outcome)
            calling.__exit__(None, None, None)
        seconds = self._now() - self._began.pop(attempt)
        instruments.calls_of(handler, attempt).count(name_outcome(outcome), seconds)
        instruments.announce()
        if outcome is not None and outcome.error is not None:
            self._count_failure(handler, outcome, attempt, logger)

    def _count_failure(self, handler: Handler, outcome: Outcome, attempt: Attempt, logger: Logger) -> None:
        unexpected = _is_unexpected(outcome.error)
        if self._instruments.live is not None and not outcome.awaits_subhandlers and not _is_verdict(handler, outcome):
            self._instruments.live.failures.record(handler, outcome, attempt, logger)
        if isinstance(handler, AdmissionHandler):
            self._instruments.statistics.admission_panics += unexpected
        elif isinstance(handler, ConversionHandler):
            self._instruments.statistics.conversion_panics += unexpected
        if not isinstance(handler, _IN_RECONCILES) or outcome.awaits_subhandlers or attempt.kind is None:
            return
        if logger.object_ref is not None and not isinstance(handler, IndexHandler):
            self._instruments.failed.add(logger.object_ref["uid"])
        kind = self._instruments.kind_of(attempt.kind)
        kind.terminal_errors += outcome.final
        kind.panics += unexpected
        kind.timeouts += isinstance(outcome.error, HandlerTimeoutError)


def _is_verdict(handler: Handler, outcome: Outcome) -> bool:
    """Check whether a handler of reviews has denied a write, rather than failed."""
    return isinstance(handler, AdmissionHandler) and not _is_unexpected(outcome.error)


def _is_unexpected(error: BaseException | None) -> bool:
    """Check whether an error is a bug of the handler: in Go, it would have panicked."""
    if isinstance(error, HandlerRetriesError | HandlerTimeoutError):
        error = error.__cause__
    return error is not None and (isinstance(error, UserCodeError) or not isinstance(error, TrioperatorError))
