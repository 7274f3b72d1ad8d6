"""Error responses of the API server, with the messages, reasons and details of a real one.

They are :class:`~trioperator.errors.ApiError`, so that callers in the process catch the same errors as HTTP clients;
:func:`render_status` returns the ``Status`` object that goes over the wire.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from trioperator.errors import ApiError, ExpiredError

from .kinds import Kind
from .quoting import quote
from .status_causes import StatusCause, first_causes

ETCD_CLIENT_LIMIT: Final = 2 * 1024 * 1024  # bytes that the API server sends to etcd at once


class StalePageError(ExpiredError):
    """Raised when a continue token has expired; *token* continues with an inconsistent list."""

    def __init__(self, text: str, *, token: str) -> None:
        super().__init__(text, status=410, reason="Expired")
        self.token = token


def render_status(error: ApiError) -> dict[str, Any]:
    """Return the ``Status`` object of the error."""
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {"continue": error.token} if isinstance(error, StalePageError) else {},
        "status": "Failure",
        "message": error.message,
    }
    if error.reason:
        status["reason"] = error.reason
    if error.details:
        status["details"] = dict(error.details)
    status["code"] = error.status
    return status


def _details(kind: Kind, name: str, **extra: Any) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if kind.group:
        details["group"] = kind.group
    details["kind"] = kind.plural
    return {**details, **extra}


def not_found(kind: Kind, name: str) -> ApiError:
    return ApiError.of(
        f'{kind.qualified} "{name}" not found', status=404, reason="NotFound", details=_details(kind, name)
    )


def unknown_resource() -> ApiError:
    return ApiError.of("the server could not find the requested resource", status=404, reason="NotFound")


def already_exists(kind: Kind, name: str, *, is_terminating: bool = False) -> ApiError:
    prefix = "object is being deleted: " if is_terminating else ""
    text = f'{prefix}{kind.qualified} "{name}" already exists'
    return ApiError.of(text, status=409, reason="AlreadyExists", details=_details(kind, name))


def conflict(
    kind: Kind,
    name: str,
    text: str = "the object has been modified; please apply your changes to the latest version and try again",
) -> ApiError:
    return ApiError.of(
        f'Operation cannot be fulfilled on {kind.qualified} "{name}": {text}',
        status=409,
        reason="Conflict",
        details=_details(kind, name),
    )


def forbidden(kind: Kind, name: str, text: str, *, causes: Sequence[Mapping[str, str]] = ()) -> ApiError:
    extra = {"causes": [dict(cause) for cause in causes]} if causes else {}
    return ApiError.of(
        f'{kind.qualified} "{name}" is forbidden: {text}',
        status=403,
        reason="Forbidden",
        details=_details(kind, name, **extra),
    )


def unauthorized() -> ApiError:
    return ApiError.of("Unauthorized", status=401, reason="Unauthorized")


def access_denied(group: str, resource: str, name: str, text: str) -> ApiError:
    """Return 403 for a request that is not authorized; the resource is the requested one, existing or not."""
    details = {"name": name, "group": group, "kind": resource}
    title = f"{resource}.{group}" if group else resource
    shown = f"{title} {quote(name)} is " if name else f"{title} is " if title else ""
    return ApiError.of(
        f"{shown}forbidden: {text}",
        status=403,
        reason="Forbidden",
        details={field: value for field, value in details.items() if value},
    )


def invalid(kind_name: str, group: str, name: str, causes: Iterable[StatusCause]) -> ApiError:
    """Return 422 for an invalid object; *kind_name* is the kind that the object itself names.

    The number of causes is limited.
    """
    causes = list(dict.fromkeys(first_causes(causes)))
    texts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details: dict[str, Any] = {"name": name} if name else {}
    if group:
        details["group"] = group
    if kind_name:
        details["kind"] = kind_name
    details["causes"] = [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes]
    title = f"{kind_name}.{group}" if group else kind_name
    return ApiError.of(f'{title} "{name}" is invalid: {text}', status=422, reason="Invalid", details=details)


def bad_request(text: str) -> ApiError:
    return ApiError.of(text, status=400, reason="BadRequest")


def method_not_allowed(kind: Kind | None = None, verb: str = "") -> ApiError:
    if kind is None or not kind.custom:
        text = "the server does not allow this method on the requested resource"
        return ApiError.of(text, status=405, reason="MethodNotAllowed")
    text = f'{verb} is not supported on resources of kind "{kind.qualified}"'
    return ApiError.of(text, status=405, reason="MethodNotAllowed", details=_details(kind, ""))


def unsupported_media_type(accepted: Sequence[str]) -> ApiError:
    text = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return ApiError.of(text, status=415, reason="UnsupportedMediaType")


def request_too_large(limit: int) -> ApiError:
    return ApiError.of(f"Request entity too large: limit is {limit}", status=413, reason="RequestEntityTooLarge")


def object_too_large(size: int) -> ApiError:
    """Return 500 for an object that etcd does not store."""
    text = "etcdserver: request is too large"
    if size > ETCD_CLIENT_LIMIT:
        text = (
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max "
            f"({size} vs. {ETCD_CLIENT_LIMIT})"
        )
    return ApiError.of(text, status=500)


def headers_too_large(limit: int) -> ApiError:
    return ApiError.of(f"Request header fields too large: limit is {limit}", status=431)


def request_timeout(seconds: float) -> ApiError:
    """Return 408 for an incomplete request."""
    text = f"Timeout: the request was not complete within {seconds:.0f} seconds"
    return ApiError.of(text, status=408, reason="Timeout")


def version_too_large(wanted: int, current: int) -> ApiError:
    """Return 504 for a resource version in the future."""
    return ApiError.of(
        f"Timeout: Too large resource version: {wanted}, current: {current}",
        status=504,
        reason="Timeout",
        details={
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
        retry_after=1,
    )


def expired(text: str) -> ApiError:
    return ApiError.of(text, status=410, reason="Expired")


def internal_error(text: str) -> ApiError:
    """Return 500 for a failure of the server or of a webhook."""
    details = {"causes": [{"message": text}]}
    return ApiError.of(f"Internal error occurred: {text}", status=500, reason="InternalError", details=details)
