"""Tests for :mod:`trioperator.crds.structural`."""

from __future__ import annotations

from typing import Any

import pytest

from trioperator.crds.structural import join_union, make_nullable, make_values, read_extras, without_defaults
from trioperator.errors import ConfigError


@pytest.mark.parametrize(
    ("schema", "nullable"),
    [
        ({"type": "string"}, True),
        ({"type": "string", "enum": ["a"]}, None),
        ({"x-kubernetes-int-or-string": True}, True),
    ],
)
def test_everything_but_enumerations_is_made_nullable(schema: dict[str, Any], nullable: bool | None) -> None:
    assert make_nullable(schema).get("nullable") is nullable


def test_values_have_one_type() -> None:
    assert make_values([1, None], "x") == {"type": "integer", "enum": [1]}
    for wrong in ([True], [1, "1"], [None], [1.5]):
        with pytest.raises(ConfigError, match="x has values of several types"):
            make_values(wrong, "x")


def test_unions_of_enumerations_and_others_are_reported() -> None:
    enumeration = {"type": "string", "enum": ["a"]}
    assert join_union([enumeration, {"type": "string", "enum": ["b"]}], "x")["enum"] == ["a", "b"]
    for other in ({"type": "string"}, {"type": "integer"}, {"type": "object"}):
        with pytest.raises(ConfigError, match="x is a union of types"):
            join_union([enumeration, other], "x")


def test_extras_that_crds_do_not_have_are_reported() -> None:
    assert read_extras({"x-kubernetes-list-type": "set", "examples": [1]}, "x") == {"x-kubernetes-list-type": "set"}
    with pytest.raises(ConfigError, match="x has maxLength in extra_json_schema"):
        read_extras({"maxLength": 1}, "x")


def test_fields_named_default_stay_where_defaults_are_removed() -> None:
    inner = {"type": "integer", "default": 1}
    schema = {
        "type": "object",
        "default": {},
        "properties": {"default": inner, "list": {"items": inner}, "dict": {"additionalProperties": inner}},
    }
    bare = {"type": "integer"}
    assert without_defaults(schema) == {
        "type": "object",
        "properties": {"default": bare, "list": {"items": bare}, "dict": {"additionalProperties": bare}},
    }
