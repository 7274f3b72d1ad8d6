"""The writer: what a turn wants stored on an object, in as few requests as the API allows.

The status goes first where it is a subresource, so that nothing counts as handled whose result is not stored; then
all else in one request; then the functions of patches. What the server refuses of a user's patch is reported and
dropped: the operator's own records are stored without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from trioperator.errors import ApiError
from trioperator.kube.client import Client
from trioperator.logs import Logger
from trioperator.model.patch import Patch, PatchFn, is_mapping, merge_as_json_patch, merge_patches, split_status
from trioperator.runtime.functions import Functions
from trioperator.runtime.pending import Pending, Wish
from trioperator.runtime.requests import Requests, StaleError, not_found
from trioperator.runtime.table import Kind, Known

__all__ = ["Finalize", "StaleError", "Writer", "collect"]

# What says that the request itself is wrong, so that sending it again is of no use.
_REFUSED: Final = (400, 413, 422)
# Said of requests that nobody may make, and by admission control of single objects.
_FORBIDDEN: Final = 403

Finalize = Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]]


def collect(known: Known, wanted: Mapping[str, Any], fns: Sequence[PatchFn], *, by: str, logger: Logger) -> bool:
    """Add what a handler wants stored to what is pending for its object, and tell whether that is anything.

    What is no JSON is reported and dropped.
    """
    try:
        # A copy, so that nothing which the handler keeps in its hands can change what is stored.
        plain = msgspec.json.decode(msgspec.json.encode(wanted))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        logger.error("%s has a result or a patch that is no JSON, and it is dropped: %s", by, error)
        plain = {}
    if not plain and not fns:
        return False
    before = known.pending or Pending()
    known.pending = before.and_then([Wish(by, plain, tuple(fns))], onto=known.body)
    if known.background is not None:
        known.background.show(plain, opaque=bool(fns))
    return True


class Writer:
    """Store on objects what handlers want, and what the operator has to remember."""

    def __init__(self, client: Client) -> None:
        self._requests = Requests(client)

    async def store(self, known: Known, records: Patch, logger: Logger, finalize: Finalize | None = None) -> None:
        """Store what is pending for an object, our own *records*, and a change of its finalizers; all may be nothing.

        The server's answer becomes the known state. After an error, what could not be stored is pending again.
        Raises StaleError where a conditional change met a newer object, NotFoundError where the object is gone.
        """
        if known.body is None:
            return
        if not known.pending and not records and finalize is None:
            return
        if known.has_vanished():
            raise not_found(known.body)  # and there may be another object of that name by now
        pending = Pending() if known.pending is None else known.pending
        awaited, known.awaited = known.awaited, []
        known.pending = None
        writing = _Writing(self._requests, known.table.kind, known.body, pending=pending, logger=logger)
        try:
            await writing.run(records, finalize)
        except BaseException:
            if writing.left:  # it comes before what has come meanwhile
                later = () if known.pending is None else known.pending.wishes
                known.pending = writing.left.and_then(later, onto=known.body)
            known.awaited += awaited
            raise
        for written in awaited:
            written.set()
        if writing.body is not known.body:
            known.renew(writing.body)


class _Writing:
    """Write one object. ``body`` is its newest state, ``left`` is what of the wishes is not stored yet."""

    def __init__(
        self, requests: Requests, kind: Kind, body: Mapping[str, Any], *, pending: Pending, logger: Logger
    ) -> None:
        self.body = body
        self.left = pending
        self._requests = requests
        self._kind = kind
        self._logger = logger

    async def run(self, records: Patch, finalize: Finalize | None) -> None:
        """Send what there is to send."""
        own, own_status = self._split(records)
        split = [(wish, *self._split(wish.patch)) for wish in self.left.wishes]
        statuses = [Wish(wish.by, {"status": status}) for wish, _, status in split if status]
        if statuses or own_status:
            await self._store(statuses, {"status": own_status} if own_status else {}, subresource="status")
            self._keep(Wish(wish.by, main, wish.fns) for wish, main, _ in split)
        mains = [Wish(wish.by, main) for wish, main, _ in split if main]
        if mains or own or finalize is not None:
            await self._store(mains, own, finalize=finalize)
        self._keep(Wish(wish.by, {}, wish.fns) for wish, _, _ in split if wish.fns)
        if self.left.fns:
            await self._apply_functions()

    def _split(self, patch: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        return split_status(patch) if self._kind.has_status else (patch, {})

    def _keep(self, wishes: Iterable[Wish]) -> None:
        if self.left.wishes:
            self.left = Pending(wishes, sent=self.left.sent)

    async def _store(
        self,
        wishes: Sequence[Wish],
        own: Mapping[str, Any],
        *,
        subresource: str | None = None,
        finalize: Finalize | None = None,
    ) -> None:
        """Store wishes and our own records in one request; after a refusal, what of them is not refused."""
        wanted = merge_patches(Pending(wishes, onto=self.body), own, onto=self.body) if wishes else own
        try:
            await self._send(wanted, subresource, finalize)
        except ApiError as error:
            if error.status not in (*_REFUSED, _FORBIDDEN) or wanted == own:
                raise
            await self._store_apart(wishes, error, subresource)
            if own or finalize is not None:
                await self._send(own, subresource, finalize)

    async def _store_apart(self, wishes: Sequence[Wish], refusal: ApiError, subresource: str | None) -> None:
        """Find out whose wishes were refused, and store the others."""
        if refusal.status == _FORBIDDEN:
            await self._check_rights(refusal, subresource)
        for wish in wishes:
            error = refusal
            if len(wishes) > 1 or refusal.status == _FORBIDDEN:
                try:
                    await self._send(wish.patch, subresource, None)
                    continue
                except ApiError as own_error:
                    if own_error.status not in (*_REFUSED, _FORBIDDEN):
                        raise
                    error = own_error
            what = "the status" if subresource else "the object"
            self._logger.error("Patching %s was refused, and the changes by %s are dropped: %s", what, wish.by, error)

    async def _check_rights(self, refusal: ApiError, subresource: str | None) -> None:
        """Raise the refusal if it is not for what was wanted: if even a patch that changes nothing is forbidden."""
        try:
            self.body = await self._requests.patch(self._kind, self.body, {}, subresource)
        except ApiError as error:
            if error.status == _FORBIDDEN:
                raise refusal from None
            raise

    async def _send(self, wanted: Mapping[str, Any], subresource: str | None, finalize: Finalize | None) -> None:
        if finalize is not None:
            ops = [*merge_as_json_patch(self.body, wanted), *finalize(self.body)]
            self.body = await self._requests.patch_conditionally(self._kind, self.body, ops, subresource)
        elif _unmet(wanted, self.body):
            self.body = await self._requests.patch(self._kind, self.body, wanted, subresource)
            _warn_of_unmet(wanted, self.body, self._logger)

    async def _apply_functions(self) -> None:
        """Have the functions of patches change the newest object; those that are refused are dropped."""
        functions = Functions(self._requests, self._kind, self.body, self._logger)
        wishes = list(self.left.wishes)
        try:
            try:
                await functions.apply(wishes, self.left.sent)
                return
            except ApiError as error:
                if error.status not in (*_REFUSED, _FORBIDDEN):
                    raise
                self.body = functions.body
                if error.status == _FORBIDDEN:
                    await self._check_rights(error, None)
                    functions.body = self.body
                refusal = error
            functions.sent = None
            while wishes:
                try:
                    if len(self.left.wishes) == 1 and refusal.status != _FORBIDDEN:
                        raise refusal
                    await functions.apply(wishes[:1], None)
                except ApiError as error:
                    if error.status not in (*_REFUSED, _FORBIDDEN):
                        raise
                    by = wishes[0].by
                    self._logger.error("Patching was refused, and the changes by %s are dropped: %s", by, error)
                del wishes[0]
        finally:
            self.body = functions.body
            self.left = Pending(wishes, sent=functions.sent)


def _warn_of_unmet(wanted: Mapping[str, Any], written: Mapping[str, Any], logger: Logger) -> None:
    if unmet := _unmet(wanted, written):
        fields = ", ".join(".".join(path) for path in unmet)
        logger.warning(
            "Patching finished with inconsistencies: the server did not keep %s."
            " Does the schema of the resource know these fields?",
            fields,
        )


def _unmet(wanted: Mapping[str, Any], written: Mapping[str, Any], path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    unmet: list[tuple[str, ...]] = []
    for key, value in wanted.items():
        kept = written.get(key)
        if is_mapping(value) and (is_mapping(kept) or (kept is None and value)):
            unmet += _unmet(value, kept or {}, (*path, key))
        elif kept != value or isinstance(kept, bool) is not isinstance(value, bool):  # 1 is not true in JSON
            unmet.append((*path, key))
    return unmet
