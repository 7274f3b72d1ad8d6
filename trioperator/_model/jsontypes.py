"""Types of JSON values that are exchanged with the API server, and copies of such values."""

from __future__ import annotations

import copy
from collections.abc import Mapping
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


def copy_json(value: Any) -> Any:
    """Return a deep copy of a JSON value: this is several times faster than in Python, and as deep as can be decoded.

    Storages of users may have put something else into it.
    """
    try:
        return _decode(_encode(value))
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
        return copy.deepcopy(value)
