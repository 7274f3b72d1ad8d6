"""Indices: what index handlers say of objects, kept by keys, for all handlers to look up. Pure.

An index is a read-only mapping from keys to stores, a store a read-only collection of values. Each object has one value
at most in a store. Lookups take a constant time; so does a change, for each key of the object that it is about.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from typing import Any, TypeVar

__all__ = ["Index", "Indices", "Store", "discard", "owners", "replace"]

K = TypeVar("K")
V = TypeVar("V")


class Store(Collection[V]):
    """Be the values under one key of an index, in the order in which their objects were indexed; never empty.

    The truth of a store is that of its length, whatever the values are. It can be read and iterated in threads, and
    across checkpoints: an iteration is over what there was when it began.
    """

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[Hashable, V] = {}

    def __iter__(self) -> Iterator[V]:
        return iter(list(self._values.values()))

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, value: object) -> bool:
        return value in list(self._values.values())

    def __repr__(self) -> str:
        return repr(list(self))


class Index(Mapping[K, Store[V]]):
    """Be what an index handler has said of all objects: a read-only mapping from its keys to their values.

    There is no key without values. The key of values that were returned without one is None (Kopf, "In-memory
    indexing"). It can be read and iterated in threads, and across checkpoints: an iteration is over what there was when
    it began.
    """

    __slots__ = ("_keys", "_stores")

    def __init__(self) -> None:
        self._stores: dict[K, Store[V]] = {}
        self._keys: dict[Hashable, tuple[K, ...]] = {}

    def __getitem__(self, key: K) -> Store[V]:
        return self._stores[key]

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._stores))

    def items(self) -> ItemsView[K, Store[V]]:
        """Give the keys with their stores, as they are now."""
        return self._stores.copy().items()

    def values(self) -> ValuesView[Store[V]]:
        """Give the stores, as they are now."""
        return self._stores.copy().values()

    def __len__(self) -> int:
        return len(self._stores)

    def __contains__(self, key: object) -> bool:
        return key in self._stores

    def __repr__(self) -> str:
        return repr(self._stores)


Indices = Mapping[str, Index[Any, Any]]


def replace(index: Index[Any, Any], owner: Hashable, result: Any) -> None:
    """Put the result of an index handler for an object in the place of the former one.

    A dict (strictly, no other mapping) holds values by keys; anything else is a value under the key None. If a key
    cannot be hashed any more, its error is raised, and all is as it was.
    """
    entries = result if type(result) is dict else {None: result}
    for key in entries:
        hash(key)  # what cannot be kept is found out before anything is changed
    for key in index._keys.pop(owner, ()):
        if key not in entries:
            _drop(index, owner, key)
    for key, value in entries.items():
        store = index._stores.get(key)
        if store is None:
            store = index._stores[key] = Store()
        store._values[owner] = value
    if entries:
        index._keys[owner] = tuple(entries)


def discard(index: Index[Any, Any], owner: Hashable) -> None:
    """Take all values of an object out of the index."""
    for key in index._keys.pop(owner, ()):
        _drop(index, owner, key)


def owners(index: Index[Any, Any]) -> Iterable[Hashable]:
    """Give the owners of all values, as they are now."""
    return tuple(index._keys)


def _drop(index: Index[Any, Any], owner: Hashable, key: Any) -> None:
    store = index._stores[key]
    del store._values[owner]
    if not store._values:
        del index._stores[key]
