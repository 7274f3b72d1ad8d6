"""Sets of fields of an object, in the format of ``managedFields`` (``FieldsV1``). Pure.

A set is a tree of dicts. Its keys are elements of paths: ``f:<name>`` for a field, ``k:<keys as JSON>`` for an item of
a list that is a map, ``v:<value as JSON>`` for an item of a list that is a set, ``i:<index>`` for one of any list. A
path is in the set if its node is empty, or has the key ``.`` besides the keys of the paths below it. So nothing is
converted when sets are read or written. Sets are never changed in place: results may share parts with the arguments.
They have no order: only :func:`paths` has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from ..model.go_numbers import parse_int64
from ..model.json_text import decode_json

FieldSet = dict[str, Any]
Path = tuple[str, ...]

SELF: Final = "."  # marks a node with children as a member itself
_NAMED: Final = "f:"
_encode: Final = msgspec.json.Encoder(order="sorted").encode
_decode: Final = msgspec.json.Decoder().decode


def item_element(keys: Mapping[str, Any]) -> str:
    """Return the element of the item that has these keys, in a list that is a map."""
    return f"k:{_encode(keys).decode()}"


def value_element(value: Any) -> str:
    """Return the element of the item, in a list that is a set."""
    return f"v:{_encode(value).decode()}"


# -- operations ----------------------------------------------------------------------------------------------------
# In each function the roots are sets, where an empty dict is the empty set; below, an empty dict is a member.


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    """Return the paths that are in one of the sets or in both."""
    if not other or one is other:
        return one
    if not one:
        return other
    result = dict(one)
    for key, node in other.items():
        own = one.get(key)
        if own is None:
            result[key] = node
        elif own is not node and key != SELF:
            result[key] = _union_nodes(own, node)
    return result


def union_of(sets: Sequence[FieldSet]) -> FieldSet:
    """Return the paths that are in any of the sets. Halves are united, so that many sets are not copied many times."""
    if len(sets) < 2:
        return sets[0] if sets else {}
    half = len(sets) // 2
    return union(union_of(sets[:half]), union_of(sets[half:]))


def _union_nodes(one: FieldSet, other: FieldSet) -> FieldSet:
    if not one or not other:
        larger = one or other
        return larger if not larger or SELF in larger else {SELF: {}, **larger}
    return union(one, other)


def difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """Return the paths of the first set that are not in the second; paths below those stay."""
    if not one or not other:
        return one
    changed: dict[str, FieldSet | None] = {}
    for key in other if len(other) < len(one) else one:
        own, node = one.get(key), other.get(key)
        if own is None or node is None or key == SELF:
            continue
        left = _subtract_node(own, node)
        if left is not own:
            changed[key] = left
    return _replaced(one, changed)


def _replaced(one: FieldSet, changed: Mapping[str, FieldSet | None]) -> FieldSet:
    """Return the set with these nodes in place of its own, and without those that are None."""
    return {key: node for key, node in {**one, **changed}.items() if node is not None} if changed else one


def _subtract_node(one: FieldSet, other: FieldSet) -> FieldSet | None:
    """Return the node without the paths of the other node; None if nothing remains."""
    is_member_of_other = not other or SELF in other
    if not one:
        return None if is_member_of_other else one
    children = difference(one, other)
    if is_member_of_other and SELF in children:
        children = {key: node for key, node in children.items() if key != SELF}
    return _normalize_node(children)


def _normalize_node(node: FieldSet) -> FieldSet | None:
    """Normalize a node that was not empty: a member without children is an empty dict, an empty node is None."""
    if not node:
        return None
    return {} if len(node) == 1 and SELF in node else node


def exclude(one: FieldSet, other: FieldSet) -> FieldSet:
    """Return the paths of the first set that are neither in the second nor below a path of it."""
    changed: dict[str, FieldSet | None] = {}
    for key, node in other.items():
        own = one.get(key)
        if own is None or key == SELF:
            continue
        left = None if not node or SELF in node else own if not own else _normalize_node(exclude(own, node))
        if left is not own:
            changed[key] = left
    return _replaced(one, changed)


def intersection(one: FieldSet, other: FieldSet) -> FieldSet:
    """Return the paths that are in both sets."""
    if one is other:
        return one
    result = {}
    for key, node in one.items():
        there = other.get(key)
        if there is None or key == SELF:
            continue
        common = intersection(node, there)
        if (not node or SELF in node) and (not there or SELF in there):
            result[key] = {SELF: {}, **common} if common else {}
        elif common:
            result[key] = common
    return result


def contains(one: FieldSet, path: Path) -> bool:
    """Return whether the path is in the set."""
    node = one
    for element in path:
        below = node.get(element)
        if below is None:
            return False
        node = below
    return bool(path) and (not node or SELF in node)


def paths(one: FieldSet, prefix: Path = ()) -> Iterator[Path]:
    """Yield the paths in the set in order: on each level the members first, then the paths below them."""
    elements = sorted((key for key in one if key != SELF), key=_rank)
    for key in elements:
        if not one[key] or SELF in one[key]:
            yield (*prefix, key)
    for key in elements:
        if one[key]:
            yield from paths(one[key], (*prefix, key))


# -- format and order ----------------------------------------------------------------------------------------------


def path_text(path: Path) -> str:
    """Return the path as formatted in messages: ``.spec.containers[name="x"].image``."""
    return "".join(_format_element(element) for element in path)


def _format_element(element: str) -> str:
    content = element[2:]
    match element[0]:
        case "f":
            return f".{content}"
        case "k":
            shown = (f"{name}={_encode(value).decode()}" for name, value in sorted(_decode(content).items()))
            return f"[{','.join(shown)}]"
        case "v":
            return f"[={content}]"
    return f"[{content}]"


def _rank(element: str) -> tuple[int, Any]:
    """Return the sorting key of the element: fields, keys, values, indices."""
    match element[0]:
        case "f":
            return 1, element
        case "k":
            return 2, [(name, _value_rank(value)) for name, value in sorted(_decode(element[2:]).items())]
        case "v":
            return 3, _value_rank(_decode(element[2:]))
    return 4, int(element[2:])


def _value_rank(value: Any) -> tuple[int, Any]:
    if isinstance(value, bool):
        return 2, value
    if isinstance(value, (int, float)):
        return 0, value
    return (1, value) if isinstance(value, str) else (3, str(value))


def normalize(fields: Any) -> FieldSet:
    """Normalize a set from a client. Raises ValueError if it is invalid.

    Elements of unknown types are dropped, as a newer client may know them.
    """
    node = _parse_node(fields)
    return {key: below for key, below in node.items() if key != SELF}


def _parse_node(fields: Any) -> FieldSet:
    if not isinstance(fields, Mapping):
        raise ValueError("a set of fields must be an object")
    result = {}
    for key, below in fields.items():
        element = SELF if key == SELF else _parse_element(key)
        if element:
            result[element] = {} if key == SELF else _parse_node(below)
    return {} if len(result) == 1 and SELF in result else result


def _parse_element(key: str) -> str:
    mark, content = key[:2], key[2:]
    if len(mark) < 2 or mark[1] != ":":
        raise ValueError(f"missing colon: {key}")
    if mark == "k:":
        keys = decode_json(content.encode())
        if not isinstance(keys, dict):
            raise ValueError(f"keys must be an object: {key}")
        return item_element(keys)
    if mark == "v:":
        return value_element(decode_json(content.encode()))
    if mark == "i:":
        return f"i:{parse_int64(content)}"
    return key if mark == _NAMED else ""
