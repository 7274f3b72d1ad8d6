"""Metrics of an operator in the format of Prometheus, under the names of controller-runtime and client-go.

Nothing is computed before somebody asks. Metrics that other libraries and the user's own code have registered with
prometheus_client are served, too.
"""

from __future__ import annotations

import collections
import functools
import heapq
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec
import prometheus_client
import trio
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from trioperator._concurrency.clock import wall_now
from trioperator._endpoints.plain_app import Answer, PlainApp, Request
from trioperator._http.endpoint import parse_endpoint
from trioperator._http.server import serve_app
from trioperator._logs import get_logger
from trioperator._runtime.cache.cache import ObjectCache
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.watching.reflector import Reflector
from trioperator._runtime.workqueue import Lane
from trioperator._telemetry.inspector import Inspector
from trioperator._telemetry.instruments import Instruments, name_kind
from trioperator._telemetry.statistics import Histogram, KindStatistics, RequestStatistics
from trioperator._webhooks.server import WebhookServer

# As in controller-runtime: what is new comes before what an initial list has brought.
_PRIORITIES: Final[Mapping[Lane, str]] = {Lane.FRESH: "0", Lane.INITIAL: "-100"}
_Value: TypeAlias = tuple[type[CounterMetricFamily | GaugeMetricFamily], str, str, Callable[[KindStatistics], float]]
# Where Prometheus looks for metrics unless it is told.
_PATH: Final = "/metrics"
# The name of the work queue, of which each operator has one.
_QUEUE: Final = "trioperator"
# An object is stuck when it is pending for longer, in seconds; and how many of them have series of their own, at most.
_STUCK: Final = 60.0
_MAX_STUCK: Final = 20


async def serve_metrics(
    endpoint: str,
    parts: Inspector,
    instruments: Instruments,
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the metrics of an operator at *endpoint*, such as ``http://0.0.0.0:8080/metrics``, until cancelled.

    They are also at ``/metrics`` if the endpoint has another path, and only there if it has none.

    Started once it is listening, with the URL as the value. Raises ConfigError if it cannot listen.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(OperatorCollector(parts, instruments))
    registry.register(_Registered())

    async def answer(request: Request) -> Answer:
        began = time.perf_counter()  # real time, whatever Trio's clock is
        await trio.lowlevel.checkpoint()  # a pass of the scheduler: how long it takes is the lag of the loop
        instruments.statistics.loop_lag = time.perf_counter() - began
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Answer(encode(registry), type=content_type)

    parsed = parse_endpoint(endpoint)
    if parsed.path == "/":
        parsed = msgspec.structs.replace(parsed, path=_PATH)
    app = PlainApp({parsed.path: answer, _PATH: answer})
    async with trio.open_nursery() as nursery:
        url = str(await nursery.start(serve_app, app, parsed, name="metrics server"))
        get_logger("trioperator.endpoints.metrics").info("Serving metrics at %s", url)
        task_status.started(url)


class _Registered(Collector):
    """The metrics that are registered with prometheus_client: those of the process, and the user's own."""

    def collect(self) -> Iterable[Metric]:
        return prometheus_client.REGISTRY.collect()


class OperatorCollector(Collector):
    """Collector of the metrics of one operator."""

    def __init__(self, parts: Inspector, instruments: Instruments) -> None:
        self._parts = parts
        self._instruments = instruments
        self._statistics = instruments.statistics
        self._started = wall_now().timestamp()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        self._instruments.fold()
        yield from self._collect_reconciles()
        yield from self._collect_queue()
        yield from self._collect_pending()
        yield from self._collect_paused()
        yield self._collect_contended()
        yield from self._collect_requests()
        yield from self._collect_calls()
        yield from self._collect_webhooks()
        yield from self._collect_watches()
        yield from self._collect_state()

    def _each_kind(self) -> Iterable[KindStatistics]:
        return self._statistics.kinds.values()

    def _collect_reconciles(self) -> Iterator[Metric]:
        prefix = "controller_runtime"
        total = CounterMetricFamily(f"{prefix}_reconcile", "Reconciles by result.", labels=["controller", "result"])
        for kind, result in itertools.product(self._each_kind(), ("success", "error", "requeue", "requeue_after")):
            total.add_metric([kind.name, result], kind.results[result])
        yield total
        counters: tuple[tuple[str, str, Callable[[KindStatistics], int]], ...] = (
            ("reconcile_errors", "Reconciles with an error.", lambda kind: kind.results["error"]),
            ("terminal_reconcile_errors", "Handlers that have failed permanently.", lambda kind: kind.terminal_errors),
            ("reconcile_panics", "Handlers that have raised an unexpected exception.", lambda kind: kind.panics),
            ("reconcile_timeouts", "Handlers that have timed out.", lambda kind: kind.timeouts),
        )
        for name, text, value in counters:
            counter = CounterMetricFamily(f"{prefix}_{name}", text, labels=["controller"])
            for kind in self._each_kind():
                counter.add_metric([kind.name], value(kind))
            yield counter
        yield self._histogram(f"{prefix}_reconcile_time_seconds", "Time of reconciles.", lambda k: k.reconcile_seconds)
        limit = self._parts.settings.queueing.worker_limit
        most = GaugeMetricFamily(f"{prefix}_max_concurrent_reconciles", "Workers at most.", labels=["controller"])
        active = GaugeMetricFamily(f"{prefix}_active_workers", "Workers at work.", labels=["controller"])
        busy = self._count_busy()
        for kind in self._each_kind():
            most.add_metric([kind.name], float("inf") if limit is None else limit)
            active.add_metric([kind.name], len(busy.get(kind.name, ())))
        yield from (most, active)

    def _count_busy(self) -> Mapping[str, list[float]]:
        """Return the seconds for which reconciles have been running, by kind."""
        now = trio.current_time()
        busy: dict[str, list[float]] = {}
        for state, since in self._statistics.at_work.items():
            busy.setdefault(self._name_kind(state), []).append(now - since)
        return busy

    def _histogram(
        self, name: str, text: str, find: Callable[[KindStatistics], Histogram], *, queue: bool = False
    ) -> Metric:
        labels = ["name", "controller"] if queue else ["controller"]
        family = HistogramMetricFamily(name, text, labels=labels)
        for kind in self._each_kind():
            _add_histogram(family, [_QUEUE, kind.name] if queue else [kind.name], find(kind))
        return family

    def _collect_queue(self) -> Iterator[Metric]:
        yield self._collect_depth()
        busy = self._count_busy()
        values: tuple[_Value, ...] = (
            (CounterMetricFamily, "adds", "Objects that were queued.", lambda kind: kind.adds),
            (CounterMetricFamily, "retries", "Objects that were queued for later.", lambda kind: kind.retries),
            (
                GaugeMetricFamily,
                "unfinished_work_seconds",
                "Seconds of reconciles in progress, in sum.",
                lambda kind: sum(busy.get(kind.name, ())),
            ),
            (
                GaugeMetricFamily,
                "longest_running_processor_seconds",
                "Seconds of the longest reconcile in progress.",
                lambda kind: max(busy.get(kind.name, (0.0,))),
            ),
        )
        for make, name, text, find in values:
            family = make(f"workqueue_{name}", text, labels=["name", "controller"])
            for kind in self._each_kind():
                family.add_metric([_QUEUE, kind.name], find(kind))
            yield family
        text = "Seconds from queueing to a reconcile."
        yield self._histogram("workqueue_queue_duration_seconds", text, lambda k: k.queue_seconds, queue=True)
        text = "Seconds of reconciles."
        yield self._histogram("workqueue_work_duration_seconds", text, lambda k: k.work_seconds, queue=True)

    def _collect_depth(self) -> Metric:
        labels = ["name", "controller", "priority"]
        depth = GaugeMetricFamily("workqueue_depth", "Objects that wait for a worker.", labels=labels)
        waiting: collections.Counter[tuple[str, Lane]] = collections.Counter()
        for item in self._parts.shards.items():
            if item.lane is not None:
                waiting[self._name_kind(item.item), item.lane] += 1
        for kind, lane in itertools.product(self._each_kind(), Lane):
            depth.add_metric([_QUEUE, kind.name, _PRIORITIES[lane]], waiting[kind.name, lane])
        return depth

    def _collect_pending(self) -> Iterator[Metric]:
        text = "Seconds from a change of an object until nothing is to be tried again for it."
        yield self._histogram("trioperator_event_to_done_seconds", text, lambda kind: kind.done_seconds)
        now, pending = trio.current_time(), self._statistics.pending
        stuck = [
            (now - since, state)
            for state, (since, _) in pending.items()
            if now - since > _STUCK and self._parts.shards.find(state) is not None
        ]
        count = GaugeMetricFamily("trioperator_stuck_objects", "Objects that are pending.", labels=["controller"])
        names = collections.Counter(self._name_kind(state) for _, state in stuck)
        for kind in self._each_kind():
            count.add_metric([kind.name], names[kind.name])
        yield count
        labels = ["controller", "object_namespace", "object_name"]
        text = f"Seconds for which an object is pending, for the {_MAX_STUCK} that are for the longest time."
        longest = GaugeMetricFamily("trioperator_stuck_object_seconds", text, labels=labels)
        for seconds, state in heapq.nlargest(_MAX_STUCK, stuck, key=lambda pair: pair[0]):
            longest.add_metric([self._name_kind(state), state.namespace or "", state.name or ""], seconds)
        yield longest

    def _collect_paused(self) -> Iterator[Metric]:
        now, ages = trio.current_time(), collections.defaultdict[str, list[float]](list)
        for state, since in self._parts.shards.list_paused():
            ages[self._name_kind(state)].append(now - since)
        count = GaugeMetricFamily("trioperator_paused_objects", "Paused objects.", labels=["controller"])
        text = "Seconds for which an object is paused, for the longest pause."
        longest = GaugeMetricFamily("trioperator_longest_pause_seconds", text, labels=["controller"])
        for kind in self._each_kind():
            count.add_metric([kind.name], len(ages[kind.name]))
            longest.add_metric([kind.name], max(ages[kind.name], default=0.0))
        yield from (count, longest)

    def _name_kind(self, state: ObjectState) -> str:
        return self._instruments.kind_of(state.cache.kind.resource).name

    def _collect_contended(self) -> Metric:
        """Return how many fields others change back, or are written for nothing."""
        labels = ["controller", "manager", "reason"]
        family = GaugeMetricFamily("trioperator_contended_fields", "Fields that are contended.", labels=labels)
        counts: collections.Counter[tuple[str, str, str]] = collections.Counter()
        for (resource, _, _), verdicts in self._parts.ledger.contended.values():
            counts.update((name_kind(resource), verdict.manager or "", verdict.reason) for verdict in verdicts)
        for key, count in counts.items():
            family.add_metric(list(key), count)
        return family

    def _collect_requests(self) -> Iterator[Metric]:
        total = CounterMetricFamily(
            "rest_client_requests", "Requests to the API server.", labels=["code", "method", "host"]
        )
        retries = CounterMetricFamily(
            "rest_client_request_retries", "Requests that were sent again.", labels=["code", "verb", "host"]
        )
        for (method, host), requests in self._statistics.requests.items():
            for code, count in requests.codes.items():
                total.add_metric([code, method, host], count)
            for code, count in requests.retries.items():
                retries.add_metric([code, method, host], count)
        yield from (total, retries)
        histograms: tuple[tuple[str, str, Callable[[RequestStatistics], Histogram]], ...] = (
            ("request_duration_seconds", "Time of requests, of watches until they are open.", lambda r: r.seconds),
            ("request_size_bytes", "Bodies of requests.", lambda r: r.sent),
            ("response_size_bytes", "Bodies of responses, except for watches.", lambda r: r.received),
        )
        for name, text, find in histograms:
            family = HistogramMetricFamily(f"rest_client_{name}", text, labels=["verb", "host"])
            for labels, requests in self._statistics.requests.items():
                _add_histogram(family, list(labels), find(requests))
            yield family

    def _collect_calls(self) -> Iterator[Metric]:
        labels = ["controller", "handler"]
        total = CounterMetricFamily("trioperator_handler_calls", "Calls of handlers.", labels=[*labels, "result"])
        seconds = HistogramMetricFamily("trioperator_handler_seconds", "Time of calls of handlers.", labels=labels)
        for (kind, handler), calls in self._statistics.calls.items():
            for result, count in calls.results.items():
                total.add_metric([kind, handler, result], count)
            _add_histogram(seconds, [kind, handler], calls.seconds)
        yield from (total, seconds)
        running = GaugeMetricFamily("trioperator_handlers_running", "Calls of handlers in progress.")
        running.add_metric([], len(self._parts.running))
        yield running

    def _collect_webhooks(self) -> Iterator[Metric]:
        prefix, labels = "controller_runtime_webhook", ["webhook"]
        total = CounterMetricFamily(f"{prefix}_requests", "Reviews by their HTTP status.", labels=[*labels, "code"])
        in_flight = GaugeMetricFamily(f"{prefix}_requests_in_flight", "Reviews in progress.", labels=labels)
        seconds = HistogramMetricFamily(f"{prefix}_latency_seconds", "Time of reviews.", labels=labels)
        for name, reviews in self._statistics.reviews.items():
            for code, count in reviews.codes.items():
                total.add_metric([name, code], count)
            in_flight.add_metric([name], reviews.in_flight)
            _add_histogram(seconds, [name], reviews.seconds)
        yield from (total, in_flight, seconds)
        text = "Handlers that have raised an unexpected exception."
        statistics, server = self._statistics, self._parts.settings.admission.server
        yield _count(f"{prefix}_panics", text, statistics.admission_panics)
        yield _count("controller_runtime_conversion_webhook_panics", text, statistics.conversion_panics)
        if isinstance(server, WebhookServer):
            yield _count("certwatcher_read_certificate", "Times that the certificate was read.", server.reads)
            text = "Times that the certificate could not be read."
            yield _count("certwatcher_read_certificate_errors", text, server.read_errors)
            for name, text, time in _read_validity(server.chain):
                yield _gauge(f"trioperator_certificate_{name}_timestamp_seconds", text, time)

    def _collect_watches(self) -> Iterator[Metric]:
        events = CounterMetricFamily("trioperator_watch_events", "Watch events.", labels=["resource"])
        restarts = CounterMetricFamily(
            "trioperator_watch_restarts", "Watches that ended.", labels=["resource", "reason"]
        )
        idle = GaugeMetricFamily(
            "trioperator_watch_last_response_age_seconds",
            "Seconds since a list or watch was answered.",
            labels=["resource"],
        )
        bookmarks = CounterMetricFamily("trioperator_watch_bookmarks", "Bookmarks of watches.", labels=["resource"])
        troubled = GaugeMetricFamily(
            "trioperator_watches_interrupted", "Watches whose last request has failed.", labels=["resource"]
        )
        objects = GaugeMetricFamily("trioperator_cache_objects", "Cached objects.", labels=["resource"])
        echoes = CounterMetricFamily("trioperator_own_events_filtered", "Events of own writes.", labels=["resource"])
        for name, watches in _by_kind(self._parts).items():
            reflectors = [reflector for _, reflector in watches]
            events.add_metric([name], sum(reflector.status.received for reflector in reflectors))
            ages = [trio.current_time() - reflector.status.progressed_at for reflector in reflectors]
            idle.add_metric([name], max(0.0, *ages))
            bookmarks.add_metric([name], sum(reflector.status.bookmarks for reflector in reflectors))
            troubled.add_metric([name], sum(reflector.status.trouble is not None for reflector in reflectors))
            objects.add_metric([name], sum(len(cache) for cache, _ in watches))
            echoes.add_metric([name], sum(cache.versions.echoes for cache, _ in watches))
            for reason in sorted({reason for reflector in reflectors for reason in reflector.status.restarts}):
                restarts.add_metric([name, reason], sum(r.status.restarts.get(reason, 0) for r in reflectors))
        yield from (events, bookmarks, restarts, troubled, idle, objects, echoes)

    def _collect_state(self) -> Iterator[Metric]:
        parts = self._parts
        leadership = parts.settings.leadership
        if leadership.enabled:
            leader = GaugeMetricFamily("leader_election_master_status", "Whether it is the leader.", labels=["name"])
            leader.add_metric([leadership.name], not parts.pauses.is_paused_by("leadership"))
            yield leader
        if parts.lease is not None:
            text = "How often the lease has got another holder."
            taken = CounterMetricFamily("trioperator_lease_transitions", text, labels=["name"])
            taken.add_metric([leadership.name], parts.lease.transitions)
            yield taken
        gauges: tuple[tuple[str, str, float], ...] = (
            ("start_time_seconds", "When the operator has started, since the epoch.", self._started),
            ("ready", "Whether the operator is ready.", parts.ready),
            ("paused", "Whether the operator is on standby.", bool(parts.pauses.reasons)),
            ("daemons_running", "Daemons and timers.", len(parts.shards.daemons)),
            ("loop_lag_seconds", "Time of a pass of the event loop.", self._statistics.loop_lag),
        )
        for name, text, value in gauges:
            yield _gauge(f"trioperator_{name}", text, value)


def _gauge(name: str, text: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, text)
    family.add_metric([], value)
    return family


@functools.lru_cache(maxsize=8)
def _read_validity(chain: bytes | None) -> tuple[tuple[str, str, float], ...]:
    """Return names, texts and times for the start and end of a certificate's validity, if it can be read."""
    if chain is None:
        return ()
    try:
        from cryptography import x509

        certificate = x509.load_pem_x509_certificate(chain)
    except (ImportError, ValueError):
        return ()
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return (
        ("start", "When the certificate of webhooks begins to be valid.", start.timestamp()),
        ("expiry", "When the certificate of webhooks expires.", end.timestamp()),
    )


def _count(name: str, text: str, value: int) -> Metric:
    family = CounterMetricFamily(name, text)
    family.add_metric([], value)
    return family


def _add_histogram(family: HistogramMetricFamily, labels: list[str], histogram: Histogram) -> None:
    names = [*map(str, histogram.bounds), "+Inf"]
    family.add_metric(labels, list(zip(names, itertools.accumulate(histogram.counts), strict=True)), histogram.sum)


def _by_kind(parts: Inspector) -> Mapping[str, list[tuple[ObjectCache, Reflector]]]:
    """Return the watches by the names of kinds: there may be one for each namespace."""
    watches: dict[str, list[tuple[ObjectCache, Reflector]]] = {}
    for cache, reflector in () if parts.watches is None else parts.watches.caches():
        watches.setdefault(name_kind(cache.kind.resource), []).append((cache, reflector))
    return watches
