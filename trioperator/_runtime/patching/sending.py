"""Sending of one pending patch, in as few requests as the API allows.

Theory of operation
===================

There are three parts. Each *contribution* is what one call of a handler wants: a merge patch, functions, or both. The
*records* are our own merge patch: the progress of handlers, and the last-handled configuration. The third is a change
of our *finalizer*. The order of requests follows from one promise: **nothing counts as handled whose result is not
stored**, even if the operator is killed between two requests. So neither records nor the end of a finalizer go before
contributions.

Where the status is a subresource, it has requests of its own. They come first: if what follows is lost, a handler is
called once more. In the other order, its result would be lost for good.

================================  =======================================================================
what is to be stored              requests, in this order
================================  =======================================================================
merge patches only                status: contributions, records
                                  object: contributions, records, finalizer
contributions to the object,      status: contributions
and records in the status         object: contributions
                                  status: records
                                  object: records, finalizer
functions that change only the    status: contributions
object                            object: contributions, functions, records (unless the finalizer changes)
                                  object: records, finalizer
functions that change only the    object: contributions
status                            status: contributions, functions
                                  object: records, finalizer
functions that change both        status: contributions
                                  object: contributions
                                  object: functions
                                  status: functions
                                  object: records, finalizer
what had no response before       first, the rest of that: see :class:`PatchFunctions`
================================  =======================================================================

A request without content is left out, so most patches are one request. Requests with functions or a finalizer are
*conditional*: JSON patches that test the version, as they are computed from one state of the object and must not be
applied to another. A merge patch means the same for every state, and needs no test but that it is still this object.

================================  =======================================================================
what goes wrong                   what is done
================================  =======================================================================
contributions are rejected        Each is sent alone. Those that are rejected are reported and dropped, as
                                  they would be rejected forever. Records are sent without them.
our records are rejected          Contributions are sent first, each alone, and are stored for good. Then it is
                                  raised.
they are forbidden                The same if a patch that changes nothing is allowed, of each subresource that
                                  they change. Else it is not about them: nothing is dropped, and the error is
                                  raised. Only what the guard against contention wants is dropped even then.
functions are rejected, with      What is to be merged is sent without functions, then the functions alone,
what shares their request         then the functions of each contribution.
a conditional request meets       Functions are applied again to the newest state. For a finalizer,
another version                   ``StaleError`` is raised: the reconciler decides again.
anything else                     It is raised. ``left`` is what is not stored yet, and is pending again.
================================  =======================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from trioperator._kube.retry import is_always_500
from trioperator._logs import Logger
from trioperator._model.patch import Patch, find_unmet, merge_as_json_patch, merge_patches, split_status
from trioperator._runtime.cache.kind import Kind
from trioperator._runtime.patching.pending import GUARD, Contribution, PendingPatch
from trioperator._runtime.patching.requests import PatchRequests
from trioperator._runtime.patching.retry_on_conflict import PatchFunctions
from trioperator.errors import ApiError

# Status codes of requests that are wrong themselves: sending them again cannot help.
_REJECTED: Final = (400, 413, 422)
# Either RBAC does not allow such requests, or admission control has denied this one.
_FORBIDDEN: Final = 403
# Limit of the fields that a warning names: users who may write an object choose how many there are.
_MAX_NAMED: Final = 20

#: Function that returns the JSON patch that changes the finalizers of an object.
Finalize = Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]]


class PatchSender:
    """Sender of one pending patch. ``body`` is the newest state of the object, ``left`` is what is not stored yet."""

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
        if not (self.left.contributions or own):
            return
        split = [(item, *self._split(item.patch)) for item in self.left.contributions]
        statuses = [Contribution(item.by, {"status": status}) for item, _, status in split if status]
        if statuses or own:
            left = [Contribution(item.by, main, item.fns) for item, main, _ in split]
            await self._store(statuses, {"status": own} if own else {}, left, subresource="status")

    async def _store_main(self, own: Mapping[str, Any], finalize: Finalize | None) -> None:
        """Store all of contributions but the status, together with our own records, and a change of the finalizers."""
        split = [(item, *self._split(item.patch)) for item in self.left.contributions]
        mains = [Contribution(item.by, main) for item, main, _ in split if main]
        if mains or own or finalize is not None:
            left = [Contribution(item.by, {"status": status} if status else {}, item.fns) for item, _, status in split]
            await self._store(mains, own, left, finalize=finalize)

    def _split(self, patch: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        return split_status(patch) if self._kind.has_status else (patch, {})

    def _keep(self, contributions: Iterable[Contribution]) -> None:
        if self.left.contributions:
            self.left = PendingPatch((item for item in contributions if item.patch or item.fns), sent=self.left.sent)

    async def _store(
        self,
        contributions: Sequence[Contribution],
        own: Mapping[str, Any],
        left: Iterable[Contribution],
        *,
        subresource: str | None = None,
        finalize: Finalize | None = None,
    ) -> None:
        """Store contributions and our own records in one request. If it is rejected, store what is accepted.

        Once they are stored, others are *left*, also if our records are rejected.
        """
        wanted = (
            merge_patches(PendingPatch(contributions, onto=self.body), own, onto=self.body) if contributions else own
        )
        try:
            if contributions or self._needs(own, finalize):
                await self._send(wanted, subresource, finalize)
        except ApiError as error:
            if not _is_rejection(error) or wanted == own:
                raise
            is_only_one = len(contributions) == 1 and not self._needs(own, finalize)
            await self._store_apart(contributions, error, subresource, is_only_one=is_only_one)
            self._keep(left)
            if self._needs(own, finalize):
                await self._send(own, subresource, finalize)
        else:
            self._keep(left)

    async def _store_apart(
        self, contributions: Sequence[Contribution], rejection: ApiError, subresource: str | None, *, is_only_one: bool
    ) -> None:
        """Find out whose contributions are rejected, and store the others."""
        if rejection.status == _FORBIDDEN:
            await self._check_rights(rejection, subresource)
        for item in contributions:
            error = rejection
            if not is_only_one or rejection.status == _FORBIDDEN:
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
        """Check whether there is anything to send of ours. Handlers' patches are sent, whatever the object seems to be.

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
        """Store the parts that functions do not touch, or everything to be merged if that is unclear."""
        if not any(item.patch for item in self.left.contributions):
            return
        changed = functions.find_changed(self.left.contributions)
        if changed != {"status"}:
            await self._store_status({})
        if changed != {None}:
            await self._store_main({}, None)

    async def _apply_functions(self, functions: PatchFunctions, count: int, own: Mapping[str, Any]) -> None:
        """Apply the first *count* contributions to the newest object, with our own records where these fit in."""
        first = self.left.contributions[:count]
        if own or any(item.patch for item in first):
            try:
                await self._apply_together(functions, count, own)
                return
            except ApiError as error:
                if not _is_rejection(error):
                    raise
                await self._check_rights_of_functions(functions, count, error)
            # It is unclear whose contribution is rejected. Send the merge patches first: these can be told apart.
            functions.reset(functions.body)
            self._take(functions, self.left.contributions)
            await self._store_status({})
            await self._store_main({}, None)
            count = sum(bool(item.fns) for item in first)
        try:
            await self._apply_together(functions, count, {})
        except ApiError as error:
            if not _is_rejection(error):
                raise
            await self._check_rights_of_functions(functions, count, error)
            await self._apply_apart(functions, count, error)

    async def _check_rights_of_functions(self, functions: PatchFunctions, count: int, rejection: ApiError) -> None:
        """Raise the error if it is not about the first *count* contributions, before it is forgotten what was sent."""
        left = self.left.contributions[:count]
        if rejection.status == _FORBIDDEN and (needed := [item for item in left if item.by != GUARD]):
            for subresource in sorted(functions.find_changed(needed), key=str):
                await self._check_rights(rejection, subresource)

    async def _apply_together(self, functions: PatchFunctions, count: int, own: Mapping[str, Any]) -> None:
        """Apply the first *count* contributions, and records, in one request for each subresource that they change."""
        functions.reset(self.body)
        first, later, sent = self.left.contributions[:count], self.left.contributions[count:], self.left.sent
        todo = list(first)
        try:
            wanted = await functions.apply(todo, sent, own)
        finally:
            self._take(functions, [*todo, *later], count=len(todo))
        if sent is None:
            _warn_of_unmet(PendingPatch(first, onto=self.body), self.body, self._logger, wanted=wanted)

    async def _apply_apart(self, functions: PatchFunctions, count: int, rejection: ApiError) -> None:
        """Find out which of the first *count* functions are rejected, and apply the others."""
        todo, later = list(self.left.contributions[:count]), self.left.contributions[count:]
        try:
            functions.reset(self.body)
            is_only_one = len(todo) == 1 and rejection.status != _FORBIDDEN
            while todo:
                try:
                    if is_only_one:
                        raise rejection
                    await functions.apply(todo[:1], None)
                except ApiError as error:
                    if not _is_rejection(error):
                        raise
                    text = "Patching was rejected, and the changes by %s are dropped: %s"
                    self._logger.error(text, todo[0].by, error)
                    functions.reset(functions.body)
                del todo[0]
        finally:
            self._take(functions, [*todo, *later])

    def _take(self, functions: PatchFunctions, left: Iterable[Contribution], *, count: int = 0) -> None:
        """Note how far functions have come: the newest state, and which contributions are left.

        The first *count* of these are to be sent again, as far as they are not applied.
        """
        self.body = functions.body
        self.left = PendingPatch(left, onto=self.body, sent=functions.find_sent(count) if count else functions.sent)


def is_invalid(error: ApiError) -> bool:
    """Check whether a request was rejected for what is in it: that of our records where :meth:`run` raises it."""
    return error.status in _REJECTED or is_always_500(error)


def _is_rejection(error: ApiError) -> bool:
    return error.status == _FORBIDDEN or is_invalid(error)


def _warn_of_unmet(
    merged: Mapping[str, Any], written: Mapping[str, Any], logger: Logger, *, wanted: Mapping[str, Any] | None = None
) -> None:
    """Warn of what the server did not keep of a patch; functions may have wanted something else on top of it."""
    unmet = find_unmet(merged, written)
    if wanted is not None and unmet:
        others = find_unmet(merged, wanted)
        unmet = [path for path in unmet if path not in others]
    if unmet:
        more = len(unmet) - _MAX_NAMED
        fields = ", ".join(".".join(path) for path in unmet[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
        logger.warning(
            "Patching finished with inconsistencies: the server did not keep %s."
            " Does the schema of the resource know these fields?",
            fields,
        )
