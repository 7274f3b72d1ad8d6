"""Exponential backoff with jitter."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator._concurrency.backoff import Backoff

POSITIVE = st.floats(min_value=1e-3, max_value=1e6)
FAILURES = st.one_of(st.integers(1, 50), st.integers(min_value=1))


@st.composite
def backoffs(draw: st.DrawFn) -> Backoff:
    initial, maximum = sorted((draw(POSITIVE), draw(POSITIVE)))
    factor = draw(st.floats(min_value=1.0, max_value=1e12))
    return Backoff(initial=initial, maximum=maximum, factor=factor, jitter=draw(st.floats(0, 1)))


def test_delays_double_up_to_the_maximum() -> None:
    backoff = Backoff(initial=0.5, maximum=10.0)
    assert [backoff.delay(failures) for failures in range(1, 8)] == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_a_constant_delay_is_one_whose_maximum_is_its_initial_delay() -> None:
    backoff = Backoff(initial=5.0, maximum=5.0)
    assert {backoff.delay(failures) for failures in range(1, 100)} == {5.0}


@pytest.mark.parametrize("failures", [0, -1])
def test_without_failures_there_is_no_delay(failures: int) -> None:
    assert Backoff(initial=0.5, maximum=30.0, jitter=0.25).delay(failures) == 0.0


@pytest.mark.parametrize(("random", "delay"), [(0.0, 22.5), (0.5, 30.0), (1.0, 37.5)])
def test_jitter_spreads_the_maximum_too(random: float, delay: float) -> None:
    assert Backoff(initial=0.5, maximum=30.0, jitter=0.25).delay(100, random=lambda: random) == delay


def test_random_numbers_are_drawn_for_jitter_only() -> None:
    assert Backoff(initial=1.0, maximum=2.0).delay(1, random=lambda: pytest.fail("asked for")) == 1.0


@given(backoffs(), FAILURES, st.floats(0, 1, exclude_max=True))
def test_delays_are_within_the_jitter_of_the_bounds(backoff: Backoff, failures: int, random: float) -> None:
    low, high = backoff.initial * (1 - backoff.jitter), backoff.maximum * (1 + backoff.jitter)
    assert low * (1 - 1e-9) <= backoff.delay(failures, random=lambda: random) <= high * (1 + 1e-9)


@given(backoffs(), FAILURES)
def test_without_jitter_delays_never_shrink(backoff: Backoff, failures: int) -> None:
    exact = msgspec.structs.replace(backoff, jitter=0.0)
    assert exact.delay(failures) <= exact.delay(failures + 1)
