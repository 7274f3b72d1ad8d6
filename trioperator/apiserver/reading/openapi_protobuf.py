"""The OpenAPI document of version 2 in protobuf, the only form in which kubectl reads it. Pure.

kubectl downloads it for a kind that the server does not know, before it says so. The messages are from
``openapi.v2`` in gnostic's ``OpenAPIv2.proto``, as far as :mod:`.openapi` writes them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

# The media types of responses and of requests, which still use the old name.
MEDIA_TYPES: Final = (
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
)

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_EXTENSION: Final = "x-"

Encode: TypeAlias = Callable[[int, Any], bytes]
Fields: TypeAlias = Mapping[str, tuple[int, Encode]]


def encode_document(document: Mapping[str, Any]) -> bytes:
    """Return the document as a ``openapi.v2.Document``."""
    return _message(_DOCUMENT, document)


# -- wire types ----------------------------------------------------------------------------------------------------


def _varint(number: int) -> bytes:
    result = bytearray()
    number &= 0xFFFF_FFFF_FFFF_FFFF  # negative numbers are in two's complement
    while number > 0x7F:
        result.append(number & 0x7F | 0x80)
        number >>= 7
    result.append(number)
    return bytes(result)


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def _text(number: int, value: Any) -> bytes:
    return _bytes(number, str(value).encode())


def _integer(number: int, value: Any) -> bytes:
    return _varint(number << 3 | _VARINT) + _varint(int(value))


def _double(number: int, value: Any) -> bytes:
    return _varint(number << 3 | _FIXED64) + struct.pack("<d", value)


def _any(number: int, value: Any) -> bytes:
    """Encode any value: in an ``Any``, as YAML."""
    return _bytes(number, _bytes(2, msgspec.json.encode(value)))


# -- messages ------------------------------------------------------------------------------------------------------


def _message(fields: Fields, value: Mapping[str, Any], *, extensions: int = 0) -> bytes:
    """Encode the known fields of an object, and its extensions in the field of that number."""
    parts = []
    for name, item in value.items():
        if name in fields:
            number, encode = fields[name]
            parts.append(encode(number, item))
        elif extensions and name.startswith(_EXTENSION):
            parts.append(_bytes(extensions, _text(1, name) + _any(2, item)))
    return b"".join(parts)


def _of(fields: Fields, *, extensions: int = 0) -> Encode:
    return lambda number, value: _bytes(number, _message(fields, value, extensions=extensions))


def _each(encode: Encode) -> Encode:
    return lambda number, values: b"".join(encode(number, value) for value in values)


def _named(field: int, encode: Encode) -> Encode:
    """Return the encoder of a map: a message with pairs of names and values in the field."""

    def encode_map(number: int, values: Mapping[str, Any]) -> bytes:
        pairs: Iterable[bytes] = (_text(1, name) + encode(2, value) for name, value in values.items())
        return _bytes(number, b"".join(_bytes(field, pair) for pair in pairs))

    return encode_map


def _schema(number: int, value: Any) -> bytes:
    return _bytes(number, _message(_SCHEMA, value, extensions=31))


def _within(encode: Encode) -> Encode:
    """Return the encoder of a message that has the value in its first field."""
    return lambda number, value: _bytes(number, encode(1, value))


def _schema_or_boolean(number: int, value: Any) -> bytes:
    return _bytes(number, _schema(1, value) if isinstance(value, Mapping) else _integer(2, value))


def _parameter(number: int, value: Any) -> bytes:
    """Encode a parameter of the query: a ``ParametersItem`` with its choices within."""
    query = _bytes(3, _message(_PARAMETER, value, extensions=23))
    return _bytes(number, _bytes(1, _bytes(2, query)))


_SCHEMA: Final[Fields] = {
    "$ref": (1, _text),
    "format": (2, _text),
    "title": (3, _text),
    "description": (4, _text),
    "default": (5, _any),
    "multipleOf": (6, _double),
    "maximum": (7, _double),
    "exclusiveMaximum": (8, _integer),
    "minimum": (9, _double),
    "exclusiveMinimum": (10, _integer),
    "maxLength": (11, _integer),
    "minLength": (12, _integer),
    "pattern": (13, _text),
    "maxItems": (14, _integer),
    "minItems": (15, _integer),
    "uniqueItems": (16, _integer),
    "maxProperties": (17, _integer),
    "minProperties": (18, _integer),
    "required": (19, _each(_text)),
    "enum": (20, _each(_any)),
    "additionalProperties": (21, _schema_or_boolean),
    "type": (22, _within(_text)),
    "items": (23, _within(_schema)),
    "properties": (25, _named(1, _schema)),
    "example": (30, _any),
}
_PARAMETER: Final[Fields] = {"in": (2, _text), "name": (4, _text), "type": (6, _text)}
_OPERATION: Final[Fields] = {"parameters": (8, _each(_parameter)), "responses": (9, _of({}))}
_METHOD: Final = _of(_OPERATION, extensions=13)
_PATH: Final = _of({"get": (2, _METHOD), "put": (3, _METHOD), "post": (4, _METHOD), "patch": (8, _METHOD)})
_DOCUMENT: Final[Fields] = {
    "swagger": (1, _text),
    "info": (2, _of({"title": (1, _text), "version": (2, _text)})),
    "paths": (8, _named(2, _PATH)),
    "definitions": (9, _named(1, _schema)),
}
