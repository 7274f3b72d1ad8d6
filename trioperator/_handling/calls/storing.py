"""Patches that handlers can store before they end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from trioperator._concurrency.threads import call_trio
from trioperator._handling.calls.storable import check_storable
from trioperator._model.body import Body
from trioperator._model.patch import Patch

#: Function that stores the patch, and returns the new body of the object.
Store: TypeAlias = Callable[[], Awaitable[Body]]


class StorablePatch(Patch):
    """Base class of the patches of handlers that can store them while they run, until :meth:`expire` is called."""

    __slots__ = ("_store",)

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store: Store | None = store

    def expire(self) -> None:
        """Note that the handler has ended. Its thread may still be running."""
        self._store = None

    async def _store_now(self) -> Body:
        if self._store is None:
            raise RuntimeError("patch.store() was called after the end of the handler, which was abandoned.")
        check_storable(self, None)
        return await self._store()


class AsyncPatch(StorablePatch):
    """Patch of an async function."""

    __slots__ = ()

    async def store(self) -> Body:
        """Store the changes at once, and return the object's new body. See :meth:`Patch.store`."""
        return await self._store_now()


class SyncPatch(StorablePatch):
    """Patch of a sync function, which runs in a thread."""

    __slots__ = ()

    def store(self) -> Body:
        """Store the changes at once, and return the object's new body. See :meth:`Patch.store`."""
        return call_trio(self._store_now)


def make_patch(store: Store, *, is_async: bool) -> StorablePatch:
    """Return an empty patch for a function, which *store* stores."""
    return AsyncPatch(store) if is_async else SyncPatch(store)
