"""Daemons and timers: which of them run beside which objects, and how they end.

One run for an object and a function at most, also while an old one is still ending. What a run wants stored is stored
by the object's own turn: it is put with what is pending, and the turn is called for. The end of a run calls for a turn,
too.
"""

from __future__ import annotations

import collections
import contextlib
import math
import warnings
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any

import trio

from trioperator.handling.cause import BackgroundCause
from trioperator.handling.filters import matches
from trioperator.handling.handler import BackgroundHandler, TimerHandler
from trioperator.handling.registry import handler_identity
from trioperator.handling.stopping import DaemonStoppingReason
from trioperator.model.finalizer import has_finalizer, is_deleting
from trioperator.runtime.detector import Detector
from trioperator.runtime.runner import Runner
from trioperator.runtime.runs import ObjectBackground, Run
from trioperator.runtime.table import Known
from trioperator.settings import OperatorSettings

__all__ = ["Background"]

_Job = tuple[Callable[[Run], Awaitable[None]], Run, str]


class Background:
    """Run the daemons and timers of objects. ``match`` and the like never wait; ``serve`` does the running."""

    def __init__(
        self,
        runner: Runner,
        *,
        settings: OperatorSettings,
        detector: Detector,
    ) -> None:
        self._runner = runner
        self._settings = settings
        self._finalizer = settings.persistence.finalizer
        self._detector = detector
        self._runs: dict[tuple[str, Hashable], Run] = {}
        self._jobs: collections.deque[_Job] = collections.deque()
        self._news = trio.Event()
        self._scope = trio.CancelScope()
        self._closed = False

    def match(self, known: Known) -> bool:
        """Stop what does not match the newest state of an object, spawn what does; tell whether it must not vanish.

        What needs a finalizer is spawned as soon as that is on the object.
        """
        body = known.body
        assert body is not None
        if known.table.begun is None:
            known.table.begun = trio.current_time()
        background = known.background
        if background is not None:
            if background.matched is body and not background.is_stirred:
                return background.holds
            background.renew(body, pending=known.pending, own=False)
            background.matched = body
            background.is_stirred = background.is_waiting = False
        if is_deleting(body):
            self.stop(known, DaemonStoppingReason.RESOURCE_DELETED)
            return self.holds(known)
        cause = None if background is None else background.cause
        if cause is None:
            cause = self._make_cause(known, body)
        wanted = self._select(known, cause)
        if background is None:
            if not wanted:
                return False
            background = known.background = ObjectBackground(self._idling(known))
            background.matched = body
        for key in background.runs.keys() - wanted.keys():
            self._stop(background.runs[key], DaemonStoppingReason.FILTERS_MISMATCH)
        present = background.finished | background.runs.keys()
        missing = {key: handler for key, handler in wanted.items() if key not in present}
        if missing and background.cause is None:
            background.begin(cause)
        finalized = has_finalizer(body, self._finalizer)
        for key, handler in missing.items():
            if finalized or not handler.finalizer:
                self._spawn(known, background, handler, key)
        if not background.runs and not missing:
            background.cause = background.matched = None  # nobody looks at the object any more
        background.is_waiting = not finalized and any(handler.finalizer for handler in missing.values())
        return background.holds

    def holds(self, known: Known) -> bool:
        """Tell whether an object must not vanish because of what still runs for it."""
        return known.background is not None and known.background.holds

    def stop(self, known: Known, reason: DaemonStoppingReason) -> None:
        """Tell all daemons and timers of an object to stop."""
        if known.background is not None:
            for run in known.background.runs.values():
                self._stop(run, reason)

    def stop_all(self, reason: DaemonStoppingReason, *, give_up_at: float = math.inf) -> None:
        """Tell all daemons and timers to stop, spawn none any more, and have ``serve`` end when the last one has.

        What has not ended at a time on Trio's clock is cancelled then, and threads are left to themselves.
        """
        self._closed = True
        self._scope.deadline = give_up_at
        for run in self._runs.values():
            self._stop(run, reason)
        self._news.set()
        self._end_with_the_abandoned()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run daemons and timers, until all have been stopped."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                task_status.started()
                while not self._closed:
                    self._start(nursery)
                    await self._news.wait()
                    self._news = trio.Event()
                self._start(nursery)
                nursery.start_soon(self._cancel_hung, name="cancel what hangs")

    def _start(self, nursery: trio.Nursery) -> None:
        while self._jobs:
            work, run, name = self._jobs.popleft()
            nursery.start_soon(work, run, name=name)

    def _spawn(self, known: Known, background: ObjectBackground, handler: BackgroundHandler, key: Hashable) -> None:
        before = self._runs.get((known.uid, key))
        if before is not None:  # of a watch that has ended: it tells us when it has ended, too
            before.known = known
            return
        if self._closed:
            return
        run = Run(known, handler, key, background)
        background.runs[key] = self._runs[known.uid, key] = run
        self._add_job(self._attend, run, handler.id)

    def _add_job(self, work: Callable[[Run], Awaitable[None]], run: Run, name: str) -> None:
        self._jobs.append((work, run, name))
        self._news.set()

    async def _attend(self, run: Run) -> None:
        """Be a run: from its first call to its last."""
        try:
            with run.scope:
                await self._runner.serve(run)
        except Exception as error:
            run.logger.error("%s could not be run, and is not started again.", run.handler, exc_info=error)
        finally:
            self._part_with(run)

    def _part_with(self, run: Run) -> None:
        """Take note that a run has ended."""
        background, known = run.background, run.known
        asked = run.stopper.is_set
        run.stop(DaemonStoppingReason.DONE)
        run.ended.set()
        del self._runs[known.uid, run.key]
        del background.runs[run.key]
        if not asked:
            background.finished.add(run.key)
        how = "on request" if asked else "on its own"
        run.logger.debug("%s has exited %s and will not be retried or restarted.", run.handler, how)
        if known.background is not None:
            known.background.is_stirred = True
        if known.pending or not self._closed:
            known.call()
        self._end_with_the_abandoned()

    def _stop(self, run: Run, reason: DaemonStoppingReason) -> None:
        stopping = run.stopper.is_set
        run.stop(reason | DaemonStoppingReason.DAEMON_SIGNALLED)
        if not stopping:
            self._add_job(self._see_off, run, "see off")

    async def _see_off(self, run: Run) -> None:
        """Follow a run to its end, by the stages of its termination."""
        if run.ended.is_set():
            return
        handler, logger = run.handler, run.logger
        backoff, timeout, polling = run.patience
        logger.debug("%s is signalled to exit gracefully.", handler)
        if await _ends_within(run, backoff or 0.0):
            return
        if timeout is None:
            polling = self._settings.background.cancellation_polling if polling is None else polling
            while not await _ends_within(run, polling):
                logger.debug("%s is still exiting. The next check is in %g seconds.", handler, polling)
            return
        logger.debug("%s is signalled to exit by force.", handler)
        run.cancel("the cancellation backoff is over")
        if not await _ends_within(run, timeout):
            self._abandon(run)

    def _abandon(self, run: Run) -> None:
        """Wait no more for a run: its object may vanish. Should it end one day, it may be started again."""
        run.abandoned = True
        run.stop(DaemonStoppingReason.DAEMON_ABANDONED)
        run.logger.warning("%s did not exit in time. Leaving it orphaned.", run.handler)
        run.known.call()
        self._end_with_the_abandoned()
        with contextlib.suppress(ResourceWarning):  # where warnings are errors, this one must not end the operator
            warnings.warn(f"{run.handler} did not exit in time.", ResourceWarning, stacklevel=1)

    def _end_with_the_abandoned(self) -> None:
        if self._closed and all(run.abandoned for run in self._runs.values()):
            self._scope.cancel(reason="nothing is left but what was abandoned")

    async def _cancel_hung(self) -> None:
        """Cancel what has no cancellation time-out, and has not ended in time when the operator stops."""
        with trio.move_on_after(self._settings.background.exit_timeout):
            for run in list(self._runs.values()):
                await run.ended.wait()
        for run in self._runs.values():
            if run.patience[1] is None:
                run.cancel("the operator is stopping")

    def _select(self, known: Known, cause: BackgroundCause) -> dict[Hashable, BackgroundHandler]:
        """Choose the daemons and timers for an object. Where a filter fails, all stays as it is."""
        selected: dict[Hashable, BackgroundHandler] = {}
        for handler in known.table.kind.handlers.background:
            key = handler_identity(handler)
            try:
                wanted = matches(handler, cause)
            except Exception as error:
                cause.logger.error("A filter of %s has failed: %r", handler, error, exc_info=error)
                wanted = known.background is not None and key in known.background.runs
            if wanted:
                selected.setdefault(key, handler)
        return selected

    def _make_cause(self, known: Known, raw: Mapping[str, Any]) -> BackgroundCause:
        return BackgroundCause(
            resource=known.table.kind.resource,
            raw=raw,
            get_memo=lambda: known.memo,
            logger=known.make_logger(),
            indices=known.table.indices,
        )

    def _idling(self, known: Known) -> Callable[[Mapping[str, Any]], int] | None:
        handlers = known.table.kind.handlers.background
        if not any(isinstance(handler, TimerHandler) and handler.idle is not None for handler in handlers):
            return None
        return lambda raw: self._detector.fingerprint(known, raw)


async def _ends_within(run: Run, seconds: float) -> bool:
    with trio.move_on_after(seconds):
        await run.ended.wait()
    return run.ended.is_set()
