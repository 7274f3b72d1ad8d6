"""Sequences of states: from each state to one that is a little different, to another one, or back."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import hypothesis
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from trioperator.errors import ConfigError
from trioperator.testing.exploring.schemas import from_examples, from_schema
from trioperator.testing.exploring.subjects import State, Subject

Path: TypeAlias = tuple[str, ...]

_POOL: Final = 150  # states, from which values are taken
_MAX_VALUES: Final = 6  # of one field
_MAX_DEPTH: Final = 6
_SWITCHES: Final = ("enabled", "enable")


def state_strategy(subject: Subject) -> SearchStrategy[State]:
    """Return a strategy for the states of a subject, by its schema, its examples, or both. Raises ConfigError."""
    subject.check()
    strategies: list[SearchStrategy[State]] = []
    if subject.schema.get("properties"):
        strategies.append(from_schema(subject.schema))
    if subject.examples:
        strategies.append(from_examples(subject.examples))
    return st.one_of(*strategies)


def draw_sequences(subject: Subject, *, seed: int, steps: int) -> Iterator[list[State]]:
    """Yield sequences without end: first each field is set, changed and removed, then anything may change."""
    pool = [*subject.examples, *_draw_pool(subject, seed)]
    values = _collect_values(pool)
    base = pool[0]
    for number in range(_MAX_VALUES):
        for path, several in values.items():
            if number < len(several):
                one, other = several[number], several[(number + 1) % len(several)]
                start = _switch_on(base, path, values)
                there, bare = [with_value(start, path, one), with_value(start, path, other)], without(start, path)
                for sequence in ([bare, *there, bare, base], [base, *there, bare, base])[: 1 if number else 2]:
                    yield _distinct(sequence)[: max(steps, 2)]
    rng = random.Random(seed)
    while True:
        sequence = [rng.choice(pool)]
        while len(sequence) < steps:
            sequence.append(_change(rng, sequence, pool, values))
        yield _distinct(sequence)


def _switch_on(state: State, path: Path, values: Mapping[Path, list[Any]]) -> State:
    """Return the state with the features switched on that a field is a part of, as `backup.enabled` for a schedule."""
    for length in range(1, len(path)):
        for name in _SWITCHES:
            switch = (*path[:length], name)
            if True in values.get(switch, ()) and switch != path:
                state = with_value(state, switch, True)
    return state


def _draw_pool(subject: Subject, seed: int) -> list[State]:
    """Return distinct states, the same ones for a seed. Raises ConfigError if the schema allows none."""
    drawn: dict[str, State] = {}

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=_POOL,
        database=None,
        deadline=None,
        derandomize=False,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(state_strategy(subject))
    def collect(state: State) -> None:
        drawn.setdefault(repr(state), copy.deepcopy(state))

    try:
        with warnings.catch_warnings():  # hypothesis warns of its own source of randomness on Python 3.14
            warnings.simplefilter("ignore", hypothesis.errors.HypothesisWarning)
            collect()
    except (hypothesis.errors.InvalidArgument, hypothesis.errors.Unsatisfiable) as error:
        raise ConfigError(
            f"No state of {subject.resource} can be drawn from its schema, as if its limits contradicted each other"
            f" ({error}). Pass manifests of objects instead, --from FILE, or strategies for its fields, --setup FILE."
        ) from error
    return list(drawn.values())


def _collect_values(pool: Sequence[State]) -> Mapping[Path, list[Any]]:
    """Return the values of each field in the states, with few of each."""
    values: dict[Path, list[Any]] = {}
    for state in pool:
        for path, value in iterate_paths(state):
            known = values.setdefault(path, [])
            if value not in known and len(known) < _MAX_VALUES:
                known.append(value)
    return values


def iterate_paths(value: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the fields below the top level, with their values: fields of mappings after the mappings themselves."""
    for key, item in value.items():
        if path and not (isinstance(item, Mapping) and item and len(path) < _MAX_DEPTH):
            yield (*path, key), item
        if isinstance(item, Mapping):
            yield from iterate_paths(item, (*path, key))


def list_changed(one: State, other: State) -> list[Path]:
    """Return the fields that two states do not have with the same value."""
    before, after = ({path: (value,) for path, value in iterate_paths(state)} for state in (one, other))
    return [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]


def with_field_of(state: State, path: Path, other: State) -> State:
    """Return the state with a field as it is in another state."""
    found = dict(iterate_paths(other))
    return with_value(state, path, found[path]) if path in found else without(state, path)


def with_value(state: State, path: Path, value: Any) -> State:
    """Return the state with another value of a field."""
    key, *rest = path
    inner = state.get(key)
    if rest:
        value = with_value(inner if isinstance(inner, Mapping) else {}, tuple(rest), value)
    return {**state, key: copy.deepcopy(value)}


def without(state: State, path: Path) -> State:
    """Return the state without a field."""
    key, *rest = path
    if key not in state:
        return state
    if not rest:
        return {name: value for name, value in state.items() if name != key}
    inner = state[key]
    return {**state, key: without(inner, tuple(rest))} if isinstance(inner, Mapping) else state


def _change(
    rng: random.Random, sequence: Sequence[State], pool: Sequence[State], values: Mapping[Path, list[Any]]
) -> State:
    last, dice = sequence[-1], rng.random()
    if dice < 0.55 and values:
        state = last
        for _ in range(rng.choice((1, 1, 2))):
            path = rng.choice(list(values))
            state = with_value(state, path, rng.choice(values[path]))
        return state
    if dice < 0.7:
        present = [path for path, _ in iterate_paths(last)]
        return without(last, rng.choice(present)) if present else rng.choice(pool)
    return rng.choice(pool if dice < 0.85 else sequence)


def _distinct(sequence: Sequence[State]) -> list[State]:
    return [state for index, state in enumerate(sequence) if index == 0 or state != sequence[index - 1]]
