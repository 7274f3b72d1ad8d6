"""Tests for :mod:`trioperator.testing.exploring.sequences`."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest

from trioperator.errors import ConfigError
from trioperator.testing.exploring.sequences import draw_sequences, iterate_paths, with_value, without
from trioperator.testing.exploring.subjects import State, Subject

SUBJECT = Subject(
    resource="webapps.example.com",
    api_version="example.com/v1",
    kind="WebApp",
    schema={
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "properties": {"size": {"type": "integer", "minimum": 1, "maximum": 2}, "on": {"type": "boolean"}},
            }
        },
    },
)


SWITCHED = Subject(
    resource="webapps.example.com",
    api_version="example.com/v1",
    kind="WebApp",
    schema={
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "backup": {
                        "type": "object",
                        "properties": {"enabled": {"type": "boolean"}, "keep": {"type": "integer"}},
                    }
                },
            }
        },
    },
)


def draw(seed: int, count: int = 30) -> list[list[State]]:
    return list(itertools.islice(draw_sequences(SUBJECT, seed=seed, steps=4), count))


def test_a_field_is_changed_while_its_feature_is_switched_on() -> None:
    sequences = itertools.islice(draw_sequences(SWITCHED, seed=0, steps=4), 12)
    pairs = [(one, other) for each in sequences for one, other in itertools.pairwise(each)]
    backups = [[state["spec"].get("backup", {}) for state in pair] for pair in pairs]
    assert any(one.get("keep") != other.get("keep") and one.get("enabled") is True for one, other in backups)
    assert all(one.get("enabled") is True for one, other in backups if "keep" in one and "keep" in other)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "^a{500}$", "maxLength": 3},
        {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "boolean"}, "minItems": 5},
    ],
)
def test_limits_that_contradict_each_other_are_an_error(schema: dict[str, Any]) -> None:
    spec = {"type": "object", "properties": {"field": schema}, "required": ["field"]}
    subject = dataclasses.replace(
        SUBJECT, schema={"properties": {"spec": spec}, "required": ["spec"], "type": "object"}
    )
    with pytest.raises(ConfigError, match=r"No state of webapps.example.com can be drawn .* --from FILE"):
        next(draw_sequences(subject, seed=0, steps=4))


def test_a_seed_always_draws_the_same_sequences() -> None:
    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_each_field_is_set_changed_and_removed_first() -> None:
    pairs = {(repr(one), repr(other)) for each in draw(0, 8) for one, other in itertools.pairwise(each)}
    for name in ("size", "on"):
        assert any(name not in one and name in other for one, other in pairs)
        assert any(name in one and name not in other for one, other in pairs)


def test_no_state_repeats_the_one_before_and_no_sequence_is_longer_than_wanted() -> None:
    for sequence in draw(3):
        assert 1 <= len(sequence) <= 4
        assert all(one != other for one, other in itertools.pairwise(sequence))


def test_fields_are_changed_where_they_are() -> None:
    state = {"spec": {"a": {"b": 1}, "c": [2]}}
    assert list(iterate_paths(state)) == [(("spec", "c"), [2]), (("spec", "a", "b"), 1)] or list(
        iterate_paths(state)
    ) == [(("spec", "a", "b"), 1), (("spec", "c"), [2])]
    assert with_value(state, ("spec", "a", "b"), 3) == {"spec": {"a": {"b": 3}, "c": [2]}}
    assert with_value(state, ("spec", "d", "e"), 3)["spec"]["d"] == {"e": 3}
    assert without(state, ("spec", "a", "b")) == {"spec": {"a": {}, "c": [2]}}
    assert without(state, ("spec", "x", "y")) == state
    assert state == {"spec": {"a": {"b": 1}, "c": [2]}}
