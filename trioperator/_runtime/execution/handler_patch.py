"""The patch of one call of a handler, which contributes it to the pending patch of the object."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from trioperator._handling.arguments.cause import ObjectCause
from trioperator._handling.calls.handler_state import build_result_patch
from trioperator._handling.calls.storing import StorablePatch, make_patch
from trioperator._handling.handlers.handler import ResourceHandler
from trioperator._model.body import Body
from trioperator._model.jsontypes import copy_json
from trioperator._model.patch import Patch, find_unmet, merge_patches
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.patching.pending import PendingPatches

# The contribution of a handler before it has contributed anything.
_NOTHING = Patch()


class HandlerPatch:
    """The patch of one attempt of a handler: what it contributes to the pending patch of its object.

    With *store*, the handler can have that stored before it ends. Values that it *repeats* may be left out: it sets the
    same ones each time that it is called, whatever has happened.
    """

    def __init__(
        self,
        pending: PendingPatches,
        state: ObjectState,
        cause: ObjectCause,
        handler: ResourceHandler,
        *,
        store: Callable[[HandlerPatch], Awaitable[Body]] | None = None,
        repeats: bool = False,
    ) -> None:
        self.patch = Patch() if store is None else make_patch(lambda: store(self), is_async=handler.is_async)
        self._pending = pending
        self._state = state
        self._cause = cause
        self._handler = handler
        self._repeats = repeats
        self._contributed = _NOTHING

    def inherit(self, parent: HandlerPatch) -> None:
        """Begin with what a parent wants so far, as if both had one patch. It is the parent that contributes that."""
        self.patch.update(copy_json(dict(parent.patch)))
        self.patch.fns.extend(parent.patch.fns)
        self._contributed = Patch(copy_json(dict(parent.patch)), fns=parent.patch.fns)

    def contribute(self) -> None:
        """Contribute what the handler wants so far: what comes later is contributed at its end."""
        try:
            plain = msgspec.json.decode(msgspec.json.encode(self.patch))
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            return  # this is reported at the end
        self._contribute(plain)
        self._contributed = Patch(plain, fns=self.patch.fns)

    def release(self) -> None:
        """Contribute what the handler wants so far, and begin again."""
        self._contribute(self.patch)
        self._contributed = _NOTHING
        self.patch.clear()

    def expire(self) -> None:
        """Note that the handler has ended, or was abandoned."""
        if isinstance(self.patch, StorablePatch):
            self.patch.expire()

    def finish(self, result: Any) -> None:
        """Contribute what the handler wants, with its *result*, and was not contributed before."""
        if result is None and not self.patch:
            return
        try:
            wanted = merge_patches(self.patch, build_result_patch(result, handler_id=self._handler.id))
        except Exception as error:  # noqa: BLE001 -- any mapping of the user's
            logger = self._cause.logger
            logger.error("%s has a result or a patch that cannot be read, and it is dropped: %r", self._handler, error)
            wanted = {}
        self._contribute(wanted)

    def _contribute(self, wanted: Mapping[str, Any]) -> None:
        wanted = _added(self._contributed, wanted)
        fns = self.patch.fns[len(self._contributed.fns) :]
        if fns or (wanted and not (self._repeats and self._is_known(wanted))):
            self._pending.contribute(self._state, wanted, fns, by=str(self._handler), logger=self._cause.logger)

    def _is_known(self, wanted: Mapping[str, Any]) -> bool:
        """Check whether the object is as wanted in its newest state that is known, and nothing else is to be stored."""
        body, is_newest = self._state.body, not (self._pending.get(self._state) or self._state.has_newer())
        return is_newest and body is not None and not find_unmet(wanted, body)


def _added(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the merge patch *after* has that *before* has not."""
    added: dict[str, Any] = {}
    for key, value in after.items():
        if isinstance(value, Mapping) and isinstance(before.get(key), Mapping):
            inner = _added(before[key], value)
            if inner:
                added[key] = inner
        elif key not in before or before[key] != value:
            added[key] = value
    return added
