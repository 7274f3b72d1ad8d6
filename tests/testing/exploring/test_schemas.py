"""Tests for :mod:`trioperator.testing.exploring.schemas`: what is drawn is accepted by the API server."""

from __future__ import annotations

import re
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis.strategies import SearchStrategy

from tests.testing.exploring.operators import make_crd
from trioperator.apiserver import Cluster
from trioperator.testing.exploring.schemas import _with_few_repetitions, from_examples, from_schema

SCHEMAS: dict[str, Any] = {
    "enum": {"type": "string", "enum": ["a", "b"]},
    "bounds": {"type": "integer", "minimum": 7, "maximum": 9},
    "multiples": {"type": "integer", "multipleOf": 4, "minimum": 5},
    "exclusive": {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 1},
    "pattern": {"type": "string", "pattern": "^[a-z]{3}-[0-9]+$"},
    "length": {"type": "string", "minLength": 9, "maxLength": 12},
    "format": {"type": "string", "format": "date-time"},
    "cidr": {"type": "string", "format": "cidr"},
    "either": {"x-kubernetes-int-or-string": True},
    "nullable": {"type": "boolean", "nullable": True},
    "items": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}},
    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    "map": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
    },
    "free": {"type": "object", "additionalProperties": {"type": "integer"}},
    "required": {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}},
    "replicas": {"type": "integer", "minimum": 4},
    "image": {"type": "string", "pattern": "^nginx"},
    "open": {"x-kubernetes-preserve-unknown-fields": True},
}


def draw(strategy: SearchStrategy[Any], count: int = 25) -> list[Any]:
    """Return drawn values, always the same."""
    drawn: list[Any] = []

    @hypothesis.settings(
        max_examples=count,
        derandomize=True,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @given(strategy)
    def collect(value: Any) -> None:
        drawn.append(value)

    collect()
    return drawn


@pytest.mark.parametrize("name", SCHEMAS)
async def test_the_server_accepts_what_is_drawn_from_a_schema(name: str, cluster: Cluster) -> None:
    await cluster.apply(make_crd(**{name: SCHEMAS[name]}))
    for number, value in enumerate(draw(from_schema(SCHEMAS[name], name))):
        made = {"apiVersion": "example.com/v1", "kind": "WebApp", "metadata": {"name": f"x{number}"}}
        await cluster.create({**made, "spec": {name: value}})


@pytest.mark.parametrize(
    ("pattern", "limited"),
    [
        ("^(a+)+$", "^(a{1,3}){1,3}$"),
        (r"^[]*+]*\+x{2,}?[^+]{4}$", r"^[]*+]{0,3}\+x{2,5}?[^+]{4}$"),
    ],
)
def test_nested_repetitions_without_end_become_short(pattern: str, limited: str) -> None:
    assert _with_few_repetitions(pattern, 3) == limited


def test_a_pattern_that_takes_others_for_ever_is_drawn_in_no_time() -> None:
    pattern = "^(([a-z])+.)+[A-Z]([a-z])+$"
    drawn = draw(from_schema({"type": "string", "pattern": pattern, "minLength": 6}))
    assert all(re.search(pattern, text) and len(text) >= 6 for text in drawn)


def test_optional_fields_come_and_go() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "boolean"}}}
    assert {frozenset(value) for value in draw(from_schema(schema), 60)} >= {frozenset(), frozenset({"a", "b"})}


@pytest.mark.parametrize(("value", "others"), [("MQ==", {"MQ==", "MTI="}), ("a=", {"a=", "a=-2"})])
def test_examples_in_base64_stay_so(value: str, others: set[str]) -> None:
    drawn = draw(from_examples([{"data": {"key": value}}]), 100)
    assert {each["data"]["key"] for each in drawn if each.get("data", {}).get("key")} == others


def test_examples_are_varied_within_their_types() -> None:
    drawn = draw(from_examples([{"size": 5, "on": True, "name": "db", "items": ["a", "b"], "inner": {"x": 1.5}}]), 200)
    assert {type(value["size"]) for value in drawn if "size" in value} == {int}
    assert {value["on"] for value in drawn if "on" in value} == {True, False}
    assert {value["name"] for value in drawn if "name" in value} == {"db", "db-2"}
    assert any("size" not in value for value in drawn)
    assert any(value.get("items") == [] for value in drawn)
