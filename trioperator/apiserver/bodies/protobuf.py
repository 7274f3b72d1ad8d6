"""Objects of built-in kinds in protobuf, as Go clients send them, decoded into their JSON form.

Decoding only: responses are JSON, which these clients accept as well. The message descriptors are generated from
Kubernetes' sources (``data/protobuf.json.gz``), and loaded with the first protobuf body.
"""

from __future__ import annotations

import base64
import datetime
import functools
import gzip
import importlib.resources
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from ..model.json_text import decode_json

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"

_MAGIC: Final = b"k8s\x00"
_MAX_DEPTH: Final = 100
_META: Final = "k8s.io.apimachinery.pkg.apis.meta.v1"
_RUNTIME: Final = "k8s.io.apimachinery.pkg.runtime"
_EXTENSIONS: Final = "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Wire: TypeAlias = int | bytes | memoryview


class _Descriptors(NamedTuple):
    """Packages by API version; and name, type and flags of each field, by message and field number.

    Flags are ``r`` for repeated fields, ``m`` for maps with string keys, ``i`` for messages that JSON inlines, ``z``
    for fields that JSON omits when they are zero.
    """

    packages: Mapping[str, str]
    messages: Mapping[str, Mapping[int, tuple[str, str, str]]]


@functools.cache
def _descriptors() -> _Descriptors:
    packed = importlib.resources.files("trioperator.apiserver.bodies") / "data" / "protobuf.json.gz"
    content = msgspec.json.decode(gzip.decompress(packed.read_bytes()))
    messages = {
        message: {int(number): tuple(field) for number, field in fields.items()}
        for message, fields in content["messages"].items()
    }
    return _Descriptors(content["packages"], messages)


def decode_protobuf(body: bytes) -> dict[str, Any]:
    """Decode an object with its envelope. Raises ValueError with the reason."""
    if not body.startswith(_MAGIC):
        raise ValueError("the body does not start with the magic number of Kubernetes' protobuf")
    envelope = _decode(f"{_RUNTIME}.Unknown", memoryview(body)[len(_MAGIC) :], raw=True)
    version, kind = str(envelope.get("apiVersion") or ""), str(envelope.get("kind") or "")
    package = _descriptors().packages.get(version, _META)
    message = next((m for m in (f"{package}.{kind}", f"{_META}.{kind}") if m in _descriptors().messages), None)
    if message is None:
        raise ValueError(f"no protobuf message for kind {kind!r} in version {version!r}")
    return {"apiVersion": version, "kind": kind, **_decode(message, envelope.get("raw", b""))}


def _decode(message: str, data: bytes | memoryview, *, raw: bool = False, depth: int = 0) -> dict[str, Any]:
    """Decode one message; *raw* keeps bytes fields as bytes, instead of base64."""
    if depth > _MAX_DEPTH:
        raise ValueError("the object is nested too deeply")
    fields = _descriptors().messages[message]
    result: dict[str, Any] = {}
    for number, value in _split(data):
        field = fields.get(number)
        if field is None:
            continue  # from a newer version
        name, form, flags = field
        if "m" in flags:
            key, item = _decode_entry(form, _expect_bytes(value), depth)
            result.setdefault(name, {})[key] = item
        elif "i" in flags:
            result |= _decode(form, _expect_bytes(value), raw=raw, depth=depth + 1)
        elif "r" in flags:
            result.setdefault(name, []).append(_convert(form, value, raw, depth))
        else:
            item = _convert(form, value, raw, depth)
            if item or not ("z" in flags or item is None):
                result[name] = item
    return result


def _decode_entry(form: str, data: memoryview, depth: int) -> tuple[str, Any]:
    key, item = "", None
    for number, value in _split(data):
        if number == 1:
            key = _string(value)
        elif number == 2:
            item = _convert(form, value, False, depth)
    if item is None:
        item = _ZEROS.get(form, {})
    return key, item


def _convert(form: str, value: Wire, raw: bool, depth: int) -> Any:
    match form:
        case "string":
            return _string(value)
        case "bytes":
            return bytes(_expect_bytes(value)) if raw else base64.b64encode(_expect_bytes(value)).decode()
        case "bool":
            return bool(_expect_number(value))
        case "int32" | "int64":
            number = _expect_number(value)
            return number - (1 << 64) if number >= 1 << 63 else number
        case "double":
            return struct.unpack("<d", _expect_number(value).to_bytes(8, "little"))[0]
    decoded = _decode(form, _expect_bytes(value), raw=raw or form in _RAW, depth=depth + 1)
    special = _SPECIAL.get(form)
    return decoded if special is None else special(decoded)


def _split(data: bytes | memoryview) -> Iterator[tuple[int, Wire]]:
    """Split a message into the numbers of its fields and their values."""
    data = memoryview(data)
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        else:
            size = {_FIXED64: 8, _FIXED32: 4}.get(wire, len(data) + 1)
        if at + size > len(data):
            raise ValueError("the protobuf message is truncated or malformed")
        part = data[at : at + size]
        yield number, part if wire == _BYTES else int.from_bytes(part, "little")
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFF_FFFF_FFFF_FFFF, at
    raise ValueError("the protobuf message is truncated or malformed")


def _expect_bytes(value: Wire) -> memoryview:
    if isinstance(value, int):
        raise ValueError("expected a length-delimited field, got a number")
    return memoryview(value)


def _expect_number(value: Wire) -> int:
    if not isinstance(value, int):
        raise ValueError("expected a number, got a length-delimited field")
    return value


def _string(value: Wire) -> str:
    try:
        return str(_expect_bytes(value), "utf-8")
    except UnicodeDecodeError:
        raise ValueError("a string is not valid UTF-8") from None


# Messages whose JSON form is not an object with their fields.


def _time(value: Mapping[str, Any]) -> str | None:
    return f"{_datetime(value):%Y-%m-%dT%H:%M:%SZ}" if value.get("seconds") else None


def _micro_time(value: Mapping[str, Any]) -> str | None:
    return f"{_datetime(value):%Y-%m-%dT%H:%M:%S.%fZ}" if value.get("seconds") else None


def _datetime(value: Mapping[str, Any]) -> datetime.datetime:
    try:
        moment = datetime.datetime.fromtimestamp(value.get("seconds", 0), datetime.UTC)
        return moment + datetime.timedelta(microseconds=value.get("nanos", 0) // 1000)
    except (OverflowError, OSError):
        raise ValueError("a timestamp is out of range") from None


def _int_or_string(value: Mapping[str, Any]) -> int | str:
    return str(value.get("strVal", "")) if value.get("type") else int(value.get("intVal", 0))


def _json(value: Mapping[str, Any]) -> Any:
    raw = value.get("raw", value.get("Raw", b""))
    return decode_json(bytes(raw)) if raw else None


def _union_with_schema(other: str) -> Callable[[Mapping[str, Any]], Any]:
    """Return a decoder for the union of a schema and another field."""
    return lambda value: value.get("schema", value.get(other))


def _items(value: Mapping[str, Any]) -> list[str]:
    return list(value.get("items", ()))


_ZEROS: Final[Mapping[str, Any]] = {"string": "", "bytes": "", "bool": False, "int32": 0, "int64": 0}
_RAW: Final = {f"{_META}.FieldsV1", f"{_RUNTIME}.RawExtension", f"{_EXTENSIONS}.JSON"}
_SPECIAL: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    f"{_META}.Time": _time,
    f"{_META}.MicroTime": _micro_time,
    f"{_META}.Verbs": _items,
    f"{_META}.FieldsV1": _json,
    f"{_RUNTIME}.RawExtension": _json,
    f"{_EXTENSIONS}.JSON": _json,
    f"{_EXTENSIONS}.JSONSchemaPropsOrArray": _union_with_schema("jSONSchemas"),
    f"{_EXTENSIONS}.JSONSchemaPropsOrBool": _union_with_schema("allows"),
    f"{_EXTENSIONS}.JSONSchemaPropsOrStringArray": _union_with_schema("property"),
    "k8s.io.apimachinery.pkg.api.resource.Quantity": lambda value: value.get("string", "0"),
    "k8s.io.apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
    "k8s.io.api.authentication.v1.ExtraValue": _items,
    "k8s.io.api.authorization.v1.ExtraValue": _items,
    "k8s.io.api.certificates.v1.ExtraValue": _items,
}
