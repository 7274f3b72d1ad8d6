"""Runs: one daemon or timer of one object each, from its spawning to its end, and what an object's runs share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import trio

from trioperator.handling.cause import BackgroundCause
from trioperator.handling.handler import BackgroundHandler, DaemonHandler
from trioperator.handling.stopping import DaemonStoppingReason, Stopper
from trioperator.logs import Logger
from trioperator.model.patch import apply_merge

if TYPE_CHECKING:
    from trioperator.runtime.table import Known

__all__ = ["ObjectBackground", "Run"]


class Run:
    """Be one daemon or timer of one object.

    It is told to stop by its ``stopper``; ``scope`` cancels it; ``ended`` is set when it has ended, which may be after
    it was ``abandoned``.
    """

    __slots__ = (
        "_news",
        "_queueing",
        "abandoned",
        "background",
        "cause",
        "ended",
        "handler",
        "key",
        "known",
        "scope",
        "stopper",
    )

    def __init__(self, known: Known, handler: BackgroundHandler, key: Hashable, background: ObjectBackground) -> None:
        assert background.cause is not None
        self.known = known
        self.handler = handler
        self.key = key
        self.background = background
        self.cause = background.cause
        self.stopper = Stopper(is_async=handler.is_async)
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self.abandoned = False
        self._news: trio.Event | None = None
        self._queueing: trio.CancelScope | None = None

    @property
    def holds(self) -> bool:
        """Tell whether the object must not vanish because of this run."""
        return self.handler.finalizer and not self.abandoned

    @property
    def logger(self) -> Logger:
        """Give the logger that is bound to the object."""
        return self.cause.logger

    @property
    def patience(self) -> tuple[float | None, float | None, float | None]:
        """Give the times of its termination: the backoff, the time-out, and that between reminders."""
        handler = self.handler
        if not isinstance(handler, DaemonHandler):
            return None, None, None
        return handler.cancellation_backoff, handler.cancellation_timeout, handler.cancellation_polling

    def stop(self, reason: DaemonStoppingReason) -> None:
        """Tell it to stop, or give it one reason more."""
        self.stopper.stop(reason)
        self.wake()
        if self._queueing is not None:
            self._queueing.cancel(reason="it has to stop before it has begun")

    def cancel(self, why: str) -> None:
        """Cancel it, if it can be: a thread cannot, and goes on until it heeds the flag."""
        self.stop(DaemonStoppingReason.DAEMON_CANCELLED)
        if self.handler.is_async:
            self.scope.cancel(reason=why)

    @contextlib.contextmanager
    def open_queueing(self) -> Iterator[None]:
        """Hold what is waited for before a call: it is not waited for when the run has to stop."""
        with trio.CancelScope() as self._queueing:
            yield
        self._queueing = None

    def wake(self) -> None:
        """Have it look whether the object has changed."""
        if self._news is not None:
            self._news.set()

    async def wait_for_change(self, seen: int) -> bool:
        """Wait until the object has changed more often than was *seen*; False: it has to stop."""
        while self.background.changes == seen and not self.stopper.is_set:
            self._news = trio.Event()
            await self._news.wait()
        return not self.stopper.is_set


class ObjectBackground:
    """Hold the runs of one object, and what they see of it.

    ``finished`` are those which have ended by themselves: they are not started again. ``changes`` counts how often
    others have changed the object's essence, ``changed`` is when they did that last, on Trio's clock.
    """

    __slots__ = (
        "_essence",
        "_essence_of",
        "_is_opaque",
        "cause",
        "changed",
        "changes",
        "finished",
        "is_stirred",
        "is_waiting",
        "matched",
        "runs",
    )

    def __init__(self, essence_of: Callable[[Mapping[str, Any]], int] | None) -> None:
        self.runs: dict[Hashable, Run] = {}
        self.finished: set[Hashable] = set()
        self.cause: BackgroundCause | None = None
        self.changes = 0
        self.changed = trio.current_time()
        self.matched: Mapping[str, Any] | None = None  # the state that the filters have seen last
        self.is_stirred = False  # a run has ended, so that another one may begin
        self.is_waiting = False  # a run cannot begin before the finalizer is on the object
        self._essence_of = essence_of  # for timers with idle= only
        self._essence: int | None = None
        self._is_opaque = False  # what is to be stored is not known before it is

    @property
    def holds(self) -> bool:
        """Tell whether the object must not vanish because of a run."""
        return self.is_waiting or any(run.holds for run in self.runs.values())

    @property
    def raw(self) -> Mapping[str, Any] | None:
        """Give the newest state of the object, as long as any run needs it."""
        return None if self.cause is None else self.cause.raw

    def begin(self, cause: BackgroundCause) -> None:
        """Have something to show to the first run."""
        self.cause = cause
        self.changed = trio.current_time()
        self._essence = None if self._essence_of is None else self._essence_of(cause.raw)

    def renew(self, raw: Mapping[str, Any], *, pending: Mapping[str, Any] | None, own: bool) -> None:
        """Show a newer state, with what is to be stored on top of it; *own* is what our own write has led to."""
        cause = self.cause
        if cause is None or cause.raw is raw:
            return
        shown = cause.body._raw
        cause.raw = raw
        cause.body._replace_raw(apply_merge(raw, pending) if pending else raw)
        if self._essence_of is not None:
            before, self._essence = self._essence, self._essence_of(raw)
            if self._essence != before and not (own and (self._is_opaque or self._essence == self._essence_of(shown))):
                self._note_change()
        self._is_opaque = self._is_opaque and not own

    def show(self, wanted: Mapping[str, Any], *, opaque: bool) -> None:
        """Show what is going to be stored as if it were stored; *opaque* says that there is more to it."""
        self._is_opaque = self._is_opaque or opaque
        if self.cause is not None and wanted:
            self.cause.body._replace_raw(apply_merge(self.cause.body._raw, wanted))

    def _note_change(self) -> None:
        self.changes += 1
        self.changed = trio.current_time()
        for run in self.runs.values():
            run.wake()
