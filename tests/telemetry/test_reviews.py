"""Tests for :mod:`trioperator._telemetry.reviews`: under which names and codes reviews are counted."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.webhooks.admission import make_review, widget
from tests.webhooks.conversions import make_conversion
from trioperator._telemetry.reviews import CountingReviews
from trioperator._telemetry.statistics import OTHERS, Statistics
from trioperator.errors import ReviewError


async def answer(request: Any, *, webhook: Any = None, headers: Any = None, sslpeer: Any = None) -> Any:
    """Answer a review after the seconds in it."""
    seconds = request["request"].get("seconds", 0)
    if seconds < 0:
        raise ReviewError("no", status=400)
    if math.isnan(seconds):
        raise ValueError("unforeseen")
    await trio.sleep(seconds)
    return {"allowed": True}


def count(statistics: Statistics) -> dict[str, dict[str, int]]:
    return {name: {c: n for c, n in reviews.codes.items() if n} for name, reviews in statistics.reviews.items()}


async def test_reviews_are_counted_by_handlers_whatever_they_are_called_in_urls() -> None:
    statistics = Statistics()
    fn = CountingReviews(answer, ["check_size", "other"], statistics, converts=True)
    assert count(statistics) == {"check_size": {}, "other": {}, "convert": {}}
    for webhook in ("check_size", "check-size", None, *(f"unknown-{number}" for number in range(1000))):
        assert await fn(make_review(), webhook=webhook) == {"allowed": True}
    await fn(make_conversion(widget()), webhook="check_size")
    assert count(statistics) == {
        "check_size": {"200": 2},
        "other": {},
        "convert": {"200": 1},
        "": {"200": 1},
        OTHERS: {"200": 1000},
    }


async def test_reviews_without_a_response_are_counted_by_their_errors(autojump_clock: MockClock) -> None:
    statistics = Statistics()
    fn = CountingReviews(answer, ["a"], statistics, converts=False)
    with pytest.raises(ReviewError):
        await fn(make_review(seconds=-1), webhook="a")
    with pytest.raises(ValueError, match="unforeseen"):
        await fn(make_review(seconds=math.nan), webhook="a")
    with trio.move_on_after(3):
        await fn(make_review(seconds=5), webhook="a")
    assert count(statistics) == {"a": {"400": 1, "500": 1, "504": 1}}
    assert (statistics.review("a").in_flight, statistics.review("a").seconds.sum) == (0, 3)
