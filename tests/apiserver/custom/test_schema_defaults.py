"""Conformance: defaults in schemas must be valid."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest

from tests.apiserver.conftest import Target
from tests.apiserver.dry_runs import problems_of_field

Case: TypeAlias = tuple[dict[str, Any], list[tuple[str, str]]]  # a schema, and its errors

INVALID: list[Case] = [
    (
        {"type": "integer", "default": "x"},
        [("default", 'Invalid value: "string":  in body must be of type integer: "string"')],
    ),
    ({"type": "string", "enum": ["a"], "default": "b"}, [("default", 'Unsupported value: "b": supported values: "a"')]),
    (
        {"type": "integer", "minimum": 5, "default": 3},
        [("default", "Invalid value: 3:  in body should be greater than or equal to 5")],
    ),
    (
        {"type": "string", "pattern": "^a$", "default": "b"},
        [("default", "Invalid value: \"b\":  in body should match '^a$'")],
    ),
    (
        {"type": "object", "properties": {"a": {"type": "string"}}, "default": {"b": 1}},
        [("default", 'Invalid value: {"b":1}: must not have unknown fields')],
    ),
    (
        {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}, "default": {}},
        [("default.a", "Required value")],
    ),
    (
        {"type": "object", "required": ["a"], "properties": {"a": {"type": "string", "default": "x"}}, "default": {}},
        [("default.a", "Required value")],
    ),
    (
        {"type": "array", "items": {"type": "string", "default": 5}},
        [("items.default", 'Invalid value: "integer":  in body must be of type string: "integer"')],
    ),
    (
        {"type": "integer", "default": 3, "x-kubernetes-validations": [{"rule": "self > 5"}]},
        [("default", "Invalid value: 3: failed rule: self > 5")],
    ),
    (
        {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
            "default": {"a": 1},
        },
        [("default.apiVersion", "Required value"), ("default.kind", "Required value")],
    ),
    (
        {"type": "string", "format": "date-time", "default": "x"},
        [("default", 'Invalid value: "x":  in body must be of type date-time: "x"')],
    ),
]
VALID: list[Case] = [
    ({"type": "string", "default": None}, []),
    ({"type": "string", "nullable": True, "default": None}, []),
    ({"type": "object", "properties": {"a": {"type": "string"}}, "default": {"a": "x"}}, []),
    ({"type": "object", "additionalProperties": {"type": "string", "default": 5}}, []),
    ({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set", "default": ["a", "a"]}, []),
    (
        {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
            "default": {"apiVersion": "v1", "kind": "X"},
        },
        [],
    ),
    ({"type": "object", "x-kubernetes-preserve-unknown-fields": True, "default": {"b": 1}}, []),
]


@pytest.mark.parametrize(("schema", "expected"), INVALID + VALID)
async def test_defaults_must_be_valid(target: Target, schema: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert await problems_of_field(target, schema) == expected
