"""Which failed requests are retried, and after how long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from trioperator._http.transport import TransportError
from trioperator._kube.deep_json import DECODE_ERRORS
from trioperator._kube.error_response import find_always_500
from trioperator.errors import ApiError, TooManyRequestsError

JSON_PATCH: Final = "application/json-patch+json"


class _Operation(msgspec.Struct):
    """The relevant fields of an operation of a JSON patch."""

    op: str = ""
    path: str = ""


class _Preconditions(msgspec.Struct):
    uid: str | None = None


class _DeleteOptions(msgspec.Struct):
    """The relevant fields of ``DeleteOptions``."""

    preconditions: _Preconditions | None = None


_decode_patch: Final = msgspec.json.Decoder(list[_Operation]).decode
_decode_options: Final = msgspec.json.Decoder(_DeleteOptions).decode


def is_repeatable(method: str, content_type: str | None, body: bytes | None) -> bool:
    """Return whether a request that may have been applied can be sent again: that does no more than sending it once.

    A POST creates another object. A DELETE without the uid deletes whatever has the name by then. A JSON patch is
    applied twice, unless it tests what it changes, or the resource version.
    """
    try:
        match method:
            case "POST":
                return False
            case "DELETE":
                preconditions = _decode_options(body or b"{}").preconditions
                return preconditions is not None and bool(preconditions.uid)
            case "PATCH" if content_type == JSON_PATCH:
                return _is_guarded(_decode_patch(body or b""))
    except DECODE_ERRORS:
        return False
    return True


def _is_guarded(ops: Sequence[_Operation]) -> bool:
    tested = [op.path for op in ops if op.op == "test"]
    return "/metadata/resourceVersion" in tested or all(_is_harmless(op, tested) for op in ops)


def _is_harmless(op: _Operation, tested: Sequence[str]) -> bool:
    """Return whether an operation has no effect on its own result, or fails there as one of the tests does."""
    parent, _, last = op.path.rpartition("/")
    is_item = last == "-" or last.isdecimal()  # perhaps a member of that name, which is treated as an item
    if op.op in ("test", "replace") or (op.op == "add" and not is_item):
        return True
    whole = parent if is_item else op.path
    return any(whole == test or whole.startswith(f"{test}/") for test in tested)


def is_retryable(error: Exception, *, repeatable: bool) -> bool:
    """Return whether retrying can help, and cannot apply a request twice that is not *repeatable*.

    The *error* is a lost connection, a 5xx or a 429.
    """
    if (isinstance(error, TransportError) and error.final) or is_always_500(error):
        return False
    return repeatable or not may_be_processed(error)


def is_always_500(error: Exception) -> bool:
    """Return whether the request itself is wrong, although the server has answered with 500."""
    return isinstance(error, ApiError) and bool(find_always_500(error))


def may_be_processed(error: Exception) -> bool:
    """Return whether the server may have processed a request that has ended with this error."""
    if isinstance(error, TransportError):
        return error.reached
    return not isinstance(error, TooManyRequestsError)


def adjust_delay(delay: float, error: Exception, *, enforce: bool) -> float:
    """Return the delay before the next attempt, given what the server asks for.

    ``Retry-After`` is a lower bound for *delay*; with *enforce* it replaces it.
    """
    wanted = error.retry_after if isinstance(error, ApiError) else None
    if wanted is None:
        return delay
    return wanted if enforce else max(delay, wanted)


def iterate_backoffs(backoffs: Iterable[float] | float | None) -> Iterator[float]:
    """Iterate over the delays of ``networking.error_backoffs``: a number is one delay, None means no delays."""
    if backoffs is None:
        return iter(())
    if isinstance(backoffs, int | float):
        return iter((float(backoffs),))
    return iter(backoffs)
