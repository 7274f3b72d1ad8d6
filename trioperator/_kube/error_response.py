"""Error responses of the API server as exceptions."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Mapping
from typing import Any, Final

import msgspec

from trioperator._concurrency.clock import wall_now
from trioperator._http.transport import Headers, find_date, find_header, parse_date
from trioperator._kube.deep_json import DECODE_ERRORS, decode_shallow
from trioperator.errors import ApiError, ForbiddenError, UnauthorizedError

# Characters of the server's message to keep: it may quote a whole object.
_MAX_MESSAGE: Final = 256
# Bytes of a Status that is nested too deeply for the decoder, at most: taking it apart takes time.
_MAX_DEEP: Final = 64 * 1024
# Seconds: the longest delay that a server can ask for.
_MAX_RETRY_AFTER: Final = 3600.0


class _Status(msgspec.Struct):
    """The fields of a Kubernetes ``Status`` object that are used."""

    kind: Any = None
    message: Any = None
    reason: Any = None
    code: Any = None
    details: Any = None


# Requests for objects: one, or those of a namespace or of the cluster. Its groups are the API group and the plural.
_OBJECTS: Final = re.compile(r"/api(?:/v1|s/([^/?]+)/[^/?]+)/(?:namespaces/[^/?]*/)?([^/?]+)")
_SECRETS: Final = "secrets"
# Status codes of errors that quote nothing of what was sent, but in the words of an admission webhook or policy.
_DISCREET: Final = frozenset({401, 403, 404, 405, 406, 409, 410, 413, 415, 429, 503, 504})
# Messages of requests that kube-apiserver answers with 500, and always will: applied fields of wrong types, or with
# invalid quantities, times or base64, and objects that are too big for etcd, or already for the client of etcd.
_ALWAYS_500: Final = (
    "failed to create typed patch object ",
    "failed to convert new object ",
    "etcdserver: request is too large",
    "rpc error: code = ResourceExhausted desc = trying to send message larger than max ",
)
_DENIED: Final = re.compile(r"denied (the )?request")
# Part of messages about what is forbidden to all: by a quota, a limit, a policy, or as a namespace ends.
_FORBIDDEN_TO_ALL: Final = re.compile(r"is forbidden: (?!user )", re.IGNORECASE)

_TOO_LARGE: Final = "Too large resource version"

_decode_status: Final = msgspec.json.Decoder(_Status).decode


def parse_error_response(
    status: int,
    headers: Headers,
    body: bytes,
    *,
    target: str = "",
    secret: Container[str] = (),
    repeated: bool = False,
) -> ApiError:
    """Return the exception for a response whose status is not 2xx, to a request that was *repeated* or not.

    Only a body of ``kind: Status`` is quoted, not the error pages of proxies and load balancers. *target* is what was
    requested: of Secrets, and of the kinds named in *secret* as their CRDs, the server's text is concealed.
    """
    retry_after = parse_retry_after(headers)
    error = parse_status(body, status=status, retry_after=retry_after, target=target, secret=secret)
    error.repeated = repeated
    return error


def parse_status(
    body: bytes, *, status: int, retry_after: float | None = None, target: str = "", secret: Container[str] = ()
) -> ApiError:
    """Return the exception for a ``Status`` object. With *status* 0 (an ERROR event) its own ``code`` counts."""
    error = _parse_status(body, status=status, retry_after=retry_after)
    denied = is_denial(error)
    if _is_secret(target, secret):
        error = _conceal(error)
    return _denial_of(error) if denied and isinstance(error, UnauthorizedError) else error


def _denial_of(error: UnauthorizedError) -> ApiError:
    """Return a plain ApiError: webhooks may deny with HTTP 401, which says nothing about the credentials."""
    return ApiError(error.message, status=error.status, reason=error.reason, details=error.details)


def _is_secret(target: str, secret: Container[str]) -> bool:
    found = _OBJECTS.match(target)
    if found is None:
        return False
    group, plural = found.groups()
    name = plural if group is None else f"{plural}.{group}"
    return name == _SECRETS or name in secret


def _conceal(error: ApiError) -> ApiError:
    """Return the error without the server's text, which may quote secrets, but with what kind of error it is."""
    if error.status in _DISCREET and not is_denial(error):
        return error
    causes = error.details.get("causes")
    causes = [each for each in causes if isinstance(each, Mapping)] if isinstance(causes, list) else []
    fields = [each["field"] for each in causes if isinstance(each.get("field"), str)]
    where = f" in {', '.join(fields)}" if fields else ""
    text = f"what is wrong{where} is not shown, as the server may quote what is secret"
    kept = find_always_500(error).rstrip() or ("admission control denied the request" if is_denial(error) else "")
    return ApiError.of(
        f"{kept} ({text})" if kept else text,
        status=error.status,
        reason=error.reason,
        details={**error.details, "causes": [{"field": field} for field in fields]} if error.details else {},
        retry_after=error.retry_after,
    )


def find_always_500(error: ApiError) -> str:
    """Return the beginning of the message about a request that is wrong itself, which quotes nothing; else nothing."""
    found = _ALWAYS_500 if error.status == 500 else ()
    return next((beginning for beginning in found if error.message.startswith(beginning)), "")


def is_denial(error: ApiError) -> bool:
    """Return whether an admission webhook or policy has denied the request, whatever its status."""
    return _DENIED.search(error.message) is not None


def _parse_status(body: bytes, *, status: int, retry_after: float | None) -> ApiError:
    parsed = _decode(body)
    if not status:
        status = parsed.code if isinstance(parsed.code, int) and parsed.code >= 400 else 500
    if parsed.kind != "Status":
        return ApiError.of("the server gave no reason", status=status, retry_after=retry_after)
    details = parsed.details if isinstance(parsed.details, dict) else {}
    if retry_after is None:
        seconds = details.get("retryAfterSeconds")
        retry_after = _bounded(seconds) if isinstance(seconds, int | float) and seconds else None
    message = parsed.message if isinstance(parsed.message, str) else ""
    if len(message) > _MAX_MESSAGE:
        message = message[: _MAX_MESSAGE - 1] + "…"
    return ApiError.of(
        message or "the server gave no message",
        status=status,
        reason=parsed.reason if isinstance(parsed.reason, str) else "",
        details=details,
        retry_after=retry_after,
    )


def _decode(body: bytes) -> _Status:
    """Decode a Status; what cannot be decoded is absent."""
    try:
        return _decode_status(body)
    except RecursionError:
        if len(body) > _MAX_DEEP:
            return _Status()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Status()
    try:
        return _Status(**decode_shallow(body, _Status.__struct_fields__))
    except DECODE_ERRORS:
        return _Status()


def describe_failure(error: Exception) -> str:
    """Return the message of an error without a full stop at its end, and what to do about missing rights."""
    text = str(error).rstrip(".")
    if isinstance(error, ForbiddenError) and not (is_denial(error) or _FORBIDDEN_TO_ALL.search(error.message)):
        text += ". `trioperator rbac` prints the roles that the operator needs"
    return text


def is_version_too_large(error: ApiError) -> bool:
    """Return whether the server does not have the requested resource version yet, or no longer after a restore."""
    causes = error.details.get("causes")
    for cause in causes if isinstance(causes, list) else ():
        if isinstance(cause, dict) and cause.get("reason") == "ResourceVersionTooLarge":
            return True
    # Before Kubernetes 1.19 there is only the message.
    return error.status in (410, 504) and _TOO_LARGE in error.message


def parse_retry_after(headers: Headers) -> float | None:
    """Parse the header ``Retry-After`` (seconds or a date) into seconds; return None if it is missing or invalid.

    A date is compared with the header ``Date``, as the clock of the server may differ from the one here.
    """
    value = find_header(headers, b"retry-after")
    if not value:
        return None
    try:
        return _bounded(float(value))
    except ValueError:
        pass
    date = parse_date(value)
    return None if date is None else _bounded((date - (find_date(headers) or wall_now())).total_seconds())


def _bounded(seconds: float) -> float | None:
    return None if math.isnan(seconds) else min(max(0.0, float(seconds)), _MAX_RETRY_AFTER)
