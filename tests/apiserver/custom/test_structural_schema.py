"""Conformance: schemas must be structural."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest

from tests.apiserver.conftest import Target
from tests.apiserver.dry_runs import problems_of_field, problems_of_schema
from trioperator.apiserver.custom.structural_schema import check_structural, subschemas

Case: TypeAlias = tuple[dict[str, Any], list[tuple[str, str]]]  # a schema, and its errors
NO_PROPERTIES = (
    "Required value: must not be empty if x-kubernetes-embedded-resource is true without "
    "x-kubernetes-preserve-unknown-fields"
)
IMPLICIT = "Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified"

BAD = "must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`"
FIELDS: list[Case] = [
    (
        {"type": "string", "pattern": "(", "not": {"pattern": "("}, "allOf": [{"anyOf": [{"pattern": "("}]}]},
        [
            ("allOf[0].anyOf[0].pattern", f'Invalid value: "(": {BAD}'),
            ("not.pattern", f'Invalid value: "(": {BAD}'),
            ("pattern", f'Invalid value: "(": {BAD}'),
        ],
    ),
    (
        {"type": "array", "items": {"description": "x"}},
        [("items.type", "Required value: must not be empty for specified array items")],
    ),
    (
        {"type": "string", "anyOf": [{"type": "string"}]},
        [("anyOf[0].type", "Forbidden: must be empty to be structural")],
    ),
    (
        {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "string"}, {"type": "integer"}]},
        [
            ("anyOf[0].type", "Forbidden: must be empty to be structural"),
            ("anyOf[1].type", "Forbidden: must be empty to be structural"),
        ],
    ),
    (
        {"x-kubernetes-int-or-string": True, "x-kubernetes-preserve-unknown-fields": True},
        [
            (
                "x-kubernetes-preserve-unknown-fields",
                "Invalid value: true: must be false if x-kubernetes-int-or-string is true",
            )
        ],
    ),
    (
        {"type": "string", "not": {"description": "x", "title": "y", "nullable": True, "default": "z"}},
        [
            ("not.default", "Forbidden: must be undefined to be structural"),
            ("not.description", "Forbidden: must be empty to be structural"),
            ("not.nullable", "Forbidden: must be false to be structural"),
            ("not.title", "Forbidden: must be empty to be structural"),
        ],
    ),
    (
        {
            "type": "object",
            "not": {
                "x-kubernetes-preserve-unknown-fields": True,
                "x-kubernetes-embedded-resource": True,
                "x-kubernetes-int-or-string": True,
            },
        },
        [
            ("not.x-kubernetes-embedded-resource", "Forbidden: must be false to be structural"),
            ("not.x-kubernetes-int-or-string", "Forbidden: must be false to be structural"),
            ("not.x-kubernetes-preserve-unknown-fields", "Forbidden: must be false to be structural"),
        ],
    ),
    (
        {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "allOf": [{"additionalProperties": {"minLength": 1}}],
        },
        [("allOf[0].additionalProperties", "Forbidden: must be undefined to be structural")],
    ),
    (
        {"type": "string", "allOf": [{"x-kubernetes-validations": [{"rule": "true"}]}]},
        [("allOf[0].x-kubernetes-validations", "Forbidden: must be empty to be structural")],
    ),
    (
        {"type": "object", "x-kubernetes-embedded-resource": True},
        [
            (
                "properties",
                NO_PROPERTIES,
            )
        ],
    ),
    (
        {"x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
        [("type", "Required value: must be object if x-kubernetes-embedded-resource is true")],
    ),
    (
        {"type": "string", "x-kubernetes-embedded-resource": True},
        [
            (
                "properties",
                NO_PROPERTIES,
            ),
            ("type", 'Invalid value: "string": must be object if x-kubernetes-embedded-resource is true'),
        ],
    ),
    (
        {"type": "object", "x-kubernetes-embedded-resource": True, "additionalProperties": {"type": "string"}},
        [
            ("additionalProperties", "Forbidden: must not be used if x-kubernetes-embedded-resource is set"),
            (
                "properties",
                NO_PROPERTIES,
            ),
        ],
    ),
    (
        {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"metadata": {"type": "string"}}},
        [("properties[metadata].type", 'Invalid value: "string": must be object')],
    ),
    ({"type": "array"}, [("items", "Required value: must be specified")]),
]
ROOTS: list[Case] = [
    ({"properties": {}}, [("type", "Required value: must not be empty at the root")]),
    ({"type": "array", "items": {"type": "string"}}, [("type", 'Invalid value: "array": must be object at the root')]),
    (
        {"type": "object", "additionalProperties": {"type": "string"}},
        [("additionalProperties", "Forbidden: must not be used at the root")],
    ),
    (
        {"type": "object", "allOf": [{"properties": {"metadata": {}}}]},
        [
            ("allOf[0].properties[metadata]", "Forbidden: must not be specified in a nested context"),
            ("properties[metadata]", "Required value: because it is defined in ROOT.allOf[0].properties[metadata]"),
        ],
    ),
    (
        {
            "type": "object",
            "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}},
        },
        [
            (
                "properties[metadata]",
                IMPLICIT,
            )
        ],
    ),
    (
        {"type": "object", "properties": {"metadata": {"type": "object", "description": "x"}}},
        [
            (
                "properties[metadata]",
                IMPLICIT,
            )
        ],
    ),
    (
        {"type": "object", "properties": {"metadata": {"type": "string"}}},
        [("properties[metadata].type", 'Invalid value: "string": must be object')],
    ),
    (
        {"type": "object", "properties": {"kind": {"type": "integer"}}},
        [("properties[kind].type", 'Invalid value: "integer": must be string')],
    ),
]
STRUCTURAL: list[Case] = [
    ({"type": "string"}, []),
    ({"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}, []),
    (
        {
            "x-kubernetes-int-or-string": True,
            "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"pattern": "x"}],
        },
        [],
    ),
    ({"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}, []),
    ({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True}, []),
]
STRUCTURAL_ROOTS: list[Case] = [
    (
        {
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object",
                    "properties": {
                        "a": {
                            "type": "object",
                            "properties": {"x": {"type": "string"}, "y": {"type": "string"}},
                            "oneOf": [{"required": ["x"]}, {"required": ["y"]}],
                        }
                    },
                }
            },
        },
        [],
    ),
    (
        {
            "type": "object",
            "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 10}}}},
        },
        [],
    ),
]


@pytest.mark.parametrize(("schema", "expected"), FIELDS + STRUCTURAL)
async def test_schemas_of_fields_must_be_structural(
    target: Target, schema: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert await problems_of_field(target, schema) == expected


@pytest.mark.parametrize(("schema", "expected"), ROOTS + STRUCTURAL_ROOTS)
async def test_schemas_of_objects_must_be_structural(
    target: Target, schema: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert await problems_of_schema(target, schema) == expected


def test_what_a_junction_at_the_root_specifies_must_be_specified_by_the_schema() -> None:
    items = {"type": "array", "items": {"type": "string"}}
    schema = {"type": "object", "properties": {"a": items, "b": {"type": "string"}}}
    rules = [{"properties": {"a": {"items": {"minLength": 1}}}}, {"properties": {"b": {"items": {"minLength": 1}}}}]
    found = check_structural({**schema, "anyOf": [*rules, {"properties": {"c": {"minLength": 1}}}]}, "s")
    assert [(cause.field, cause.message) for cause in found] == [
        ("s.properties[b].items", "Required value: because it is defined in s.anyOf[1].properties[b].items"),
        ("s.properties[c]", "Required value: because it is defined in s.anyOf[2].properties[c]"),
    ]


def test_the_parts_of_a_schema_have_paths() -> None:
    schema = {"properties": {"a": {}}, "items": {}, "additionalProperties": True, "anyOf": [{}]}
    assert dict(subschemas(schema)) == {".properties[a]": {}, ".items": {}}
    assert dict(subschemas({"additionalProperties": {"type": "string"}})) == {
        ".additionalProperties": {"type": "string"}
    }
