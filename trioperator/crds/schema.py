"""Structural schemas of classes, from what msgspec knows about their fields.

``msgspec.json.schema_components()`` writes JSON Schema with references, lists of types, and ``anyOf`` with null, none
of which CRDs accept. So this walks ``msgspec.inspect``, the description of types that it is made from.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import inspect

from trioperator._handling.handlers.typed import encode_custom
from trioperator._model.quantities import PATTERN, Quantity
from trioperator.crds import pydantic_models
from trioperator.crds.declaring import dump_rule, rules_of
from trioperator.crds.docstrings import describe_class, describe_fields
from trioperator.crds.structural import (
    PRESERVE,
    Schema,
    join_union,
    make_nullable,
    make_values,
    present,
    read_extras,
)
from trioperator.errors import ConfigError

# Factories of defaults whose results are always the same.
_EMPTY: Final[Mapping[Any, Any]] = {list: [], dict: {}, set: [], frozenset: [], tuple: []}
_LISTS: Final = (inspect.ListType, inspect.SetType, inspect.FrozenSetType, inspect.VarTupleType, inspect.CollectionType)
_OBJECTS: Final = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType)
_STRINGS: Final[Mapping[type, str | None]] = {
    inspect.BytesType: "byte",
    inspect.ByteArrayType: "byte",
    inspect.DateTimeType: "date-time",
    inspect.DateType: "date",
    inspect.UUIDType: "uuid",
    inspect.TimeType: None,
    inspect.TimeDeltaType: None,  # ISO 8601, which is not Kubernetes' format "duration"
    inspect.DecimalType: None,
}


def make_schema(annotation: Any, where: str) -> Schema:
    """Return the structural schema of a type. *where* begins the paths in errors, such as ``Database.spec``.

    Raises ConfigError with the path of a field that a structural schema cannot express.
    """
    try:
        described = inspect.type_info(annotation)
    except (TypeError, NameError) as error:
        raise ConfigError(f"{where} has a type that cannot be a part of a CRD: {error}") from error
    return _Walk().convert(described, where)


class _Walk:
    """One conversion, with the classes that are being converted: schemas cannot contain themselves."""

    def __init__(self) -> None:
        self._open: list[type] = []

    def convert(self, kind: inspect.Type, where: str) -> Schema:
        """Return the schema of one type."""
        if isinstance(kind, inspect.Metadata):
            return self.convert(kind.type, where) | read_extras(kind.extra_json_schema or {}, where)
        if isinstance(kind, inspect.UnionType):
            return self._convert_union(kind, where)
        if isinstance(kind, _OBJECTS):
            return self._convert_object(kind, where)
        if isinstance(kind, _LISTS):
            return self._convert_list(kind, where)
        if isinstance(kind, inspect.DictType):
            return self._convert_dict(kind, where)
        if isinstance(kind, inspect.CustomType) and pydantic_models.is_model(kind.cls):
            return pydantic_models.make_schema(kind.cls, where)
        return _convert_scalar(kind, where)

    def _convert_union(self, kind: inspect.UnionType, where: str) -> Schema:
        arms = [arm for arm in kind.types if not isinstance(arm, inspect.NoneType)]
        schemas = [self.convert(arm, where) for arm in arms]
        schema = schemas[0] if len(schemas) == 1 else join_union(schemas, where)
        return make_nullable(schema) if len(arms) < len(kind.types) else schema

    def _convert_list(self, kind: Any, where: str) -> Schema:
        schema: Schema = {"type": "array", "items": self.convert(kind.item_type, f"{where}[]")}
        limits = {"minItems": kind.min_length, "maxItems": kind.max_length}
        if isinstance(kind, inspect.SetType | inspect.FrozenSetType):
            schema["x-kubernetes-list-type"] = "set"
        return schema | present(limits)

    def _convert_dict(self, kind: inspect.DictType, where: str) -> Schema:
        if kind.key_type != inspect.StrType():
            raise ConfigError(f"{where} is a dict whose keys are not plain strings: a CRD cannot check keys.")
        limits = present({"minProperties": kind.min_length, "maxProperties": kind.max_length})
        if isinstance(kind.value_type, inspect.AnyType):
            return {"type": "object", PRESERVE: True} | limits
        return {"type": "object", "additionalProperties": self.convert(kind.value_type, f"{where}{{}}")} | limits

    def _convert_object(self, kind: Any, where: str) -> Schema:
        cls = kind.cls
        if cls in self._open:
            raise ConfigError(
                f"{where} contains its own class {cls.__qualname__}: the schema of a CRD cannot be recursive."
            )
        if getattr(kind, "array_like", False):
            raise ConfigError(f"{where} is an array of different fields, which the schema of a CRD cannot express.")
        self._open.append(cls)
        docs = describe_fields(cls)
        properties = {
            field.encode_name: self._convert_field(field, where, docs.get(field.name)) for field in kind.fields
        }
        self._open.pop()
        required = [field.encode_name for field in kind.fields if field.required]
        if getattr(kind, "tag_field", None) is not None:
            properties[kind.tag_field] = make_values([kind.tag], where)
            required.append(kind.tag_field)
        schema = {"type": "object", "properties": properties}
        return schema | make_extras(cls) | ({"required": sorted(required)} if required else {})

    def _convert_field(self, field: inspect.Field, where: str, doc: str | None) -> Schema:
        schema = self.convert(field.type, f"{where}.{field.encode_name}")
        annotated = isinstance(field.type, inspect.Metadata) and "description" in (field.type.extra_json_schema or {})
        if doc and not annotated:  # it replaces the description of the class
            schema["description"] = doc
        return schema | _default_of(field)


def _default_of(field: inspect.Field) -> Schema:
    """Return the default of a field, which the API server fills in; none of functions, whose results may differ."""
    value = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        factory = field.default_factory
        value = _EMPTY[factory] if factory in _EMPTY else factory() if isinstance(factory, type) else value
    if value is msgspec.NODEFAULT or value is None:
        return {}
    return {"default": msgspec.to_builtins(value, str_keys=True, enc_hook=encode_custom)}


def make_extras(cls: type) -> Schema:
    """Return the description and the rules of a class."""
    text, rules = describe_class(cls), [dump_rule(rule) for rule in rules_of(cls)]
    return ({"description": text} if text else {}) | ({"x-kubernetes-validations": rules} if rules else {})


def _convert_scalar(kind: inspect.Type, where: str) -> Schema:
    if isinstance(kind, inspect.AnyType | inspect.RawType):
        return {PRESERVE: True}
    if isinstance(kind, inspect.BoolType):
        return {"type": "boolean"}
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        return _convert_number(kind)
    if isinstance(kind, inspect.StrType):
        limits = {"minLength": kind.min_length, "maxLength": kind.max_length, "pattern": kind.pattern}
        return {"type": "string"} | present(limits)
    if isinstance(kind, inspect.LiteralType):
        return make_values(kind.values, where)
    if isinstance(kind, inspect.EnumType):
        return make_values([member.value for member in kind.cls], where) | _describe_enum(kind.cls)
    if isinstance(kind, inspect.CustomType) and kind.cls is Quantity:
        return {"pattern": PATTERN, "x-kubernetes-int-or-string": True}
    if type(kind) in _STRINGS:
        return {"type": "string"} | present({"format": _STRINGS[type(kind)]})
    raise ConfigError(f"{where} has a type that the schema of a CRD cannot express: {type(kind).__name__}.")


def _convert_number(kind: inspect.IntType | inspect.FloatType) -> Schema:
    schema: Schema = {"type": "integer" if isinstance(kind, inspect.IntType) else "number"}
    for name, inclusive, exclusive in (("minimum", kind.ge, kind.gt), ("maximum", kind.le, kind.lt)):
        if inclusive is not None:
            schema[name] = inclusive
        if exclusive is not None:
            schema[name] = exclusive
            schema[f"exclusive{name.capitalize()}"] = True
    return schema | present({"multipleOf": kind.multiple_of})


def _describe_enum(cls: type[enum.Enum]) -> Schema:
    text = describe_class(cls)
    return {"description": text} if text else {}
