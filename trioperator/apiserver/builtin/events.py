"""Events of the group ``events.k8s.io``: other names for the fields of stored ones, as in the core group. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..model.kinds import Kind

# Field names in the group events.k8s.io, and in the core group.
_TO_CORE: Final[Mapping[str, str]] = {
    "deprecatedCount": "count",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedSource": "source",
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
}
_FROM_CORE: Final[Mapping[str, str]] = {core: own for own, core in _TO_CORE.items()}


def to_core(event: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an Event of the group ``events.k8s.io`` to the core group."""
    return {_TO_CORE.get(field, field): value for field, value in event.items()}


def as_served(kind: Kind, obj: dict[str, Any]) -> dict[str, Any]:
    """Return the stored built-in object in the group and version of the kind."""
    if kind.is_event_alias:
        own = {_FROM_CORE.get(field, field): value for field, value in obj.items()}
        return {**own, "apiVersion": kind.api_version}
    return obj if obj["apiVersion"] == kind.api_version else {**obj, "apiVersion": kind.api_version}
