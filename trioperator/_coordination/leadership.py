"""Leadership: of all replicas of an operator, only the holder of a Lease handles objects.

Theory of operation
===================

A candidate is in one of these states:

========= ======================= ========================================== ======================================
state     the operator            does                                       leaves it
========= ======================= ========================================== ======================================
standby   is paused               reads the lease every retry period, or     when it has written its name into the
                                  when it expires                            lease: it is the leader
leader    is active, and may      writes the lease every retry period;       ``renew_deadline`` after the last
          write until the renew   repeats it after errors                    success; when others hold the lease
          deadline
lost      is paused at once       nothing: it is a standby again             at once
released  is paused at once, as   gives the lease back, once, or twice if     never: the operator has stopped
          nothing is handled      somebody has changed it
========= ======================= ========================================== ======================================

What makes two leaders impossible is an order of times. The leader counts from the moment when it began the last
successful renewal. That is before the server stored it, and so before any other candidate saw it::

    renewal begins    renew deadline: writes are refused,      the lease expires for others:
    |                 what is being handled is cancelled       one of them takes over
    0 s               10 s                                     15 s at the earliest

Each process measures these times by its own clock, as durations: clocks of machines are never compared. Three things
can still go wrong, and each has its answer. The process is suspended, and wakes after another one has taken over: so
every write and every call of a handler compares the time with the deadline first, as the task that waits for it may run
after others. A response is lost: the lease counts as not renewed, and is read before the next write, which would
conflict with the lost one. Somebody changes the lease by hand: each write tests the resource version.
"""

from __future__ import annotations

import math
import random
from typing import Final

import trio

from trioperator._concurrency.core_tasks import keep
from trioperator._coordination.lease import Attempt, Lease
from trioperator._coordination.pauses import Pauses
from trioperator._kube.api_client import ApiClient
from trioperator._kube.error_response import describe_failure
from trioperator._logs import get_logger
from trioperator.errors import ConflictError, NotFoundError, TrioperatorError
from trioperator.settings import LeadershipSettings

_OWNER: Final = "leadership"
# Range of the interval at which a standby reads the lease, as fractions of the retry period: replicas do not read it at
# the same time, and see a renewal early enough to take over within the duration of the lease and one period.
_JITTER: Final = (0.5, 0.9)
# Seconds that releasing the lease may take when the operator stops.
_RELEASE_TIMEOUT: Final = 2.0


class Leadership:
    """A candidate for the leadership, which pauses the operator unless it is the leader."""

    def __init__(self, client: ApiClient, pauses: Pauses, *, settings: LeadershipSettings, identity: str) -> None:
        self._pauses = pauses
        self._settings = settings
        self._logger = get_logger("trioperator.coordination")
        self.lease = Lease(
            client,
            namespace=settings.namespace or client.credentials.default_namespace,
            name=settings.name,
            identity=settings.identity or identity,
            duration=settings.lease_duration,
        )
        self._outage = client.outage
        self._timeout = max(1.0, settings.renew_deadline / 2)
        self._reported = ""
        self._failed = False

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take part in the election until cancelled."""
        self._pauses.pause(_OWNER, f"until it holds the {self.lease}", at_once=True)
        task_status.started()
        await keep("leadership", self._elect)

    async def _elect(self) -> None:
        while True:
            await self._acquire()
            await self._lead()

    async def release(self) -> None:
        """Release the lease, if it is held. Call it when nothing is being handled: others take over at once."""
        if not self._pauses.is_paused_by(_OWNER):
            # First, so that nothing is written while the request is on its way: others may see its effect before us.
            self._pauses.pause(_OWNER, f"as it gives up the {self.lease}", at_once=True)
        with trio.move_on_after(_RELEASE_TIMEOUT, shield=True) as scope:
            try:
                await self._give_up()
            except TrioperatorError as error:
                self._logger.warning("The %s is not released, and expires: %s", self.lease, error)
        if scope.cancelled_caught:
            self._logger.warning("The %s is not released within %g s, and expires.", self.lease, _RELEASE_TIMEOUT)

    async def _give_up(self) -> None:
        """Release the lease. If somebody has changed it, or etcd was restored, it is renewed before."""
        await self.lease.settle()
        for is_last in (False, True):
            if not self.lease.is_known and not await self._renew_to_release():
                return
            try:
                await self.lease.release()
            except (ConflictError, NotFoundError):
                if is_last:
                    raise
            else:
                return

    async def _renew_to_release(self) -> bool:
        """Renew the lease if this process is the leader: a restored record may name it, though another one leads."""
        if trio.current_time() >= self.lease.renewed_at + self._settings.renew_deadline:
            return False
        return await self.lease.attempt(timeout=math.inf) is Attempt.HELD

    async def _acquire(self) -> None:
        while await self._attempt() is not Attempt.HELD:
            if self.lease.holder not in ("", self.lease.identity, self._reported):
                self._logger.info("The leader is %s, which holds the %s.", self.lease.holder, self.lease)
                self._reported = self.lease.holder
            await trio.sleep_until(self._next_attempt())
        self._logger.info("This operator is the leader: %s holds the %s.", self.lease.identity, self.lease)
        self._reported = self.lease.identity
        self._outage.end_waits()  # what is to be watched may still be unknown since the lease was lost

    def _next_attempt(self) -> float:
        """Return when to try again: after a while, or when the lease expires if that is sooner."""
        now = trio.current_time()
        time = now + self._settings.retry_period * random.uniform(*_JITTER)
        return min(time, self.lease.expires_at) if self.lease.expires_at > now else time

    async def _lead(self) -> None:
        """Renew the lease until it is lost."""
        held = True
        while held:
            # Each renewal moves the deadline. Every write compares the time with it, so no task has to wake up first.
            deadline = self.lease.renewed_at + self._settings.renew_deadline
            self._pauses.resume(_OWNER, until=deadline)
            with trio.move_on_at(deadline) as scope:
                held = await self._renew()
            held = held and not scope.cancelled_caught
        self._logger.warning("The leadership is lost: the %s could not be renewed in time.", self.lease)
        self._pauses.pause(_OWNER, f"as it has lost the {self.lease}", at_once=True)

    async def _renew(self) -> bool:
        """Renew the lease once, after the retry period; try again after errors. Returns False if others hold it.

        An attempt without a response is followed by the next one at once, which may have a connection that is alive.
        """
        due = trio.current_time() + self._settings.retry_period
        while True:
            await trio.sleep_until(due)
            due = trio.current_time() + self._settings.retry_period
            attempt = await self._attempt()
            if attempt is not None:
                return attempt is Attempt.HELD

    async def _attempt(self) -> Attempt | None:
        """Try to acquire or renew the lease. Returns None after an error, which is logged."""
        try:
            attempt = await self.lease.attempt(timeout=self._timeout)
        except (TrioperatorError, trio.TooSlowError) as error:
            log = self._logger.debug if self._failed else self._logger.warning
            log(
                "The %s cannot be acquired or renewed: %s", self.lease, describe_failure(error) or "no response in time"
            )
            self._failed = True
            return None
        self._failed = False
        return attempt
