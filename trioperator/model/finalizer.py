"""Finalizers: what keeps an object from vanishing. Changes are conditional, and touch no others' entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["add_finalizer", "has_finalizer", "is_deleting", "remove_finalizer"]


def is_deleting(body: Mapping[str, Any]) -> bool:
    """Tell whether the object's deletion was asked for."""
    return bool((body.get("metadata") or {}).get("deletionTimestamp"))


def has_finalizer(body: Mapping[str, Any], name: str) -> bool:
    """Tell whether the finalizer is on the object."""
    return name in ((body.get("metadata") or {}).get("finalizers") or ())


def add_finalizer(body: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Make the JSON patch that puts the finalizer on the object, as the last one."""
    finalizers = (body.get("metadata") or {}).get("finalizers") or ()
    if name in finalizers:
        return []
    if not finalizers:
        return [{"op": "add", "path": "/metadata/finalizers", "value": [name]}]
    return [{"op": "add", "path": "/metadata/finalizers/-", "value": name}]


def remove_finalizer(body: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Make the JSON patch that takes the finalizer off the object, provided that it stands where it is known to."""
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
