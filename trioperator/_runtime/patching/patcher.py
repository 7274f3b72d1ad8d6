"""The patcher: stores the pending patch of an object and the operator's records, in as few requests as the API allows.

The status goes first where it is a subresource, then everything else in one request. The functions of patches come
after what handlers want stored and before the operator's records: nothing counts as handled whose result is not stored,
even if the operator is killed. They share a conditional request with what is to be stored in the same place, as that is
stored as a whole or not at all. What the server rejects of a user's patch is reported and dropped: the operator's own
records are stored without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from trioperator._kube.api_client import ApiClient
from trioperator._logs import Logger
from trioperator._model.patch import Patch, find_unmet, merge_as_json_patch, merge_patches, split_status
from trioperator._runtime.cache import Kind, ObjectState
from trioperator._runtime.patching.functions import PatchFunctions
from trioperator._runtime.patching.pending import Contribution, PendingPatch, PendingPatches
from trioperator._runtime.patching.requests import PatchRequests, not_found
from trioperator.errors import ApiError

__all__ = ["Finalize", "Patcher"]

# The request itself is wrong, so that sending it again is of no use.
_REJECTED: Final = (400, 413, 422)
# Either nobody may make such requests, or admission control has denied this one.
_FORBIDDEN: Final = 403

Finalize = Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]]


class Patcher:
    """Storing of patches on objects."""

    def __init__(self, client: ApiClient, pending: PendingPatches) -> None:
        self._requests = PatchRequests(client)
        self._pending = pending
        self._touched: dict[ObjectState, object] = {}

    async def store(self, state: ObjectState, records: Patch, logger: Logger, finalize: Finalize | None = None) -> None:
        """Store the pending patch of an object, our own *records*, and a change of its finalizers; any may be empty.

        The response becomes the newest state. After an error, what could not be stored is pending again.
        Raises StaleError where a conditional change met a newer object, NotFoundError where the object is gone.
        """
        if state.body is None:
            return
        if not self._pending.get(state) and not records and finalize is None:
            return
        if state.has_vanished():
            self._pending.forget(state)
            raise not_found(state.body)  # and there may be another object of that name by now
        pending, waiting = self._pending.take(state)
        touched = self._touched.get(state)
        body = (state.decode_newer() if pending.fns else None) or state.body  # functions may find nothing to do
        writing = _Writing(self._requests, state.cache.kind, body, pending=pending, logger=logger)
        try:
            await writing.run(records, finalize)
        except BaseException:
            if writing.body is not state.body:
                state.update(writing.body)
            self._pending.put_back(state, writing.left, waiting)
            raise
        for stored in waiting:
            stored.set()
        if writing.body is not state.body:
            if touched is not None:
                self.settle(state, touched)
            self.accept(state, writing.body)

    def touch(self, state: ObjectState) -> None:
        """Note that a handler may have written to an object by other means than its patch."""
        self._touched[state] = object()

    def settle(self, state: ObjectState, touched: object | None = None) -> None:
        """Note that nothing matters that has *touched* an object: it was read since, or is needed no more."""
        if touched in (None, self._touched.get(state)):
            self._touched.pop(state, None)

    def is_touched(self, state: ObjectState) -> bool:
        """Check whether handlers may have written to an object by other means than their patches since it was read."""
        return state in self._touched

    async def look(self, state: ObjectState) -> None:
        """Read an object again if it was touched. What is newer becomes the newest state.

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


class _Writing:
    """Storing of one patch. ``body`` is the newest state of the object, ``left`` the contributions not stored yet."""

    def __init__(
        self, requests: PatchRequests, kind: Kind, body: Mapping[str, Any], *, pending: PendingPatch, logger: Logger
    ) -> None:
        self.body = body
        self.left = pending
        self._requests = requests
        self._kind = kind
        self._logger = logger

    async def run(self, records: Patch, finalize: Finalize | None) -> None:
        """Send what there is to send."""
        own, own_status = self._split(records)
        if self.left.sent is not None:
            await self._apply_functions(self._make_functions(), self.left.sent.count, {})
        if self.left.fns:
            functions, together = self._make_functions(), not own_status and finalize is None
            await self._store_elsewhere(functions)
            await self._apply_functions(functions, len(self.left.contributions), own if together else {})
        if own_status and any(self._split(item.patch)[0] for item in self.left.contributions):
            await self._store_status({})
            await self._store_main({}, None)
        await self._store_status(own_status)
        await self._store_main(own, finalize)

    async def _store_status(self, own: Mapping[str, Any]) -> None:
        """Store the status of contributions, where it is a subresource, together with our own records there."""
        split = [(item, *self._split(item.patch)) for item in self.left.contributions]
        statuses = [Contribution(item.by, {"status": status}) for item, _, status in split if status]
        if statuses or own:
            await self._store(statuses, {"status": own} if own else {}, subresource="status")
            self._keep(Contribution(item.by, main, item.fns) for item, main, _ in split)

    async def _store_main(self, own: Mapping[str, Any], finalize: Finalize | None) -> None:
        """Store all of contributions but the status, together with our own records, and a change of the finalizers."""
        split = [(item, *self._split(item.patch)) for item in self.left.contributions]
        mains = [Contribution(item.by, main) for item, main, _ in split if main]
        if mains or own or finalize is not None:
            await self._store(mains, own, finalize=finalize)
            self._keep(
                Contribution(item.by, {"status": status} if status else {}, item.fns) for item, _, status in split
            )

    def _split(self, patch: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        return split_status(patch) if self._kind.has_status else (patch, {})

    def _keep(self, contributions: Iterable[Contribution]) -> None:
        if self.left.contributions:
            self.left = PendingPatch((item for item in contributions if item.patch or item.fns), sent=self.left.sent)

    async def _store(
        self,
        contributions: Sequence[Contribution],
        own: Mapping[str, Any],
        *,
        subresource: str | None = None,
        finalize: Finalize | None = None,
    ) -> None:
        """Store contributions and our own records in one request; if it is rejected, what of them is not."""
        wanted = (
            merge_patches(PendingPatch(contributions, onto=self.body), own, onto=self.body) if contributions else own
        )
        try:
            if contributions or self._needs(own, finalize):
                await self._send(wanted, subresource, finalize)
        except ApiError as error:
            if not _is_rejection(error) or wanted == own:
                raise
            await self._store_apart(contributions, error, subresource)
            if self._needs(own, finalize):
                await self._send(own, subresource, finalize)

    async def _store_apart(
        self, contributions: Sequence[Contribution], rejection: ApiError, subresource: str | None
    ) -> None:
        """Find out whose contributions are rejected, and store the others."""
        if rejection.status == _FORBIDDEN:
            await self._check_rights(rejection, subresource)
        for item in contributions:
            error = rejection
            if len(contributions) > 1 or rejection.status == _FORBIDDEN:
                try:
                    await self._send(item.patch, subresource, None)
                    continue
                except ApiError as own_error:
                    if not _is_rejection(own_error):
                        raise
                    error = own_error
            what = "the status" if subresource else "the object"
            self._logger.error("Patching %s was rejected, and the changes by %s are dropped: %s", what, item.by, error)

    async def _check_rights(self, rejection: ApiError, subresource: str | None) -> None:
        """Raise the error if it is not about the contributions: if even a patch that changes nothing is forbidden."""
        try:
            self.body = await self._requests.patch(self._kind, self.body, {}, subresource)
        except ApiError as error:
            if error.status == _FORBIDDEN:
                raise rejection from None
            raise

    def _needs(self, own: Mapping[str, Any], finalize: Finalize | None) -> bool:
        """Check whether there is anything to send of ours. What handlers want is sent, whatever the object seems to be.

        Only the server knows that: others may have changed it since.
        """
        return finalize is not None or bool(find_unmet(own, self.body))

    async def _send(self, wanted: Mapping[str, Any], subresource: str | None, finalize: Finalize | None) -> None:
        if finalize is not None:
            ops = [*merge_as_json_patch(self.body, wanted), *finalize(self.body)]
            self.body = await self._requests.patch_conditionally(self._kind, self.body, ops, subresource)
        else:
            self.body = await self._requests.patch(self._kind, self.body, wanted, subresource)
            _warn_of_unmet(wanted, self.body, self._logger)

    def _make_functions(self) -> PatchFunctions:
        return PatchFunctions(self._requests, self._kind, self.body, self._logger)

    async def _store_elsewhere(self, functions: PatchFunctions) -> None:
        """Store what does not lie where functions change something, or all that is to be merged if that is unclear."""
        if not any(item.patch for item in self.left.contributions):
            return
        changed = functions.find_changed(self.left.contributions)
        if changed != {"status"}:
            await self._store_status({})
        if changed != {None}:
            await self._store_main({}, None)

    async def _apply_functions(self, functions: PatchFunctions, count: int, own: Mapping[str, Any]) -> None:
        """Apply the first *count* contributions to the newest object, with our own records where these fit in.

        If that is rejected, what is to be merged is stored first, then the functions are applied, and those that are
        rejected are dropped.
        """
        functions.reset(self.body)
        first, later, sent = self.left.contributions[:count], self.left.contributions[count:], self.left.sent
        todo = list(first)
        try:
            wanted = await functions.apply(todo, sent, own)
            if sent is None:
                _warn_of_unmet(PendingPatch(first, onto=self.body), functions.body, self._logger, wanted=wanted)
            return
        except ApiError as error:
            if not _is_rejection(error):
                raise
            if not own and not any(item.patch for item in first):
                await self._apply_apart(functions, todo, error)
                return
            functions.reset(functions.body)
        finally:
            self.body = functions.body
            self.left = PendingPatch([*todo, *later], onto=self.body, sent=functions.sent)
        await self._store_status({})
        await self._store_main({}, None)
        await self._apply_functions(functions, sum(bool(item.fns) for item in first), {})

    async def _apply_apart(self, functions: PatchFunctions, left: list[Contribution], rejection: ApiError) -> None:
        """Find out whose functions are rejected, and apply the others."""
        if rejection.status == _FORBIDDEN:
            self.body = functions.body
            await self._check_rights(rejection, None)
        functions.reset(self.body if rejection.status == _FORBIDDEN else functions.body)
        is_only_one = len(left) == 1 and rejection.status != _FORBIDDEN
        while left:
            try:
                if is_only_one:
                    raise rejection
                await functions.apply(left[:1], None)
            except ApiError as error:
                if not _is_rejection(error):
                    raise
                self._logger.error("Patching was rejected, and the changes by %s are dropped: %s", left[0].by, error)
            del left[0]


def _is_newer(found: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Check whether one state of an object is newer than another one; if that cannot be told, whether it differs."""
    one, other = ((body.get("metadata") or {}).get("resourceVersion") or "" for body in (found, known))
    try:
        return int(one) > int(other)
    except ValueError:
        return one != other or (not one and found != known)


def _is_rejection(error: ApiError) -> bool:
    return error.status in _REJECTED or error.status == _FORBIDDEN


def _warn_of_unmet(
    merged: Mapping[str, Any], written: Mapping[str, Any], logger: Logger, *, wanted: Mapping[str, Any] | None = None
) -> None:
    """Warn of what the server did not keep of a patch; functions may have wanted something else on top of it."""
    unmet = find_unmet(merged, written)
    if wanted is not None and unmet:
        others = find_unmet(merged, wanted)
        unmet = [path for path in unmet if path not in others]
    if unmet:
        fields = ", ".join(".".join(path) for path in unmet)
        logger.warning(
            "Patching finished with inconsistencies: the server did not keep %s."
            " Does the schema of the resource know these fields?",
            fields,
        )
