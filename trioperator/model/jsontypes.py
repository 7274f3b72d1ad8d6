"""Types of JSON values that are exchanged with the API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, TypedDict

__all__ = ["Json", "JsonObject", "RawBody", "RawEvent", "RawEventType"]

Json: TypeAlias = Any
JsonObject: TypeAlias = dict[str, Any]
RawBody: TypeAlias = Mapping[str, Any]
RawEventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"] | None


class RawEvent(TypedDict):
    """Watch event; its type is None for objects from the initial list."""

    type: RawEventType
    object: RawBody
