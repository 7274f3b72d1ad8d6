"""Tests for :mod:`trioperator.testing.exploring.shrinking`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from trioperator.testing.exploring.shrinking import shrink
from trioperator.testing.exploring.subjects import State

LONG: list[State] = [
    {"spec": {"a": 5, "b": "x", "items": [1, 2, 3]}},
    {"spec": {"b": "y"}},
    {"spec": {"a": 7, "host": "h", "items": [{"name": "n", "extra": 1}]}},
    {"spec": {"a": 7}},
]


def test_steps_and_fields_that_are_not_needed_are_left_out() -> None:
    def loses_host(states: Sequence[State]) -> bool:
        return any("host" in one["spec"] and "host" not in other["spec"] for one, other in itertools.pairwise(states))

    assert shrink(LONG, loses_host, limit=200) == [{"spec": {"host": "h"}}, {"spec": {}}]


def test_values_become_simpler() -> None:
    def is_big(states: Sequence[State]) -> bool:
        return any(state["spec"].get("a", 0) > 0 for state in states)

    assert shrink(LONG, is_big, limit=200) == [{"spec": {"a": 1}}]


def test_items_of_lists_become_simpler() -> None:
    def is_named(states: Sequence[State]) -> bool:
        return any(isinstance(i, dict) and "name" in i for state in states for i in state["spec"].get("items", []))

    assert shrink(LONG, is_named, limit=200) == [{"spec": {"items": [{"name": "n"}]}}]


def test_the_limit_is_kept() -> None:
    calls: list[Sequence[State]] = []

    def shows(states: Sequence[State]) -> bool:
        calls.append(states)
        return False

    assert shrink(LONG, shows, limit=7) == LONG
    assert len(calls) == 7
