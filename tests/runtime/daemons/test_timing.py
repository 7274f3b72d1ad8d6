"""When timers are due."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator._handling.handlers.handler import TimerHandler
from trioperator._model.resource import Selector
from trioperator._runtime.daemons.timing import after_idling, next_on_grid, next_tick, spread

times = st.floats(0, 1e7)
widths = st.floats(1e-3, 1e5)


def timer(**options: Any) -> TimerHandler:
    return TimerHandler(fn=print, id="timer", selector=Selector.parse("widgets"), **options)


def test_an_interval_counts_from_the_end() -> None:
    assert next_tick(timer(interval=10), due=100, ended=103) == 113


@pytest.mark.parametrize(("ended", "expected"), [(100, 110), (109.9, 110), (110, 120), (137, 140)])
def test_a_sharp_interval_is_a_grid_and_what_would_overlap_is_left_out(ended: float, expected: float) -> None:
    assert next_tick(timer(interval=10, sharp=True), due=100, ended=ended) == expected


def test_a_timer_without_an_interval_is_not_due_again_by_itself() -> None:
    assert next_tick(timer(idle=10), due=100, ended=100) is None


def test_idling_puts_a_call_off() -> None:
    assert after_idling(timer(idle=10), 100, changed=95) == 105
    assert after_idling(timer(idle=10), 100, changed=80) == 100
    assert after_idling(timer(interval=10), 100, changed=99) == 100


@given(anchor=times, width=widths, passed=times)
def test_the_next_point_of_a_grid_is_later_and_no_later_than_it_must_be(
    anchor: float, width: float, passed: float
) -> None:
    after = anchor + passed
    point = next_on_grid(anchor, width, after=after)
    assert point > after
    assert point - after <= width * (1 + 1e-6) + 1e-6
    steps = (point - anchor) / width
    assert steps == pytest.approx(round(steps), abs=1e-3)


@pytest.mark.parametrize("width", [1e-12, 1e-300])
def test_a_grid_finer_than_floats_has_a_next_point(width: float) -> None:
    assert 1e6 < next_on_grid(10.0, width, after=1e6) < 1e6 + 1e-6


@given(anchor=times, width=widths, delays=st.lists(st.floats(0, 1e-4), min_size=2, max_size=50))
def test_a_grid_does_not_drift_however_late_one_wakes_up(anchor: float, width: float, delays: list[float]) -> None:
    points = [anchor]
    for delay in delays:
        points.append(next_on_grid(points[-1], width, after=points[-1] + delay))
    assert all(b - a == pytest.approx(width, rel=1e-3, abs=1e-6) for a, b in itertools.pairwise(points))


@given(uid=st.text(), limit=st.floats(0, 100), interval=st.none() | st.floats(0.1, 100))
def test_first_calls_are_spread_within_the_limit_and_always_in_the_same_way(
    uid: str, limit: float, interval: float | None
) -> None:
    handler = timer(interval=interval)
    offset = spread(handler, uid, limit=limit)
    assert offset == spread(handler, uid, limit=limit)
    assert 0 <= offset <= limit
    assert interval is None or offset <= interval


def test_first_calls_of_many_objects_are_spread_evenly() -> None:
    offsets = [spread(timer(interval=60), f"uid-{number}", limit=10) for number in range(1000)]
    for second in range(10):
        assert 60 <= sum(second <= offset < second + 1 for offset in offsets) <= 140
