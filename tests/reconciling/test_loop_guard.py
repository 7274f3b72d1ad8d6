"""Tests for :mod:`trioperator._reconciling.loop_guard`: what is done again and again, and when it may be."""

from __future__ import annotations

import math

from trioperator._concurrency.backoff import Backoff
from trioperator._reconciling.loop_guard import LoopGuard

BACKOFF = Backoff(initial=10, maximum=100)


def test_what_is_repeated_waits_longer_and_longer() -> None:
    guard = LoopGuard(free=1, backoff=BACKOFF)
    assert guard.next("a") == -math.inf
    guard.done("a", 0)
    assert guard.next("a") == 0, "the first repetition is free"
    guard.done("a", 0)
    assert guard.next("a") == 10
    guard.done("a", 10)
    assert guard.next("a") == 30
    assert guard.count("b") == 0


def test_what_is_done_long_after_that_is_no_loop() -> None:
    guard = LoopGuard(free=0, backoff=BACKOFF)
    guard.done("a", 0)
    guard.done("a", 1000)
    assert guard.count("a") == 1


def test_what_is_repeated_too_often_is_not_done_any_more() -> None:
    guard = LoopGuard(free=0, backoff=BACKOFF, limit=2)
    guard.done("a", 0)
    guard.done("a", 10)
    assert guard.next("a") == math.inf
    guard.forget({"a"})
    assert guard.next("a") == -math.inf


def test_what_is_not_kept_is_forgotten() -> None:
    guard = LoopGuard(free=0, backoff=BACKOFF)
    guard.keep([])
    guard.done("a", 0)
    guard.done("b", 0)
    guard.keep(["b"])
    assert (guard.count("a"), guard.count("b")) == (0, 1)


def test_what_was_done_long_ago_is_forgotten_but_not_what_is_not_done_any_more() -> None:
    guard = LoopGuard(free=0, backoff=BACKOFF, limit=2)
    guard.done("loop", 0)
    guard.done("loop", 1)
    keys = [f"config-{number}" for number in range(10_000)]
    for number, key in enumerate(keys):
        guard.done(key, number * 10)
        guard.report(key)
    assert sum(guard.count(key) for key in keys) < 100
    assert guard.count(keys[-1]) == 1
    assert guard.next("loop") == math.inf
