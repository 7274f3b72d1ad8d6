"""Shrinking: the shortest and simplest sequence of states that still shows a finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from trioperator.testing.exploring.sequences import iterate_paths, with_value, without
from trioperator.testing.exploring.subjects import State

Sequence_: TypeAlias = Sequence[State]


def shrink(states: Sequence_, shows: Callable[[Sequence_], bool], *, limit: int) -> Sequence_:
    """Return a smaller sequence for which *shows* is true, as it is for *states*, by at most *limit* calls of it.

    Steps are left out first, then fields from all states, then from single ones; then values become simpler.
    """
    best, seen = list(states), {_key(states)}
    calls = 0
    improved = True
    while improved:
        improved = False
        for candidate in _iterate_smaller(best):
            key = _key(candidate)
            if key in seen:
                continue
            if calls >= limit:
                return best
            seen.add(key)
            calls += 1
            if shows(candidate):
                best, improved = list(candidate), True
                break
    return best


def _key(states: Sequence_) -> str:
    return repr(states)


def _iterate_smaller(states: Sequence_) -> Iterator[list[State]]:
    """Yield smaller sequences, the smallest first."""
    count = len(states)
    if count > 2:
        yield [*states[-2:]]
    for index in range(count if count > 1 else 0):
        yield _merged([*states[:index], *states[index + 1 :]])
    paths = list(dict.fromkeys(path for state in states for path, _ in iterate_paths(state)))
    for path in sorted(paths, key=len):
        yield _merged([without(state, path) for state in states])
    for index, state in enumerate(states):
        for path, value in iterate_paths(state):
            yield _merged(_replaced(states, index, without(state, path)))
            for simpler in _simplify(value):
                yield _merged(_replaced(states, index, with_value(state, path, simpler)))


def _replaced(states: Sequence_, index: int, state: State) -> list[State]:
    return [*states[:index], state, *states[index + 1 :]]


def _merged(states: Sequence_) -> list[State]:
    """Return the sequence without states that repeat the one before."""
    return [state for index, state in enumerate(states) if index == 0 or state != states[index - 1]]


def _simplify(value: Any) -> Iterator[Any]:
    """Yield simpler values of the same type."""
    match value:
        case list() if value:
            yield []
            for index in range(len(value)):
                if len(value) > 1:
                    yield [*value[:index], *value[index + 1 :]]
            for index, item in enumerate(value):
                if isinstance(item, Mapping):
                    for path, _ in iterate_paths({"": item}):
                        yield [*value[:index], without({"": item}, path)[""], *value[index + 1 :]]
        case bool():
            return
        case int() if value not in (0, 1):
            yield from (number for number in (1, 0, 2) if number != value)
