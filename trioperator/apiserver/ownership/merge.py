"""Merging an applied configuration into an object, and pruning fields that are no longer applied. Pure.

Values are never changed in place: results share unchanged parts with the arguments.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from .comparison import fields_of
from .field_sets import SELF, FieldSet, contains, difference, intersection, union
from .field_types import FieldType

_DUPLICATE: Final = object()  # for items that a list contains more than once


# -- merging -------------------------------------------------------------------------------------------------------


def merge(node: FieldType, live: Any, applied: Any) -> Any:
    """Return the live value merged with the applied one: maps by fields, lists by items, leaves as applied."""
    if not live and not applied:
        return applied
    if isinstance(applied, dict) or (applied is None and isinstance(live, dict)):
        if node.is_atomic:
            return applied
        return _merge_maps(node, live if isinstance(live, dict) else {}, applied or {})
    if isinstance(applied, list) or (applied is None and isinstance(live, list)):
        if node.keys is None:
            return applied
        return _merge_lists(node, live if isinstance(live, list) else [], applied or [])
    return applied


def _merge_maps(node: FieldType, live: dict[str, Any], applied: dict[str, Any]) -> dict[str, Any]:
    result = dict(live)
    for name, item in applied.items():
        result[name] = merge(node.field(name), live[name], item) if name in live else item
    return result


def _merge_lists(node: FieldType, live: list[Any], applied: list[Any]) -> list[Any]:
    """Merge the items in the applied order; items that are only in the live list stay behind their neighbors."""
    live_elements = [node.element(item) for item in live]
    applied_items = {node.element(item): item for item in applied}
    live_items: dict[str, Any] = {}
    for element, item in zip(live_elements, live, strict=True):
        live_items[element] = _DUPLICATE if element in live_items else item
    result: list[Any] = []
    for place in _order(live_elements, list(applied_items)):
        if isinstance(place, int):
            result.append(live[place])
        else:
            before, item = live_items.get(place, _DUPLICATE), applied_items[place]
            result.append(item if before is _DUPLICATE else merge(node.item, before, item))
    return result


def _order(live: Sequence[str], applied: Sequence[str]) -> Iterator[int | str]:
    """Yield the order of the merged list: indices of live-only items, elements of applied items."""
    places = {element: place for place, element in enumerate(applied)}
    common = set(live)
    shared = collections.deque(element for element in applied if element in common)
    at = applied_at = 0
    while at < len(live) or applied_at < len(applied):
        if at < len(live):
            element = live[at]
            if element not in places:
                yield at
                at += 1
                continue
            is_next = places[element] == applied_at
            if applied_at < len(applied) and not is_next and shared and shared[0] != element:
                at += 1  # comes with the applied item
                continue
            if places[element] <= applied_at:
                at += 1
        if applied_at < len(applied):
            if shared and shared[0] == applied[applied_at]:
                shared.popleft()
            yield applied[applied_at]
            applied_at += 1


# -- pruning -------------------------------------------------------------------------------------------------------


def prune(node: FieldType, merged: dict[str, Any], *, last: FieldSet, owned: FieldSet) -> dict[str, Any]:
    """Return the merged object without the fields that its applier owned (*last*) and nobody owns now (*owned*).

    A container without a manager of its own is removed with the last of its fields.
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
    """Return the set, with declared fields as members if they have members below them."""
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
    """Return the value without the fields; None if it becomes empty."""
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
