"""Examples of custom objects, from the schemas of their CRDs: with the required fields only. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trioperator._model.jsontypes import JsonObject

_EMPTY: Final[Mapping[str, Any]] = {"string": "", "boolean": False, "array": [], "object": {}}
# Strings of formats that API servers check.
_FORMATS: Final = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "duration": "1h",
    "email": "me@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "cidr": "192.0.2.0/24",
    "uri": "https://example.com",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "byte": "",
}


def make_example(definition: JsonObject, version: JsonObject) -> JsonObject:
    """Return an object of one version of a CRD. It may violate patterns and rules, which no value can be made from."""
    spec = definition["spec"]
    name = spec["names"].get("singular") or str(spec["names"]["kind"]).lower()
    example: JsonObject = {
        "apiVersion": f"{spec['group']}/{version['name']}",
        "kind": spec["names"]["kind"],
        "metadata": {"name": f"{name}-example"},
    }
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    properties = schema.get("properties") or {}
    if "spec" in properties:
        example["spec"] = _make_value(properties["spec"])
    others = set(schema.get("required") or ()) - {"apiVersion", "kind", "metadata", "spec", "status"}
    return example | {field: _make_value(properties.get(field) or {}) for field in sorted(others)}


def _make_value(schema: Mapping[str, Any]) -> Any:
    """Return the default of a schema, or else the least value that it accepts."""
    if "default" in schema:
        return schema["default"]
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string") or kind in ("integer", "number"):
        return _make_number(schema)
    if kind == "object":
        properties = schema.get("properties") or {}
        return {field: _make_value(properties.get(field) or {}) for field in schema.get("required") or ()}
    if kind == "array":
        return [_make_value(schema.get("items") or {})] * int(schema.get("minItems") or 0)
    if kind == "string":
        return str(_FORMATS.get(schema.get("format", ""), "")).ljust(int(schema.get("minLength") or 0), "x")
    return _EMPTY.get(str(kind), {})


def _make_number(schema: Mapping[str, Any]) -> float:
    least: float | None = schema.get("minimum")
    most: float | None = schema.get("maximum")
    step: float = schema.get("multipleOf") or 1
    if least is not None:
        number = -(-least // step) * step  # rounded up
        return number + step if schema.get("exclusiveMinimum") and number == least else number
    if most is not None and most <= 0:
        number = most // step * step
        return number - step if schema.get("exclusiveMaximum") and number == most else number
    return 0
