"""Conversion of stored built-in objects to the requested version. Pure."""

from __future__ import annotations

from typing import Any

from ..model.kinds import Kind
from . import autoscaling, events

__all__ = ["as_served"]


def as_served(kind: Kind, obj: dict[str, Any]) -> dict[str, Any]:
    """Convert the stored object to the version of the kind."""
    if kind.is_event_alias:
        return events.from_core(obj, kind.api_version)
    if kind.api_version == "autoscaling/v1":
        return autoscaling.to_v1(obj)
    return obj if obj["apiVersion"] == kind.api_version else {**obj, "apiVersion": kind.api_version}
