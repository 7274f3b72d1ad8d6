"""Tests for :mod:`trioperator._tooling.deployment.examples`."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.runtime.conftest import CRD
from trioperator._tooling.deployment.examples import make_example
from trioperator.apiserver import Cluster


def make_definition(**properties: Any) -> dict[str, Any]:
    """Return a CRD whose objects need all of the fields in their spec."""
    definition = copy.deepcopy(CRD)
    spec = {"type": "object", "properties": properties, "required": list(properties)}
    schema = {"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}, "required": ["spec"]}
    definition["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": schema}
    return definition


def test_a_kind_without_a_schema_has_an_example_without_a_spec() -> None:
    assert make_example(CRD, CRD["spec"]["versions"][0]) == {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "widget-example"},
    }


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, ""),
        ({"type": "string", "minLength": 3}, "xxx"),
        ({"type": "string", "default": "small"}, "small"),
        ({"type": "string", "enum": ["large", "small"]}, "large"),
        ({"type": "string", "format": "ipv4"}, "192.0.2.1"),
        ({"type": "string", "format": "date-time"}, "2026-01-31T12:00:00Z"),
        ({"type": "boolean"}, False),
        ({"type": "integer"}, 0),
        ({"type": "integer", "minimum": 5, "multipleOf": 4}, 8),
        ({"type": "integer", "minimum": 4, "exclusiveMinimum": True}, 5),
        ({"type": "integer", "maximum": -1, "exclusiveMaximum": True}, -2),
        ({"x-kubernetes-int-or-string": True}, 0),
        ({"type": "array", "items": {"type": "string"}}, []),
        ({"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 2}, [1, 1]),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
                "required": ["a"],
            },
            {"a": 0},
        ),
        ({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, {}),
    ],
)
async def test_required_fields_have_the_least_value_that_the_api_server_accepts(
    schema: dict[str, Any], value: Any
) -> None:
    definition = make_definition(field=schema)
    example = make_example(definition, definition["spec"]["versions"][0])
    assert example["spec"] == {"field": value}
    cluster = Cluster()
    await cluster.apply(definition)
    await cluster.apply(example)
    assert (await cluster.get("widgets", "widget-example"))["spec"] == {"field": value}


def test_optional_fields_are_left_out() -> None:
    definition = make_definition(field={"type": "string"})
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["required"] = []
    assert make_example(definition, definition["spec"]["versions"][0])["spec"] == {}
