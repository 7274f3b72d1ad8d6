"""Versions of built-in kinds: stored objects as the version that a client asks for shows them. Pure."""

from __future__ import annotations

from typing import Any

from ..model.kinds import Kind
from . import autoscaling, events

__all__ = ["as_served"]


def as_served(kind: Kind, obj: dict[str, Any]) -> dict[str, Any]:
    """Return the stored object in the version (and the vocabulary) of the kind."""
    if kind.is_event_alias:
        return events.from_core(obj, kind.api_version)
    if kind.api_version == "autoscaling/v1":
        return autoscaling.to_v1(obj)
    return obj if obj["apiVersion"] == kind.api_version else {**obj, "apiVersion": kind.api_version}
