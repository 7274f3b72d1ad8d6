"""Merging what an applier wants into an object, and taking out what it wants no more. Pure.

Values are never changed in place: what a function returns shares its untouched parts with what it was given.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from .comparison import fields_of
from .field_sets import SELF, FieldSet, contains, difference, intersection, union
from .field_types import FieldType

__all__ = ["merge", "prune"]

_DOUBLE: Final = object()  # in the place of items that a list has more than once


# -- merging -------------------------------------------------------------------------------------------------------


def merge(node: FieldType, live: Any, wanted: Any) -> Any:
    """Return the live value with the wanted one merged into it: maps by fields, lists by items, leaves as wanted."""
    if not live and not wanted:
        return wanted
    if isinstance(wanted, dict) or (wanted is None and isinstance(live, dict)):
        if node.is_atomic:
            return wanted
        return _merge_maps(node, live if isinstance(live, dict) else {}, wanted or {})
    if isinstance(wanted, list) or (wanted is None and isinstance(live, list)):
        if node.keys is None:
            return wanted
        return _merge_lists(node, live if isinstance(live, list) else [], wanted or [])
    return wanted


def _merge_maps(node: FieldType, live: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    result = dict(live)
    for name, item in wanted.items():
        result[name] = merge(node.field(name), live[name], item) if name in live else item
    return result


def _merge_lists(node: FieldType, live: list[Any], wanted: list[Any]) -> list[Any]:
    """Merge the items in the order wanted; items that are only in the live list stay behind their old neighbours."""
    live_elements = [node.element(item) for item in live]
    wanted_items = {node.element(item): item for item in wanted}
    live_items: dict[str, Any] = {}
    for element, item in zip(live_elements, live, strict=True):
        live_items[element] = _DOUBLE if element in live_items else item
    result: list[Any] = []
    for place in _order(live_elements, list(wanted_items)):
        if isinstance(place, int):
            result.append(live[place])
        else:
            before, item = live_items.get(place, _DOUBLE), wanted_items[place]
            result.append(item if before is _DOUBLE else merge(node.item, before, item))
    return result


def _order(live: Sequence[str], wanted: Sequence[str]) -> Iterator[int | str]:
    """Yield the order of the merged list: indices of items that are only in the live list, elements of wanted ones."""
    places = {element: place for place, element in enumerate(wanted)}
    common = set(live)
    shared = collections.deque(element for element in wanted if element in common)
    at = wanted_at = 0
    while at < len(live) or wanted_at < len(wanted):
        if at < len(live):
            element = live[at]
            if element not in places:
                yield at
                at += 1
                continue
            is_next = places[element] == wanted_at
            if wanted_at < len(wanted) and not is_next and shared and shared[0] != element:
                at += 1  # follows with the wanted item
                continue
            if places[element] <= wanted_at:
                at += 1
        if wanted_at < len(wanted):
            if shared and shared[0] == wanted[wanted_at]:
                shared.popleft()
            yield wanted[wanted_at]
            wanted_at += 1


# -- pruning -------------------------------------------------------------------------------------------------------


def prune(node: FieldType, merged: dict[str, Any], *, last: FieldSet, owned: FieldSet) -> dict[str, Any]:
    """Return the merged object without the fields that its applier had (*last*) and nobody has now (*owned*).

    What is not a field of its own goes with the last of the fields in it.
    """
    if not last:
        return merged
    everything = _with_structs(node, fields_of(node, merged))
    last = _with_structs(node, last)
    pruned = _without_fields(node, merged, last)
    kept = union(_with_structs(node, fields_of(node, pruned)), _with_structs(node, owned))
    pruned = _without_fields(node, merged, difference(everything, kept))
    gone = difference(everything, _with_structs(node, fields_of(node, pruned)))
    return _without_fields(node, merged, intersection(gone, last))


def _with_structs(node: FieldType | None, fields: FieldSet) -> FieldSet:
    """Return the set with those declared fields as members that have members below them."""
    result: FieldSet = {}
    for element, below in fields.items():
        if element == SELF or not below:
            result[element] = below
            continue
        inner, declared = None, None
        if node is not None and element.startswith("f:"):
            declared = node.fields.get(element[2:])
            inner = declared or node.extra
        elif node is not None and element.startswith("k:"):
            inner = node.item
        expanded = _with_structs(inner, below)
        result[element] = {SELF: {}, **expanded} if declared is not None else expanded
    return result


def _removed(node: FieldType, value: Any, fields: FieldSet) -> Any:
    """Return the value without the fields; None if nothing is left of it."""
    if isinstance(value, dict):
        return None if node.is_atomic else _without_fields(node, value, fields) or None
    if isinstance(value, list):
        return None if node.keys is None else _without_items(node, value, fields) or None
    return value


def _without_fields(node: FieldType, value: Mapping[str, Any], fields: FieldSet) -> dict[str, Any]:
    result = {}
    for name, item in value.items():
        element = f"f:{name}"
        if contains(fields, (element,)):
            continue
        below = fields.get(element)
        result[name] = _removed(node.field(name), item, below) if below else item
    return result


def _without_items(node: FieldType, value: list[Any], fields: FieldSet) -> list[Any]:
    result = []
    for item in value:
        element = node.element(item)
        if contains(fields, (element,)):
            continue
        below = fields.get(element)
        result.append(_removed(node.item, item, below) if below else item)
    return result
