"""Structural schemas of pydantic models, from their JSON Schema. Pydantic is not imported here."""

from __future__ import annotations

import sys
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from trioperator.crds.structural import Schema, join_union, make_nullable, make_values
from trioperator.errors import ConfigError

_REF: Final = "#/$defs/"
# Keys that have the same meaning in CRDs, as have those that begin with "x-kubernetes-".
_KEPT: Final = frozenset(
    {"type", "description", "format", "required", "default", "example", "externalDocs"}
    | {"pattern", "minLength", "maxLength", "minimum", "maximum", "multipleOf"}
    | {"minItems", "maxItems", "minProperties", "maxProperties"}
)
# Keys that only annotate, or ask for what the API server does anyway, which drops unknown fields.
_IGNORED: Final = frozenset({"title", "examples", "deprecated", "uniqueItems", "discriminator", "$defs"})
_LIMITS: Final = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
# Formats that Kubernetes interprets in another way.
_FOREIGN_FORMATS: Final = frozenset({"duration", "time"})


def is_model(cls: object) -> bool:
    """Return whether *cls* is a pydantic model."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(cls, type) and issubclass(cls, pydantic.BaseModel)


def make_schema(cls: Any, where: str) -> Schema:
    """Return the structural schema of a model. Raises ConfigError with the path of a field that cannot be expressed."""
    _check_annotations(cls, where, set())
    source = cls.model_json_schema(by_alias=True, mode="validation")
    return _Walk(source.get("$defs", {})).convert(source, where)


def add_rules(cls: Any, rules: list[Mapping[str, Any]]) -> None:
    """Add CEL rules to the JSON Schema of a model."""
    extra = cls.model_config.get("json_schema_extra")
    if callable(extra):
        raise TypeError(f"{cls.__qualname__} has a function as json_schema_extra: add x-kubernetes-validations there.")
    cls.model_config["json_schema_extra"] = {**(extra or {}), "x-kubernetes-validations": rules}
    cls.model_rebuild(force=True)


def _check_annotations(cls: Any, where: str, seen: set[type]) -> None:
    """Raise ConfigError for annotations of msgspec's, which pydantic ignores."""
    seen.add(cls)
    for name, field in cls.model_fields.items():
        for meta in field.metadata:
            if isinstance(meta, msgspec.Meta):
                raise ConfigError(
                    f"{where}.{name} has an annotation of msgspec's, which pydantic ignores: use pydantic.Field(), with"
                    " json_schema_extra=... for what begins with x-kubernetes-."
                )
        for inner in _iterate_types(field.annotation):
            if is_model(inner) and inner not in seen:
                _check_annotations(inner, f"{where}.{name}", seen)


def _iterate_types(annotation: Any) -> Iterator[Any]:
    yield annotation
    for arg in typing.get_args(annotation):
        yield from _iterate_types(arg)


class _Walk:
    """One conversion, with the definitions of the models, and the names of those that are being converted."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._open: list[str] = []

    def convert(self, source: Mapping[str, Any], where: str) -> Schema:
        """Return the structural schema of one JSON Schema."""
        if "$ref" in source:
            return self._follow(source, where)
        schema: Schema = {}
        for key, value in source.items():
            if key in _KEPT or key.startswith("x-kubernetes-"):
                schema[key] = value
            elif key not in _IGNORED:
                schema |= self._convert_key(key, value, where)
        return self._finish(source, schema)

    def _follow(self, source: Mapping[str, Any], where: str) -> Schema:
        name = source["$ref"].removeprefix(_REF)
        if name in self._open:
            raise ConfigError(f"{where} contains its own class {name}: the schema of a CRD cannot be recursive.")
        self._open.append(name)
        schema = self.convert(self._definitions[name], where)
        self._open.pop()
        own = {key: value for key, value in source.items() if key != "$ref"}
        return schema | self.convert(own, where) if own.keys() - _IGNORED else schema

    def _convert_key(self, key: str, value: Any, where: str) -> Schema:
        match key:
            case "properties":
                return {"properties": {name: self.convert(each, f"{where}.{name}") for name, each in value.items()}}
            case "items":
                return {"items": self.convert(value, f"{where}[]")}
            case "additionalProperties" if isinstance(value, Mapping):
                return {"additionalProperties": self.convert(value, f"{where}{{}}")}
            case "additionalProperties":
                return {"x-kubernetes-preserve-unknown-fields": True} if value else {}
            case "anyOf" | "oneOf":
                return self._convert_union(value, where)
            case "allOf" if len(value) == 1:
                return self.convert(value[0], where)
            case "const":
                return make_values([value], where)
            case "enum":
                return make_values(value, where)
            case "exclusiveMinimum" | "exclusiveMaximum":
                return {_LIMITS[key]: value, key: True}
        raise ConfigError(f"{where} has {key} in its JSON Schema, which the schema of a CRD cannot express.")

    def _convert_union(self, arms: list[Mapping[str, Any]], where: str) -> Schema:
        some = [arm for arm in arms if arm.get("type") != "null"]
        schemas = [self.convert(arm, where) for arm in some]
        schema = schemas[0] if len(schemas) == 1 else join_union(schemas, where)
        return make_nullable(schema) if len(some) < len(arms) else schema

    def _finish(self, source: Mapping[str, Any], schema: Schema) -> Schema:
        """Return the schema with what follows from several keys of the JSON Schema."""
        if source.get("uniqueItems"):
            schema["x-kubernetes-list-type"] = "set"
        if schema.get("format") in _FOREIGN_FORMATS:
            del schema["format"]
        if schema.get("default", schema) is None:
            del schema["default"]
        if not schema.keys() - {"description"} and not source.keys() & {"anyOf", "oneOf", "allOf"}:
            schema["x-kubernetes-preserve-unknown-fields"] = True
        if "required" in schema:
            schema["required"] = sorted(schema["required"])
        return schema
