"""The JSONPath subset of printer columns and scale paths: fields, indices, ``[*]`` and ``[?(@.a=="b")]``. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

_STEP: Final = re.compile(
    r"""
    \.?\[\?\(\s*@\.?(?P<filter>[^=!<>\s]*)\s*(?P<op>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|[^)\s]+)\s*\)\]
  | \.?\[(?P<index>-?\d+|\*)\]
  | \.?\[(?P<quote>['"])(?P<quoted>.*?)(?P=quote)\]
  | \.(?P<star>\*)
  | \.?(?P<name>(?:\\.|[^.\[\]])+)
    """,
    re.VERBOSE,
)


def find_all(value: Any, path: str) -> list[Any]:
    """Return all values at the path."""
    found = [value]
    path = path.strip().removeprefix("{").removesuffix("}")
    at = 1 if path.startswith("$") else 0
    while at < len(path) and path[at:] != ".":
        match = _STEP.match(path, at)
        if match is None:
            return []
        found = [item for old in found for item in _step(old, match)]
        at = match.end()
    return found


def find_first(value: Any, path: str, default: Any = None) -> Any:
    """Return the first value at the path, or the default."""
    found = find_all(value, path)
    return found[0] if found else default


def _step(value: Any, match: re.Match[str]) -> Iterable[Any]:
    if match["filter"] is not None:
        wanted = match["value"].strip("'\"")
        for item in value if isinstance(value, list) else ():
            own = find_first(item, f".{match['filter']}") if match["filter"] else item
            if (_plain(own) == wanted) is (match["op"] == "=="):
                yield item
    elif match["index"] == "*" or match["star"]:
        yield from value if isinstance(value, list) else value.values() if isinstance(value, Mapping) else ()
    elif match["index"] is not None:
        at = int(match["index"])
        if isinstance(value, list) and -len(value) <= at < len(value):
            yield value[at]
    else:
        name = match["quoted"] if match["quoted"] is not None else re.sub(r"\\(.)", r"\1", match["name"])
        if isinstance(value, Mapping) and name in value:
            yield value[name]


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def put_at(target: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return the object with the value set at a path of plain fields; the rest is shared with *target*."""
    *parents, last = path.lstrip(".").split(".")
    result = place = dict(target)
    for name in parents:
        below = place.get(name)
        place[name] = dict(below) if isinstance(below, Mapping) else {}
        place = place[name]
    place[last] = value
    return result
