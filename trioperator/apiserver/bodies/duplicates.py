"""Duplicate fields in JSON bodies, of which the last one counts. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

__all__ = ["duplicate_fields"]


def duplicate_fields(body: bytes, content: Any) -> list[str]:
    """Return the paths of the fields that occur several times in the body, whose decoded content is given.

    Usually the number of colons after quotes tells that there are none.
    """
    if body.count(b'":') == _count_fields(content):
        return []
    try:
        return list(dict.fromkeys(_find(json.loads(body, object_pairs_hook=_Fields), "")))
    except RecursionError:
        return []  # nobody nests so deep by hand


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


def _find(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _Fields):
        seen = set[str]()
        for name, item in value:
            place = f"{path}.{name}" if path else name
            if name in seen:
                yield place
            seen.add(name)
            yield from _find(item, place)
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _find(item, f"{path}[{at}]")
