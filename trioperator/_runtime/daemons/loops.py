"""The loops of daemons and timers: their calls, retries and delays, from the first call until they are to stop."""

from __future__ import annotations

import math

import msgspec
import trio

from trioperator._concurrency.clock import steady_now, wall_now
from trioperator._handling.arguments.context import current_cause
from trioperator._handling.calls.handler_state import add_seconds, build_result_patch
from trioperator._handling.calls.interruption import Interruption
from trioperator._handling.calls.invoke import Attempt, Invoker
from trioperator._handling.calls.storing import make_patch
from trioperator._handling.calls.thread_limiter import ThreadLimiter
from trioperator._handling.guard import call
from trioperator._handling.handlers.filters import call_with
from trioperator._handling.handlers.handler import DaemonHandler, TimerHandler
from trioperator._handling.handlers.outcome import Outcome
from trioperator._model.body import Body
from trioperator._model.patch import Patch, merge_patches
from trioperator._runtime.daemons.alarm_clock import AlarmClock
from trioperator._runtime.daemons.daemon import Daemon
from trioperator._runtime.daemons.rhythms import RhythmError, Turns, resolve
from trioperator._runtime.daemons.timing import after_idling, next_tick, spread
from trioperator._runtime.ledger import stand_alone
from trioperator._runtime.patching.pending import PendingPatches, Storing
from trioperator.errors import UserCodeError
from trioperator.settings import OperatorSettings

# Minimum of the seconds between two attempts to determine when a timer is due.
_MIN_BACKOFF = 1.0


class DaemonLoops:
    """Calls of daemons and timers when they are due. Their patches go to the pending patch of their object.

    Sync daemons have threads of their own, so that neither other handlers nor timers ever wait for them. What waits for
    a time waits for ``clock``, which has to be served.
    """

    def __init__(
        self,
        settings: OperatorSettings,
        pending: PendingPatches,
        invoker: Invoker | None = None,
    ) -> None:
        self.clock = AlarmClock()
        self._pending = pending
        self._backoff = backoff = settings.execution.default_backoff
        self._spread = settings.background.spread
        self._daemon_threads = trio.CapacityLimiter(settings.background.max_threads)
        unlimited, limited = ThreadLimiter(math.inf), ThreadLimiter(settings.execution.threads)
        self._timer_invoker = (invoker or Invoker(limiter=limited, backoff=backoff)).with_limiter(limited)
        self._daemon_invoker = self._timer_invoker.with_limiter(unlimited)

    async def serve(self, daemon: Daemon) -> None:
        """Call a daemon or a timer until it has nothing more to do, or has to stop."""
        if daemon.stopper.is_set:
            return
        current_cause.set(daemon.cause)  # the task is the daemon's own
        what = "timer" if isinstance(daemon.handler, TimerHandler) else "daemon"
        stand_alone(daemon.state, what)
        delay = self._initial_delay(daemon)
        if isinstance(daemon.handler, TimerHandler):
            await self._serve_timer(daemon, daemon.handler, delay)
        elif not delay or await daemon.wait_until(trio.current_time() + delay, self.clock):
            await self._complete(daemon)

    async def _serve_timer(self, daemon: Daemon, timer: TimerHandler, delay: float) -> None:
        if timer.is_variable or timer.schedule is not None:
            await self._serve_rhythm(daemon, timer, delay)
            return
        due: float | None = self._first_call(daemon, timer) + delay
        while due is not None:
            due = await self._wait(daemon, due)
            if due is None:
                return
            seen = daemon.daemons.changes
            outcome = await self._complete(daemon)
            if outcome is None or outcome.error is not None:
                return
            due = next_tick(timer, due=due, ended=trio.current_time())
            if due is None and timer.idle is not None and await daemon.wait_for_change(seen):
                due = daemon.daemons.changed_at

    async def _serve_rhythm(self, daemon: Daemon, timer: TimerHandler, delay: float) -> None:
        """Call a timer whose rhythm is found after each call, and whenever the object or the wall clock has changed."""
        first = self._first_call(daemon, timer) + delay
        turns, problem = Turns(first, add_seconds(wall_now(), delay), sharp=timer.sharp), None
        while True:
            seen = daemon.daemons.renewals
            try:
                turns.follow(resolve(daemon, timer))
                due, problem = math.inf if turns.due is None else _put_off(daemon, turns.due), None
            except RhythmError as error:
                problem = _report(daemon, error, known=problem)
                backoff = self._backoff if timer.backoff is None else timer.backoff
                due = trio.current_time() + max(backoff, _MIN_BACKOFF)
            if not await daemon.wait_until_renewed(due, self.clock, seen=seen, by_wall=turns.is_scheduled):
                return
            if problem is not None or daemon.daemons.renewals != seen or trio.current_time() < _put_off(daemon, due):
                continue
            if turns.is_early:
                continue
            outcome = await self._complete(daemon)
            if outcome is None or outcome.error is not None:
                return
            turns.note_call(due=due)

    async def _wait(self, daemon: Daemon, due: float) -> float | None:
        """Wait until a call is due and the object has been idle. Returns that time, or None to stop."""
        while True:
            due = _put_off(daemon, due)
            if not await daemon.wait_until(due, self.clock):
                return None
            if _put_off(daemon, due) == due:
                return due

    async def _complete(self, daemon: Daemon) -> Outcome | None:
        """Make attempts until one is final. Returns None where there was to be another, but the daemon has to stop."""
        attempt = Attempt(
            retry=0,
            started=steady_now(),
            flow=daemon.state.flow,
            kind=daemon.cause.resource,
            find_end=daemon.find_end,
        )
        while True:
            outcome = await self._attempt_when_possible(daemon, attempt)
            if outcome is None or outcome.final:
                if outcome is not None and (outcome.error is not None or isinstance(daemon.handler, DaemonHandler)):
                    daemon.finish()
                return outcome
            if await self._wait(daemon, trio.current_time() + outcome.delay) is None:
                return None
            retry = attempt.retry + (not outcome.interrupted)
            attempt = msgspec.structs.replace(attempt, retry=retry)

    async def _attempt_when_possible(self, daemon: Daemon, attempt: Attempt) -> Outcome | None:
        """Call the function once; a sync daemon waits for a thread before. Returns None if it has to stop meanwhile."""
        if daemon.handler.is_async or not isinstance(daemon.handler, DaemonHandler):
            return await self._attempt(daemon, attempt)
        if not await self._wait_for_thread(daemon):
            return None
        try:
            return await self._attempt(daemon, attempt)
        finally:
            self._daemon_threads.release_on_behalf_of(daemon)

    async def _wait_for_thread(self, daemon: Daemon) -> bool:
        threads = self._daemon_threads
        if threads.available_tokens <= 0:
            daemon.logger.error(
                "%s cannot start: all %d threads for daemons are taken. It starts when one is free. To have more, set"
                " settings.background.max_threads, or make the daemon async.",
                daemon.handler,
                threads.total_tokens,
            )
        with daemon.queueing():
            await threads.acquire_on_behalf_of(daemon)
            return True
        return False

    async def _attempt(self, daemon: Daemon, attempt: Attempt) -> Outcome:
        """Call the function once, and wait until its patch is stored, so that its next call cannot overtake that."""
        handler, cause = daemon.handler, daemon.cause
        patch = make_patch(lambda: self._store(daemon, patch), is_async=handler.is_async)
        if isinstance(daemon.canceller, Interruption):
            attempt = msgspec.structs.replace(attempt, interruption=daemon.canceller)
        if isinstance(handler, DaemonHandler):  # timers go on, without what cannot be stored
            attempt = msgspec.structs.replace(attempt, patch=patch)
        outcome = None
        invoker = self._daemon_invoker if isinstance(handler, DaemonHandler) else self._timer_invoker
        try:
            outcome = await invoker.invoke(
                handler,
                {"stopped": daemon.stopper.stopped, **cause.kwargs_for(handler, patch)},
                attempt=attempt,
                logger=cause.logger,
            )
        finally:
            patch.expire()
            if outcome is not None or handler.is_async:  # a thread that was left to itself may still be writing to it
                stored = self._contribute(daemon, patch, None if outcome is None else outcome.result)
        is_last = daemon.stopper.is_set or (outcome.final and isinstance(handler, DaemonHandler))
        if stored is not None and not is_last:
            await stored.wait()
        return outcome

    async def _store(self, daemon: Daemon, patch: Patch) -> Body:
        """Store the patch of a running daemon or timer, and return the new body."""
        stored = self._contribute(daemon, patch, None)
        patch.clear()
        if stored is None:
            await trio.lowlevel.checkpoint()
        else:
            await stored.wait()
        return daemon.cause.body

    def _contribute(self, daemon: Daemon, patch: Patch, result: object) -> Storing | None:
        """Contribute what a call wants stored to the pending patch. Returns what ends when it is stored, if any."""
        wanted, state = build_result_patch(result, handler_id=daemon.handler.id), daemon.state
        if state.gone or not (patch or wanted):
            return None
        merged = merge_patches(patch, wanted)
        if not self._pending.contribute(state, merged, patch.fns, by=str(daemon.handler), logger=daemon.logger):
            return None
        stored = self._pending.wait_for(state)
        state.requeue(at_once=True)
        return stored

    def _initial_delay(self, daemon: Daemon) -> float:
        delay, cause = daemon.handler.initial_delay, daemon.cause
        if not callable(delay):
            return delay or 0.0
        try:
            return max(0.0, float(call("The initial delay of {}", daemon.handler, call_with, delay, cause.kwargs)))
        except (UserCodeError, OverflowError, TypeError, ValueError) as error:
            cause.logger.error("%s. It starts at once.", error, exc_info=error.__cause__ or error)
            return 0.0

    def _first_call(self, daemon: Daemon, timer: TimerHandler) -> float:
        """Return when the first call is due: at once, but spread for the objects of the initial list."""
        now, state = trio.current_time(), daemon.state
        if not state.initial:
            return now
        return max(now, state.cache.serve() + spread(timer, state.uid, limit=self._spread))


def _report(daemon: Daemon, error: RhythmError, *, known: str | None) -> str:
    """Log why it is not known when a timer is due, unless that is known already. Returns the text."""
    text = f"{error}. It is not called until that is mended."
    if text != known:
        daemon.logger.error("%s", text, exc_info=error.__cause__)
    return text


def _put_off(daemon: Daemon, due: float) -> float:
    handler = daemon.handler
    return after_idling(handler, due, changed=daemon.daemons.changed_at) if isinstance(handler, TimerHandler) else due
