"""Fields: paths into nested objects."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, TypeAlias

__all__ = ["FieldPath", "FieldSpec", "ensure", "parse_field", "remove", "resolve", "without"]

FieldPath: TypeAlias = tuple[str, ...]
FieldSpec: TypeAlias = str | list[str] | tuple[str, ...] | None


def parse_field(spec: FieldSpec) -> FieldPath:
    """Read a field: a dotted string, or a list or tuple of keys where they have dots themselves. None is the root."""
    if spec is None or spec == "":
        return ()
    if isinstance(spec, str):
        return tuple(spec.split("."))
    if isinstance(spec, list | tuple):
        return tuple(spec)
    raise ValueError(f"A field is a dotted string or a list of keys, not {spec!r}.")


def resolve(value: Any, path: FieldPath, default: Any = None) -> Any:
    """Give what stands at *path*, or *default* where anything on the way is missing or None."""
    for key in path:
        if type(value) is not dict and not isinstance(value, Mapping):  # the first is much faster to tell
            return default
        value = value.get(key)
        if value is None:
            return default
    return value


def ensure(target: MutableMapping[str, Any], path: FieldPath, value: Any) -> None:
    """Put *value* at *path*, with whatever is missing on the way. What is no mapping there is replaced.

    Raises ValueError for the root, which cannot be put into itself.
    """
    if not path:
        raise ValueError("A value can be put into a field only: the root has no name.")
    for key in path[:-1]:
        inner = target.get(key)
        if not isinstance(inner, MutableMapping):
            inner = target[key] = {}
        target = inner
    target[path[-1]] = value


def remove(target: MutableMapping[str, Any], path: FieldPath) -> None:
    """Take out what stands at *path*, and the parents that become empty by that. What is not there is no error.

    The root cannot be taken out of itself, and stays.
    """
    if not path or path[0] not in target:
        return
    key, rest = path[0], path[1:]
    inner = target[key]
    if rest:
        if not isinstance(inner, MutableMapping) or not inner:
            return
        remove(inner, rest)
        if inner:
            return
    del target[key]


def without(source: Mapping[str, Any], path: FieldPath) -> Mapping[str, Any]:
    """Give *source* without what stands at *path*, and without the parents that become empty by that.

    *source* is not changed. It is given back as it is where there is nothing at *path*; else what is kept is shared.
    """
    if not path or path[0] not in source:
        return source
    key, rest = path[0], path[1:]
    if not rest:
        return {name: value for name, value in source.items() if name != key}
    inner = source[key]
    if not isinstance(inner, Mapping):
        return source
    reduced = without(inner, rest)
    if reduced is inner:
        return source
    return {name: (reduced if name == key else value) for name, value in source.items() if name != key or reduced}
