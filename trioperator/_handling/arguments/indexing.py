"""In-memory indices: the results of index handlers by keys, as arguments of all handlers. Pure.

An index is a read-only mapping from keys to stores, a store a read-only collection of values. Each object has at most
one value in a store. Lookups take constant time, updates constant time for each key of the object.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # with default=, which typing has since Python 3.13

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")


class Store(Collection[V]):
    """Values under one key of an index, in the order in which their objects came; never empty.

    Stores can be read and iterated in threads and across checkpoints: an iterator works on a snapshot.
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
    """Index of all objects of an index handler: a read-only mapping from keys to stores of values.

    There are no keys without values. Values that were returned without a key are under None (Kopf, "In-memory
    indexing"). Indices can be read and iterated in threads and across checkpoints: an iterator works on a snapshot.
    """

    __slots__ = ("__weakref__", "_keys", "_stores", "_unsorted")

    def __init__(self) -> None:
        self._stores: dict[K, Store[V]] = {}
        self._keys: dict[Hashable, tuple[K, ...]] = {}
        self._unsorted: set[K] = set()

    def __getitem__(self, key: K) -> Store[V]:
        return self._stores[key]

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._stores))

    def items(self) -> ItemsView[K, Store[V]]:
        """Return a snapshot of the keys with their stores."""
        return self._stores.copy().items()

    def values(self) -> ValuesView[Store[V]]:
        """Return a snapshot of the stores."""
        return self._stores.copy().values()

    def __len__(self) -> int:
        return len(self._stores)

    def __contains__(self, key: object) -> bool:
        return key in self._stores

    def __repr__(self) -> str:
        return repr(self._stores)


Indices = Mapping[str, Index[Any, Any]]


def replace(index: Index[Any, Any], owner: Hashable, result: Any, *, late: bool = False) -> None:
    """Replace the values of an object by the result of its index handler. *Late* results are to be sorted.

    A dict (strictly, no other mapping) contains values by keys; anything else is a value under the key None. If a key
    is not hashable, its error is raised and the index is unchanged.
    """
    entries = result if type(result) is dict else {None: result}
    for key in entries:
        hash(key)  # raise before anything is changed
    for key in index._keys.pop(owner, ()):
        if key not in entries:
            _drop(index, owner, key)
    for key, value in entries.items():
        store = index._stores.get(key)
        if store is None:
            store = index._stores[key] = Store()
        elif late and owner not in store._values:
            index._unsorted.add(key)
        store._values[owner] = value
    if entries:
        index._keys[owner] = tuple(entries)


def discard(index: Index[Any, Any], owner: Hashable) -> None:
    """Remove all values of an object from the index."""
    for key in index._keys.pop(owner, ()):
        _drop(index, owner, key)


def sort(index: Index[Any, Any], order: Callable[[Any], int]) -> None:
    """Sort the stores with late results by the *order* of the values' owners. Threads that read them may go on."""
    while index._unsorted:
        store = index._stores.get(index._unsorted.pop())
        if store is not None:
            store._values = {owner: store._values[owner] for owner in sorted(store._values, key=order)}


def owners(index: Index[Any, Any]) -> Iterable[Hashable]:
    """Return a snapshot of the owners of all values."""
    return tuple(index._keys)


def _drop(index: Index[Any, Any], owner: Hashable, key: Any) -> None:
    store = index._stores[key]
    del store._values[owner]
    if not store._values:
        del index._stores[key]
