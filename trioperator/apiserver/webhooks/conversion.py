"""Custom objects in other versions than that which they are stored in: relabelled, or converted by a webhook.

What a webhook has converted is cached next to the stored object, so that the webhook is called once for each object and
version however often it is read or watched. Metadata is the server's: of what a webhook returns, only labels and
annotations count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from trioperator.errors import ApiError

from ..builtin.events import as_served
from ..custom import schema
from ..model.client_config import Conversion
from ..model.kinds import Kind
from ..model.metadata import check_metadata
from ..model.status_causes import first_causes
from ..store.state import State
from ..store.storage import Stored
from .client import WebhookCallError, WebhookClient

_TIMEOUT: Final = 30.0  # seconds, as the real server has it
_REVIEW_GROUP: Final = "apiextensions.k8s.io"
_REVIEW_VERSIONS: Final = ("v1", "v1beta1")

Object = dict[str, Any]


class _InvalidReviewError(Exception):
    """Raised when the response of a webhook is invalid."""


class Converter:
    """The conversions of one cluster."""

    def __init__(self, state: State, webhook_client: WebhookClient) -> None:
        self._state = state
        self._webhook_client = webhook_client

    # -- what is stored -------------------------------------------------------------------------------------------

    async def show(self, kind: Kind, stored: Stored) -> Stored:
        """Return the stored object in the version of the kind; refuse with 500 if that fails."""
        await self.prepare(kind, [stored])
        return self.shown(kind, stored)

    async def prepare(self, kind: Kind, stored: Sequence[Stored]) -> None:
        """Convert what has to be, so that :meth:`shown` finds it. Waits only if a webhook has to be asked."""
        missing = [item for item in stored if self._lacks(kind, item)]
        if missing:
            objects = await self._convert_all([_in_shape(kind, item).obj for item in missing], kind)
            for item, obj in zip(missing, objects, strict=True):
                item.converted[kind] = Stored(item.key, obj, item.revision)

    def is_prepared(self, kind: Kind, stored: Sequence[Stored]) -> bool:
        """Return whether no webhook has to be asked to show these."""
        return not any(self._lacks(kind, item) for item in stored)

    @staticmethod
    def _lacks(kind: Kind, stored: Stored) -> bool:
        if kind.custom is None or kind.custom.conversion is None:
            return False
        return _differs(kind, stored.obj) and kind not in stored.converted

    @staticmethod
    def shown(kind: Kind, stored: Stored) -> Stored:
        """Return the stored object in the version of the kind, for which it was prepared if that needs a webhook."""
        if kind.custom is None:
            return stored
        found = stored.converted.get(kind)
        if found is None:
            found = _in_shape(kind, stored)
            if _differs(kind, stored.obj):
                assert kind.custom.conversion is None
                found = stored.converted[kind] = Stored(stored.key, _relabelled(found.obj, kind), stored.revision)
        return found

    # -- what is on its way ---------------------------------------------------------------------------------------

    async def convert(self, obj: Object, kind: Kind) -> Object:
        """Return the object in the version of the kind; refuse with 500 if that fails."""
        if kind.custom is None:
            return as_served(kind, obj)
        return (await self._convert_all([obj], kind))[0] if _differs(kind, obj) else obj

    async def store(self, kind: Kind, obj: Object) -> Object:
        """Return an object of that kind in the version to be stored."""
        storage = kind.custom.storage if kind.custom is not None else None
        return obj if storage is None else await self.convert(obj, storage)

    async def _convert_all(self, objects: Sequence[Object], kind: Kind) -> list[Object]:
        assert kind.custom is not None
        conversion = kind.custom.conversion
        if conversion is None:
            return [_relabelled(obj, kind) for obj in objects]
        uid = self._state.uid()
        first = objects[0]
        group, _, version = str(first["apiVersion"]).rpartition("/")
        subject = f"conversion webhook for {group}/{version}, Kind={first['kind']}"
        try:
            answer = await self._ask(conversion, uid, objects, kind)
            converted = _read_review(uid, answer)
        except (_InvalidReviewError, WebhookCallError) as error:
            text = str(error).removeprefix("failed to call webhook: ")
            raise ApiError.of(f"{subject} failed: {text}", status=500) from error
        if len(converted) != len(objects):
            text = f"{subject} returned {len(converted)} objects, expected {len(objects)}"
            raise ApiError.of(text, status=500)
        try:
            return [_restored(old, new, kind) for old, new in zip(objects, converted, strict=True)]
        except _InvalidReviewError as error:
            raise ApiError.of(f"{subject} returned invalid {error}", status=500) from error

    async def _ask(self, conversion: Conversion, uid: str, objects: Sequence[Object], kind: Kind) -> Any:
        version = next((each for each in conversion.versions if each in _REVIEW_VERSIONS), "v1")
        review = {
            "kind": "ConversionReview",
            "apiVersion": f"{_REVIEW_GROUP}/{version}",
            "request": {"uid": uid, "desiredAPIVersion": kind.api_version, "objects": objects},
        }
        return await self._webhook_client.post(
            conversion.client, msgspec.json.encode(review), timeout=_TIMEOUT, query=f"?timeout={_TIMEOUT:.0f}s"
        )


def _differs(kind: Kind, obj: Mapping[str, Any]) -> bool:
    return bool(obj["apiVersion"] != kind.api_version)


def _in_shape(kind: Kind, stored: Stored) -> Stored:
    """Return the object as the current schema of its version requires it: pruned, and with defaults."""
    own = _version_of(kind, stored.obj)
    custom = None if own is None else own.custom
    if own is None or custom is None or custom.structure is None or stored.revision > custom.schema_revision:
        return stored
    found = stored.converted.get(own)
    if found is None:
        pruned = schema.prune(custom.structure, stored.obj, [])
        obj: Object = schema.default(custom.structure, pruned)
        found = stored if obj is stored.obj else Stored(stored.key, obj, stored.revision)
        stored.converted[own] = found
    return found


def _version_of(kind: Kind, obj: Mapping[str, Any]) -> Kind | None:
    """Return the kind or its storage version, whichever is the version of the object."""
    candidates = (kind, kind.custom.storage if kind.custom is not None else None)
    return next((each for each in candidates if each is not None and not _differs(each, obj)), None)


def _relabelled(obj: Object, kind: Kind) -> Object:
    """Return the object as one of another version, without the fields that this does not know."""
    return _pruned({**obj, "apiVersion": kind.api_version}, kind)


def _pruned(obj: Object, kind: Kind) -> Object:
    assert kind.custom is not None
    structure = kind.custom.structure
    if structure is None:
        return obj
    pruned: Object = schema.prune(structure, obj, [])
    return pruned


# -- the answer -----------------------------------------------------------------------------------------------------


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    status: str = ""
    message: str = ""


class _Response(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    uid: str = ""
    result: _Result = _Result()
    converted_objects: list[dict[str, Any]] | None = None


class _Review(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    response: _Response | None = None


def _read_review(uid: str, answer: Any) -> list[Object]:
    try:
        review = msgspec.convert({} if answer is None else answer, _Review)
    except msgspec.ValidationError as error:
        raise _InvalidReviewError(f"json: {error}") from None
    if review.api_version != f"{_REVIEW_GROUP}/v1beta1":  # of that version nothing is checked but the result
        _check_identity(uid, review)
    response = review.response
    if response is None:
        raise _InvalidReviewError("no response provided")
    if response.result.status != "Success":
        default = f"response.result.status was '{response.result.status}', not 'Success'"
        raise _InvalidReviewError(response.result.message or default)
    return response.converted_objects or []


def _check_identity(uid: str, review: _Review) -> None:
    if (review.kind, review.api_version) != ("ConversionReview", f"{_REVIEW_GROUP}/v1"):
        shown = f"{review.api_version or '/'}, Kind={review.kind}"
        text = f"expected webhook response of {_REVIEW_GROUP}/v1, Kind=ConversionReview, got {shown}"
        raise _InvalidReviewError(text)
    if review.response is not None and review.response.uid != uid:
        raise _InvalidReviewError(f'expected response.uid="{uid}", got "{review.response.uid}"')


def _restored(old: Object, new: Object, kind: Kind) -> Object:
    """Return the converted object with the metadata of the original, but for labels and annotations."""
    if new.get("apiVersion") != kind.api_version:
        found = new.get("apiVersion") or ""
        raise _InvalidReviewError(
            f"object at index 0: invalid groupVersion (expected {kind.api_version}, received {found})"
        )
    if new.get("kind") != old["kind"]:
        expected = f"(expected {old['kind']}, received {new.get('kind') or ''})"
        raise _InvalidReviewError(f"object at index 0: invalid kind {expected}")
    mine, theirs = old["metadata"], new.get("metadata")
    theirs = {} if theirs is None else theirs
    if not isinstance(theirs, dict):
        raise _InvalidReviewError("metadata: it is not an object")
    for field, name in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        expected, found = mine.get(field) or "", theirs.get(field) or ""
        if found != expected:
            raise _InvalidReviewError(f"object: must have the same {name}: {expected} != {found}")
    meta = {key: value for key, value in mine.items() if key not in {"annotations", "labels"}}
    for field in ("annotations", "labels"):
        if theirs.get(field):
            meta[field] = _checked(kind, field, theirs[field])
    body = {key: value for key, value in new.items() if key not in {"apiVersion", "kind", "metadata"}}
    return _pruned({**kind.type_meta, "metadata": meta, **body}, kind)


def _checked(kind: Kind, field: str, texts: Any) -> Any:
    if not isinstance(texts, dict):
        raise _InvalidReviewError(f"metadata: invalid metadata.{field} in converted object")
    for key, value in texts.items():
        if not isinstance(value, str):
            raise _InvalidReviewError(f"metadata: metadata.{field}[{key}] must be a string in converted object")
    proper = {"name": "a", "namespace": "a" if kind.namespaced else ""}
    if causes := first_causes(check_metadata(kind, {**proper, field: texts})):
        raise _InvalidReviewError("metadata: " + ", ".join(f"{cause.field}: {cause.message}" for cause in causes))
    return texts
