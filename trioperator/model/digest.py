"""Digests: how a value that is too big to be kept is known again.

In place of big parts of a value stand their digests. Where a part is unchanged it can be put back; where it has
changed, its digest tells that it has. Pure, and deterministic: the order of keys does not matter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from trioperator.model.jsontypes import JsonObject

__all__ = ["DIGEST", "restore", "shrink"]

#: The only key of a mapping that stands for a value.
DIGEST: Final = "trioperator.dev/digest"

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
# What is not bigger, in bytes, is kept for as long as there is anything else that can be made smaller.
_SMALL = 256


def digest(value: Any) -> JsonObject:
    """Make what stands for a value."""
    return {DIGEST: hashlib.blake2b(_encode_sorted(value), digest_size=16).hexdigest()}


_SIZE: Final = len(_encode(digest(None)))


class _Node:
    """Be a value in the tree that is made smaller, with the size of its JSON in bytes."""

    __slots__ = ("depth", "holder", "key", "parent", "size", "value")

    def __init__(self, value: Any, parent: _Node | None, holder: JsonObject, key: str) -> None:
        self.value = value
        self.parent = parent
        self.holder = holder
        self.key = key
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.size = 0

    def collapse(self) -> None:
        """Put the digest into the place of the value."""
        self.holder[self.key] = digest(self.value)
        gain = self.size - _SIZE
        node: _Node | None = self
        while node is not None:
            node.size -= gain
            node = node.parent


def shrink(value: Mapping[str, Any], room: int) -> bytes:
    """Encode a value as JSON of at most *room* bytes, with digests in place of what is too big.

    Lists and scalars go first, the largest one first; then mappings, the innermost ones first. At the worst, and be it
    more than *room*, one digest stands for the whole value. The value is not changed.
    """
    encoded = _encode(value)
    if len(encoded) <= room:
        return encoded
    holder: JsonObject = {}
    nodes: list[_Node] = []
    _grow(_Node(value, None, holder, ""), nodes)
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


def _grow(node: _Node, nodes: list[_Node]) -> None:
    """Copy the mappings of a value, measure all its parts, and list them: inner ones before outer ones."""
    if isinstance(node.value, Mapping):
        copy: JsonObject = {}
        node.holder[node.key] = copy
        node.size = 2 + max(0, len(node.value) - 1)  # braces and commas
        for key, inner in node.value.items():
            child = _Node(inner, node, copy, key)
            _grow(child, nodes)
            node.size += len(_encode(key)) + 1 + child.size
    else:
        node.holder[node.key] = node.value
        node.size = len(_encode(node.value))
    nodes.append(node)


def restore(stored: Any, present: Any) -> Any:
    """Put the present values into the place of the digests that are theirs; other digests stay. Neither is changed."""
    if not isinstance(stored, Mapping):
        return stored
    if len(stored) == 1 and DIGEST in stored:
        return present if stored == digest(present) else stored
    inner = present if isinstance(present, Mapping) else {}
    return {key: restore(value, inner.get(key)) for key, value in stored.items()}
