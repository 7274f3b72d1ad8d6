"""Which failed requests are retried, and after how long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trioperator.errors import ApiError, TooManyRequestsError
from trioperator.kube.transport import TransportError

__all__ = ["adjust_delay", "is_retryable", "iterate_backoffs"]


def is_retryable(method: str, error: Exception) -> bool:
    """Return whether retrying can help and cannot apply a POST twice.

    The *error* is a lost connection, a 5xx or a 429.
    """
    if isinstance(error, TransportError) and error.final:
        return False
    if method != "POST" or isinstance(error, TooManyRequestsError):
        return True
    return isinstance(error, TransportError) and not error.reached


def adjust_delay(delay: float, error: Exception, *, enforce: bool) -> float:
    """Return the delay before the next attempt, given what the server asks for.

    ``Retry-After`` is a lower bound for *delay*; with *enforce* it replaces it.
    """
    wanted = error.retry_after if isinstance(error, ApiError) else None
    if wanted is None:
        return delay
    return wanted if enforce else max(delay, wanted)


def iterate_backoffs(backoffs: Iterable[float] | float | None) -> Iterator[float]:
    """Iterate over the delays of ``networking.error_backoffs``: a number is one delay, None is none."""
    if backoffs is None:
        return iter(())
    if isinstance(backoffs, int | float):
        return iter((float(backoffs),))
    return iter(backoffs)
