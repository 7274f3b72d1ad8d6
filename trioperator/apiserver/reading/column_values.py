"""What cells of built-in kinds have in common: values by their paths, texts for ages, labels, containers. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

__all__ = [
    "access_modes",
    "age",
    "at",
    "containers",
    "count",
    "find",
    "human_duration",
    "images",
    "join",
    "label_selector",
    "labels",
    "owner",
    "ratio",
    "since",
    "subjects",
]

Object: TypeAlias = Mapping[str, Any]
Cell: TypeAlias = Callable[[Object, datetime.datetime], Any]

_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def find(obj: Any, path: str) -> Any:
    """Give the value at a path with dots, or None."""
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, Mapping) else None
    return obj


def join(values: Iterable[Any], *, glue: str = ",", default: str = "<none>") -> str:
    """Put the values side by side; *default* stands for none."""
    return glue.join(str(value) for value in values) or default


def at(*paths: str, default: Any = "") -> Cell:
    """Show the value at the first of the paths where there is one."""

    def cell(obj: Object, now: datetime.datetime) -> Any:
        return next((value for path in paths if (value := find(obj, path)) not in (None, "")), default)

    return cell


def count(*paths: str) -> Cell:
    """Show how many items there are at the paths."""
    return lambda obj, now: sum(len(find(obj, path) or ()) for path in paths)


def ratio(done: str, wanted: str) -> Cell:
    """Show how many there are of those that are wanted."""
    return lambda obj, now: f"{find(obj, done) or 0}/{find(obj, wanted) or 0}"


def age(obj: Object, now: datetime.datetime) -> str:
    """Show how long the object has been there."""
    return since(obj["metadata"].get("creationTimestamp"), now)


def since(timestamp: Any, now: datetime.datetime, *, default: str = "<unknown>") -> str:
    """Tell how long ago the API's timestamp was, as people read it."""
    try:
        moment = datetime.datetime.fromisoformat(str(timestamp))
    except ValueError:
        return default
    return human_duration((now - moment).total_seconds())


def human_duration(seconds: float) -> str:
    """Write a duration with two or three significant digits, as kubectl does: 42s, 7m9s, 3h5m, 2d4h, 400d, 3y40d."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    total = max(total, 0)
    if total < 120:
        return f"{total}s"
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if minutes < 10:
        return _two(minutes, "m", total % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    if days < 8 * 365:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(big: int, big_unit: str, small: int, small_unit: str) -> str:
    return f"{big}{big_unit}{small}{small_unit}" if small else f"{big}{big_unit}"


def containers(template: str) -> Cell:
    """Show the names of a template's containers."""
    return lambda obj, now: ",".join(str(item.get("name")) for item in find(obj, f"{template}.spec.containers") or ())


def images(template: str) -> Cell:
    """Show the images of a template's containers."""
    return lambda obj, now: ",".join(str(item.get("image")) for item in find(obj, f"{template}.spec.containers") or ())


def labels(path: str) -> Cell:
    """Show labels, or what is selected by them."""
    return lambda obj, now: join(f"{key}={value}" for key, value in sorted((find(obj, path) or {}).items()))


def label_selector(path: str) -> Cell:
    """Show a label selector as kubectl takes it."""

    def cell(obj: Object, now: datetime.datetime) -> str:
        selector = find(obj, path) or {}
        parts = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
        for item in selector.get("matchExpressions") or ():
            key, values = item.get("key"), ",".join(sorted(item.get("values") or ()))
            shown = {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": f"{key}",
                "DoesNotExist": f"!{key}",
            }
            parts.append((key, shown.get(str(item.get("operator")), "")))
        return join(text for _, text in sorted(parts, key=lambda part: str(part[0])))

    return cell


def access_modes(path: str) -> Cell:
    """Show the access modes of a volume by their short names."""
    return lambda obj, now: ",".join(_MODES.get(mode, "") for mode in dict.fromkeys(find(obj, path) or ()))


def owner(obj: Object, now: datetime.datetime) -> str:
    """Show the controller of the object."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            group = str(reference.get("apiVersion")).rpartition("/")[0]
            kind = str(reference.get("kind")).lower()
            return f"{kind}.{group}/{reference.get('name')}" if group else f"{kind}/{reference.get('name')}"
    return "<none>"


def subjects(kind: str) -> Cell:
    """Show the subjects of a binding that are of a kind."""

    def cell(obj: Object, now: datetime.datetime) -> str:
        found = [subject for subject in obj.get("subjects") or () if subject.get("kind") == kind]
        names = (f"{s['namespace']}/{s['name']}" if kind == "ServiceAccount" else s["name"] for s in found)
        return ", ".join(names)

    return cell
