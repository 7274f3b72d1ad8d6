"""The limit on the nesting of objects. Pure.

The real server accepts 10,000 levels. Here, objects are walked through recursively, with several frames for each level,
and Python allows about 1,000 frames: so the limit is far lower, but still several times what real objects have.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["BODY_DEPTH_LIMIT", "DEPTH_LIMIT", "TOO_DEEP", "depth_of", "is_too_deep"]

DEPTH_LIMIT: Final = 200  # levels of lists and objects in an object
BODY_DEPTH_LIMIT: Final = DEPTH_LIMIT + 10  # in whatever has an object in it; managedFields repeat its fields deeper
TOO_DEEP: Final = f"exceeded max depth of {DEPTH_LIMIT}"
_CONTAINERS: Final = (dict, list)


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
            if isinstance(item, _CONTAINERS)
        ]
    return depth
