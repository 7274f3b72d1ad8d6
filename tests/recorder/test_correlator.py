"""Tests for :mod:`trioperator._recorder.correlator`: the figures of client-go's recorder."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator._recorder.correlator import (
    BURST,
    COMBINED,
    MAX_ENTRIES,
    OBSTACLES,
    REFILL,
    SIMILAR,
    WINDOW,
    Correlator,
    Occurrence,
)


def occurrence(time: float = 0, message: str = "hello", *, name: str = "w", reason: str = "Greeting") -> Occurrence:
    return Occurrence("example.com/v1", "Widget", "default", name, f"u-{name}", "Normal", reason, message, time)


def test_the_figures_are_those_of_client_go() -> None:
    assert (SIMILAR, WINDOW, BURST, REFILL, MAX_ENTRIES) == (10, 600, 25, 300, 4096)
    assert COMBINED == "(combined from similar events): "


def test_equal_events_are_counted() -> None:
    correlator = Correlator()
    series = [correlator.observe(occurrence(time)) for time in range(3)]
    assert series[0] is series[1] is series[2]
    assert series[0].count == 3
    assert (series[0].first.time, series[0].last.time) == (0, 2)


@pytest.mark.parametrize("field", ["kind", "api_version", "namespace", "name", "uid", "type", "reason", "message"])
def test_events_that_differ_are_not_counted_together(field: str) -> None:
    correlator = Correlator()
    one = correlator.observe(occurrence())
    changed: dict[str, Any] = {field: "another"}
    other = correlator.observe(occurrence()._replace(**changed))
    assert one is not other
    assert one.count == other.count == 1


def test_the_tenth_similar_event_and_those_after_it_are_combined() -> None:
    correlator = Correlator()
    series = [correlator.observe(occurrence(n, f"message {n}")) for n in range(12)]
    assert [one.last.message for one in series[:9]] == [f"message {n}" for n in range(9)]
    assert series[9] is series[10] is series[11]
    assert series[9].last.message == COMBINED + "message 11"
    assert series[9].count == 3


def test_nine_messages_are_remembered_and_not_combined() -> None:
    correlator = Correlator()
    for n in range(12):
        correlator.observe(occurrence(n, f"message {n}"))
    again = correlator.observe(occurrence(12, "message 5"))
    assert (again.last.message, again.count) == ("message 5", 2)
    assert correlator.observe(occurrence(13, "message 0")).last.message == COMBINED + "message 0"


def test_similar_events_are_not_combined_after_a_break() -> None:
    correlator = Correlator()
    for n in range(9):
        correlator.observe(occurrence(0, f"message {n}"))
    assert correlator.observe(occurrence(600.1, "message 10")).last.message == "message 10"


def test_similar_events_are_combined_as_long_as_the_breaks_are_short() -> None:
    correlator = Correlator()
    last = [correlator.observe(occurrence(600.0 * n, f"message {n}")) for n in range(10)][-1]
    assert last.last.message.startswith(COMBINED)


def test_events_with_different_reasons_are_not_combined() -> None:
    correlator = Correlator()
    series = [correlator.observe(occurrence(0, f"message {n}", reason=f"Reason{n}")) for n in range(20)]
    assert not any(one.last.message.startswith(COMBINED) for one in series)


def test_an_object_has_a_burst_and_then_one_event_in_five_minutes() -> None:
    correlator = Correlator()
    assert [correlator.admit(occurrence()) for _ in range(30)] == [True] * 25 + [False] * 5
    assert [correlator.admit(occurrence(time)) for time in (299, 300, 301, 600)] == [False, True, False, True]
    assert correlator.admit(occurrence(name="other"))


@pytest.mark.parametrize("crowd", ["Logging", "Forbidden"])
def test_neither_log_messages_nor_errors_crowd_out_that_an_object_is_paused(crowd: str) -> None:
    correlator = Correlator()
    assert [correlator.admit(occurrence(reason=crowd)) for _ in range(30)].count(True) == BURST
    assert all(correlator.admit(occurrence(reason=reason)) for reason in sorted(OBSTACLES))
    assert correlator.admit(occurrence(reason="Created")) is (crowd == "Logging")


def test_a_quiet_object_saves_no_more_than_a_burst() -> None:
    correlator = Correlator()
    correlator.admit(occurrence(0))
    assert [correlator.admit(occurrence(1e6)) for _ in range(26)] == [True] * 25 + [False]


def test_a_forgotten_series_begins_anew() -> None:
    correlator = Correlator()
    correlator.forget(correlator.observe(occurrence(0)))
    assert correlator.observe(occurrence(1)).count == 1
    assert correlator.observe(occurrence(2)).first.time == 1


def test_what_was_used_last_is_remembered() -> None:
    correlator = Correlator()
    kept = correlator.observe(occurrence(name="kept"))
    for n in range(2 * MAX_ENTRIES):
        correlator.observe(occurrence(name=str(n)))
        if n % 1000 == 0:
            assert correlator.observe(occurrence(name="kept")) is kept
    assert len(correlator) <= 2 * MAX_ENTRIES
    assert correlator.observe(occurrence(name="0")).count == 1


_STEPS = st.lists(
    st.tuples(st.floats(min_value=0, max_value=400, allow_nan=False), st.integers(0, 15), st.sampled_from(["a", "b"])),
    max_size=60,
)


@given(_STEPS)
def test_every_occurrence_is_counted_once(steps: list[tuple[float, int, str]]) -> None:
    correlator, now, series = Correlator(), 0.0, {}
    for delay, message, name in steps:
        now += delay
        one = correlator.observe(occurrence(now, f"message {message}", name=name))
        assert one.last.message.endswith(f"message {message}")
        assert one.first.time <= one.last.time == now
        assert one.last.name == name
        series[one.key] = one
    assert sum(one.count for one in series.values()) == len(steps)


@given(_STEPS)
def test_an_event_is_combined_if_and_only_if_nine_other_messages_are_remembered(
    steps: list[tuple[float, int, str]],
) -> None:
    correlator, now = Correlator(), 0.0
    remembered: dict[str, list[str]] = {"a": [], "b": []}
    last = {"a": 0.0, "b": 0.0}
    for delay, number, name in steps:
        now += delay
        message, others = f"message {number}", remembered[name]
        if now - last[name] > WINDOW:
            others.clear()
        last[name] = now
        combined = message not in others and len(others) == SIMILAR - 1
        if message not in others:
            others.append(message)
        del others[: -(SIMILAR - 1)]
        posted = correlator.observe(occurrence(now, message, name=name)).last.message
        assert posted == (COMBINED if combined else "") + message


@given(st.lists(st.floats(min_value=0, max_value=700, allow_nan=False), max_size=60))
def test_no_interval_has_more_events_than_a_burst_and_one_in_five_minutes(delays: list[float]) -> None:
    correlator, now = Correlator(), 0.0
    admitted: list[float] = []
    for delay in delays:
        now += delay
        if correlator.admit(occurrence(now)):
            admitted.append(now)
    for i, begin in enumerate(admitted):
        for j in range(i, len(admitted)):
            assert j - i + 1 <= BURST + (admitted[j] - begin) / REFILL + 1e-6


@given(st.lists(st.floats(min_value=0, max_value=700, allow_nan=False), max_size=60))
def test_an_event_is_refused_only_if_the_allowance_is_used_up(delays: list[float]) -> None:
    correlator, now, tokens = Correlator(), 0.0, float(BURST)
    for delay in delays:
        now += delay
        tokens = min(float(BURST), tokens + delay / REFILL)
        admitted = correlator.admit(occurrence(now))
        if abs(tokens - round(tokens)) > 1e-6:
            assert admitted == (tokens >= 1)
        tokens -= admitted
