"""Admission reviews: what API servers send, checked. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from trioperator._model.jsontypes import JsonObject
from trioperator.errors import ReviewError

_VERSIONS: Final = ("admission.k8s.io/v1", "admission.k8s.io/v1beta1")


class GroupVersionResource(msgspec.Struct, frozen=True):
    """Resource kind of a review."""

    group: str
    version: str
    resource: str


class _Metadata(msgspec.Struct):
    """The metadata that all code relies on."""

    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata | None = None


class ReviewRequest(msgspec.Struct, frozen=True, rename="camel"):
    """Request of a review."""

    uid: str
    resource: GroupVersionResource
    operation: str
    sub_resource: str | None = None
    name: str | None = None
    namespace: str | None = None
    user_info: JsonObject = {}
    object: JsonObject | None = None
    old_object: JsonObject | None = None
    dry_run: bool | None = None


def parse_review(review: Mapping[str, Any]) -> ReviewRequest:
    """Return the request of a review. Raises ReviewError if it is invalid."""
    if not isinstance(review, Mapping) or review.get("kind") != "AdmissionReview":
        raise ReviewError("The request is not an AdmissionReview.")
    if review.get("apiVersion") not in _VERSIONS:
        raise ReviewError(f"The version of the AdmissionReview is not one of {', '.join(_VERSIONS)}.")
    try:
        request = msgspec.convert(review.get("request"), ReviewRequest)
        for obj in (request.object, request.old_object):
            if obj is not None:
                check_metadata(obj)
    except msgspec.ValidationError as error:
        raise ReviewError(f"The AdmissionReview is invalid: {error}") from None
    return request


def check_metadata(obj: JsonObject) -> None:
    """Raise msgspec.ValidationError for metadata that no API server sends, and on which handlers would fail."""
    msgspec.convert(obj, _Object)


def build_review(review: Mapping[str, Any], response: JsonObject) -> JsonObject:
    """Return a review with its response, in the version of the request."""
    return {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}
