"""The limits on the nesting of objects, on the number of their values, and on the paths of their fields. Pure.

The real server accepts 10,000 levels. Here, objects are walked through recursively, with several frames for each level,
and Python allows about 1,000 frames: so the limit is far lower, but still several times what real objects have.
Validation makes the path of each field, which must not take much more space than the object. Each value takes some
microseconds, so a body of 3 MiB with a million of them would block the server for seconds.
"""

from __future__ import annotations

from typing import Any, Final

DEPTH_LIMIT: Final = 200  # levels of lists and objects in an object
BODY_DEPTH_LIMIT: Final = DEPTH_LIMIT + 10  # in whatever has an object in it; managedFields repeat its fields deeper
TOO_DEEP: Final = f"exceeded max depth of {DEPTH_LIMIT}"
VALUES_LIMIT: Final = 40_000  # fields and items in a body or an object; the largest real objects have less
TOO_MANY_VALUES: Final = f"exceeded max number of {VALUES_LIMIT} fields and items"
LONG_PATHS: Final = "the paths of all fields take more than 32 MiB"
_PATHS_LIMIT: Final = 32 * 1024 * 1024  # characters; a real object of 1.5 MiB has less than 10
_INDEX: Final = 8  # characters of the index of an item
_CONTAINERS: Final = (dict, list)  # of decoded JSON, whose values are of no subclass


def is_too_deep(value: Any, limit: int = DEPTH_LIMIT) -> bool:
    """Return whether the JSON value has more levels than the limit. Does not recurse."""
    return depth_of(value) > limit


def depth_of(value: Any) -> int:
    """Return the number of levels, but at most one more than the limit of bodies. Does not recurse."""
    level: list[Any] = [value] if isinstance(value, _CONTAINERS) else []
    depth = 0
    while level and depth <= BODY_DEPTH_LIMIT:
        depth += 1
        level = [
            item
            for part in level
            for item in (part.values() if isinstance(part, dict) else part)
            if type(item) in _CONTAINERS
        ]
    return depth


def size_problem(value: Any) -> str:
    """Return the error if the number of values, or the space that the paths of all take, exceeds the limit.

    Does not recurse.
    """
    total = count = 0
    pending: list[tuple[Any, int]] = [(value, 0)] if isinstance(value, _CONTAINERS) else []
    while pending and total <= _PATHS_LIMIT:
        part, length = pending.pop()
        count += len(part)
        if count > VALUES_LIMIT:
            return TOO_MANY_VALUES
        if isinstance(part, dict):
            for key, item in part.items():
                total += length + len(key)
                if type(item) in _CONTAINERS:
                    pending.append((item, length + len(key) + 1))
        else:
            length += _INDEX
            total += length * len(part)
            pending += [(item, length) for item in part if type(item) in _CONTAINERS]
    return LONG_PATHS if total > _PATHS_LIMIT else ""
