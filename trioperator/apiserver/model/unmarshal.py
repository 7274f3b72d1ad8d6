"""Decoding of built-in objects by their schemas, as the real server decodes them into Go types. Pure.

Unknown fields are dropped and reported; values of the wrong type are errors, with the messages of the real server.
Nulls, empty lists and maps, and zeros of non-pointer fields count as absent. Quantities and times are normalized.

Defaults are set: from the schema, and from :mod:`.defaults`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

from trioperator._model.quantities import canonical_quantity

from .defaults import fill_defaults
from .kind_schemas import (
    OBJECT_META,
    Node,
    definition,
    definition_of,
    pointers_of,
    reference,
)
from .kinds import Kind
from .quoting import json_name
from .scalars import canonical_bytes, canonical_micro_time, canonical_time


class UnmarshalError(Exception):
    """Raised when a value cannot be decoded, with the message of the real server."""

    def converted(self) -> str:
        """Return the message of the real server for merged objects, which it converts instead of decoding."""
        return str(self)


class _Base64Error(UnmarshalError):
    """Raised when a string is not base64."""

    def converted(self) -> str:
        """Return the message of the real server for merged objects, which it converts instead of decoding."""
        return f"error decoding from json: {self}"


class _MismatchError(UnmarshalError):
    """Raised when a value has the wrong JSON type. Enclosing fields are added as it propagates."""

    def __init__(self, value: Any, expected: str, *, is_struct: bool = False) -> None:
        super().__init__()
        self.value = value
        self.expected = expected
        self.is_struct = is_struct
        self.owner = ""
        self.fields: list[str] = []

    def __str__(self) -> str:
        field = ".".join([self.owner, *reversed(self.fields)])
        found = json_name(self.value)
        if found == "number" and self.expected in {"int32", "int64"}:
            found = f"number {self.value}"
        return f"json: cannot unmarshal {found} into Go struct field {field} of type {self.expected}"

    def converted(self) -> str:
        """Return the message of the real server for merged objects, which it converts instead of decoding."""
        found = _GO_KINDS[type(self.value)]
        if self.is_struct:
            return f"cannot restore struct from: {found}"
        for prefix, name in (("[]", "slice"), ("map[", "map")):
            if self.expected.startswith(prefix):
                return f"cannot restore {name} from {found}"
        if self.expected == "string" and found == "int64":
            return "cannot convert int64 to string"
        return f"unrecognized type: {self.expected}"


_GO_KINDS: Final[Mapping[type, str]] = {
    bool: "bool",
    str: "string",
    int: "int64",
    float: "float64",
    list: "slice",
    dict: "map",
}

_EXTENSIONS: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"

Reader = Callable[[Any, str, list[str]], Any]  # takes a value, its path, and the list of unknown fields


@dataclasses.dataclass(frozen=True, slots=True)
class _Type:
    """Decoder of one type; the value of null in lists and maps; whether empty values are dropped."""

    name: str
    read: Reader
    zero: Any = None
    drops_empty: bool = False


def unmarshal(kind: Kind, obj: Mapping[str, Any], unknown: list[str]) -> dict[str, Any]:
    """Decode an object of a built-in kind; add the paths of unknown fields to *unknown*.

    Raises :class:`UnmarshalError`. Objects of kinds without a schema are returned unchanged.
    """
    name = definition_of(kind)
    return dict(obj) if name is None else unmarshal_as(name, obj, unknown)


def unmarshal_as(name: str, value: Any, unknown: list[str] | None = None, path: str = "") -> dict[str, Any]:
    """Decode a value of the type with this definition, which is at the path; like :func:`unmarshal`."""
    result: dict[str, Any] = _definition_type(name).read(value, path, [] if unknown is None else unknown)
    return result


def unmarshal_metadata(meta: Any, unknown: list[str], path: str = "metadata") -> dict[str, Any]:
    """Decode the metadata of a custom object, as :func:`unmarshal` decodes built-in ones."""
    return unmarshal_as(OBJECT_META, meta, unknown, path)


def new_status(kind: Kind) -> dict[str, Any]:
    """Return the status of a new object of a built-in kind."""
    name = definition_of(kind)
    status: dict[str, Any] = {} if name is None else _definition_type(name).read({}, "", [])["status"]
    return status


@functools.cache
def _definition_type(name: str) -> _Type:
    *_, version, short = name.split(".")
    if short in _SPECIAL:
        return _SPECIAL[short]
    schema = definition(name)
    if "properties" not in schema:
        return _node_type(schema)
    fill = fill_defaults(".".join(name.split(".")[-3:]))
    return _Type(f"{version}.{short}", _Struct(f"{version}.{short}", name, fill).read, zero={})


def _node_type(node: Node) -> _Type:
    target = reference(node)
    if target is not None:
        return _definition_type(target)
    match node.get("type"):
        case "array":
            return _list_type(_node_type(node["items"]))
        case "object" if isinstance(node.get("additionalProperties"), Mapping):
            return _map_type(_node_type(node["additionalProperties"]))
        case "string" | "boolean" | "integer" | "number" as name:
            return _SCALARS[node.get("format") or name]
    return _ANYTHING


class _Struct:
    """Decoder of a struct. Decoders of its fields are created on first use, as definitions may be recursive."""

    def __init__(self, name: str, source: str, fill: Callable[[dict[str, Any]], None] | None) -> None:
        schema = definition(source)
        self._name = name
        self._nodes: Mapping[str, Node] = schema["properties"]
        self._types: dict[str, _Type] = {}
        self._kept = pointers_of(source).union(schema.get("required") or ())
        self._fill = fill

    @functools.cached_property
    def _always(self) -> dict[str, tuple[Any, _Type]]:
        """Return the defaults of the fields that are always present, and the types of these fields."""
        nodes = self._nodes.items()
        return {field: (node["default"], _node_type(node)) for field, node in nodes if "default" in node}

    def read(self, value: Any, path: str, unknown: list[str]) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _MismatchError(value, self._name, is_struct=True)
        result = {}
        for key, item in value.items():
            field_type = self._types.get(key) or self._find(key)
            where = f"{path}.{key}" if path else key
            if field_type is None:
                unknown.append(where)
            elif item is not None:
                new = self._read_field(key, field_type, item, where, unknown)
                if new or not field_type.drops_empty or key in self._kept:
                    result[key] = new
        for key, (zero, field_type) in self._always.items():
            if key not in result:
                result[key] = field_type.read(zero, "", unknown)
        if self._fill is not None:
            self._fill(result)
        return result

    def _find(self, key: str) -> _Type | None:
        if key in self._nodes and key not in self._types:
            self._types[key] = _node_type(self._nodes[key])
        return self._types.get(key)

    def _read_field(self, key: str, field_type: _Type, item: Any, where: str, unknown: list[str]) -> Any:
        try:
            return field_type.read(item, where, unknown)
        except _MismatchError as error:
            error.owner = error.owner or self._name.rpartition(".")[2]
            error.fields.append(key)
            raise


def _list_type(item_type: _Type) -> _Type:
    name = f"[]{item_type.name}"

    def read(value: Any, path: str, unknown: list[str]) -> list[Any]:
        if not isinstance(value, list):
            raise _MismatchError(value, name)
        return [
            item_type.read(item_type.zero if item is None else item, f"{path}[{at}]", unknown)
            for at, item in enumerate(value)
        ]

    return _Type(name, read, [], drops_empty=True)


def _map_type(item_type: _Type) -> _Type:
    name = "v1.ResourceList" if item_type is _QUANTITY else f"map[string]{item_type.name}"

    def read(value: Any, path: str, unknown: list[str]) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _MismatchError(value, name)
        return {
            key: item_type.read(item_type.zero if item is None else item, f"{path}.{key}", unknown)
            for key, item in value.items()
        }

    return _Type(name, read, {}, drops_empty=True)


def _scalar_type(name: str, python_type: type, zero: Any) -> _Type:
    def read(value: Any, path: str, unknown: list[str]) -> Any:
        if type(value) is not python_type:
            raise _MismatchError(value, name)
        return value

    return _Type(name, read, zero, drops_empty=True)


def _integer_type(name: str, limit: int) -> _Type:
    def read(value: Any, path: str, unknown: list[str]) -> int:
        if type(value) is not int or not -limit <= value < limit:
            raise _MismatchError(value, name)
        return value

    return _Type(name, read, 0, drops_empty=True)


def _string_type(name: str, spell: Callable[[str], str], invalid: type[UnmarshalError] = UnmarshalError) -> _Type:
    def read(value: Any, path: str, unknown: list[str]) -> str:
        if type(value) is not str:
            raise _MismatchError(value, name)
        try:
            return spell(value)
        except ValueError as error:
            raise invalid(str(error)) from None

    return _Type(name, read, "")


def _read_number(value: Any, path: str, unknown: list[str]) -> float:
    if type(value) not in {int, float}:
        raise _MismatchError(value, "float64")
    number: float = value
    return number


def _read_int_or_string(value: Any, path: str, unknown: list[str]) -> int | str:
    return value if type(value) is str else _INT32.read(value, path, unknown)


def _read_quantity(value: Any, path: str, unknown: list[str]) -> str:
    text = value if type(value) is str else str(value) if type(value) in {int, float} else ""
    try:
        return canonical_quantity(text)
    except ValueError as error:
        raise UnmarshalError(str(error)) from None


def _read_anything(value: Any, path: str, unknown: list[str]) -> Any:
    return value


def _schema_type() -> _Type:
    return _definition_type(f"{_EXTENSIONS}.JSONSchemaProps")


def _read_schema_or_bool(value: Any, path: str, unknown: list[str]) -> Any:
    if isinstance(value, bool):
        return value
    if not isinstance(value, dict):
        raise UnmarshalError("boolean or JSON schema expected")
    return _schema_type().read(value, path, unknown)


def _read_schema_or_list(value: Any, path: str, unknown: list[str]) -> Any:
    if isinstance(value, list):
        return _list_type(_schema_type()).read(value, path, unknown)
    return _schema_type().read(value, path, unknown) if isinstance(value, dict) else None


def _read_schema_or_strings(value: Any, path: str, unknown: list[str]) -> Any:
    if isinstance(value, list):
        return _list_type(_STRING).read(value, path, unknown)
    return _schema_type().read(value, path, unknown) if isinstance(value, dict) else None


_STRING: Final = _scalar_type("string", str, "")
_INT32: Final = _integer_type("int32", 2**31)
_ANYTHING: Final = _Type("runtime.RawExtension", _read_anything)
_QUANTITY: Final = _Type("resource.Quantity", _read_quantity, "0")
_SCALARS: Final[Mapping[str, _Type]] = {
    "string": _STRING,
    "boolean": _scalar_type("bool", bool, False),
    "integer": _integer_type("int64", 2**63),
    "int32": _INT32,
    "int64": _integer_type("int64", 2**63),
    "number": _Type("float64", _read_number, 0.0, drops_empty=True),
    "double": _Type("float64", _read_number, 0.0, drops_empty=True),
    "byte": _string_type("[]uint8", canonical_bytes, _Base64Error),
}
_SPECIAL: Final[Mapping[str, _Type]] = {
    "FieldsV1": _ANYTHING,
    "JSONSchemaPropsOrArray": _Type("v1.JSONSchemaPropsOrArray", _read_schema_or_list),
    "JSONSchemaPropsOrBool": _Type("v1.JSONSchemaPropsOrBool", _read_schema_or_bool),
    "JSONSchemaPropsOrStringArray": _Type("v1.JSONSchemaPropsOrStringArray", _read_schema_or_strings),
    "IntOrString": _Type("intstr.IntOrString", _read_int_or_string, 0),
    "MicroTime": _string_type("string", canonical_micro_time),
    "Quantity": _QUANTITY,
    "Time": _string_type("string", canonical_time),
}
