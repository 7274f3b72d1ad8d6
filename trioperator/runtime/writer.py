"""The writer: what a turn wants stored on an object, in as few requests as the API allows.

The status goes first where it is a subresource, so that nothing counts as handled whose result is not stored; then
all else in one request. What the server refuses of a user's patch is reported and dropped: the operator's own records
are stored without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from trioperator.errors import ApiError, ConflictError, InvalidError
from trioperator.kube.client import Client
from trioperator.logs import Logger
from trioperator.model.patch import (
    Patch,
    PatchFn,
    json_patch,
    merge_as_json_patch,
    merge_patches,
    split_status,
    with_version_test,
)
from trioperator.runtime.table import Kind, Known

__all__ = ["Finalize", "StaleError", "Writer", "collect"]

JSON_PATCH = "application/json-patch+json"
# What says that the request itself is wrong, so that sending it again is of no use.
_REFUSED = (400, 413, 422)

Finalize = Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]]


class StaleError(Exception):
    """Say that the object has changed since it was looked at; ``body`` is what it is now."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__("The object has changed meanwhile.")
        self.body = body


def collect(known: Known, wanted: Mapping[str, Any], fns: Sequence[PatchFn], *, by: str, logger: Logger) -> None:
    """Add what a handler wants stored to what is pending for its object. What is no JSON is reported and dropped."""
    try:
        # A copy, so that nothing which the handler keeps in its hands can change what is stored.
        plain = msgspec.json.decode(msgspec.json.encode(wanted))
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        logger.error("%s has a result or a patch that is no JSON, and it is dropped: %s", by, error)
        plain = {}
    before = known.pending or Patch()
    known.pending = Patch(merge_patches(before, plain, onto=known.body), fns=[*before.fns, *fns])
    if known.background is not None:
        known.background.show(plain, opaque=bool(fns))


class Writer:
    """Store on objects what handlers want, and what the operator has to remember."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def store(self, known: Known, records: Patch, logger: Logger, finalize: Finalize | None = None) -> None:
        """Store what is pending for an object, our own *records*, and a change of its finalizers; all may be nothing.

        The server's answer becomes the known state. After an error, what could not be stored is pending again.
        Raises StaleError where a conditional change met a newer object, NotFoundError where the object is gone.
        """
        if known.body is None:
            return
        patch = Patch() if known.pending is None else known.pending
        if not patch and not records and finalize is None:
            return
        awaited, known.awaited = known.awaited, []
        known.pending = None
        try:
            body = await self._write(known.table.kind, known.body, patch, records, finalize, logger)
        except BaseException:
            if patch:  # it comes before what has come meanwhile
                later = known.pending or Patch()
                known.pending = Patch(merge_patches(patch, later, onto=known.body), fns=[*patch.fns, *later.fns])
            known.awaited += awaited
            raise
        for written in awaited:
            written.set()
        if body is not known.body:
            known.renew(body)

    async def _write(
        self,
        kind: Kind,
        body: Mapping[str, Any],
        patch: Patch,
        records: Patch,
        finalize: Finalize | None,
        logger: Logger,
    ) -> Mapping[str, Any]:
        """Send what there is to send, and take out of *patch* what is stored. Gives the newest state."""
        main, status = split_status(merge_patches(patch, records, onto=body) if records else patch)
        if not kind.has_status:
            main, status = (merge_patches(main, {"status": status}) if status else main), {}
        if status:
            body = await self._write_status(kind, body, status, split_status(records)[1], logger)
            patch.pop("status", None)
        if main or finalize is not None:
            own = split_status(records)[0] if kind.has_status else records
            try:
                body = await self._write_main(kind, body, main, finalize, logger)
            except ApiError as error:
                if error.status not in _REFUSED or main == own:
                    raise
                logger.error("Patching was refused, and the handlers' changes are dropped: %s", error)
                body = await self._write_main(kind, body, own, finalize, logger)
        for key in list(patch):
            del patch[key]
        return await self._apply_functions(kind, body, patch, logger) if patch.fns else body

    async def _write_status(
        self,
        kind: Kind,
        body: Mapping[str, Any],
        status: Mapping[str, Any],
        own: Mapping[str, Any],
        logger: Logger,
    ) -> Mapping[str, Any]:
        wanted = {"status": status}
        if _is_fulfilled(body, wanted):
            return body
        try:
            written = await self._send(kind, body, wanted, subresource="status")
        except ApiError as error:
            if error.status not in _REFUSED:
                raise
            logger.error("Patching the status was refused, and the handlers' changes are dropped: %s", error)
            if not own or status == own:
                return body
            return await self._send(kind, body, {"status": own}, subresource="status")
        _warn_of_unmet(wanted, written, logger)
        return written

    async def _write_main(
        self,
        kind: Kind,
        body: Mapping[str, Any],
        main: Mapping[str, Any],
        finalize: Finalize | None,
        logger: Logger,
    ) -> Mapping[str, Any]:
        if finalize is not None:
            return await self._write_conditionally(kind, body, [*merge_as_json_patch(body, main), *finalize(body)])
        if _is_fulfilled(body, main):
            return body
        written = await self._send(kind, body, main)
        _warn_of_unmet(main, written, logger)
        return written

    async def _write_conditionally(
        self, kind: Kind, body: Mapping[str, Any], ops: Sequence[Mapping[str, Any]], subresource: str | None = None
    ) -> Mapping[str, Any]:
        """Send a JSON patch that holds only for the object as it is known."""
        try:
            return await self._send(kind, body, with_version_test(ops, body), subresource=subresource)
        except (ConflictError, InvalidError):
            # The failed test of a version has no reason of its own: look whether there is a newer version.
            newest = await self._client.get(_path(kind, body))
            if newest["metadata"].get("resourceVersion") != body["metadata"].get("resourceVersion"):
                raise StaleError(newest) from None
            raise

    async def _apply_functions(
        self, kind: Kind, body: Mapping[str, Any], patch: Patch, logger: Logger
    ) -> Mapping[str, Any]:
        """Have the functions of a patch change the newest object, and store the difference, until nobody interferes."""
        while True:
            try:
                ops = _changes_by(patch.fns, body)
            except Exception as error:
                logger.error("The functions of a patch have failed, and are dropped: %s", error, exc_info=error)
                patch.fns.clear()
                return body
            groups: list[tuple[str | None, list[dict[str, Any]]]] = [(None, ops)]
            if kind.has_status:
                in_status = [op for op in ops if op["path"].split("/")[1:2] == ["status"]]
                groups = [(None, [op for op in ops if op not in in_status]), ("status", in_status)]
            try:
                for subresource, group in groups:
                    if group:
                        body = await self._write_conditionally(kind, body, group, subresource)
            except StaleError as stale:
                body = stale.body
                continue
            except ApiError as error:
                if error.status not in _REFUSED:
                    raise
                logger.error("Patching was refused, and the changes of patch.fns are dropped: %s", error)
            patch.fns.clear()
            return body

    async def _send(
        self, kind: Kind, body: Mapping[str, Any], patch: Any, *, subresource: str | None = None
    ) -> Mapping[str, Any]:
        path = _path(kind, body, subresource)
        if isinstance(patch, list):
            raw = await self._client.patch(path, patch, content_type=JSON_PATCH)
        else:
            raw = await self._client.patch(path, patch)
        written: dict[str, Any] = msgspec.json.decode(raw)
        return written


def _changes_by(fns: Sequence[PatchFn], body: Mapping[str, Any]) -> list[dict[str, Any]]:
    target = msgspec.json.decode(msgspec.json.encode(body))
    for fn in fns:
        fn(target)
    return json_patch(body, target)


def _path(kind: Kind, body: Mapping[str, Any], subresource: str | None = None) -> str:
    metadata = body["metadata"]
    return kind.resource.get_path(namespace=metadata.get("namespace"), name=metadata["name"], subresource=subresource)


def _is_fulfilled(body: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return not _unmet(wanted, body)


def _warn_of_unmet(wanted: Mapping[str, Any], written: Mapping[str, Any], logger: Logger) -> None:
    if not _is_fulfilled(written, wanted):
        fields = ", ".join(".".join(path) for path in _unmet(wanted, written))
        logger.warning(
            "Patching finished with inconsistencies: the server did not keep %s."
            " Does the schema of the resource know these fields?",
            fields,
        )


def _unmet(wanted: Mapping[str, Any], written: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    unmet: list[tuple[str, ...]] = []
    for key, value in wanted.items():
        kept = written.get(key) if isinstance(written, Mapping) else None
        if isinstance(value, Mapping) and (isinstance(kept, Mapping) or (kept is None and value)):
            unmet += _unmet(value, kept or {}, (*path, key))
        elif kept != value or isinstance(kept, bool) is not isinstance(value, bool):  # 1 is not true in JSON
            unmet.append((*path, key))
    return unmet
