"""Tests for :mod:`trioperator.telemetry.statistics`: what is counted, and that the number of series is bounded."""

from __future__ import annotations

from trioperator.telemetry.statistics import OTHERS, Histogram, Statistics


def test_a_histogram_counts_values_up_to_each_bound() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 3.0):
        histogram.observe(value)
    assert (histogram.counts, histogram.sum) == ([2, 2, 1], 8.0)


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
