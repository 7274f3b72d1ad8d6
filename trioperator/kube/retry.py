"""Refusals of the API server as errors, and how long to wait before the next attempt. Pure, but for the wall time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from trioperator.clock import wall_now
from trioperator.errors import ApiError
from trioperator.kube.exchange import Headers, find_header

__all__ = ["iterate_backoffs", "parse_refusal", "parse_retry_after", "status_error"]

# Characters of the server's message that are kept: it may quote a whole object.
_MAX_MESSAGE: Final = 256
# Seconds: the longest wait that a server can ask for.
_MAX_RETRY_AFTER: Final = 3600.0


class _Status(msgspec.Struct):
    """What is used of a Kubernetes ``Status`` object."""

    kind: Any = None
    message: Any = None
    reason: Any = None
    code: Any = None
    details: Any = None


_decode_status: Final = msgspec.json.Decoder(_Status).decode


def parse_refusal(status: int, headers: Headers, body: bytes) -> ApiError:
    """Make an error of a response that is not a success.

    Only a body of ``kind: Status`` is believed; the pages of proxies and balancers are not quoted.
    """
    return status_error(body, status=status, retry_after=parse_retry_after(find_header(headers, b"retry-after")))


def status_error(body: bytes, *, status: int, retry_after: float | None = None) -> ApiError:
    """Make an error of a ``Status`` object. Where *status* is 0 (a watch's ERROR line) it is the object's own code."""
    try:
        parsed = _decode_status(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        parsed = _Status()
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


def parse_retry_after(value: str | None) -> float | None:
    """Give the seconds of a ``Retry-After`` header, which holds seconds or a date; None where it makes no sense."""
    if not value:
        return None
    try:
        return _bounded(float(value))
    except ValueError:
        pass
    import email.utils  # big, and nearly all servers give seconds

    try:
        date = email.utils.parsedate_to_datetime(value)
        return _bounded((date - wall_now()).total_seconds())
    except (ValueError, TypeError):  # TypeError: a date without a zone
        return None


def _bounded(seconds: float) -> float | None:
    return None if math.isnan(seconds) else min(max(0.0, float(seconds)), _MAX_RETRY_AFTER)


def iterate_backoffs(backoffs: Iterable[float] | float | None) -> Iterator[float]:
    """Give the delays of ``networking.error_backoffs``, in seconds: a number is one delay, None is none."""
    if backoffs is None:
        return iter(())
    if isinstance(backoffs, int | float):
        return iter((float(backoffs),))
    return iter(backoffs)
