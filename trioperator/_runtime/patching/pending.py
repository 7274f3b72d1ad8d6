"""Pending patches: what handlers want stored on objects and is not stored yet, merged, and still apart by handler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
import trio

from trioperator._handling.calls.storable import describe_unserializable
from trioperator._logs import Logger
from trioperator._model.jsontypes import encode_json
from trioperator._model.patch import Patch, PatchFn, find_unmet, merge_patches, merging, preview
from trioperator._runtime.cache.object_state import ObjectState

#: Contributor whose changes are dropped if they are forbidden, so that other changes do not wait for that right.
GUARD: Final = "the guard against contention"


class Contribution(msgspec.Struct, frozen=True):
    """The patch of one call of a handler. ``by`` names the handler."""

    by: str
    patch: Mapping[str, Any]
    fns: tuple[PatchFn, ...] = ()


class SentPatch(msgspec.Struct, frozen=True):
    """A change by functions that was sent and may be applied or not, as there was no response.

    ``wanted`` is the object as it was to become; ``ops`` are JSON patches, by subresource. It was made of that many
    contributions: the ``count`` first ones of those that are pending. ``before`` is the object that functions were
    applied to. If it ``is_partial``, all but the status is surely applied.
    """

    wanted: Mapping[str, Any]
    ops: Mapping[str | None, Sequence[Mapping[str, Any]]]
    count: int
    before: Mapping[str, Any] = {}
    is_partial: bool = False


class PendingPatch(Patch):
    """Contributions of an object's handlers as one patch, the later ones on top. Made for the object *onto*."""

    __slots__ = ("contributions", "sent")

    def __init__(
        self,
        contributions: Iterable[Contribution] = (),
        *,
        onto: Mapping[str, Any] | None = None,
        sent: SentPatch | None = None,
    ) -> None:
        self.contributions = tuple(contributions)
        self.sent = sent
        merged: dict[str, Any] = {}
        for contribution in self.contributions:
            merged = merge_patches(merged, contribution.patch, onto=onto)
        super().__init__(merged, fns=[fn for contribution in self.contributions for fn in contribution.fns])

    def extended(self, contributions: Iterable[Contribution], *, onto: Mapping[str, Any] | None) -> PendingPatch:
        """Return the patch with more contributions on top."""
        return PendingPatch((*self.contributions, *contributions), onto=onto, sent=self.sent)


_NOTHING: Final = PendingPatch()  # of most objects, when something else of them is stored


class Storing:
    """A wait for what is pending of an object: until that is stored, or is ``dropped``, as the object is gone."""

    __slots__ = ("_ended", "dropped")

    def __init__(self) -> None:
        self._ended = trio.Event()
        self.dropped = False

    def set(self) -> None:
        """End the wait: it is stored."""
        self._ended.set()

    def drop(self) -> None:
        """End the wait: it cannot be stored."""
        self.dropped = True
        self._ended.set()

    def is_set(self) -> bool:
        """Check whether the wait has ended."""
        return self._ended.is_set()

    async def wait(self) -> None:
        """Wait for the end."""
        await self._ended.wait()


class PatchObserver(Protocol):
    """Something that is notified of the patches of an object. It must neither wait nor raise."""

    def contributed(self, patch: Mapping[str, Any], *, opaque: bool) -> None: ...
    def stored(self, body: Mapping[str, Any], pending: Mapping[str, Any] | None) -> None: ...


class PendingPatches:
    """Pending patches of all objects, those who wait for them to be stored, and those who observe them."""

    def __init__(self) -> None:
        self._patches: dict[ObjectState, PendingPatch] = {}
        self._waiting: dict[ObjectState, list[Storing]] = {}
        self._observers: dict[ObjectState, list[PatchObserver]] = {}

    def __len__(self) -> int:
        return len(self._patches.keys() | self._waiting.keys() | self._observers.keys())

    def get(self, state: ObjectState) -> PendingPatch | None:
        """Return the pending patch of an object, if there is one."""
        return self._patches.get(state)

    def preview(self, state: ObjectState, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a body as it will be with what is pending: what is held, or was sent without a response."""
        pending = self._patches.get(state)
        return preview(body, pending) if pending else body

    def contribute(
        self, state: ObjectState, patch: Mapping[str, Any], fns: Sequence[PatchFn], *, by: str, logger: Logger
    ) -> bool:
        """Add what a handler wants stored to the pending patch of its object, and return whether that is anything.

        Functions are applied after values. Where those of an earlier call, which have not been stored since, would undo
        what the handler sets now, it is set by a function, too. Values that are not JSON-serializable are reported and
        dropped.
        """
        try:
            # A copy, so that the handler cannot change it later through references.
            plain = msgspec.json.decode(encode_json(patch))
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            problem = describe_unserializable(patch)
            logger.error(
                "%s has a result or a patch that is not JSON-serializable, and it is dropped: %s.", by, problem
            )
            plain = {}
        if not plain and not fns:
            return False
        before = self._patches.get(state) or PendingPatch()
        added = Contribution(by, plain, tuple(fns))
        if plain and any(each.by == by and each.fns for each in before.contributions):
            body = state.body or {}
            if find_unmet(plain, preview(body, before.extended([Contribution(by, plain)], onto=body))):
                added = Contribution(by, {}, (merging(plain), *fns))
        self._patches[state] = before.extended([added], onto=state.body)
        for observer in self._observers.get(state, ()):
            observer.contributed(plain, opaque=bool(fns))
        return True

    def wait_for(self, state: ObjectState) -> Storing:
        """Return what ends when that which is pending now is stored, or cannot be."""
        stored = Storing()
        self._waiting.setdefault(state, []).append(stored)
        return stored

    def is_awaited(self, state: ObjectState) -> bool:
        """Check whether a daemon or a timer waits for the patch of its object to be stored."""
        return state in self._waiting

    def take(self, state: ObjectState) -> tuple[PendingPatch, list[Storing]]:
        """Take the pending patch of an object to store it, and the waits of those who wait for it."""
        return self._patches.pop(state, _NOTHING), self._waiting.pop(state, [])

    def put_back(self, state: ObjectState, patch: PendingPatch, waiting: Sequence[Storing]) -> None:
        """Put back what could not be stored: it comes before what was contributed meanwhile."""
        if patch:
            later = self._patches.get(state)
            self._patches[state] = patch.extended(later.contributions if later else (), onto=state.body)
        if waiting:
            self._waiting.setdefault(state, []).extend(waiting)

    def withdraw(self, state: ObjectState, by: str) -> bool:
        """Drop what one contributor wants stored on an object, and return whether there was anything.

        After a request without a response, it stays: it may be stored already.
        """
        before = self._patches.get(state) or PendingPatch()
        if before.sent is not None:
            return False
        left = [each for each in before.contributions if each.by != by]
        if left:
            self._patches[state] = PendingPatch(left, onto=state.body)
        else:
            self._patches.pop(state, None)
        return len(left) != len(before.contributions)

    def forget(self, state: ObjectState) -> None:
        """Drop the pending patch of an object, and wake those who wait for it."""
        self._patches.pop(state, None)
        for stored in self._waiting.pop(state, ()):
            stored.drop()

    def observe(self, state: ObjectState, observer: PatchObserver) -> None:
        """Notify an observer of the patches of an object from now on."""
        self._observers.setdefault(state, []).append(observer)

    def unobserve(self, state: ObjectState, observer: PatchObserver) -> None:
        """Notify an observer no more, if it was notified before."""
        observers = [other for other in self._observers.get(state, ()) if other is not observer]
        if observers:
            self._observers[state] = observers
        else:
            self._observers.pop(state, None)

    def is_observed(self, state: ObjectState) -> bool:
        """Check whether anything observes the patches of an object: its daemons and timers do."""
        return state in self._observers

    def notify_stored(self, state: ObjectState, body: Mapping[str, Any]) -> None:
        """Notify the observers of an object of its newest state, which is the response to an own write."""
        for observer in self._observers.get(state, ()):
            observer.stored(body, self._patches.get(state))
