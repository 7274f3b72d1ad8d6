"""Fault injection: the faults.

:mod:`.plans` decides which requests fail, :mod:`.transport` makes them fail. Faults of streams, such as broken lines,
do not affect other responses. Durations are in seconds of Trio's time.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Final

import msgspec

_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, such as a refused connection; created by the class methods."""

    kind: str
    lines: int = 0
    code: int = 0
    body: bytes = b""
    retry_after: float | None = None
    before: float = 0
    after: float = 0
    hook: Callable[[], object] | None = None

    @classmethod
    def refuse(cls) -> Fault:
        """Refuse the connection: the server never sees the request."""
        return cls(kind="refuse")

    @classmethod
    def reset(cls) -> Fault:
        """Reset the connection before the server sees the request."""
        return cls(kind="reset")

    @classmethod
    def lose_answer(cls) -> Fault:
        """Drop the connection after the server has processed the request, before the response arrives."""
        return cls(kind="lose_answer")

    @classmethod
    def stall(cls) -> Fault:
        """Never respond; the client's read timeout applies. The server never sees the request."""
        return cls(kind="stall")

    @classmethod
    def status(
        cls, code: int, *, message: str = "", reason: str | None = None, retry_after: float | None = None
    ) -> Fault:
        """Respond with the HTTP status code and a ``Status`` object; the server never sees the request."""
        body = msgspec.json.encode(_status_object(code, message, reason, retry_after))
        return cls(kind="status", code=code, body=body, retry_after=retry_after)

    @classmethod
    def answer(cls, code: int, body: bytes) -> Fault:
        """Respond with the status code and exactly this body; the server never sees the request."""
        return cls(kind="status", code=code, body=body)

    @classmethod
    def delay(cls, *, before: float = 0, after: float = 0) -> Fault:
        """Delay the request by *before* seconds, and the response by *after* seconds."""
        return cls(kind="delay", before=before, after=after)

    @classmethod
    def half_body(cls) -> Fault:
        """Drop the connection in the middle of the response body, after the server has processed the request."""
        return cls(kind="half_body")

    @classmethod
    def close(cls, *, lines: int = 0) -> Fault:
        """Close the stream cleanly after this many lines."""
        return cls(kind="close", lines=lines)

    @classmethod
    def break_off(cls, *, lines: int = 0) -> Fault:
        """Reset the connection after this many lines of the stream."""
        return cls(kind="break_off", lines=lines)

    @classmethod
    def half_line(cls, *, lines: int = 0) -> Fault:
        """Send half of a line after this many lines, and close the stream."""
        return cls(kind="half_line", lines=lines)

    @classmethod
    def garbage(cls, *, lines: int = 0, text: bytes = b'{"type":\n') -> Fault:
        """Send a line that is not JSON after this many lines, and close the stream."""
        return cls(kind="inject", lines=lines, body=text)

    @classmethod
    def error_event(cls, code: int, *, lines: int = 0, message: str = "", reason: str | None = None) -> Fault:
        """Send an ERROR event after this many lines, and close the stream."""
        event = {"type": "ERROR", "object": _status_object(code, message, reason, None)}
        return cls(kind="inject", lines=lines, body=msgspec.json.encode(event) + b"\n")

    @classmethod
    def silence(cls, *, lines: int = 0) -> Fault:
        """Send nothing more after this many lines of the stream, and leave it open."""
        return cls(kind="silence", lines=lines)

    @classmethod
    def lag(cls, seconds: float) -> Fault:
        """Delay each line of the stream by this many seconds."""
        return cls(kind="lag", after=seconds)

    @classmethod
    def duplicate(cls) -> Fault:
        """Send each line of the stream twice."""
        return cls(kind="duplicate")

    @classmethod
    def stale(cls) -> Fault:
        """Respond to a read with its previous response, if there is one."""
        return cls(kind="stale")

    @classmethod
    def call(cls, hook: Callable[[], object]) -> Fault:
        """Call the function, and then send the request unchanged: to compact the history, to delete an object…"""
        return cls(kind="call", hook=hook)


def _status_object(code: int, message: str, reason: str | None, retry_after: float | None) -> dict[str, Any]:
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message or "injected fault",
        "reason": _REASONS.get(code, "") if reason is None else reason,
        "code": code,
    }
    if retry_after is not None:
        status["details"] = {"retryAfterSeconds": math.ceil(retry_after)}
    return status
