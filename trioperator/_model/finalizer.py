"""Finalizers. The patches are conditional, and do not touch finalizers of others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_deleting(body: Mapping[str, Any]) -> bool:
    """Return whether the object is being deleted."""
    return bool((body.get("metadata") or {}).get("deletionTimestamp"))


def has_finalizer(body: Mapping[str, Any], name: str | None) -> bool:
    """Return whether the object has the finalizer."""
    return name in ((body.get("metadata") or {}).get("finalizers") or ())


def add_finalizer(body: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the JSON patch that appends the finalizer, empty if it is there already."""
    finalizers = (body.get("metadata") or {}).get("finalizers") or ()
    if name in finalizers:
        return []
    if not finalizers:
        return [{"op": "add", "path": "/metadata/finalizers", "value": [name]}]
    return [{"op": "add", "path": "/metadata/finalizers/-", "value": name}]


def remove_finalizer(body: Mapping[str, Any], name: str | None) -> list[dict[str, Any]]:
    """Return the JSON patch that removes the finalizer, with a test that it is still at its position."""
    finalizers = list((body.get("metadata") or {}).get("finalizers") or ())
    if name not in finalizers:
        return []
    if finalizers == [name]:
        return [
            {"op": "test", "path": "/metadata/finalizers", "value": finalizers},
            {"op": "remove", "path": "/metadata/finalizers"},
        ]
    path = f"/metadata/finalizers/{finalizers.index(name)}"
    return [{"op": "test", "path": path, "value": name}, {"op": "remove", "path": path}]
