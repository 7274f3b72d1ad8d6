"""Digests in place of values that are too big to be stored.

Unchanged values can be restored from the current object; for others the digest shows that they have changed. Pure and
deterministic: the order of keys does not matter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from trioperator._model.jsontypes import JsonObject
from trioperator._model.lazy_object import complete, decode_json, use_decoded

#: The only key of a mapping that replaces a value.
DIGEST: Final = "trioperator.dev/digest"

_encode = msgspec.json.Encoder().encode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
# Values up to this size, in bytes, are replaced only together with the mapping that contains them.
_SMALL = 256
# Deeper values, and mappings with more values, are replaced as a whole: users who may create objects control how
# deep and wide they are, and each level is measured again.
_MAX_DEPTH = 16
_MAX_VALUES = 10_000
_MAX_KNOWN = 256  # digests of what is large
# Bytes of JSON above which a value is no digest itself: somebody may write spaces into it.
_MAX_DIGEST = 8 * 1024


_known: Final[dict[bytes, str]] = {}


def digest(value: Any) -> JsonObject:
    """Return the mapping that replaces a value, which may be a part of an outline."""
    if type(value) is msgspec.Raw:
        return {DIGEST: _digest_raw(value)}
    return {DIGEST: hashlib.blake2b(_encode_sorted(complete(value)), digest_size=16).hexdigest()}


def _digest_raw(raw: msgspec.Raw) -> str:
    """Return the digest of a value in JSON. It is cached, as decoding a large value takes long."""
    key = hashlib.blake2b(raw, digest_size=16).digest()
    found = _known.get(key)
    if found is None:
        found = hashlib.blake2b(use_decoded(raw, _encode_sorted), digest_size=16).hexdigest()
        if len(_known) >= _MAX_KNOWN:
            del _known[next(iter(_known))]
        _known[key] = found
    return found


_SIZE: Final = len(_encode(digest(None)))


class _Node:
    """Value in the tree that is shrunk, with the size of its JSON in bytes. A leaf is replaced as a whole, or not."""

    __slots__ = ("depth", "holder", "is_leaf", "key", "parent", "size", "value")

    def __init__(self, value: Any, parent: _Node | None, *, holder: JsonObject, key: str, size: int) -> None:
        self.value = value
        self.parent = parent
        self.holder = holder
        self.key = key
        self.size = size
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.is_leaf = not isinstance(value, Mapping)

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
    holder: JsonObject = {"": value}
    root = _Node(value, None, holder=holder, key="", size=len(encoded))
    for node in _candidates(_expand(root)):
        if root.size <= room:
            break
        node.collapse()
    return _encode(holder[""])


def _candidates(nodes: list[_Node]) -> Iterator[_Node]:
    leaves = [node for node in nodes if node.is_leaf]
    yield from sorted(leaves, key=lambda node: -node.size)
    mappings = [node for node in nodes if not node.is_leaf]
    for depth in range(max(node.depth for node in mappings), -1, -1):
        worth = 2 * _SIZE if depth else _SIZE
        level = [node for node in mappings if node.depth == depth and node.size > worth]
        yield from sorted(level, key=lambda node: -node.size)


def _expand(root: _Node) -> list[_Node]:
    """Return all parts of a value that are worth a digest, outer before inner ones; copy the mappings around them."""
    nodes = [root]
    values = 0
    for node in nodes:  # it grows meanwhile
        if node.is_leaf or (node.size <= _SMALL and node is not root):
            continue
        values += len(node.value)
        if node is not root and (node.depth >= _MAX_DEPTH or values > _MAX_VALUES):
            node.is_leaf = True
            continue
        copy: JsonObject = dict(node.value)
        node.holder[node.key] = copy
        for key, inner in node.value.items():
            size = len(_encode(inner))
            if size > (2 * _SIZE if isinstance(inner, Mapping) else _SMALL):
                nodes.append(_Node(inner, node, holder=copy, key=key, size=size))
    return nodes


def restore(stored: Any, present: Any) -> Any:
    """Return *stored* with its digests replaced by the values of *present* that have the same digest."""
    if not isinstance(stored, Mapping):
        return stored
    if len(stored) == 1 and DIGEST in stored:
        return present if stored == digest(present) else stored
    inner = present if isinstance(present, Mapping) else {}
    return {key: restore(value, inner.get(key)) for key, value in stored.items()}


def matches(stored: Any, raw: bytes | msgspec.Raw) -> bool:
    """Check whether *stored* would be *raw*, a value as JSON, if its digests were replaced by values of that.

    Nothing large is decoded if anything else differs.
    """
    is_digest = isinstance(stored, Mapping) and len(stored) == 1 and DIGEST in stored
    if is_digest or not isinstance(stored, Mapping):
        if is_digest and stored == digest(msgspec.Raw(raw)):
            return True
        return not (is_digest and len(memoryview(raw)) > _MAX_DIGEST) and bool(stored == decode_json(raw))
    if bytes(memoryview(raw)[:1]) != b"{":
        return False
    present = _decode_members(raw)
    if stored.keys() != present.keys():
        return False
    smallest_first = sorted(present, key=lambda key: len(memoryview(present[key])))
    return all(matches(stored[key], present[key]) for key in smallest_first)
