"""Tests for :mod:`trioperator._telemetry.statistics`: what is counted, and that the number of series is bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trioperator._telemetry.statistics import BATCH, OTHERS, Histogram, Statistics


def test_a_histogram_counts_values_up_to_each_bound() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 3.0):
        histogram.observe(value)
    assert (histogram.counts, histogram.sum) == ([2, 2, 1], 8.0)


@given(st.lists(st.lists(st.integers(0, 10))))
def test_values_that_are_counted_together_are_counted_as_one_by_one(batches: list[list[int]]) -> None:
    together, alone = Histogram((1.0, 2.0, 5.0, 8.0)), Histogram((1.0, 2.0, 5.0, 8.0))
    for values in batches:
        together.observe_all(values)
        for value in values:
            alone.observe(value)
    assert (together.counts, together.sum) == (alone.counts, alone.sum)


def test_what_nobody_reads_is_counted_before_it_piles_up() -> None:
    statistics = Statistics()
    calls, requests = statistics.call("kind", "handler"), statistics.request("GET", "host")
    for _ in range(BATCH - 1):
        calls.count("succeeded", 0.5)
        requests.count(200, 0.5, 10, 20)
    assert not +calls.results
    assert not requests.codes
    calls.count("failed", 0.5)
    requests.count(404, 0.5, 10, 20)
    assert +calls.results == {"succeeded": BATCH - 1, "failed": 1}
    assert requests.codes == {"200": BATCH - 1, "404": 1}
    assert (calls.seconds.sum, requests.seconds.sum) == (BATCH / 2, BATCH / 2)
    assert (requests.sent.sum, requests.received.sum) == (BATCH * 10, BATCH * 20)
    calls.count("failed", 0.5)
    requests.count(404, 0.5, 10, 20)
    statistics.fold()
    assert calls.results["failed"] == requests.codes["404"] == 2


def test_kinds_beyond_the_limit_are_counted_together() -> None:
    statistics = Statistics()
    kinds = [statistics.kind(f"kind-{number}") for number in range(1000)]
    assert len(statistics.kinds) == 101
    assert kinds[100] is kinds[999]
    assert kinds[999].name == OTHERS
    assert statistics.kind("kind-5") is kinds[5]


def test_handlers_beyond_the_limit_are_counted_together() -> None:
    statistics = Statistics()
    calls = [statistics.call("kind", f"handler-{number}") for number in range(1000)]
    assert len(statistics.calls) == 301
    assert calls[300] is calls[999] is statistics.calls[OTHERS, OTHERS]


def test_hosts_beyond_the_limit_are_counted_together() -> None:
    statistics = Statistics()
    requests = [statistics.request("GET", f"host-{number}") for number in range(1000)]
    assert len(statistics.requests) == 301
    assert requests[300] is requests[999] is statistics.requests["GET", OTHERS]


def test_the_likely_codes_of_a_review_are_there_from_the_start() -> None:
    statistics = Statistics()
    assert dict(statistics.review("check").codes) == {"200": 0, "500": 0}
    assert statistics.review("check") is statistics.reviews["check"]
