"""Stopping an operator: the request to stop with its deadline, and reports of what the operator waits for meanwhile."""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec
import trio

from trioperator._handling.arguments.stopping import DaemonStoppingReason
from trioperator._handling.calls.invoke import Attempt, RunningCall
from trioperator._handling.handlers.handler import Activity, ActivityHandler, Handler, SpawningHandler
from trioperator._logs import describe_ref, get_logger
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.daemons.manager import DaemonManager
from trioperator._runtime.workqueue import WorkQueue

# Delay before the first report, and between reports, in seconds.
_FIRST_REPORT, _NEXT_REPORTS = 1.0, 5.0
# Share of the grace for running handlers; the rest is for cancelled ones to exit.
_WORKERS_SHARE = 0.6
# Share of the grace for daemons and timers; the rest is for storing their last patches.
_DAEMONS_SHARE = 0.5
# A thread that waits for a flag looks so often whether anybody waits for it: nothing else can wake it.
_FLAG_PATIENCE = 1.0
# Calls that a report names at most.
_MAX_NAMED = 10


async def wait_flag(flag: trio.Event | threading.Event) -> None:
    """Wait until a flag of a program is set. The thread that this takes ends soon after a cancellation."""
    if isinstance(flag, trio.Event):
        await flag.wait()
        return
    is_awaited = True

    def wait() -> None:
        while is_awaited and not flag.wait(_FLAG_PATIENCE):
            pass

    try:
        await trio.to_thread.run_sync(wait, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1))
    finally:
        is_awaited = False


class Shutdown:
    """Request to stop the operator, its deadline, and the error that is its reason, if one is."""

    def __init__(self, grace: Callable[[], float]) -> None:
        self.requested = trio.Event()
        self.everything = trio.CancelScope()
        self.cleaning = trio.CancelScope(shield=True)  # gets its deadline when it is entered
        self.deadline: float | None = None
        self.failure: Exception | None = None
        self.requested_at = -math.inf
        self._grace = grace
        self._starting: trio.CancelScope | None = None

    def request(self, reason: str) -> None:
        """Request a stop in order, unless that has been requested."""
        if self.requested.is_set():
            return
        self.requested_at = trio.current_time()
        self.deadline = self.requested_at + self._grace()
        self.requested.set()
        if self._starting is not None:
            self._starting.cancel(reason=reason)

    def fail(self, error: Exception) -> None:
        """Request a stop in order for an error, which is to be raised when everything has stopped."""
        self.failure = self.failure or error
        self.request("an error")

    def end_at_once(self, reason: str) -> None:
        """Cancel everything, also what cleans up."""
        self.request(reason)
        self.everything.cancel(reason=f"{reason}, again")
        self.cleaning.cancel(reason=f"{reason}, again")

    async def request_on(self, flag: trio.Event | threading.Event) -> None:
        """Request a stop when the flag is set."""
        await wait_flag(flag)
        self.request("the stop flag")

    async def cancel_when_requested(self, scope: trio.CancelScope) -> None:
        """Cancel a scope as soon as a stop is requested."""
        await self.requested.wait()
        scope.cancel(reason="the operator is stopping")

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Run the block until a stop is requested, then cancel it."""
        with trio.CancelScope() as self._starting:
            if self.requested.is_set():
                self._starting.cancel(reason="a stop was requested")
            yield
        self._starting = None

    @property
    def remaining(self) -> float:
        """Seconds that are left for stopping in order."""
        if self.deadline is None:
            return self._grace()
        return max(0.0, self.deadline - trio.current_time())


class Limits(NamedTuple):
    """Until when, on Trio's clock, reconciles and daemons may go on while they are drained."""

    workers_until: float = math.inf
    daemons_until: float = math.inf

    @classmethod
    def within(cls, seconds: float) -> Limits:
        """Return the limits by which all ends in time: daemons first, as a reconcile stores their last patches."""
        now = trio.current_time()
        return cls(now + seconds * _WORKERS_SHARE, now + seconds * _DAEMONS_SHARE)


def drain(
    queue: WorkQueue[ObjectState], daemons: DaemonManager, *, seconds: float, reason: DaemonStoppingReason
) -> None:
    """Limit how long objects are handled: all ends within some seconds."""
    limits = Limits.within(seconds)
    queue.give_up_at(limits.workers_until)
    daemons.stop_all(reason, give_up_at=limits.daemons_until)


class Busy(Protocol):
    """A work queue, or several: what is running there."""

    @property
    def at_work(self) -> Collection[ObjectState]: ...


class Awaited(msgspec.Struct, frozen=True, order=True):
    """Work that a stopping operator waits for, such as a handler with its object, and until when on Trio's clock."""

    name: str
    until: float


class InFlight:
    """Work in progress: calls of handlers, and objects that are reconciled; and until when, if the operator stops.

    *hint* says how to end it at once.
    """

    def __init__(self, stop: Shutdown, *, hint: str) -> None:
        self.running: dict[Attempt, RunningCall] = {}
        self._stop = stop
        self._hint = hint
        self._draining: tuple[Busy, ...] = ()
        self._limits = Limits()

    def limit(self, queue: Busy, limits: Limits) -> None:
        """Take the limits of what is running in a queue, and of daemons."""
        self._draining, self._limits = (queue,), limits

    async def report(self) -> None:
        """Log what is waited for, every few seconds until cancelled."""
        await report_awaited(self.list_awaited, hint=self._hint)

    def list_awaited(self) -> list[Awaited]:
        """Return what the operator waits for while it stops: calls of handlers, and other work on objects."""
        awaited = [Awaited(str(call), self._find_limit(call.handler)) for call in self.list_calls()]
        called = {ref["uid"] for call in self.list_calls() if (ref := call.logger.object_ref) is not None}
        for state in itertools.chain.from_iterable(queue.at_work for queue in self._draining):
            if state.uid not in called:
                name = f"the state of {describe_ref(state.ref)} to be stored"
                awaited += [Awaited(name, self._limits.workers_until)]
        return awaited

    def _find_limit(self, handler: Handler) -> float:
        if isinstance(handler, ActivityHandler):
            return self._stop.cleaning.deadline
        is_daemon = isinstance(handler, SpawningHandler)
        return self._limits.daemons_until if is_daemon else self._limits.workers_until

    def list_calls(self) -> list[RunningCall]:
        """Return the calls in progress, except for probes. May be called in any thread."""
        calls = list(self.running.values())
        return [
            c for c in calls if not (isinstance(c.handler, ActivityHandler) and c.handler.activity is Activity.PROBE)
        ]

    def describe(self) -> str:
        """Return the calls in progress in words. May be called in any thread."""
        return ", ".join(map(str, self.list_calls())) or "no handlers"


async def report_awaited(list_awaited: Callable[[], Sequence[Awaited]], *, hint: str) -> None:
    """Log what the operator waits for, every few seconds until cancelled. *hint* is how to end it at once."""
    logger = get_logger("trioperator.supervisor")
    await trio.sleep(_FIRST_REPORT)
    while True:
        awaited = list_awaited()
        if awaited:
            logger.info("Waiting for %s.%s", describe_awaited(awaited, now=trio.current_time()), hint)
        await trio.sleep(_NEXT_REPORTS)


def describe_awaited(awaited: Sequence[Awaited], *, now: float) -> str:
    """Return the names with the seconds until they are cancelled, the first few of them."""
    described = [f"{one.name} ({_describe_time(one.until - now)})" for one in sorted(awaited)]
    named, more = described[:_MAX_NAMED], len(described) - _MAX_NAMED
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def _describe_time(seconds: float) -> str:
    return f"cancelled in {seconds:.0f} s" if seconds > 0 else "cancelled, but has not ended"
