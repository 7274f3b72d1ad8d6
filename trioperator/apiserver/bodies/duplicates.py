"""Duplicate fields in JSON bodies, of which the last one counts. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

_LIMIT: Final = 100
_SIZE_LIMIT: Final = 1024 * 1024  # characters of all paths


def duplicate_fields(body: bytes, content: Any) -> list[str]:
    """Return the paths of the fields that occur several times in the body, whose decoded content is given.

    Usually the number of colons after quotes tells that there are none. Like the real server, at most 100 are returned.
    """
    if body.count(b'":') == _count_fields(content):
        return []
    found: dict[str, None] = {}
    size = 0
    for path in _find(json.loads(body, object_pairs_hook=_Fields), []):
        found[path] = None
        size += len(path)
        if len(found) == _LIMIT or size > _SIZE_LIMIT:
            break
    return list(found)


class _Fields(list[tuple[str, Any]]):
    """Fields of one object, as they are in the body."""


def _count_fields(content: Any) -> int:
    count, left = 0, [content]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            count += len(value)
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)
    return count


def _find(value: Any, parts: list[str]) -> Iterator[str]:
    """Yield the path of each duplicate field below the value, whose own path has these parts."""
    if isinstance(value, _Fields):
        counts: dict[str, int] = {}
        for name, item in value:
            counts[name] = counts.get(name, 0) + 1
            parts.append(f".{name}")
            if counts[name] == 2:
                yield "".join(parts).removeprefix(".")
            yield from _find(item, parts)
            parts.pop()
    elif isinstance(value, list):
        for at, item in enumerate(value):
            if isinstance(item, list):
                parts.append(f"[{at}]")
                yield from _find(item, parts)
                parts.pop()
