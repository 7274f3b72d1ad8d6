"""Differences between two objects. None counts as absent; lists are compared as a whole.

Users who may create objects control how deep and wide they are, so the work is bounded: mappings that are more than
:data:`MAX_DEPTH` levels deep, and all others after :data:`MAX_ITEMS` differences, are compared as a whole.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, overload

from msgspec import Raw

from trioperator._model.fields import FieldPath, resolve
from trioperator._model.jsontypes import copy_json
from trioperator._model.lazy_object import complete, is_outlined, may_be_equal, outline_of


class DiffOperation(enum.StrEnum):
    """How a field has changed."""

    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"

    def __repr__(self) -> str:
        return repr(self.value)


class DiffItem(NamedTuple):
    """One difference: a field, with its old and new value."""

    operation: DiffOperation
    field: FieldPath
    old: Any
    new: Any

    def __repr__(self) -> str:
        return repr(tuple(self))

    @property
    def op(self) -> DiffOperation:
        """Alias of ``operation``."""
        return self.operation


class Diff(Sequence[DiffItem]):
    """Immutable sequence of differences. It equals any sequence of the same tuples."""

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[DiffItem | tuple[Any, ...]] = ()) -> None:
        self._items = tuple(
            item if type(item) is DiffItem else DiffItem(DiffOperation(item[0]), *item[1:]) for item in items
        )

    def __repr__(self) -> str:
        return repr(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[DiffItem]:
        return iter(self._items)

    def __hash__(self) -> int:
        try:
            return hash(self._items)  # the hash of an equal tuple
        except TypeError:  # values that are dicts or lists: equal tuples are not hashable
            return hash(tuple((item.operation, item.field) for item in self._items))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence) and not isinstance(other, str):
            return self._items == tuple(tuple(item) if isinstance(item, list | tuple) else item for item in other)
        return NotImplemented

    @overload
    def __getitem__(self, index: int) -> DiffItem: ...
    @overload
    def __getitem__(self, index: slice) -> Diff: ...
    def __getitem__(self, index: int | slice) -> DiffItem | Diff:
        return Diff(self._items[index]) if isinstance(index, slice) else self._items[index]


class _PrivateDiff(Diff):
    """Differences that are found, and whose values are copied and decoded, when somebody looks at them."""

    __slots__ = ("_parts", "_values")

    def __init__(self, old: Any, new: Any) -> None:
        self._values = old, new

    def __len__(self) -> int:
        return len(self._parts)

    def __getattr__(self, name: str) -> Any:
        if name == "_parts":
            self._parts = find_differences(*self._values)
            return self._parts
        if name != "_items":
            raise AttributeError(name)
        items = (item._replace(old=_hand_out(item.old), new=_hand_out(item.new)) for item in self._parts)
        self._items = tuple(items)
        return self._items


_NONE: Final = Diff()
#: Levels of mappings that are compared key by key.
MAX_DEPTH: Final = 32
#: Differences after which mappings, and keys of a mapping above which it, are compared as a whole.
MAX_ITEMS: Final = 10_000


def diff(old: Any, new: Any, *, private: bool = False) -> Diff:
    """Return the differences between two values; mappings are compared key by key.

    Both values are safe from whoever gets *private* differences, and must not change.
    """
    is_private = private or is_outlined(old) or is_outlined(new)
    return _PrivateDiff(old, new) if is_private else find_differences(old, new)


def find_differences(old: Any, new: Any) -> Diff:
    """Return the differences between two values. Of huge objects, they are parts of outlines: only to be looked at."""
    if old is None and is_outlined(new):
        return Diff([DiffItem(DiffOperation.ADD, (), None, new)])
    old, new = outline_of(old), outline_of(new)
    if old is new or old == new:
        return _NONE
    items: list[DiffItem] = []
    _compare(old, new, (), items)
    return Diff(items)


def _hand_out(value: Any) -> Any:
    return value if is_outlined(value) else copy_json(value)


def _compare(old: Any, new: Any, path: FieldPath, items: list[DiffItem]) -> None:
    """Add the differences between two values that are not equal."""
    if (type(old) is Raw or type(new) is Raw) and may_be_equal(old, new):
        old, new = complete(old), complete(new)
        if old == new:
            return
    if old is None:
        items.append(DiffItem(DiffOperation.ADD, path, None, new))
    elif new is None:
        items.append(DiffItem(DiffOperation.REMOVE, path, old, None))
    elif (
        (type(old) is dict or isinstance(old, Mapping))  # to ask the abstract class takes much longer
        and (type(new) is dict or isinstance(new, Mapping))
        and len(path) < MAX_DEPTH
        and len(items) + len(old) + len(new) <= MAX_ITEMS
    ):
        for key in old:
            if key not in new and old[key] is not None:
                _compare(old[key], None, (*path, key), items)
        for key, value in new.items():
            before = old.get(key)
            if not (before is value or before == value):
                _compare(before, value, (*path, key), items)
    else:
        items.append(DiffItem(DiffOperation.CHANGE, path, old, new))


def reduce_diff(whole: Diff, path: FieldPath) -> Diff:
    """Return the differences inside one field, with paths relative to it."""
    if not path:
        return whole
    items: list[DiffItem] = []
    for item in whole:
        if item.field[: len(path)] == path:
            items.append(item._replace(field=item.field[len(path) :]))
        elif item.field == path[: len(item.field)]:
            rest = path[len(item.field) :]
            items.extend(diff(resolve(item.old, rest), resolve(item.new, rest)))
    return Diff(items)
