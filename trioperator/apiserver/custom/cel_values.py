"""Conversion of custom objects to CEL values: numbers by their schema types, and escaped property names. Pure."""

from __future__ import annotations

import functools
import re
from typing import Any, Final

from ..model.structure import Structure
from .correlation import part

_RESERVED: Final = frozenset(
    {"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import"}
    | {"let", "loop", "package", "namespace", "return", "var", "void", "while"}
)
_ESCAPES: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}


@functools.lru_cache(maxsize=4096)
def escaped(name: str) -> str:
    """Return the escaped name of the property."""
    if name in _RESERVED:
        return f"__{name}__"
    return re.sub(r"__|[-./]", lambda match: _ESCAPES[match.group()], name)


def shown(node: Structure, value: Any) -> Any:
    """Convert the value for expressions. Null properties are dropped."""
    if isinstance(value, dict):
        if node.properties:
            return {escaped(key): _below(node, key, item) for key, item in value.items() if item is not None}
        return {key: _below(node, key, item) for key, item in value.items()}
    if isinstance(value, list) and node.items is not None:
        return [shown(node.items, item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value) if node.types == ("number",) or not -(2**63) <= value < 2**63 else value
    return value


def _below(node: Structure, key: str, item: Any) -> Any:
    if key == "metadata" and isinstance(item, dict) and (node.embedded or key not in node.properties):
        return {field: item[field] for field in ("name", "generateName") if field in item}
    sub = part(node, key)
    return item if sub is None else shown(sub, item)
