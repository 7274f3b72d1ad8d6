"""Events, which the API serves in two groups with two vocabularies, and stores in that of the core group. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["from_core", "to_core"]

# The name in the group events.k8s.io, and that in the core group.
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
    """Translate an event of the group ``events.k8s.io`` into one of the core group."""
    return {_TO_CORE.get(field, field): value for field, value in event.items()}


def from_core(event: Mapping[str, Any], api_version: str) -> dict[str, Any]:
    """Translate an event of the core group into one of the group ``events.k8s.io``."""
    translated = {_FROM_CORE.get(field, field): value for field, value in event.items()}
    return {**translated, "apiVersion": api_version}
