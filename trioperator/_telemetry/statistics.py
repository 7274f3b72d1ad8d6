"""Counters of an operator: plain numbers, which cost little to count. Web servers read them when they are asked.

The number of series is bounded, whatever users do: kinds, handlers and hosts beyond a limit share one series, and no
series is about one object.
"""

from __future__ import annotations

import bisect
import collections
import operator
from collections.abc import Collection, Iterable, Sequence
from typing import Final, TypeAlias

from trioperator._runtime.cache.object_state import Cache, ObjectState

#: A reconcile of an object in a cache: since when it was queued (None if it was not), when it began and ended, on
#: Trio's clock, its result (None if it was cancelled), and since when there was something to do for the object, if this
#: reconcile has done it.
Reconcile: TypeAlias = tuple[Cache, float | None, float, float, str | None, float | None]

#: The label of what exceeds a limit, as in controller-runtime.
OTHERS: Final = "exceeded_cardinality_limit"
_MAX_KINDS: Final = 100
_MAX_HANDLERS: Final = 300
_MAX_REQUESTS: Final = 300

# Upper bounds in seconds, from controller-runtime and from client-go, under whose names they are served.
_RECONCILES: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    *(1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0),
    *(40.0, 50.0, 60.0),
)
_QUEUE: Final = tuple(10.0**exponent for exponent in range(-8, 4))
_REQUESTS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
_SIZES: Final = tuple(float(size) for size in (64, 256, 512, *(4**exponent for exponent in range(5, 13))))  # bytes
_DONE: Final = (0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
_CALLS: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0)


#: Counts of each reconcile, call or request are first collected, and then added together: lists of this many
#: values cost a fraction of what each of them would cost alone.
BATCH: Final = 256


class Histogram:
    """Counts of values up to the bounds, and their sum. The last count is of what is above all bounds."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.sum += value

    def observe_all(self, values: Collection[float]) -> None:
        """Count many values."""
        ordered, counted = sorted(values), 0
        for index, bound in enumerate(self.bounds):
            up_to = bisect.bisect_right(ordered, bound)
            self.counts[index] += up_to - counted
            counted = up_to
        self.counts[-1] += len(ordered) - counted
        self.sum += sum(ordered)


class CallStatistics:
    """Statistics of the calls of one handler for one kind."""

    __slots__ = ("_pending", "results", "seconds")

    def __init__(self) -> None:
        self._pending: list[tuple[str, float]] = []
        # The usual ones are there from the start: what appears later than it is counted is lost to rates.
        self.results = collections.Counter({"succeeded": 0, "retried": 0, "failed": 0})
        self.seconds = Histogram(_CALLS)

    def count(self, result: str, seconds: float) -> None:
        """Count a call."""
        pending = self._pending
        pending.append((result, seconds))
        if len(pending) >= BATCH:
            self.fold()

    def fold(self) -> None:
        """Count the calls that are pending."""
        if self._pending:
            results, seconds = zip(*self._pending, strict=True)
            self._pending.clear()
            self.results.update(results)
            self.seconds.observe_all(seconds)


class KindStatistics:
    """Statistics of one resource kind: its reconciles, and its part of the work queue."""

    __slots__ = (
        "adds",
        "done_seconds",
        "name",
        "panics",
        "queue_seconds",
        "reconcile_seconds",
        "results",
        "retries",
        "terminal_errors",
        "timeouts",
        "work_seconds",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.results = dict.fromkeys(("success", "error", "requeue", "requeue_after"), 0)
        self.reconcile_seconds = Histogram(_RECONCILES)
        self.queue_seconds = Histogram(_QUEUE)
        self.done_seconds = Histogram(_DONE)
        self.work_seconds = Histogram(_QUEUE)
        self.adds = self.retries = self.terminal_errors = self.panics = self.timeouts = 0

    def count_reconciles(self, reconciles: Iterable[Reconcile]) -> None:
        """Count reconciles."""
        _, queued, began, ended, results, pending = zip(*reconciles, strict=True)
        self.queue_seconds.observe_all(
            [start - since for since, start in zip(queued, began, strict=True) if since is not None]
        )
        seconds = list(map(operator.sub, ended, began))
        self.reconcile_seconds.observe_all(seconds)
        self.work_seconds.observe_all(seconds)
        self.done_seconds.observe_all(
            [end - since for since, end in zip(pending, ended, strict=True) if since is not None]
        )
        for result, number in collections.Counter(results).items():
            if result is not None:
                self.results[result] += number


class RequestStatistics:
    """Statistics of the requests with one method to one host. Sizes are of bodies."""

    __slots__ = ("_pending", "codes", "received", "retries", "seconds", "sent")

    def __init__(self) -> None:
        self._pending: list[tuple[int, float, int, int]] = []
        self.codes: collections.Counter[str] = collections.Counter()
        self.retries: collections.Counter[str] = collections.Counter()  # by the codes of what has failed
        self.seconds = Histogram(_REQUESTS)
        self.sent = Histogram(_SIZES)
        self.received = Histogram(_SIZES)

    def count(self, code: int, seconds: float, sent: int, received: int) -> None:
        """Count a request that has a response."""
        pending = self._pending
        pending.append((code, seconds, sent, received))
        if len(pending) >= BATCH:
            self.fold()

    def fold(self) -> None:
        """Count the requests that are pending."""
        if self._pending:
            codes, seconds, sent, received = zip(*self._pending, strict=True)
            self._pending.clear()
            self.codes.update(map(str, codes))
            self.seconds.observe_all(seconds)
            self.sent.observe_all(sent)
            self.received.observe_all(received)


class ReviewStatistics:
    """Statistics of the reviews by one handler, or of all conversions."""

    __slots__ = ("codes", "in_flight", "seconds")

    def __init__(self) -> None:
        self.codes = collections.Counter({"200": 0, "500": 0})
        self.seconds = Histogram(_QUEUE)
        self.in_flight = 0


class Statistics:
    """Statistics of one operator. ``queued``, ``pending`` and ``at_work`` are times on Trio's clock.

    An object is pending from when it is queued until a reconcile has left nothing to be tried again. It counts if a
    change was the reason, rather than the first list or a schedule.
    """

    def __init__(self) -> None:
        self.kinds: dict[str, KindStatistics] = {}
        self.calls: dict[tuple[str, str], CallStatistics] = {}  # by the names of the kind and of the handler
        self.requests: dict[tuple[str, str], RequestStatistics] = {}  # by the method and the host
        self.reviews: dict[str, ReviewStatistics] = {}  # by the name of the webhook
        self.admission_panics = self.conversion_panics = 0
        self.queued: dict[ObjectState, float] = {}
        self.pending: dict[ObjectState, tuple[float, bool]] = {}
        self.at_work: dict[ObjectState, float] = {}
        self.loop_lag = 0.0  # seconds of a pass of the event loop, as measured last

    def fold(self) -> None:
        """Count all that is pending: call it before reading."""
        for calls in self.calls.values():
            calls.fold()
        for requests in self.requests.values():
            requests.fold()

    def kind(self, name: str) -> KindStatistics:
        """Return the statistics of a kind by its name, such as ``widgets.example.com``."""
        found = self.kinds.get(name)
        if found is None:
            name = name if len(self.kinds) < _MAX_KINDS else OTHERS
            found = self.kinds.setdefault(name, KindStatistics(name))
        return found

    def call(self, kind: str, handler: str) -> CallStatistics:
        """Return the statistics of the calls of a handler for a kind."""
        found = self.calls.get((kind, handler))
        if found is None:
            key = (kind, handler) if len(self.calls) < _MAX_HANDLERS else (OTHERS, OTHERS)
            found = self.calls.setdefault(key, CallStatistics())
        return found

    def request(self, method: str, host: str) -> RequestStatistics:
        """Return the statistics of the requests with a method to an API server."""
        found = self.requests.get((method, host))
        if found is None:
            key = (method, host) if len(self.requests) < _MAX_REQUESTS else (method, OTHERS)
            found = self.requests.setdefault(key, RequestStatistics())
        return found

    def review(self, webhook: str) -> ReviewStatistics:
        """Return the statistics of a webhook. There are not more of them than handlers."""
        found = self.reviews.get(webhook)
        if found is None:
            found = self.reviews[webhook] = ReviewStatistics()
        return found
