"""Which fields of an object a write has changed, and which fields an object has. Pure.

What both versions of an object share is passed by, so a small change of a large object costs little.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from .field_sets import SELF, FieldSet
from .field_types import FieldType

__all__ = ["OWNERLESS", "Comparison", "Scope", "compare", "fields_of"]

_LEAF: Final[FieldSet] = {}
_ABSENT: Final = object()

# Nobody owns these: clients cannot set them, or they tell which object it is.
OWNERLESS: Final[FieldSet] = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {
        SELF: {},
        "f:name": {},
        "f:namespace": {},
        "f:creationTimestamp": {},
        "f:selfLink": {},
        "f:uid": {},
        "f:clusterName": {},
        "f:generation": {},
        "f:managedFields": {},
        "f:resourceVersion": {},
    },
}
_HEAD: Final = frozenset({"apiVersion", "kind", "metadata"})
_OWNERLESS_META: Final = frozenset(element[2:] for element in OWNERLESS["f:metadata"])


class Scope:
    """What one way of writing an object cannot change: whole parts of it, and fields of its metadata."""

    __slots__ = ("fields", "has_metadata", "metadata", "parts")

    def __init__(self, *parts: str, metadata: tuple[str, ...] = ()) -> None:
        self.fields: FieldSet = {f"f:{name}": _LEAF for name in parts}
        if metadata:
            self.fields["f:metadata"] = {f"f:{name}": _LEAF for name in metadata}
        # What nobody owns is left out, too; metadata has a comparison of its own.
        self.parts = _HEAD.union(parts)
        self.metadata = _OWNERLESS_META.union(metadata)
        self.has_metadata = "metadata" not in parts


class Comparison(NamedTuple):
    """What is in the newer object only or differs, and what is in the older one only."""

    changed: FieldSet
    removed: FieldSet


def compare(root: FieldType, old: Mapping[str, Any], new: Mapping[str, Any], scope: Scope) -> Comparison:
    """Compare two versions of an object as far as its fields can be owned."""
    changed: FieldSet = {}
    removed: FieldSet = {}
    _compare_maps(root, old, new, changed, removed, scope.parts)
    before, after = old.get("metadata") or {}, new.get("metadata") or {}
    if before is not after and scope.has_metadata:
        meta: tuple[FieldSet, FieldSet] = ({}, {})
        _compare_maps(root.fields["metadata"], before, after, *meta, scope.metadata)
        if meta[0]:
            changed["f:metadata"] = meta[0]
        if meta[1]:
            removed["f:metadata"] = meta[1]
    return Comparison(changed, removed)


def _compare_maps(
    node: FieldType,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    changed: FieldSet,
    removed: FieldSet,
    fixed: frozenset[str] = frozenset(),
) -> None:
    """Compare the fields of two maps but the *fixed* ones, and add to the sets what was changed and removed."""
    for name, after in new.items():
        before = old.get(name, _ABSENT)
        if before is not after and name not in fixed:
            if before is _ABSENT:
                changed[f"f:{name}"] = _whole(node.field(name), after)
            else:
                _compare_values(node.field(name), f"f:{name}", (before, after), changed, removed)
    for name in old:
        if name not in new and name not in fixed:
            removed[f"f:{name}"] = _whole(node.field(name), old[name])


def _compare_values(node: FieldType, element: str, pair: tuple[Any, Any], changed: FieldSet, removed: FieldSet) -> None:
    old, new = pair
    if old == new and (type(old) is type(new) or (not isinstance(old, bool) and not isinstance(new, bool))):
        return
    below: tuple[FieldSet, FieldSet] = ({}, {})
    if (not old and not new) or not _is_granular(node, old, new):
        changed[element] = _LEAF
        if type(old) is not type(new):
            # A container that gives way to something else takes its fields along, and the other way round.
            for value, target in ((old, removed), (new, changed)):
                if value and isinstance(value, (dict, list)) and (whole := _whole(node, value)):
                    target[element] = whole
        return
    if isinstance(old, dict) or isinstance(new, dict):
        _compare_maps(node, old or {}, new or {}, *below)
    else:
        _compare_lists(node, old or [], new or [], *below)
    if below[0]:
        changed[element] = below[0]
    if below[1]:
        removed[element] = below[1]


def _is_granular(node: FieldType, old: Any, new: Any) -> bool:
    """Return whether both values are maps, or both lists, whose entries are fields; null is as good as an empty one."""
    if (isinstance(old, dict) or old is None) and (isinstance(new, dict) or new is None):
        return not node.is_atomic
    return node.keys is not None and isinstance(old, list | None) and isinstance(new, list | None)


def _compare_lists(node: FieldType, old: list[Any], new: list[Any], changed: FieldSet, removed: FieldSet) -> None:
    before, after = _by_element(node, old), _by_element(node, new)
    item = node.item
    for element in {**before, **after}:
        left, right = before.get(element, []), after.get(element, [])
        if len(left) <= 1 and len(right) <= 1:
            if not left:
                changed[element] = _whole(item, right[0])
            elif not right:
                removed[element] = _whole(item, left[0])
            else:
                _compare_values(item, element, (left[0], right[0]), changed, removed)
        elif len(left) > 1 and len(right) > 1:
            if left != right:
                changed[element] = _LEAF
        elif len(left) > 1:  # double items are one field, whatever is in them
            removed[element] = _LEAF
            if right:
                changed[element] = _whole(item, right[0])
        else:
            changed[element] = _LEAF
            if left:
                removed[element] = _whole(item, left[0])


def _by_element(node: FieldType, items: list[Any]) -> dict[str, list[Any]]:
    result: dict[str, list[Any]] = {}
    for item in items:
        result.setdefault(node.element(item), []).append(item)
    return result


def _whole(node: FieldType, value: Any) -> FieldSet:
    """Return the node of a value that was not there before: it is a member itself, and all that is below it."""
    if not value:
        return _LEAF
    if isinstance(value, dict):
        if node.is_atomic:
            return _LEAF
        fields = node.fields
        result: FieldSet = {SELF: _LEAF}
        for name, item in value.items():
            if item and isinstance(item, (dict, list)):
                result[f"f:{name}"] = _whole(fields.get(name) or node.field(name), item)
            else:
                result[f"f:{name}"] = _LEAF
        return result
    if isinstance(value, list) and node.keys is not None:
        below = node.item
        items = _by_element(node, value).items()
        return {SELF: _LEAF, **{key: _whole(below, same[0]) if len(same) == 1 else _LEAF for key, same in items}}
    return _LEAF


# -- all fields of an object ---------------------------------------------------------------------------------------


def fields_of(node: FieldType, value: Any) -> FieldSet:
    """Return the fields of a value: leaves, empty maps, items of lists, and entries of maps that are not declared."""
    result: FieldSet = {}
    if isinstance(value, dict):
        for name, item in value.items():
            below = _fields_below(node.field(name), item)
            is_member = item is None or item == {} or name not in node.fields
            if is_member or below is not None:
                result[f"f:{name}"] = {SELF: _LEAF, **below} if is_member and below else below or _LEAF
    elif isinstance(value, list):
        for element, same in _by_element(node, value).items():
            below = _fields_below(node.item, same[0]) if len(same) == 1 else None
            result[element] = {SELF: _LEAF, **below} if below else _LEAF
    return result


def _fields_below(node: FieldType, value: Any) -> FieldSet | None:
    """Return the node of the value: empty for a leaf, None if it has no fields."""
    if value is None:
        return None
    if isinstance(value, dict):
        return _LEAF if node.is_atomic else fields_of(node, value) or None
    if isinstance(value, list):
        return _LEAF if node.keys is None else fields_of(node, value) or None
    return _LEAF
