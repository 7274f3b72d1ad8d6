"""Types of JSON values that are exchanged with the API server, and copies of such values."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias, TypedDict

import msgspec

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode

JsonObject: TypeAlias = dict[str, Any]
RawBody: TypeAlias = Mapping[str, Any]
RawEventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"] | None


class RawEvent(TypedDict):
    """Watch event; its type is None for objects from the initial list."""

    type: RawEventType
    object: RawBody


def encode_json(value: Any) -> bytes:
    """Encode as JSON what users want written. Raises as :func:`check_numbers` and ``msgspec.json.encode`` do."""
    encoded = _encode(value)
    check_numbers(value, encoded)
    return encoded


def check_numbers(value: Any, encoded: bytes) -> None:
    """Raise ValueError if a value has an infinite number or NaN: in JSON that is null, which removes fields."""
    if b"null" in encoded:  # else it has none
        for path, item in _iterate(value):
            if isinstance(item, float) and not math.isfinite(item):
                raise ValueError(f"{path.removeprefix('.') or 'it'} is {item}, which is no number in JSON")


def _iterate(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a value consists of, and where it is; in no order, as it may be as deep as can be encoded."""
    left = [("", value)]
    while left:
        path, value = left.pop()
        yield path, value
        if isinstance(value, Mapping):
            left += ((f"{path}.{key}", item) for key, item in value.items())
        elif isinstance(value, list | tuple | set | frozenset):
            left += ((f"{path}[{index}]", item) for index, item in enumerate(value))


def copy_json(value: Any) -> Any:
    """Return a deep copy of a JSON value: this is several times faster than in Python, and as deep as can be decoded.

    Storages of users may have put something else into it.
    """
    try:
        return _decode(_encode(value))
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
        return copy.deepcopy(value)
