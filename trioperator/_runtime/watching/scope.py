"""The scope of an operator: in which namespaces it handles objects, and what it observes to know that."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from trioperator._logs import get_logger
from trioperator._model.namespaces import NamespacePattern, is_exact, match_namespace

if TYPE_CHECKING:
    from trioperator._kube.objects import RawObject


T = TypeVar("T")


class Scope(msgspec.Struct, frozen=True):
    """Where objects are handled: in the whole cluster, or in the namespaces that match any of the patterns."""

    clusterwide: bool = True
    namespaces: tuple[NamespacePattern, ...] = ()

    def includes(self, namespace: str) -> bool:
        """Check whether the objects of a namespace are handled."""
        return self.clusterwide or any(match_namespace(namespace, pattern) for pattern in self.namespaces)

    @property
    def is_exact(self) -> bool:
        """Whether all namespaces are named exactly, so that it need not be known which ones exist."""
        return not self.clusterwide and all(map(is_exact, self.namespaces))

    @property
    def exact(self) -> frozenset[str]:
        """The namespaces that are named exactly, for where namespaces cannot be listed."""
        return frozenset(p for p in self.namespaces if isinstance(p, str) and is_exact(p))


def _do_nothing() -> None:
    pass


class ObservedItems(Generic[T]):
    """The scope of each object that a reflector sees. *notify* is called when that changes."""

    def __init__(self, extract: Callable[[RawObject], T], notify: Callable[[], None]) -> None:
        self._extract = extract
        self._notify = notify
        self._items: dict[str, T] = {}
        self._versions: dict[str, int] = {}
        self.complete = False
        self._on_restored: Callable[[], None] = _do_nothing

    def __iter__(self) -> Iterator[T]:
        return iter(self._items.values())

    def observe(self, type: str | None, obj: RawObject) -> str:
        """Take a watch event, or with type None an object of a list. Returns its key."""
        key = obj.key
        before = self._items.get(key)
        if type == "DELETED":
            self._items.pop(key, None)
        else:
            try:
                self._items[key] = self._extract(obj)
            except (AttributeError, KeyError, TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
                get_logger("trioperator.runtime.watching.scope").warning(
                    "%s cannot be read, and is passed over: %r", obj.name, error
                )
        if self.complete and repr(self._items.get(key)) != repr(before):  # resources are equal by their names
            self._notify()
        self._note_version(type, key, obj.resource_version)
        return key

    def _note_version(self, type: str | None, key: str, text: str) -> None:
        """Compare the version of a listed object with that which it had, as an older list may be of a newer version."""
        before = self._versions.pop(key, 0)
        if type != "DELETED" and text.isdecimal():
            self._versions[key] = int(text)
            if type is None and int(text) < before:
                self._versions.clear()
                self._on_restored()

    def report_restores(self, listener: Callable[[], None]) -> None:
        """Call the listener when an object is listed that is older than it was: then etcd was restored."""
        self._on_restored = listener

    def rewind(self) -> None:
        """Take the next list as it is, though it is older than what was seen."""
        self._versions.clear()

    def replace(self, listed: Collection[str]) -> None:
        """Take the keys of a complete list."""
        for key in set(self._items) - set(listed):
            del self._items[key]
            self._versions.pop(key, None)
        self.complete = True
        self._notify()
