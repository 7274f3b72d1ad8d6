"""Termination of namespaces: their objects are deleted, and they go when nothing is left in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from ..bodies.delete_options import DeleteOptions
from ..model.kinds import Kind
from ..model.user import system_account
from ..store.state import State
from ..store.storage import Change, Stored, Table
from .followups import FollowUps

__all__ = ["NamespaceTermination"]

_NAMESPACES: Final = ("", "namespaces")
_USER: Final = system_account("namespace-controller")


class NamespaceTermination:
    """The namespaces that are being deleted."""

    def __init__(
        self, state: State, followups: FollowUps, *, delete: Callable[[Kind, Stored, DeleteOptions], None]
    ) -> None:
        self._state = state
        self._followups = followups
        self._delete = delete
        self._terminating: set[str] = set()

    def observe(self, table: Table, change: Change) -> None:
        """Queue the next step for a namespace that is being deleted, or that has lost an object."""
        old, new = change.old, change.new
        if table.resource == _NAMESPACES:
            if new is not None and "deletionTimestamp" in new.obj["metadata"]:
                self._terminating.add(change.key)
                self._followups.defer(partial(self._terminate, change.key))
            elif new is None:
                self._terminating.discard(change.key)
        elif new is None and old is not None:
            namespace = old.obj["metadata"].get("namespace")
            if namespace and namespace in self._terminating:
                self._followups.defer(partial(self._terminate, namespace))

    def _terminate(self, name: str) -> None:
        """Delete what is in the namespace; when nothing is left, the namespace itself."""
        namespaces = self._state.store.table(_NAMESPACES)
        stored = namespaces.objects.get(name)
        if stored is None or "deletionTimestamp" not in stored.obj["metadata"]:
            return
        left = 0
        for kind in self._namespaced_kinds():
            table = self._state.table(kind)
            for key in tuple(table.keys(f"{name}/")):
                found = table.objects[key]
                if "deletionTimestamp" not in found.obj["metadata"]:
                    self._delete(kind, found, DeleteOptions(policy="Background", user=_USER))
            left += len(table.keys(f"{name}/"))
        if left or stored.obj["metadata"].get("finalizers"):
            return
        self._state.store.remove(namespaces, name)

    def _namespaced_kinds(self) -> Iterable[Kind]:
        for resource in tuple(self._state.store.tables):
            kind = self._state.catalog.by_resource(resource)
            if kind is not None and kind.namespaced:
                yield kind
