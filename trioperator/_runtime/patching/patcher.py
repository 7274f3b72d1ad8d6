"""The patcher: what is stored on an object, what is read from it, and how either becomes its newest state.

It is the only writer of objects that are handled. How a pending patch becomes requests is in :mod:`sending
<trioperator._runtime.patching.sending>`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trioperator._kube.api_client import ApiClient
from trioperator._logs import Logger
from trioperator._model.patch import Patch
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.patching.contention_guard import ContentionGuard, HeldError
from trioperator._runtime.patching.pending import PendingPatch, PendingPatches, Storing
from trioperator._runtime.patching.requests import PatchRequests, not_found
from trioperator._runtime.patching.sending import Finalize, PatchSender


class Patcher:
    """Storing of patches on objects."""

    def __init__(self, client: ApiClient, pending: PendingPatches, guard: ContentionGuard) -> None:
        self._requests = PatchRequests(client)
        self._pending = pending
        self._guard = guard
        self._touched: dict[ObjectState, object] = {}

    async def store(
        self,
        state: ObjectState,
        records: Patch,
        logger: Logger,
        finalize: Finalize | None = None,
        *,
        instead: Callable[[], Patch] | None = None,
    ) -> Mapping[str, Any] | None:
        """Store the pending patch of an object, our own *records*, and a change of its finalizers; any may be empty.

        Returns what the server has stored, which is the newest state now; None if there was nothing to store. Functions
        that change nothing in a newer state than the known one store that: it is returned, too.

        Fields that others undo repeatedly stay pending. Then no records are stored, but what *instead* returns:
        nothing counts as handled whose result is not stored.

        After an error, what could not be stored is pending again. Raises StaleError where a conditional change met a
        newer object, NotFoundError where the object is gone, HeldError where records were not stored.
        """
        known = state.body
        if known is None or not (self._pending.get(state) or records or finalize is not None):
            return None
        if state.has_vanished():
            self._pending.forget(state)
            raise not_found(known)  # and there may be another object of that name by now
        pending, waiting = self._pending.take(state)
        if state not in self._guard.watched:
            return await self._send(state, (pending, waiting), records, finalize, known=known, logger=logger)
        pending, held = self._guard.split(state, pending, known)
        stored = None
        if held:
            self._pending.put_back(state, held, ())
        sent = records if not held else Patch() if instead is None else instead()
        if pending or sent or finalize is not None or waiting:
            stored = await self._send(state, (pending, waiting), sent, finalize, known=known, logger=logger)
        if held and records:
            raise HeldError(self._guard.due(state))
        return stored

    async def _send(
        self,
        state: ObjectState,
        taken: tuple[PendingPatch, list[Storing]],
        records: Patch,
        finalize: Finalize | None,
        *,
        known: Mapping[str, Any],
        logger: Logger,
    ) -> Mapping[str, Any] | None:
        """Send what is to be stored now. Returns as :meth:`store` does."""
        (pending, waiting), revision, touched = taken, state.revision, self._touched.get(state)
        version = state.version
        # Finalizers were decided by the known state, and are stored in that. All else is for the newest one.
        body = (state.decode_newer() if finalize is None else None) or known
        sender = PatchSender(self._requests, state.cache.kind, body, pending=pending, logger=logger)
        try:
            await sender.run(records, finalize)
        except BaseException:
            if sender.body is not body and not _is_overtaken(state, revision, sender.body):
                state.update(sender.body)
            self._pending.put_back(state, sender.left, waiting if sender.left else ())
            self._note_stored(state, pending, sender, before=known)
            if not sender.left:  # only our own records could not be stored: nobody else has to wait for that
                _wake(waiting)
            raise
        _wake(waiting)
        if pending.contributions or state in self._guard.watched:
            self._guard.note_stored(state, pending, before=known, after=sender.body)
        if sender.body is (body if not pending.fns else known):  # functions may find nothing to do
            return None
        if _is_restored(state, version, sender.body):
            state.cache.versions.on_restored()
        if touched is not None:
            self.settle(state, touched)
        if not _is_overtaken(state, revision, sender.body):
            self.accept(state, sender.body)
        return state.body

    def _note_stored(
        self, state: ObjectState, pending: PendingPatch, sender: PatchSender, *, before: Mapping[str, Any]
    ) -> None:
        """Note whose contributions are stored, though not all of a patch could be."""
        left = {item.by for item in sender.left.contributions}
        stored = PendingPatch(item for item in pending.contributions if item.by not in left)
        if stored.contributions:
            self._guard.note_stored(state, stored, before=before, after=sender.body)

    def touch(self, state: ObjectState) -> None:
        """Note that a handler may have written to an object by other means than its patch."""
        self._touched[state] = object()

    def settle(self, state: ObjectState, touched: object | None = None) -> None:
        """Note that nothing matters that has *touched* an object: it was read since, or is needed no more."""
        if self._touched and touched in (None, self._touched.get(state)):
            self._touched.pop(state, None)

    def is_touched(self, state: ObjectState) -> bool:
        """Check whether handlers may have written to an object by other means than their patches since it was read."""
        return state in self._touched

    async def look(self, state: ObjectState) -> None:
        """Read an object again if it was touched. A newer state becomes the newest one.

        Raises NotFoundError where the object is gone.
        """
        body, touched = state.body, self._touched.get(state)
        if body is None or touched is None:
            return
        found = await self._requests.get(state.cache.kind, body)
        self.settle(state, touched)
        if state.body is not None and _is_newer(found, state.body):  # it may have been written to meanwhile
            self.accept(state, found)

    async def refresh(self, state: ObjectState) -> None:
        """Make what the object is on the server the newest state, by a patch that changes nothing."""
        if state.body is not None:
            self.accept(state, await self._requests.patch(state.cache.kind, state.body, {}))

    def accept(self, state: ObjectState, body: Mapping[str, Any]) -> None:
        """Make the server's response to an own write the newest state of the object, for its daemons, too."""
        state.update(body)
        self._pending.notify_stored(state, body)


def _wake(waiting: Iterable[Storing]) -> None:
    for each in waiting:
        each.set()


def _is_overtaken(state: ObjectState, revision: int, response: Mapping[str, Any]) -> bool:
    """Check whether a response is older than what is known by now, or the object is no longer handled here.

    Handlers are called, and the object is read, while a saver stores what is due. A read that comes after the write
    may have its response first. If the older one counted as the newest state, a change between them would be lost: the
    watch event that brings it would seem to be an echo.
    """
    return state.revision != revision and (state.body is None or _is_newer(state.body, response))


def _is_restored(state: ObjectState, version: int, response: Mapping[str, Any]) -> bool:
    """Check whether a write has led to an older version than the object had before it: then etcd was restored.

    A watch may not show that, as it begins at a version which the restored etcd has reached again by then.
    """
    found = (response.get("metadata") or {}).get("resourceVersion") or ""
    return not state.cache.versions.are_opaque and found.isdecimal() and int(found) < version


def _is_newer(found: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Check whether one state of an object is newer than another one; if that cannot be told, whether it differs."""
    one, other = ((body.get("metadata") or {}).get("resourceVersion") or "" for body in (found, known))
    try:
        return int(one) > int(other)
    except ValueError:
        return one != other or (not one and found != known)
