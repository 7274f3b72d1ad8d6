"""Conformance: keywords of schemas, list types and map types are validated."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest

from tests.apiserver.conftest import Target, definition
from tests.apiserver.dry_runs import DEFINITIONS, of_field, problems_of_field, problems_of_schema
from trioperator.apiserver import Cluster
from trioperator.apiserver.custom.schema_validation import unrecognized_formats

Case: TypeAlias = tuple[dict[str, Any], list[tuple[str, str]]]  # a schema, and its errors
UNSUPPORTED = (
    'Unsupported value: "strng": supported values: "array", "boolean", "integer", "number", "object", "string"'
)
UNSUPPORTED_NULL = (
    'Unsupported value: "null": supported values: "array", "boolean", "integer", "number", "object", "string"'
)
OPTIONAL_KEY = (
    "Required value: this property is in x-kubernetes-list-map-keys, so it must have a default "
    "or be a required property"
)

FIELDS: list[Case] = [
    (
        {"type": "strng"},
        [
            (
                "type",
                UNSUPPORTED,
            )
        ],
    ),
    (
        {"type": "null"},
        [
            ("type", "Forbidden: type cannot be set to null, use nullable as an alternative"),
            (
                "type",
                UNSUPPORTED_NULL,
            ),
        ],
    ),
    (
        {"type": "array", "items": [{"type": "string"}]},
        [("items", "Forbidden: items must be a schema object and not an array")],
    ),
    (
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}},
        [("additionalProperties", "Forbidden: additionalProperties and properties are mutual exclusive")],
    ),
    ({"$ref": "#/definitions/x"}, [("$ref", "Forbidden: $ref is not supported")]),
    ({"type": "string", "id": "x"}, [("id", "Forbidden: id is not supported")]),
    (
        {"type": "string", "$schema": "http://json-schema.org/schema#"},
        [("", "Invalid value: \"\": OpenAPIV3Schema 'schema' is not supported")],
    ),
    (
        {"type": "object", "definitions": {"a": {"type": "string"}}},
        [("definitions", "Forbidden: definitions is not supported")],
    ),
    (
        {"type": "object", "patternProperties": {"a": {"type": "string"}}},
        [("patternProperties", "Forbidden: patternProperties is not supported")],
    ),
    ({"type": "object", "dependencies": {"a": ["b"]}}, [("dependencies", "Forbidden: dependencies is not supported")]),
    (
        {"type": "array", "items": {"type": "string"}, "additionalItems": True},
        [("additionalItems", "Forbidden: additionalItems is not supported")],
    ),
    (
        {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        [
            (
                "uniqueItems",
                "Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            )
        ],
    ),
    (
        {"type": "object", "x-kubernetes-preserve-unknown-fields": False},
        [("x-kubernetes-preserve-unknown-fields", "Invalid value: false: must be true or undefined")],
    ),
    (
        {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "properties": {
                "metadata": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "x-kubernetes-preserve-unknown-fields": True,
                }
            },
        },
        [
            (
                "properties[metadata].x-kubernetes-embedded-resource",
                "Forbidden: must not be used inside of resource meta",
            )
        ],
    ),
    (
        {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "foo"},
        [("x-kubernetes-list-type", 'Unsupported value: "foo": supported values: "atomic", "set", "map"')],
    ),
    (
        {"type": "object", "x-kubernetes-list-type": "set"},
        [("type", 'Invalid value: "object": must be array if x-kubernetes-list-type is specified')],
    ),
    (
        {"x-kubernetes-preserve-unknown-fields": True, "x-kubernetes-list-type": "set"},
        [("type", "Required value: must be array if x-kubernetes-list-type is specified")],
    ),
    (
        {
            "type": "array",
            "items": {"type": "object", "properties": {"a": {"type": "string"}}},
            "x-kubernetes-list-type": "map",
        },
        [("x-kubernetes-list-map-keys", "Required value: must not be empty if x-kubernetes-list-type is map")],
    ),
    (
        {
            "type": "array",
            "items": {"type": "object", "properties": {"a": {"type": "string"}}},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["a"],
        },
        [
            (
                "items.properties[a].default",
                OPTIONAL_KEY,
            )
        ],
    ),
    (
        {
            "type": "array",
            "items": {"type": "object", "properties": {"a": {"type": "string", "nullable": True}}, "required": ["a"]},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["a"],
        },
        [
            (
                "items.properties[a].nullable",
                "Forbidden: this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
            )
        ],
    ),
    (
        {
            "type": "array",
            "items": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["b"],
        },
        [("x-kubernetes-list-map-keys", 'Invalid value: ["b"]: entries must all be names of item properties')],
    ),
    (
        {
            "type": "array",
            "items": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["a", "a"],
        },
        [("x-kubernetes-list-map-keys", 'Invalid value: ["a","a"]: must not contain duplicate entries')],
    ),
    (
        {
            "type": "array",
            "items": {"type": "object", "properties": {"a": {"type": "object"}}, "required": ["a"]},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["a"],
        },
        [
            (
                "items.properties[a].type",
                'Invalid value: "object": must be a scalar type if parent array\'s x-kubernetes-list-type is map',
            )
        ],
    ),
    (
        {
            "type": "array",
            "items": {"type": "string"},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["a"],
        },
        [("items.type", 'Invalid value: "string": must be object if parent array\'s x-kubernetes-list-type is map')],
    ),
    (
        {
            "type": "array",
            "items": {"type": "object", "properties": {"a": {"type": "string"}}, "nullable": True, "required": ["a"]},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["a"],
        },
        [("items.nullable", "Forbidden: cannot be nullable when x-kubernetes-list-type is map")],
    ),
    (
        {
            "type": "array",
            "items": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            "x-kubernetes-list-map-keys": ["a"],
        },
        [("x-kubernetes-list-type", "Required value: must be map if x-kubernetes-list-map-keys is non-empty")],
    ),
    (
        {
            "type": "array",
            "items": {"type": "string"},
            "x-kubernetes-list-type": "set",
            "x-kubernetes-list-map-keys": ["a"],
        },
        [("x-kubernetes-list-type", 'Invalid value: "set": must be map if x-kubernetes-list-map-keys is non-empty')],
    ),
    (
        {
            "type": "array",
            "items": {"type": "object", "properties": {"a": {"type": "string"}}},
            "x-kubernetes-list-type": "set",
        },
        [
            (
                "items.x-kubernetes-map-type",
                "Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
            )
        ],
    ),
    (
        {
            "type": "array",
            "items": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "x-kubernetes-list-type": "set",
        },
        [
            (
                "items.x-kubernetes-list-type",
                'Invalid value: "set": must be atomic as item of a list with x-kubernetes-list-type=set',
            )
        ],
    ),
    (
        {"type": "object", "x-kubernetes-map-type": "foo"},
        [("x-kubernetes-map-type", 'Unsupported value: "foo": supported values: "atomic", "granular"')],
    ),
    (
        {"type": "string", "x-kubernetes-map-type": "atomic"},
        [("type", 'Invalid value: "string": must be object if x-kubernetes-map-type is specified')],
    ),
]
ROOTS: list[Case] = [
    ({"type": "object", "nullable": True}, [("nullable", "Forbidden: nullable cannot be true at the root")]),
    (
        {
            "type": "object",
            "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "default": "x"}}}},
        },
        [("properties[metadata].properties[name].default", "Forbidden: must not be set in top-level metadata")],
    ),
    (
        {"type": "object", "properties": {"kind": {"type": "string", "default": "x"}}},
        [("properties[kind].default", "Forbidden: must not be set in top-level kind")],
    ),
]


@pytest.mark.parametrize(("schema", "expected"), FIELDS)
async def test_keywords_of_fields_are_validated(
    target: Target, schema: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert await problems_of_field(target, schema) == expected


@pytest.mark.parametrize(("schema", "expected"), ROOTS)
async def test_keywords_of_objects_are_validated(
    target: Target, schema: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert await problems_of_schema(target, schema) == expected


@pytest.mark.parametrize("words", [{"anyOf": [{"required": ["spec"]}]}, {"default": {}}, {"maxProperties": 5}])
async def test_few_keywords_are_allowed_at_the_root_with_the_status_subresource(
    target: Target, words: dict[str, Any]
) -> None:
    schema = {"openAPIV3Schema": {**of_field({"type": "string"}), **words}}
    obj = definition("cases", "Case", schema=schema, subresources={"status": {}})
    answer = await target.request("POST", DEFINITIONS, obj, dryRun="All")
    assert answer.code == 422
    assert "fields are allowed at the root of the schema if the status subresource is enabled" in answer.message


async def test_unknown_formats_get_a_warning(target: Target) -> None:
    schema = {"openAPIV3Schema": of_field({"type": "string", "format": "postal-code"})}
    answer = await target.request("POST", DEFINITIONS, definition("cases", "Case", schema=schema), dryRun="All")
    assert answer.headers.get_list("Warning") == ['299 - "unrecognized format \\"postal-code\\""']


async def test_a_warning_about_many_fields_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    field = {"type": "string", "format": "postal-code"}
    schema = {"openAPIV3Schema": of_field({"type": "object", "properties": {"a": field, "b": field}})}
    with caplog.at_level("WARNING"):
        await Cluster().create(definition("cases", "Case", schema=schema))
    assert [record.getMessage() for record in caplog.records] == [
        'Definition cases.conformance.dev: unrecognized format "postal-code"'
    ]


@pytest.mark.parametrize(
    ("kind", "name", "known"),
    [
        ("string", "date-time", True),
        ("string", "int32", False),
        ("", "uuid", True),
        ("integer", "int32", True),
        ("integer", "float", False),
        ("number", "double", True),
        ("object", "date", False),
    ],
)
def test_formats_are_known_by_type(kind: str, name: str, known: bool) -> None:
    assert list(unrecognized_formats({"items": {"type": kind, "format": name}})) == ([] if known else [name])
