"""Failures of lists and watches: how long to back off, what of that is logged, and what others see of it."""

from __future__ import annotations

import math
import random
from typing import Final

import trio

from trioperator._concurrency.backoff import Backoff
from trioperator._kube.error_response import describe_failure
from trioperator._kube.objects import BrokenObject
from trioperator._kube.outage import Outage
from trioperator._logs import get_logger
from trioperator.errors import ApiError, ConnectionLostError, ForbiddenError, TrioperatorError

_logger = get_logger("trioperator.runtime.reflector")

# Seconds: a stream that ends sooner than this without any event counts as an error, too.
TOO_SHORT: Final = 1.0
# Status codes of servers that do not let anybody watch, or not this user.
_CANNOT_WATCH: Final = frozenset({400, 403, 405, 406, 415, 422, 501})
# Delays after errors; with jitter, so that a server that comes back is not overwhelmed.
_BACKOFF: Final = Backoff(initial=0.5, maximum=30.0, jitter=0.25)
# Delays after errors with Retry-After, as of a server that is starting: it will be available soon.
_SOON: Final = Backoff(initial=0.5, maximum=5.0, jitter=0.25)
# Largest factor by which Retry-After is exceeded: the server sends the same value to all watches.
_SPREAD: Final = 1.25
# Limit of the unreadable objects that are remembered, so that each is reported once.
_MAX_REPORTED: Final = 1000
# Part of the message of a server that cannot call a conversion webhook.
_CONVERSION: Final = "conversion webhook for "
# Number of blind watches in a row after which the kind is listed before the next one.
_BLIND: Final = 5
# What is said then, in place of what fails.
_LISTED: Final = "Until then it is listed, after each of these waits: changes are handled late."
# Number of failures after which a first list counts as refused, if the server says that it is not available at all; and
# after which it counts as unavailable (for minutes), whatever the errors are.
_REFUSED, _UNAVAILABLE = 3, 10


class WatchStatus:
    """How a list and watch goes, for those who look at it.

    ``tried`` is set when the first list is complete or has failed, ``unlistable`` when it was refused several times, or
    failed for minutes; ``trouble`` is the last request's error, if any; ``is_synced`` is whether it has ever watched.
    ``progressed_at`` is when the server last responded to it, on Trio's clock, and ``due_at`` when the next request
    is made after an error response; ``received`` and ``bookmarks`` are the numbers of watch events, ``restarts``
    numbers of watches that have ended, by reasons.
    """

    def __init__(self) -> None:
        self.tried = trio.Event()
        self.unlistable = trio.Event()
        self.trouble: Exception | None = None
        self.is_synced = False
        self.progressed_at = math.inf
        self.due_at = 0.0
        self.received = self.bookmarks = 0
        self.restarts: dict[str, int] = {}

    @property
    def is_refused(self) -> bool:
        """Whether the server does not serve the collection, or not to this user."""
        return self.trouble is not None and _is_refusal(self.trouble)

    @property
    def is_unconverted(self) -> bool:
        """Whether the server cannot convert the objects, as their conversion webhook does not answer."""
        trouble = self.trouble
        return isinstance(trouble, ApiError) and trouble.status == 500 and _CONVERSION in trouble.message

    def progressed(self, *, delay: float = 0.0) -> float:
        """Record that the server has responded, or is waited for from now on, or after a *delay*. Returns the time."""
        self.progressed_at = trio.current_time()
        self.due_at = self.progressed_at + delay
        return self.progressed_at

    @property
    def idle(self) -> float:
        """Seconds that the server has been waited for, but for delays that it may have asked for."""
        return trio.current_time() - max(self.progressed_at, self.due_at)

    def sync(self) -> None:
        """Record that the watch is open."""
        self.trouble = None
        self.is_synced = True
        self.tried.set()

    def count_event(self) -> None:
        """Count a watch event."""
        self.received += 1

    def count_bookmark(self) -> None:
        """Count a bookmark."""
        self.bookmarks += 1

    def count_restart(self, reason: str) -> None:
        """Count that a watch has ended."""
        if self.is_synced:
            self.restarts[reason] = self.restarts.get(reason, 0) + 1


class Failures:
    """Failures in a row of one list and watch: their ``count``, and how many of the last were ``blind`` watches.

    They depend on the age of the stream that has ended, if there was one.
    """

    def __init__(self, path: str, *, consequence: str, can_do_without: bool) -> None:
        self.count = self.blind = 0
        self._path = path
        self._consequence = consequence
        self._can_do_without = can_do_without
        self._has_warned = False
        self._opened_at = math.inf

    def begin(self) -> None:
        """Note that there is no stream yet."""
        self._opened_at = math.inf

    def open(self, at: float) -> None:
        """Note when a stream was opened."""
        self._opened_at = at

    @property
    def age(self) -> float:
        """Seconds since the stream was opened; negative and infinite if none was."""
        return trio.current_time() - self._opened_at

    def add(self, *, is_blind: bool = False) -> None:
        """Count a failure; a watch is *blind* if the server answers, but does not let it bring anything."""
        self.count += 1
        self.blind = self.blind + 1 if is_blind else 0

    def clear(self) -> None:
        """Count from zero, as a watch was good."""
        self.count = self.blind = 0

    def end(self, status: WatchStatus) -> None:
        """Log that a watch is open after failures."""
        if status.trouble is not None:
            log = _logger.info if self._has_warned else _logger.debug
            log("Watching %s goes on." if status.is_synced else "Watching %s begins.", self._path)
        self._has_warned = False

    @property
    def are_long(self) -> bool:
        """Whether there have been just as many that the server may be another one when it comes back."""
        return self.count == _REFUSED

    @property
    def are_lasting(self) -> bool:
        """Whether there have been so many that a refusal counts as one."""
        return self.count >= _REFUSED

    @property
    def are_blind(self) -> bool:
        """Whether only lists show what has changed."""
        return self.blind >= _BLIND

    def delay(self, error: TrioperatorError, *, first: float | None = None) -> float:
        """Return the seconds to back off after an error; *first* replaces our own backoff, if it is given."""
        if isinstance(error, ApiError) and error.retry_after is not None:
            return max(_SOON.delay(self.count), error.retry_after * random.uniform(1.0, _SPREAD))
        return _BACKOFF.delay(self.count) if first is None else first

    @staticmethod
    def shortest_delay() -> float:
        """Return the seconds to back off where nothing has failed really."""
        return _BACKOFF.delay(1)

    def report(
        self, error: TrioperatorError, status: WatchStatus, delay: float, *, is_listing: bool, outage: Outage
    ) -> None:
        """Record an error as the trouble, and log it."""
        before, status.trouble = status.trouble, error
        is_notable = self._is_notable(error, before, is_synced=status.is_synced)
        if status.is_synced and isinstance(error, ConnectionLostError) and not outage.claim(self):
            is_notable = False  # another watch has warned of it, and does
        self._has_warned = self._has_warned or is_notable
        log = _logger.warning if is_notable else _logger.debug
        if status.is_synced:
            log(
                "Watching %s is interrupted, and goes on in %.1f seconds: %s",
                self._path,
                delay,
                describe_failure(error),
            )
        else:
            consequence = _LISTED if self.are_blind and not is_listing else self._consequence
            verb, hint = "list" if is_listing else "watch", f". {consequence}" if consequence else ""
            text = "Cannot %s %s, trying again in %.1f seconds: %s%s"
            log(text, verb, self._path, delay, describe_failure(error), hint)
        if self.count >= (_REFUSED if _is_refusal(error) else _UNAVAILABLE):
            status.unlistable.set()

    def _is_notable(self, error: TrioperatorError, before: Exception | None, *, is_synced: bool) -> bool:
        """Check whether to warn: the first one may be a hiccup; what lasts is worth a warning, and then no flood."""
        if isinstance(error, ForbiddenError) and self._can_do_without:
            return not isinstance(before, ForbiddenError)
        return self.count == 1 or self.count % 10 == 0 or (self.count == 3 and is_synced)


class BrokenObjects:
    """Objects of a collection that cannot be read, each of which is reported once, however often it comes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._reported: set[str] = set()

    def report(self, broken: BrokenObject) -> None:
        """Report an object, unless that was done."""
        if broken.identity is None:
            _logger.warning("%s has an object that cannot be read, and is passed over: %s.", self._path, broken.problem)
        elif broken.identity.key not in self._reported:
            if len(self._reported) >= _MAX_REPORTED:
                self._reported.clear()
            self._reported.add(broken.identity.key)
            text = "%s cannot be read, and is passed over until it can: %s."
            _logger.warning(text, broken.identity, broken.problem)


def _is_refusal(error: Exception) -> bool:
    """Return whether the server does not serve the kind, or not to this user."""
    return isinstance(error, ApiError) and error.status in (403, 404, 405)


def is_blind(error: Exception, age: float) -> bool:
    """Return whether a watch is answered, but cannot bring anything: it is refused, or lost at once.

    *age* is the seconds that it was open: below zero if it never was, as where the server is down.
    """
    if isinstance(error, ApiError):
        return error.status in _CANNOT_WATCH
    return isinstance(error, ConnectionLostError) and 0 <= age < TOO_SHORT
