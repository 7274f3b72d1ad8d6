"""Helpers for the cells of tables: values by path, ages and durations. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, TypeAlias

Object: TypeAlias = Mapping[str, Any]


def find(obj: Any, path: str) -> Any:
    """Return the value at a dotted path, or None."""
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, Mapping) else None
    return obj


def age(obj: Object, now: datetime.datetime) -> str:
    """Return the age of the object."""
    return since(obj["metadata"].get("creationTimestamp"), now)


def since(timestamp: Any, now: datetime.datetime) -> str:
    """Return how long ago the timestamp was, in human-readable form."""
    try:
        moment = datetime.datetime.fromisoformat(str(timestamp))
    except ValueError:
        return "<unknown>"
    return human_duration((now - moment).total_seconds())


def human_duration(seconds: float) -> str:
    """Format a duration with two or three significant digits, as kubectl does: 42s, 7m9s, 3h5m, 2d4h, 400d, 3y40d."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    total = max(total, 0)
    if total < 120:
        return f"{total}s"
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if minutes < 10:
        return _join_units(minutes, "m", total % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _join_units(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _join_units(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    if days < 8 * 365:
        return _join_units(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _join_units(big: int, big_unit: str, small: int, small_unit: str) -> str:
    return f"{big}{big_unit}{small}{small_unit}" if small else f"{big}{big_unit}"
