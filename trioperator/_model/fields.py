"""Fields: paths into nested objects."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, TypeAlias

FieldPath: TypeAlias = tuple[str, ...]
FieldSpec: TypeAlias = str | list[str] | tuple[str, ...] | None


def parse_field(spec: FieldSpec) -> FieldPath:
    """Parse a field: a dotted string, or a list or tuple of keys (which may contain dots). None is the root.

    Raises ValueError for anything else, and for a string with an empty part.
    """
    if spec is None or spec == "":
        return ()
    if isinstance(spec, str):
        path = tuple(spec.split("."))
        if all(path):
            return path
    elif isinstance(spec, list | tuple) and all(isinstance(key, str) for key in spec):
        return tuple(spec)
    raise ValueError(
        f"A field is a dotted string without empty parts, such as 'spec.size', or a list of keys, not {spec!r}."
    )


def resolve(value: Any, path: FieldPath, default: Any = None) -> Any:
    """Return the value at *path*, or *default* if it, or anything on the way, is missing or None."""
    for key in path:
        if type(value) is not dict and not isinstance(value, Mapping):  # the first check is much faster
            return default
        value = value.get(key)
        if value is None:
            return default
    return value


def ensure(target: MutableMapping[str, Any], path: FieldPath, value: Any) -> None:
    """Set *value* at *path*, creating missing parents. Parents that are not mappings are replaced.

    Raises ValueError for an empty path.
    """
    if not path:
        raise ValueError("The root itself cannot be set: name a field.")
    for key in path[:-1]:
        inner = target.get(key)
        if type(inner) is not dict and not isinstance(inner, MutableMapping):
            inner = target[key] = {}
        target = inner
    target[path[-1]] = value


def remove(target: MutableMapping[str, Any], path: FieldPath) -> None:
    """Remove the value at *path*, and parents that become empty. A missing value or an empty path is ignored."""
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
    """Return *source* without the value at *path*, and without parents that become empty.

    *source* is not changed. Return it itself if there is nothing at *path*; otherwise the result shares its values.
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
