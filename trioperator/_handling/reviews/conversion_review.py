"""Conversion reviews: what API servers send, checked, and the responses. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from trioperator._handling.reviews.admission_review import check_metadata
from trioperator._model.jsontypes import JsonObject
from trioperator.errors import ReviewError

_GROUP: Final = "apiextensions.k8s.io"
_VERSIONS: Final = (f"{_GROUP}/v1", f"{_GROUP}/v1beta1")


class ConversionRequest(msgspec.Struct, frozen=True, rename="camel"):
    """Request of a conversion: objects of any versions, and the one that is wanted."""

    uid: str
    objects: list[JsonObject]
    desired_api_version: str = msgspec.field(name="desiredAPIVersion")


def is_conversion(review: Mapping[str, Any]) -> bool:
    """Return whether a review is a ConversionReview."""
    return isinstance(review, Mapping) and review.get("kind") == "ConversionReview"


def parse_conversion(review: Mapping[str, Any]) -> ConversionRequest:
    """Return the request of a review. Raises ReviewError if it is invalid."""
    if review.get("apiVersion") not in _VERSIONS:
        raise ReviewError(f"The version of the ConversionReview is not one of {', '.join(_VERSIONS)}.")
    try:
        request = msgspec.convert(review.get("request"), ConversionRequest)
    except msgspec.ValidationError as error:
        raise ReviewError(f"The ConversionReview is invalid: {error}") from None
    for index, obj in enumerate(request.objects):
        named = all(isinstance(obj.get(key), str) for key in ("apiVersion", "kind"))
        if not named or not isinstance(obj.get("metadata"), dict):
            raise ReviewError(
                f"The ConversionReview is invalid: Expected an object with `apiVersion`, `kind` and `metadata` - at"
                f" `$.objects[{index}]`"
            )
        try:
            check_metadata(obj)
        except msgspec.ValidationError as error:
            raise ReviewError(f"The ConversionReview is invalid: {error} of `$.objects[{index}]`") from None
    return request


def build_conversion(review: Mapping[str, Any], uid: str, objects: Sequence[JsonObject]) -> JsonObject:
    """Return a review with the converted objects, in the version of the request."""
    return _build(review, uid, {"convertedObjects": list(objects), "result": {"status": "Success"}})


def build_failure(review: Mapping[str, Any], uid: str, message: str) -> JsonObject:
    """Return a review whose conversion has failed."""
    return _build(review, uid, {"convertedObjects": [], "result": {"status": "Failure", "message": message}})


def _build(review: Mapping[str, Any], uid: str, response: JsonObject) -> JsonObject:
    return {"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": {"uid": uid, **response}}
