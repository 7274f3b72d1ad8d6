"""Digests in place of values that are too big to be stored.

Unchanged values can be restored from the current object; for others the digest shows that they have changed. Pure and
deterministic: the order of keys does not matter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from trioperator.model.jsontypes import JsonObject

__all__ = ["DIGEST", "restore", "shrink"]

#: The only key of a mapping that replaces a value.
DIGEST: Final = "trioperator.dev/digest"

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
# Values up to this size, in bytes, are replaced only together with the mapping that contains them.
_SMALL = 256


def digest(value: Any) -> JsonObject:
    """Return the mapping that replaces a value."""
    return {DIGEST: hashlib.blake2b(_encode_sorted(value), digest_size=16).hexdigest()}


_SIZE: Final = len(_encode(digest(None)))


class _Node:
    """Value in the tree that is shrunk, with the size of its JSON in bytes."""

    __slots__ = ("depth", "holder", "key", "parent", "size", "value")

    def __init__(self, value: Any, parent: _Node | None, holder: JsonObject, key: str) -> None:
        self.value = value
        self.parent = parent
        self.holder = holder
        self.key = key
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.size = 0

    def collapse(self) -> None:
        """Replace the value by its digest."""
        self.holder[self.key] = digest(self.value)
        gain = self.size - _SIZE
        node: _Node | None = self
        while node is not None:
            node.size -= gain
            node = node.parent


def shrink(value: Mapping[str, Any], room: int) -> bytes:
    """Encode a value as JSON of at most *room* bytes, replacing big parts by digests.

    Lists and scalars are replaced first, from the biggest one on; then mappings, from the innermost ones on. In the
    worst case the result is one digest, even if that exceeds *room*. The value itself is not changed.
    """
    encoded = _encode(value)
    if len(encoded) <= room:
        return encoded
    holder: JsonObject = {}
    nodes: list[_Node] = []
    _measure(_Node(value, None, holder, ""), nodes)
    root = nodes[-1]
    for node in _candidates(nodes):
        if root.size <= room:
            break
        node.collapse()
    return _encode(holder[""])


def _candidates(nodes: list[_Node]) -> Iterator[_Node]:
    leaves = [node for node in nodes if not isinstance(node.value, Mapping) and node.size > _SMALL]
    yield from sorted(leaves, key=lambda node: -node.size)
    mappings = [node for node in nodes if isinstance(node.value, Mapping)]
    for depth in range(max(node.depth for node in mappings), -1, -1):
        worth = 2 * _SIZE if depth else _SIZE
        level = [node for node in mappings if node.depth == depth and node.size > worth]
        yield from sorted(level, key=lambda node: -node.size)


def _measure(node: _Node, nodes: list[_Node]) -> None:
    """Copy the mappings of a value, measure all its parts, and append them to *nodes*, inner before outer ones."""
    if isinstance(node.value, Mapping):
        copy: JsonObject = {}
        node.holder[node.key] = copy
        node.size = 2 + max(0, len(node.value) - 1)  # braces and commas
        for key, inner in node.value.items():
            child = _Node(inner, node, copy, key)
            _measure(child, nodes)
            node.size += len(_encode(key)) + 1 + child.size
    else:
        node.holder[node.key] = node.value
        node.size = len(_encode(node.value))
    nodes.append(node)


def restore(stored: Any, present: Any) -> Any:
    """Return *stored* with its digests replaced by the values of *present* that have the same digest."""
    if not isinstance(stored, Mapping):
        return stored
    if len(stored) == 1 and DIGEST in stored:
        return present if stored == digest(present) else stored
    inner = present if isinstance(present, Mapping) else {}
    return {key: restore(value, inner.get(key)) for key, value in stored.items()}
