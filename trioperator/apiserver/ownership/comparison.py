"""Comparison of two versions of an object, and the field set of an object. Pure.

Parts that both versions share are skipped, so a small change of a large object is cheap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from .field_sets import SELF, FieldSet
from .field_types import FieldType

_LEAF: Final[FieldSet] = {}
_ABSENT: Final = object()

# Fields without managers: clients cannot set them, or they identify the object.
UNMANAGED: Final[FieldSet] = {
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
_UNMANAGED_META: Final = frozenset(element[2:] for element in UNMANAGED["f:metadata"])


class Scope:
    """Fields that a subresource cannot change: top-level fields, and fields of metadata."""

    __slots__ = ("fields", "has_metadata", "metadata", "parts")

    def __init__(self, *parts: str, metadata: tuple[str, ...] = ()) -> None:
        self.fields: FieldSet = {f"f:{name}": _LEAF for name in parts}
        if metadata:
            self.fields["f:metadata"] = {f"f:{name}": _LEAF for name in metadata}
        # Fields without managers are excluded, too; metadata is compared separately.
        self.parts = _HEAD.union(parts)
        self.metadata = _UNMANAGED_META.union(metadata)
        self.has_metadata = "metadata" not in parts


class Comparison(NamedTuple):
    """Fields that were added or changed, and fields that were removed."""

    changed: FieldSet
    removed: FieldSet

    def put(self, element: str, below: Comparison) -> None:
        """Put what differs below an element, if anything does."""
        if below.changed:
            self.changed[element] = below.changed
        if below.removed:
            self.removed[element] = below.removed


def compare(root: FieldType, old: Mapping[str, Any], new: Mapping[str, Any], scope: Scope) -> Comparison:
    """Compare two versions of an object, without fields that have no managers."""
    found = _compare_maps(root, old, new, scope.parts)
    before, after = old.get("metadata") or {}, new.get("metadata") or {}
    if before is not after and scope.has_metadata:
        found.put("f:metadata", _compare_maps(root.fields["metadata"], before, after, scope.metadata))
    return found


def _compare_maps(
    node: FieldType, old: Mapping[str, Any], new: Mapping[str, Any], excluded: frozenset[str] = frozenset()
) -> Comparison:
    """Compare the fields of a map, except the *excluded* ones."""
    found = Comparison({}, {})
    for name, after in new.items():
        before = old.get(name, _ABSENT)
        if before is not after and name not in excluded:
            if before is _ABSENT:
                found.changed[f"f:{name}"] = _whole(node.field(name), after)
            else:
                _compare_values(node.field(name), f"f:{name}", (before, after), found)
    for name in old:
        if name not in new and name not in excluded:
            found.removed[f"f:{name}"] = _whole(node.field(name), old[name])
    return found


def _compare_values(node: FieldType, element: str, pair: tuple[Any, Any], found: Comparison) -> None:
    old, new = pair
    if old == new and (type(old) is type(new) or (not isinstance(old, bool) and not isinstance(new, bool))):
        return
    if (not old and not new) or not _is_granular(node, old, new):
        found.changed[element] = _LEAF
        if type(old) is not type(new):
            # When a container replaces a scalar or vice versa, the fields of the container change as well.
            for value, target in ((old, found.removed), (new, found.changed)):
                if value and isinstance(value, (dict, list)) and (whole := _whole(node, value)):
                    target[element] = whole
        return
    if isinstance(old, dict) or isinstance(new, dict):
        below = _compare_maps(node, old or {}, new or {})
    else:
        below = _compare_lists(node, old or [], new or [])
    found.put(element, below)


def _is_granular(node: FieldType, old: Any, new: Any) -> bool:
    """Return whether both values are granular maps or lists; null counts as empty."""
    if (isinstance(old, dict) or old is None) and (isinstance(new, dict) or new is None):
        return not node.is_atomic
    return node.keys is not None and isinstance(old, list | None) and isinstance(new, list | None)


def _compare_lists(node: FieldType, old: list[Any], new: list[Any]) -> Comparison:
    found = Comparison({}, {})
    changed, removed = found
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
                _compare_values(item, element, (left[0], right[0]), found)
        elif len(left) > 1 and len(right) > 1:
            if left != right:
                changed[element] = _LEAF
        elif len(left) > 1:  # duplicate items are one field
            removed[element] = _LEAF
            if right:
                changed[element] = _whole(item, right[0])
        else:
            changed[element] = _LEAF
            if left:
                removed[element] = _whole(item, left[0])
    return found


def _by_element(node: FieldType, items: list[Any]) -> dict[str, list[Any]]:
    result: dict[str, list[Any]] = {}
    for item in items:
        result.setdefault(node.element(item), []).append(item)
    return result


def _whole(node: FieldType, value: Any) -> FieldSet:
    """Return the node of an added value: all fields, including the value itself."""
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


def fields_of(node: FieldType, value: Any) -> FieldSet:
    """Return the field set of a value: leaves, empty maps, list items, and undeclared map entries."""
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
    """Return the node of a value: empty for a leaf, None if it has no fields."""
    if value is None:
        return None
    if isinstance(value, dict):
        return _LEAF if node.is_atomic else fields_of(node, value) or None
    if isinstance(value, list):
        return _LEAF if node.keys is None else fields_of(node, value) or None
    return _LEAF
