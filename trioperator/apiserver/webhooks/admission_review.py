"""``AdmissionReview`` requests, and validation of the responses. Pure."""

from __future__ import annotations

import base64
import binascii
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from trioperator.errors import ApiError

from ..model.json_text import decode_json
from ..model.kinds import Kind
from .matching import FOREIGN_KINDS, AdmissionAttributes, Webhook

REVIEW_VERSIONS: Final = ("v1", "v1beta1")
_GROUP: Final = "admission.k8s.io"


class InvalidReviewError(Exception):
    """Raised when the response of a webhook is invalid."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Decision of a webhook."""

    allowed: bool
    status: Mapping[str, Any] | None = None
    operations: Sequence[Mapping[str, Any]] = ()  # of a JSON patch
    warnings: tuple[str, ...] = ()
    annotations: Mapping[str, str] = dataclasses.field(default_factory=dict)


def review_version(webhook: Webhook) -> str | None:
    """Return the first review version of the webhook that is supported here."""
    return next((version for version in webhook.versions if version in REVIEW_VERSIONS), None)


def make_review(version: str, uid: str, attributes: AdmissionAttributes, kind: Kind) -> dict[str, Any]:
    """Return the review for the attributes, whose objects are in the version of *kind*."""
    requested = attributes.kind
    request: dict[str, Any] = {"uid": uid, "kind": _kind(kind, attributes), "resource": _resource(kind)}
    if attributes.subresource:
        request["subResource"] = attributes.subresource
    request["requestKind"] = _kind(requested, attributes)
    request["requestResource"] = _resource(requested)
    if attributes.subresource:
        request["requestSubResource"] = attributes.subresource
    if attributes.name:
        request["name"] = attributes.name
    if attributes.namespace:
        request["namespace"] = attributes.namespace
    options = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}[attributes.operation]
    request |= {
        "operation": attributes.operation,
        "userInfo": attributes.options.user.describe(),
        "object": attributes.new,
        "oldObject": attributes.old,
        "dryRun": attributes.options.dry_run,
        "options": {"kind": options, "apiVersion": "meta.k8s.io/v1", **attributes.options.sent},
    }
    return {"kind": "AdmissionReview", "apiVersion": f"{_GROUP}/{version}", "request": request}


def _kind(kind: Kind, attributes: AdmissionAttributes) -> dict[str, str]:
    if attributes.subresource in FOREIGN_KINDS:
        return FOREIGN_KINDS[attributes.subresource]
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _resource(kind: Kind) -> dict[str, str]:
    return {"group": kind.group, "version": kind.version, "resource": kind.plural}


class _Response(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    uid: str = ""
    allowed: bool = False
    status: dict[str, Any] | None = None
    patch: str | None = None
    patch_type: str | None = None
    warnings: list[str] | None = None
    audit_annotations: dict[str, str] | None = None


class _Review(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    response: _Response | None = None


def read_review(version: str, uid: str, answer: Any, *, mutating: bool) -> Verdict:
    """Return the decision of the webhook. Raises InvalidReviewError."""
    try:
        review = msgspec.convert({} if answer is None else answer, _Review)
    except msgspec.ValidationError as error:
        raise InvalidReviewError(f"failed to call webhook: json: {error}") from None
    _check_kind(version, review)
    response = review.response
    patch = _decode_patch(response.patch if response is not None else None)
    if response is None:
        raise _invalid("webhook response was absent")
    patch_type = response.patch_type
    if version != "v1":  # v1beta1 checks neither uid nor patch type
        patch, patch_type = (patch if mutating else b""), ("JSONPatch" if patch and mutating else None)
    else:
        _check_identity(uid, review, response)
        _check_patch(patch, patch_type, mutating=mutating)
    operations = _read_operations(patch) if response.allowed else []
    if operations and patch_type != "JSONPatch":
        raise InvalidReviewError(f'unsupported patch type "{patch_type}"')
    return Verdict(
        allowed=response.allowed,
        status=response.status,
        operations=operations,
        warnings=tuple(response.warnings or ()),
        annotations=response.audit_annotations or {},
    )


def _invalid(text: str) -> InvalidReviewError:
    return InvalidReviewError(f"received invalid webhook response: {text}")


def _check_kind(version: str, review: _Review) -> None:
    """Raise InvalidReviewError if kind or version are given and wrong."""
    known = {f"{_GROUP}/{each}" for each in REVIEW_VERSIONS}
    if (review.kind or review.api_version) and (review.kind != "AdmissionReview" or review.api_version not in known):
        text = f'no kind "{review.kind}" is registered for version "{review.api_version}"'
        raise InvalidReviewError(f"failed to call webhook: {text}")
    if review.api_version and review.api_version != f"{_GROUP}/{version}":
        other = review.api_version.rpartition("/")[2]
        text = f"converting ({other}.AdmissionReview) to ({version}.AdmissionReview): unknown conversion"
        raise InvalidReviewError(f"failed to call webhook: {text}")


def _check_identity(uid: str, review: _Review, response: _Response) -> None:
    if response.uid != uid:
        raise _invalid(f'expected response.uid="{uid}", got "{response.uid}"')
    if not review.kind:
        raise _invalid(f"expected webhook response of {_GROUP}/v1, Kind=AdmissionReview, got /, Kind=")


def _check_patch(patch: bytes, patch_type: str | None, *, mutating: bool) -> None:
    if not mutating:
        if patch:
            raise _invalid("validating webhook may not return response.patch")
        if patch_type is not None:
            raise _invalid("validating webhook may not return response.patchType")
        return
    if patch and patch_type is None:
        raise _invalid("webhook returned response.patch but not response.patchType")
    if patch_type is not None and not patch:
        raise _invalid("webhook returned response.patchType but not response.patch")
    if patch_type == "":
        raise _invalid('webhook returned invalid response.patchType of ""')


def _decode_patch(text: str | None) -> bytes:
    try:
        return base64.b64decode(text or "", validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidReviewError(f"failed to call webhook: illegal base64 data: {error}") from None


def _read_operations(patch: bytes) -> list[dict[str, Any]]:
    try:
        return msgspec.convert(decode_json(patch or b"[]"), list[dict[str, Any]])
    except ValueError as error:
        raise InvalidReviewError(f"received undecodable patch in webhook response: {error}") from None


def rejection(webhook: Webhook, status: Mapping[str, Any] | None) -> ApiError:
    """Return the error response for a write that a webhook has denied."""
    status = status or {}
    text = f'admission webhook "{webhook.name}" denied the request'
    reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
    if message or reason:
        text = f"{text}: {message or reason}"
    else:
        text = f"{text} without explanation"
    code = status.get("code")
    code = code if isinstance(code, int) and code >= 400 else 400
    retry_after = (status.get("details") or {}).get("retryAfterSeconds")
    return ApiError.of(text, status=code, reason=reason, details=status.get("details"), retry_after=retry_after)
