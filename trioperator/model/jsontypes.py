"""The names of JSON: what is decoded from the API server, and what it is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, TypedDict

__all__ = ["Json", "JsonObject", "RawBody", "RawEvent", "RawEventType"]

Json: TypeAlias = Any
JsonObject: TypeAlias = dict[str, Any]
RawBody: TypeAlias = Mapping[str, Any]
RawEventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"] | None


class RawEvent(TypedDict):
    """Be an event of the watch stream; its type is None for what was there when the operator started."""

    type: RawEventType
    object: RawBody
