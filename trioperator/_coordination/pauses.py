"""Pauses of an operator: while there is a reason for one, it watches, but handles nothing.

Peering and leadership pause and resume the operator; the supervisor waits for that. It never polls.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from trioperator._logs import get_logger
from trioperator.errors import PausedError

_logger = get_logger("trioperator.supervisor")


class Period:
    """A period in which an operator handles objects: from a start or the end of a pause until the next pause.

    ``paused`` is set when it is over. ``lost`` is set when others may take over: what is still being handled is to be
    cancelled then, also if it was a pause in order that has ended the period, or there is no longer a reason for one.
    """

    def __init__(self) -> None:
        self.paused = trio.Event()
        self.lost = trio.Event()


class Pauses:
    """Reasons why an operator is paused, by their owners: a peering, a lease.

    A pause is in order (what is being handled goes on within the grace period), or at once. Writes are allowed until
    the earliest of the deadlines that were set, so that an operator that was suspended writes nothing when it wakes.
    """

    def __init__(self, announce: Callable[[], None] = lambda: None) -> None:
        self._announce = announce  # that there are other reasons
        self._reasons: dict[str, str] = {}
        self._deadlines: dict[str, float] = {}
        self._active = trio.Event()
        self._active.set()
        self._period = Period()
        self.at_once = False
        self._reported: str | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons of the current pause; none if the operator is active."""
        return tuple(self._reasons.values())

    def is_paused_by(self, owner: str) -> bool:
        """Check whether an owner has a reason for a pause."""
        return owner in self._reasons

    def pause(self, owner: str, reason: str, *, at_once: bool = False, until: float = math.inf) -> None:
        """Pause the operator, or change the reason of a pause. With *at_once* what is being handled is cancelled.

        Otherwise what is being handled may write until *until*, on Trio's clock, while it goes on.
        """
        self._deadlines[owner] = until
        self.at_once = at_once or (self.at_once and bool(self._reasons))
        self._reasons[owner] = reason
        self._period.paused.set()
        if self.at_once:
            self._period.lost.set()
        if self._active.is_set():
            self._active = trio.Event()
        self._announce()

    def resume(self, owner: str, *, until: float = math.inf) -> None:
        """End the pause of an owner. Writes are allowed until *until*, on Trio's clock, which may be moved again."""
        self._deadlines[owner] = until
        if self._reasons.pop(owner, None) is not None:
            self._announce()
        if not self._reasons and not self._active.is_set():
            self.at_once = False
            self._active.set()

    def begin(self, period: Period) -> None:
        """Begin to handle objects, for a period that the next pause ends. There must be no reason for one now."""
        self._period = period
        if self._reported is not None:
            _logger.info("Resuming operations.")
            self._reported = None

    def check_write(self) -> None:
        """Raise PausedError if the operator must no longer write, as others may have taken over."""
        if self.at_once or (self._deadlines and trio.current_time() >= min(self._deadlines.values())):
            reasons = " and ".join(self.reasons) or "as it has not renewed its lease in time"
            raise PausedError(f"the operator is paused {reasons}")

    def report(self) -> None:
        """Log that the operator is paused, if it still is, unless that was logged with the same reasons."""
        reasons = " and ".join(self.reasons)
        if reasons and reasons != self._reported:
            _logger.info("Pausing operations %s.", reasons)
            self._reported = reasons

    async def wait_active(self) -> None:
        """Wait until there is no reason for a pause: also none that has come while this task was waking up."""
        while self._reasons:
            await self._active.wait()
