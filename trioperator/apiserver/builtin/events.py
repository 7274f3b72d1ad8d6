"""Conversion of Events between the group ``events.k8s.io`` and the stored form, that of the core group. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["from_core", "to_core"]

# Field names in the group events.k8s.io, and in the core group.
_NAMES: Final = (
    ("deprecatedCount", "count"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedSource", "source"),
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("reportingController", "reportingComponent"),
)
_TO_CORE: Final[Mapping[str, str]] = dict(_NAMES)
_FROM_CORE: Final[Mapping[str, str]] = {core: own for own, core in _NAMES}


def to_core(event: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an Event of the group ``events.k8s.io`` to the core group."""
    return {_TO_CORE.get(field, field): value for field, value in event.items()}


def from_core(event: Mapping[str, Any], api_version: str) -> dict[str, Any]:
    """Convert an Event of the core group to the group ``events.k8s.io``."""
    translated = {_FROM_CORE.get(field, field): value for field, value in event.items()}
    return {**translated, "apiVersion": api_version}
