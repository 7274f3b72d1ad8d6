"""Patch requests of single objects, plain and conditional."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from trioperator._kube.api_client import ApiClient
from trioperator._kube.deep_json import DECODE_ERRORS
from trioperator._kube.objects import find_soon
from trioperator._model.lazy_object import LARGE, LazyObject
from trioperator._model.patch import merge_as_additions, merge_as_json_patch, with_version_test
from trioperator._model.resource import Resource
from trioperator._runtime.cache.kind import Kind
from trioperator.errors import ApiError, ConflictError, ConnectionLostError, ForbiddenError, InvalidError

_decode_object: Final = msgspec.json.Decoder(dict[str, Any]).decode

_JSON_PATCH: Final = "application/json-patch+json"
# Limit of attempts to patch the status of an object, each bound to its newest version.
_VERSIONS: Final = 3


class StaleError(Exception):
    """Raised when the object is no longer in the expected version; ``body`` is what it is now.

    It ``may_be_ours``: what has changed it may be an earlier attempt of the same request, whose response was lost.
    """

    def __init__(self, body: Mapping[str, Any], *, may_be_ours: bool = False) -> None:
        super().__init__("The object has changed meanwhile.")
        self.body = body
        self.may_be_ours = may_be_ours


class PatchRequests:
    """Patches of objects; each response is the newest state of the object. Raises as the client does.

    Another object of the same name counts as not found. A response that is no object, such as a page of a proxy with
    HTTP 200, counts as lost.
    """

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._unreadable: set[Resource] = set()

    async def patch(
        self, kind: Kind, body: Mapping[str, Any], wanted: Mapping[str, Any], subresource: str | None = None
    ) -> Mapping[str, Any]:
        """Send a merge patch."""
        if subresource == "status" and _may_be_replaced(kind, body):
            return await self._merge_status(kind, body, wanted)
        return await self._merge(kind, body, wanted, subresource)

    async def _merge(
        self, kind: Kind, body: Mapping[str, Any], wanted: Mapping[str, Any], subresource: str | None, **bound: str
    ) -> Mapping[str, Any]:
        try:
            response = await self._client.patch(_path(kind, body, subresource), _bind(wanted, body, **bound))
        except (ConflictError, InvalidError) as error:
            if is_about_uid(error):
                raise not_found(body) from None
            raise
        return _decode(response, body)

    async def _merge_status(self, kind: Kind, body: Mapping[str, Any], wanted: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a merge patch of a status for which any uid is accepted: only a known version is surely not another's.

        Others may have changed the object meanwhile, which is no reason not to patch it: it is read, and patched again.
        So it is sent as a JSON patch that tests the uid where that has the same effect on a newer state. If others
        change the object all the time, the last patch is one, too, though it depends on what the object has.
        """
        known, test = body, {"op": "test", "path": "/metadata/uid", "value": body["metadata"]["uid"]}
        if ops := merge_as_additions(body, wanted):
            try:
                return await self._patch_json(kind, body, [test, *ops], "status")
            except (ConflictError, InvalidError) as error:
                if error.details.get("causes"):  # unlike a failed test, or a section that no longer exists
                    raise
                known = await self.get(kind, body)
        for _ in range(_VERSIONS):
            try:
                version = known["metadata"]["resourceVersion"]
                return await self._merge(kind, body, wanted, "status", resourceVersion=version)
            except ConflictError:
                known = await self.get(kind, body)
        return await self._send(kind, known, [test, *merge_as_json_patch(known, wanted)], "status")

    async def get(self, kind: Kind, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read the object; by a patch that changes nothing where the operator has no right to read single objects."""
        if kind.resource not in self._unreadable:
            try:
                return _decode(await self._client.request("GET", _path(kind, body)), body)
            except ForbiddenError:
                self._unreadable.add(kind.resource)
        return await self.patch(kind, body, {})

    async def patch_conditionally(
        self, kind: Kind, body: Mapping[str, Any], ops: Sequence[Mapping[str, Any]], subresource: str | None = None
    ) -> Mapping[str, Any]:
        """Send a JSON patch that is applied only in the known version. Raises StaleError if there is another by now."""
        return await self._send(kind, body, with_version_test(ops, body), subresource)

    async def _send(
        self, kind: Kind, body: Mapping[str, Any], ops: list[dict[str, Any]], subresource: str | None
    ) -> Mapping[str, Any]:
        """Send a JSON patch that has a test. Raises StaleError if it fails and there is another version by now."""
        try:
            return await self._patch_json(kind, body, ops, subresource)
        except (ConflictError, InvalidError) as error:
            # The response has no special reason for a failed version test: check whether there is a newer version.
            newest = _decode(await self._client.request("GET", _path(kind, body)), body)
            if newest["metadata"].get("resourceVersion") != body["metadata"].get("resourceVersion"):
                raise StaleError(newest, may_be_ours=error.repeated) from None
            raise

    async def _patch_json(
        self, kind: Kind, body: Mapping[str, Any], ops: list[dict[str, Any]], subresource: str | None
    ) -> Mapping[str, Any]:
        response = await self._client.patch(_path(kind, body, subresource), ops, content_type=_JSON_PATCH)
        return _decode(response, body)


def _path(kind: Kind, body: Mapping[str, Any], subresource: str | None = None) -> str:
    metadata = body["metadata"]
    return kind.resource.get_path(namespace=metadata.get("namespace"), name=metadata["name"], subresource=subresource)


def not_found(body: Mapping[str, Any]) -> ApiError:
    """Return the error for an object that is gone, though there may be another one of its name."""
    name = body["metadata"]["name"]
    return ApiError.of(f"{name} is gone", status=404, reason="NotFound", details={"name": name})


def _bind(wanted: Mapping[str, Any], body: Mapping[str, Any], **bound: str) -> dict[str, Any]:
    """Bind a merge patch to this very object: a uid cannot be changed, so the server rejects it for another one."""
    uid, metadata = body["metadata"].get("uid"), wanted.get("metadata", {})
    if not uid or not isinstance(metadata, Mapping):
        return dict(wanted)
    return {**wanted, "metadata": {**metadata, **bound, "uid": uid}}


def _may_be_replaced(kind: Kind, body: Mapping[str, Any]) -> bool:
    """Check whether a patch of the status may reach another object of the name.

    The server checks the uid for built-in kinds only. Finalizers do not keep an object for sure: anybody may remove
    them, as is often done with objects whose deletion is stuck. Without a uid, as aggregated APIs may have it, there is
    nothing to tell another object by.
    """
    metadata = body["metadata"]
    return "." in kind.resource.group and bool(metadata.get("uid") and metadata.get("resourceVersion"))


def is_about_uid(error: ApiError) -> bool:
    """Check whether an error says that the object is another one than the request was bound to."""
    causes = error.details.get("causes")
    fields = [cause.get("field") for cause in causes if isinstance(cause, Mapping)] if isinstance(causes, list) else []
    texts = ("UID in precondition", "uid mismatch")  # of older servers, and of an apply where there is no longer one
    return "metadata.uid" in fields or any(text in error.message for text in texts)


def _decode(response: bytes, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object in a response. Raises ConnectionLostError if there is none, NotFoundError if it is another."""
    known = body["metadata"]
    try:
        written = _load(response)
    except DECODE_ERRORS as error:
        raise ConnectionLostError(f"The response about {known['name']} cannot be read: {error}") from error
    metadata = written.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("name") != known["name"]:
        raise ConnectionLostError(f"The response about {known['name']} is not the object.")
    if metadata.get("uid") != known.get("uid"):
        raise not_found(body)
    return written


def _load(response: bytes) -> Mapping[str, Any]:
    """Decode a response. Raises what decoding raises, also if it is no JSON object."""
    if len(response) < LARGE:
        return _decode_object(response)
    return LazyObject.of(response, lambda: _decode_object(response), soon=find_soon())
