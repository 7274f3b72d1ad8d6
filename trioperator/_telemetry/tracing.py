"""Spans for OpenTelemetry: from a watch event to the reconcile that handles it, its handlers, and their requests.

It needs only OpenTelemetry's API: where the program sets up no SDK, the spans go nowhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode

from trioperator._handling.handlers.handler import Handler, SpawningHandler
from trioperator._handling.handlers.outcome import Outcome
from trioperator._kube.objects import RawObject
from trioperator._logs import ObjectRef
from trioperator._runtime.cache.cache import ObjectCache
from trioperator._runtime.cache.object_state import Cache, ObjectState
from trioperator._runtime.ledger import Run
from trioperator._version import __version__

# Watch events whose reconciles have not begun, at most. Beyond, reconciles begin traces of their own.
_MAX_PENDING: Final = 10_000


class Tracing:
    """Spans of one operator."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer("trioperator", __version__)
        self._events: dict[str, Context] = {}  # of watch events that are to be handled, by the keys of objects

    def observe(self, cache: ObjectCache) -> TracedCache:
        """Return an observer that passes on to the cache what it sees."""
        return TracedCache(cache, self)

    def trace_event(self, cache: ObjectCache, type: str, obj: RawObject) -> str:
        """Make a span of a watch event, which the cache takes."""
        attributes = {**_describe(cache, obj.namespace, obj.name), "trioperator.event.type": type}
        with self._tracer.start_span("watch event", Context(), SpanKind.CONSUMER, attributes) as span:
            uid = cache.observe(type, obj)
        state = cache.objects.get(uid)
        if type == "DELETED" or (state is not None and state.events):  # else it was dropped
            if len(self._events) >= _MAX_PENDING:
                self._events.clear()
            self._events[uid] = trace.set_span_in_context(span, Context())
        return uid

    @contextlib.contextmanager
    def reconciling(self, state: ObjectState, kind: str) -> Iterator[Span]:
        """Make a span of a reconcile: within the trace of the watch event that it handles, or in one of its own."""
        context = self._events.pop(state.uid, None) or Context()
        attributes = _describe(state.cache, state.namespace, state.name)
        with self._tracer.start_as_current_span(f"reconcile {kind}", context, SpanKind.INTERNAL, attributes) as span:
            yield span

    def record_run(self, span: Span, run: Run) -> None:
        """Record in the span of a reconcile why it was made, and which fields others have changed."""
        span.set_attribute(
            "trioperator.reconcile.causes", [" ".join(map(str, filter(None, each))) for each in run.causes]
        )
        if run.changes:
            span.set_attribute("trioperator.reconcile.fields", [field for field, _ in run.changes])
            span.set_attribute("trioperator.reconcile.managers", sorted({by for _, by in run.changes if by}))
        span.set_attribute("trioperator.reconcile.idle", not run.notes)

    @contextlib.contextmanager
    def calling(self, handler: Handler, ref: ObjectRef | None) -> Iterator[Span]:
        """Make a span of a call of a handler. Daemons and timers, which outlive reconciles, begin traces."""
        context = Context() if isinstance(handler, SpawningHandler) else None
        attributes = {"trioperator.handler.id": handler.id}
        if ref is not None:
            attributes |= {
                "trioperator.object.kind": str(ref["kind"]),
                "trioperator.object.name": str(ref["name"]),
                "k8s.namespace.name": str(ref["namespace"] or ""),
            }
        with self._tracer.start_as_current_span(
            f"handler {handler.id}", context, SpanKind.INTERNAL, attributes
        ) as span:
            yield span

    @contextlib.contextmanager
    def requesting(self, method: str, path: str, host: str) -> Iterator[Span]:
        """Make a span of a request that is a part of a trace; the operator's own requests are not."""
        if not trace.get_current_span().get_span_context().is_valid:
            yield trace.INVALID_SPAN
            return
        attributes = {"http.request.method": method, "url.path": path, "server.address": host}
        with self._tracer.start_as_current_span(method, None, SpanKind.CLIENT, attributes) as span:
            yield span

    def record_outcome(self, span: Span, outcome: Outcome) -> None:
        """Record the error of an attempt in its span."""
        if outcome.error is not None and not outcome.awaits_subhandlers:
            span.record_exception(outcome.error)
            span.set_status(StatusCode.ERROR, type(outcome.error).__name__)


class TracedCache:
    """Observer of a watch that makes a span of each watch event; lists have none."""

    def __init__(self, cache: ObjectCache, tracing: Tracing) -> None:
        self._cache = cache
        self._tracing = tracing

    def observe(self, type: str | None, obj: RawObject) -> str:
        """See :meth:`ObjectCache.observe`."""
        return self._cache.observe(None, obj) if type is None else self._tracing.trace_event(self._cache, type, obj)

    def replace(self, listed: Collection[str]) -> None:
        """See :meth:`ObjectCache.replace`."""
        self._cache.replace(listed)


def _describe(cache: Cache, namespace: str | None, name: str | None) -> dict[str, str]:
    return {
        "trioperator.object.kind": cache.kind.resource.kind or "",
        "trioperator.object.name": name or "",
        "k8s.namespace.name": namespace or "",
    }
