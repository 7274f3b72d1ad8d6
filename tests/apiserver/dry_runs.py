"""Definitions that are only validated: what either server says of a schema."""

from __future__ import annotations

from typing import Any

from tests.apiserver.conftest import Target, definition

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ROOT = "spec.validation.openAPIV3Schema"
FIELD = f"{ROOT}.properties[spec].properties[f]"


def objects(**properties: Any) -> dict[str, Any]:
    """Return the schema of objects with the properties."""
    return {"type": "object", "properties": properties}


def of_field(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of objects whose field ``spec.f`` has the schema."""
    return objects(spec=objects(f=schema))


async def problems(target: Target, obj: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the fields and the messages of the validation errors of the definition."""
    answer = await target.request("POST", DEFINITIONS, obj, dryRun="All")
    assert answer.code in {201, 422}, answer.content
    found = answer.content.get("details", {}).get("causes", [])
    return sorted((cause["field"], cause["message"]) for cause in found)


async def problems_of_schema(target: Target, schema: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the fields, relative to the schema, and the messages of the validation errors of the schema."""
    found = await problems(target, definition("cases", "Case", schema={"openAPIV3Schema": schema}))
    return [(field.removeprefix(ROOT).lstrip("."), text.replace(ROOT, "ROOT")) for field, text in found]


async def problems_of_field(target: Target, schema: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the fields, relative to the schema, and the messages of the errors of the schema of one field."""
    found = await problems(target, definition("cases", "Case", schema={"openAPIV3Schema": of_field(schema)}))
    return [(field.removeprefix(FIELD).removeprefix(ROOT).lstrip("."), text) for field, text in found]
