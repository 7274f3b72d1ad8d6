"""Writes of the client: patches of the object that was meant, and retries after conflicts with other writers."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import trio

from trioperator._concurrency.backoff import Backoff
from trioperator._kube.api_client import Params
from trioperator._kube.messages import decode_object
from trioperator._kube.retry import JSON_PATCH, adjust_delay
from trioperator._model.jsontypes import JsonObject, encode_json
from trioperator.client.adoption import CREATE_ONLY, check_owner
from trioperator.client.deleting import is_replaced, replaced_error
from trioperator.client.locating import Target
from trioperator.errors import ConflictError, InvalidError, NotFoundError

STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
# Attempts at a write that meets conflicts with other writers, and the delays between them, as in client-go's
# DefaultBackoff.
_ATTEMPTS: Final = 5
_BACKOFF: Final = Backoff(initial=0.01, maximum=1.0, factor=5.0, jitter=0.1)


class Patch(NamedTuple):
    """A patch of an object, or of its subresource."""

    target: Target
    content_type: str
    content: object
    params: Params
    subresource: str | None = None

    async def send(self) -> JsonObject:
        """Patch the object, and return the new one.

        Raises as requests do, and NotFoundError if the object is gone, even if another one has its name.
        """
        target, path = self.target, self.target.get_path(self.subresource)
        body = encode_json(_bind(self.content, self.content_type, target.uid))
        try:
            data = await target.kube.request(
                "PATCH", path, params=self.params, body=body, content_type=self.content_type
            )
        except (ConflictError, InvalidError) as error:
            if target.uid is None or not await is_replaced(target, target.uid):
                raise
            raise replaced_error(target, repeated=error.repeated) from error
        new = decode_object(data, path)
        if target.uid not in (None, (new.get("metadata") or {}).get("uid", target.uid)):
            raise replaced_error(target)  # the status of custom resources can be merged with any uid
        return new


class ChildApply(NamedTuple):
    """A server-side apply of a child that must not take over an object of others."""

    target: Target
    owner: str
    body: JsonObject
    params: Params

    async def send(self) -> JsonObject:
        """Create the child, or apply it to the version that is known to be owned.

        Raises as requests do, and ForeignChildError if the object exists and is not the owner's.
        """
        path = self.target.get_path()
        condition: Mapping[str, Any] = CREATE_ONLY
        with contextlib.suppress(NotFoundError):
            found = await self.target.kube.get(path)
            check_owner(found, self.owner, what=self.target)
            condition = {"resourceVersion": found["metadata"]["resourceVersion"]}
        body = self.body
        if not is_conditional(body):
            body = {**body, "metadata": {**body["metadata"], **condition}}
        encoded = encode_json(body)
        data = await self.target.kube.request("PATCH", path, params=self.params, body=encoded, content_type=APPLY_PATCH)
        return decode_object(data, path)


def make_params(target: Target, *, field_manager: str | None = None, dry_run: bool = False) -> dict[str, str | None]:
    """Return the parameters of a write: the field manager, by default that of the settings, and a dry run."""
    manager = field_manager or target.kube.settings.persistence.field_manager
    return {"fieldManager": manager, "dryRun": "All" if dry_run else None}


def is_conditional(body: Mapping[str, Any]) -> bool:
    """Return whether a write is bound to one version of an object, or to its uid: sending it again cannot help."""
    metadata = body.get("metadata") or {}
    return bool(metadata.get("resourceVersion") or metadata.get("uid"))


async def retry_conflicts(send: Callable[[], Awaitable[JsonObject]]) -> JsonObject:
    """Send a write, again after conflicts with other writers, and return its response."""
    conflicts = 0
    while True:
        try:
            return await send()
        except ConflictError as error:
            conflicts += 1
            if conflicts >= _ATTEMPTS or not _may_pass(error):
                raise
            delay = adjust_delay(_BACKOFF.delay(conflicts), error, enforce=False)
        await trio.sleep(delay)


def _may_pass(error: ConflictError) -> bool:
    """Return whether the same write may succeed next time: it met another write, not a field of another manager."""
    causes = error.details.get("causes")
    owned = any(isinstance(cause, Mapping) and cause.get("reason") == "FieldManagerConflict" for cause in causes or ())
    return error.reason == "Conflict" and not owned


def _bind(patch: object, content_type: str, uid: str | None) -> object:
    """Bind a patch to the object with this uid: the server rejects it for another one of the name."""
    if uid is None:
        return patch
    if isinstance(patch, Mapping):
        metadata = patch.get("metadata", {})
        return {**patch, "metadata": {"uid": uid, **metadata}} if isinstance(metadata, Mapping) else patch
    if content_type == JSON_PATCH and isinstance(patch, Sequence):
        return [{"op": "test", "path": "/metadata/uid", "value": uid}, *patch]
    return patch
