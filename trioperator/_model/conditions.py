"""Conditions that can be waited for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

#: ``"Ready"`` or ``"Ready=False"`` of the object's ``status.conditions``, or a function of the object.
Condition: TypeAlias = str | Callable[[dict[str, Any]], object]


def is_met(condition: Condition, obj: dict[str, Any]) -> bool:
    """Return whether an object meets a condition. One that was reported for an older generation does not count."""
    if callable(condition):
        return bool(condition(obj))
    wanted, _, value = condition.partition("=")
    generation = (obj.get("metadata") or {}).get("generation") or 0
    status = obj.get("status") or {}
    if _is_older(status, generation):
        return False
    for found in status.get("conditions") or ():
        if isinstance(found, Mapping) and found.get("type") == wanted:
            return found.get("status") == (value or "True") and not _is_older(found, generation)
    return False


def _is_older(status: Mapping[str, Any], generation: int) -> bool:
    observed = status.get("observedGeneration")
    return isinstance(observed, int) and observed < generation


def describe_condition(condition: Condition) -> str:
    """Return a condition in words."""
    return condition if isinstance(condition, str) else getattr(condition, "__qualname__", repr(condition))
