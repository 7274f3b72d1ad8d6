"""Tests for :mod:`trioperator.apiserver.custom.cel_values`: expressions see numbers and names as the schema says."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.custom.cel_values import escaped, shown
from trioperator.apiserver.custom.schema import compile_schema

WHOLE = {"type": "integer"}
NUMBER = {"type": "number"}


def record(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object."""
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("plain", "plain"),
        ("one_two", "one_two"),
        ("a-b", "a__dash__b"),
        ("c.d/e", "c__dot__d__slash__e"),
        ("f__g", "f__underscores__g"),
        ("a___b", "a__underscores___b"),
        ("namespace", "__namespace__"),
        ("in", "__in__"),
        ("inner", "inner"),
    ],
)
def test_names_are_escaped_as_in_kubernetes(name: str, expected: str) -> None:
    assert escaped(name) == expected


@given(st.from_regex(r"[a-z][a-z_./-]*", fullmatch=True))
def test_escaped_names_are_identifiers(name: str) -> None:
    assert re.fullmatch(r"\w+", escaped(name))


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [(NUMBER, 1, 1.0), (WHOLE, 1, 1), (WHOLE, 2**63, float(2**63)), (WHOLE, -(2**63), -(2**63)), (NUMBER, True, True)],
)
def test_numbers_have_the_type_of_the_schema(schema: dict[str, Any], value: Any, expected: Any) -> None:
    found = shown(compile_schema(schema), value)
    assert (type(found), found) == (type(expected), expected)


def test_numbers_are_converted_at_any_depth() -> None:
    items = {"type": "array", "items": record(size=NUMBER)}
    node = compile_schema(record(items=items, more={"type": "object", "additionalProperties": NUMBER}))
    found = shown(node, {"items": [{"size": 1}], "more": {"a": 2}})
    assert repr(found) == repr({"items": [{"size": 1.0}], "more": {"a": 2.0}})


def test_properties_are_escaped_and_null_ones_dropped() -> None:
    assert shown(compile_schema(record(**{"a-b": WHOLE, "c": WHOLE})), {"a-b": 1, "c": None}) == {"a__dash__b": 1}


def test_keys_of_maps_are_neither_escaped_nor_dropped() -> None:
    node = compile_schema({"type": "object", "additionalProperties": {**WHOLE, "nullable": True}})
    assert shown(node, {"a-b": 1, "in": None}) == {"a-b": 1, "in": None}


def test_only_names_of_the_metadata_are_shown() -> None:
    obj = {"metadata": {"name": "a", "labels": {"b": "c"}}, "spec": {"size": 1}}
    node = compile_schema(record(spec=record(size=WHOLE)), is_root=True)
    assert shown(node, obj) == {"metadata": {"name": "a"}, "spec": {"size": 1}}
    own = compile_schema(record(metadata=record(labels=WHOLE)))
    assert shown(own, {"metadata": {"labels": 1}}) == {"metadata": {"labels": 1}}
