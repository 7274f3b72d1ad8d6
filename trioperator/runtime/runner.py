"""The runner: what a daemon or a timer does from its first call to its last, as long as nobody tells it to stop."""

from __future__ import annotations

import datetime
import math

import trio

from trioperator.clock import wall_now
from trioperator.handling.context import current_cause
from trioperator.handling.filters import call_with
from trioperator.handling.handler import DaemonHandler, TimerHandler
from trioperator.handling.handler_state import deliver_result, later
from trioperator.handling.invoke import Attempt, Invoker
from trioperator.handling.outcome import Outcome
from trioperator.handling.schedule import Schedule
from trioperator.model.patch import Patch, merge_patches
from trioperator.runtime.runs import Run
from trioperator.runtime.timing import after_idling, next_tick, spread
from trioperator.runtime.writer import collect
from trioperator.settings import OperatorSettings

__all__ = ["Runner"]


class Runner:
    """Call daemons and timers when they are due, and pass on what they want stored.

    Sync daemons have threads of their own, so that neither other handlers nor timers ever wait for them.
    """

    def __init__(self, settings: OperatorSettings) -> None:
        backoff = settings.execution.default_backoff
        self._spread = settings.background.spread
        self._daemon_threads = trio.CapacityLimiter(settings.background.max_threads)
        self._daemon_invoker = Invoker(limiter=trio.CapacityLimiter(math.inf), backoff=backoff)
        self._timer_invoker = Invoker(limiter=trio.CapacityLimiter(settings.execution.max_workers), backoff=backoff)

    async def serve(self, run: Run) -> None:
        """Call a daemon or a timer, until it has nothing more to do or is told to stop."""
        if run.stopper.is_set:
            return
        current_cause.set(run.cause)  # the task is the run's own
        delay = self._initial_delay(run)
        if isinstance(run.handler, TimerHandler):
            await self._serve_timer(run, run.handler, delay)
        elif not delay or await run.stopper.wait_until(trio.current_time() + delay):
            await self._complete(run)

    async def _serve_timer(self, run: Run, timer: TimerHandler, delay: float) -> None:
        schedule = timer.schedule
        moment = later(wall_now(), delay)
        if schedule is None:
            due: float | None = self._first_call(run, timer) + delay
        else:
            moment, due = _next_scheduled(schedule, moment)
        while due is not None:
            due = await self._wait(run, due)
            if due is None:
                return
            seen = run.background.changes
            outcome = await self._complete(run)
            if outcome is None or outcome.error is not None:
                return
            if schedule is not None:
                moment, due = _next_scheduled(schedule, max(moment, wall_now()))
                continue
            due = next_tick(timer, due=due, ended=trio.current_time())
            if due is None and timer.idle is not None and await run.wait_for_change(seen):
                due = run.background.changed

    async def _wait(self, run: Run, due: float) -> float | None:
        """Wait until a call is due, and the object has been left unchanged; give that time, or None to stop."""
        while True:
            due = _put_off(run, due)
            if not await run.stopper.wait_until(due):
                return None
            if _put_off(run, due) == due:
                return due

    async def _complete(self, run: Run) -> Outcome | None:
        """Make attempts until one is the last; None: there was to be another, but it has to stop."""
        attempt = Attempt(retry=0, started=wall_now())
        while True:
            outcome = await self._attempt_when_possible(run, attempt)
            if outcome is None or outcome.final:
                return outcome
            if await self._wait(run, trio.current_time() + outcome.delay) is None:
                return None
            attempt = Attempt(retry=attempt.retry + 1, started=attempt.started)

    async def _attempt_when_possible(self, run: Run, attempt: Attempt) -> Outcome | None:
        """Call the function once; a sync daemon waits for a thread before. None: it has to stop and has got none."""
        if run.handler.is_async or not isinstance(run.handler, DaemonHandler):
            return await self._attempt(run, attempt)
        if not await self._wait_for_thread(run):
            return None
        try:
            return await self._attempt(run, attempt)
        finally:
            self._daemon_threads.release_on_behalf_of(run)

    async def _wait_for_thread(self, run: Run) -> bool:
        threads = self._daemon_threads
        if threads.available_tokens <= 0:
            run.logger.error(
                "%s cannot start: all %d threads for daemons are taken. It starts when one is free. To have more, set"
                " settings.background.max_threads, or make the daemon async.",
                run.handler,
                threads.total_tokens,
            )
        with run.open_queueing():
            await threads.acquire_on_behalf_of(run)
            return True
        return False

    async def _attempt(self, run: Run, attempt: Attempt) -> Outcome:
        """Call the function once, and wait until what it wants stored is stored, so that it cannot get ahead of it."""
        handler, cause = run.handler, run.cause
        patch = Patch()
        outcome = None
        invoker = self._daemon_invoker if isinstance(handler, DaemonHandler) else self._timer_invoker
        try:
            outcome = await invoker.invoke(
                handler,
                {"stopped": run.stopper.stopped, **cause.kwargs_for(handler, patch)},
                attempt=attempt,
                logger=cause.logger,
            )
        finally:
            if outcome is not None or handler.is_async:  # a thread that was left to itself may still be writing to it
                written = self._deliver(run, patch, None if outcome is None else outcome.result)
        is_last = run.stopper.is_set or (outcome.final and isinstance(handler, DaemonHandler))
        if written is not None and not is_last:
            await written.wait()
        return outcome

    def _deliver(self, run: Run, patch: Patch, result: object) -> trio.Event | None:
        """Have stored what a call wants stored, by the object's own turn; give the event of that, if it is anything."""
        wanted = deliver_result(result, handler_id=run.handler.id)
        if not patch and not wanted:
            return None
        known = run.known
        if known.gone:
            return None
        if not collect(known, merge_patches(patch, wanted), patch.fns, by=str(run.handler), logger=run.logger):
            return None
        written = trio.Event()
        known.awaited.append(written)
        known.call()
        return written

    def _initial_delay(self, run: Run) -> float:
        delay, cause = run.handler.initial_delay, run.cause
        if not callable(delay):
            return delay or 0.0
        try:
            return max(0.0, float(call_with(delay, cause.kwargs)))
        except Exception as error:
            cause.logger.error(
                "The initial delay of %s is not known, and it starts at once: %r", run.handler, error, exc_info=error
            )
            return 0.0

    def _first_call(self, run: Run, timer: TimerHandler) -> float:
        """Tell when the first call is due: at once, but for the objects with which the operator has begun."""
        now, known = trio.current_time(), run.known
        if not known.initial or known.table.begun is None:
            return now
        return max(now, known.table.begun + spread(timer, known.uid, limit=self._spread))


def _put_off(run: Run, due: float) -> float:
    handler = run.handler
    return after_idling(handler, due, changed=run.background.changed) if isinstance(handler, TimerHandler) else due


def _next_scheduled(schedule: Schedule, after: datetime.datetime) -> tuple[datetime.datetime, float | None]:
    """Give the next moment of a schedule, and when that is on Trio's clock."""
    moment = schedule.next_after(after)
    if moment is None:
        return after, None
    return moment, trio.current_time() + max(0.0, (moment - wall_now()).total_seconds())
