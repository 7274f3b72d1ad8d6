"""Correlation of old and new values of an object: by the keys of maps, and by the map keys of lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from ..model.structure import Structure


def correlate(node: Structure, old: Any) -> Callable[[Any], Any]:
    """Return a function that returns the item of the old list with the same keys as a new item, or None."""
    keys = node.keys
    if not keys or not isinstance(old, list):
        return lambda item: None
    before = {_identity(keys, item): item for item in reversed(old) if isinstance(item, dict)}
    return lambda item: before.get(_identity(keys, item)) if isinstance(item, dict) else None


def _identity(keys: Iterable[str], item: dict[str, Any]) -> bytes:
    return msgspec.json.encode([item.get(key) for key in keys])


def is_unchanged(node: Structure, value: Any, old: Any, known: dict[tuple[int, int], bool]) -> bool:
    """Return whether the value is unchanged; values without a schema count as changed.

    Findings about maps and lists are remembered in *known*, as long as both objects are.
    """
    if not isinstance(value, (dict, list)) or not isinstance(old, (dict, list)):
        return _are_equal(value, old)
    pair = (id(value), id(old))
    if pair not in known:
        known[pair] = _is_unchanged(node, value, old, known)
    return known[pair]


def _is_unchanged(node: Structure, value: Any, old: Any, known: dict[tuple[int, int], bool]) -> bool:
    if isinstance(value, dict) and isinstance(old, dict):
        if value.keys() != old.keys():
            return False
        subs = ((part(node, key), item, old[key]) for key, item in value.items())
        return all(sub is not None and is_unchanged(sub, item, before, known) for sub, item, before in subs)
    if node.keys and node.items and isinstance(value, list) and isinstance(old, list) and len(value) == len(old):
        before_of = correlate(node, old)
        pairs = [(item, before_of(item)) for item in value]
        if any(before is not None for _, before in pairs):
            items = node.items
            return all(before is not None and is_unchanged(items, item, before, known) for item, before in pairs)
    return _are_equal(value, old)


def _are_equal(value: Any, old: Any) -> bool:
    return msgspec.json.encode(value, order="sorted") == msgspec.json.encode(old, order="sorted")


def part(node: Structure, key: str) -> Structure | None:
    """Return the schema of the value at this key of a map."""
    return node.properties.get(key) or (node.extra if not isinstance(node.extra, bool) else None)


def in_order_of(node: Structure, value: Any, old: Any) -> Any:
    """Return the old value with its sets and keyed lists in the order of the new one: their order is irrelevant."""
    if isinstance(value, dict) and isinstance(old, dict):
        subs = ((key, part(node, key), item) for key, item in old.items())
        return {key: item if sub is None else in_order_of(sub, value.get(key), item) for key, sub, item in subs}
    if node.keys is None or node.items is None or not isinstance(value, list) or not isinstance(old, list):
        return old
    places = {_item_identity(node, item): at for at, item in enumerate(value)}
    ordered = sorted(old, key=lambda item: places.get(_item_identity(node, item), len(places)))
    if not node.keys:
        return ordered
    news = [value[at] if (at := places.get(_item_identity(node, item))) is not None else None for item in ordered]
    return [in_order_of(node.items, new, item) for new, item in zip(news, ordered, strict=True)]


def _item_identity(node: Structure, item: Any) -> bytes:
    return _identity(node.keys, item) if node.keys and isinstance(item, dict) else msgspec.json.encode(item)
