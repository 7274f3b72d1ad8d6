"""Daemons and timers of objects: one task for each object and function, and what the tasks of an object share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any

import trio

from trioperator._handling.arguments.cause import DaemonCause
from trioperator._handling.arguments.stopping import DaemonStoppingReason, Stopper
from trioperator._handling.calls.interruption import Interruption
from trioperator._handling.handlers.handler import SpawningHandler, TimerHandler
from trioperator._logs import Logger
from trioperator._model.lazy_object import conserve, outline_of
from trioperator._model.patch import apply_merge
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.daemons.alarm_clock import Alarm, AlarmClock, News


class Daemon:
    """One daemon or timer of one object, from its spawning to its end.

    ``stopper`` tells it to stop; ``canceller`` cancels it, or what its thread waits for; ``ended`` is set when it has
    ended, which may be after it was ``abandoned``. ``is_finished`` is whether it has ended on its own, and has nothing
    left to do for its object.
    """

    __slots__ = (
        "_alarm",
        "_queueing",
        "abandoned",
        "canceller",
        "cause",
        "daemons",
        "ended",
        "handler",
        "is_finished",
        "key",
        "state",
        "stopper",
    )

    def __init__(self, state: ObjectState, handler: SpawningHandler, key: Hashable, daemons: ObjectDaemons) -> None:
        assert daemons.cause is not None
        self.state = state
        self.handler = handler
        self.key = key
        self.daemons = daemons
        self.cause = daemons.cause
        self.stopper = Stopper(is_async=handler.is_async)
        self.canceller = trio.CancelScope() if handler.is_async else Interruption()
        self.ended = trio.Event()
        self.abandoned = False
        self.is_finished = False
        self._alarm: Alarm | None = None
        self._queueing: trio.CancelScope | None = None

    @property
    def blocks_deletion(self) -> bool:
        """Whether the object must not be deleted because of this daemon."""
        return self.handler.finalizer and not self.abandoned

    def find_end(self) -> str | None:
        """Return why no attempt follows the one that is being made, if that is known."""
        return self.state.find_end() or ("it is to stop" if self.stopper.is_set else None)

    @property
    def is_variable(self) -> bool:
        """Whether it is a timer, and depends on the object when that is due."""
        return isinstance(self.handler, TimerHandler) and self.handler.is_variable

    @property
    def logger(self) -> Logger:
        """The logger that is bound to the object."""
        return self.cause.logger

    def find_due(self, times: Mapping[Alarm, float]) -> float | None:
        """Return when it is called next, on Trio's clock, by the times of alarms; None if it is at work."""
        return None if self._alarm is None else times.get(self._alarm)

    def move_to(self, state: ObjectState) -> None:
        """Belong to another state of the same object: the watch that it was spawned for has ended."""
        self.state = state

    def stop(self, reason: DaemonStoppingReason) -> None:
        """Set the stopped-flag, or add a reason to it."""
        self.stopper.stop(reason)
        if self._alarm is not None:
            self._alarm.ring()
        if self._queueing is not None:
            self._queueing.cancel(reason="it has to stop before it has begun")

    def cancel(self, why: str) -> None:
        """Cancel the task. A thread goes on until it checks the flag, unless it waits by its client."""
        self.stop(DaemonStoppingReason.DAEMON_CANCELLED)
        if isinstance(self.canceller, Interruption):
            self.canceller.interrupt(why)
        else:
            self.canceller.cancel(reason=why)

    def abandon(self) -> None:
        """Let the object be deleted although the daemon has not ended."""
        self.abandoned = True
        self.stop(DaemonStoppingReason.DAEMON_ABANDONED)

    def finish(self) -> None:
        """Note that it has nothing more to do, unless it ends on request: it was cancelled, or has seen the flag."""
        self.is_finished = not (self.stopper.is_noticed or self.stopper.has(DaemonStoppingReason.DAEMON_CANCELLED))

    @contextlib.contextmanager
    def queueing(self) -> Iterator[None]:
        """Cancel what is waited for in the block as soon as the daemon has to stop."""
        with trio.CancelScope() as self._queueing:
            yield
        self._queueing = None

    def tell(self, news: News) -> None:
        """Wake the daemon if it waits for such news of its object."""
        if self._alarm is not None and self._alarm.heeds is news:
            self._alarm.ring()

    async def wait_until(
        self, due: float, clock: AlarmClock, *, by_wall: bool = False, heeds: News | None = None
    ) -> bool:
        """Wait until a time on Trio's clock, or with *by_wall* until the wall clock was set. Returns False to stop."""
        if self.stopper.is_set:
            return False
        self._alarm = alarm = clock.set(due, by_wall=by_wall, heeds=heeds)
        try:
            await alarm.wait()
        finally:
            self._alarm = None
            clock.drop(alarm)
        return not self.stopper.is_set

    def expedite(self) -> None:
        """Let what is waited for be due now, unless that follows the object or a schedule."""
        if self._alarm is not None:
            self._alarm.ring()

    async def wait_until_renewed(self, due: float, clock: AlarmClock, *, seen: int | None, by_wall: bool) -> bool:
        """Wait as before, or until the object was renewed more often than was *seen*. Returns False to stop."""
        if self.daemons.renewals != seen:
            return not self.stopper.is_set
        return await self.wait_until(due, clock, by_wall=by_wall, heeds=News.RENEWAL)

    async def wait_for_change(self, seen: int) -> bool:
        """Wait until the object has changed more often than was *seen*. Returns False if it has to stop."""
        while self.daemons.changes == seen and not self.stopper.is_set:
            self._alarm = Alarm(heeds=News.CHANGE)
            try:
                await self._alarm.wait()
            finally:
                self._alarm = None
        return not self.stopper.is_set

    async def ends_within(self, seconds: float) -> bool:
        """Wait for the end, up to the timeout in seconds, and return whether it has come."""
        with trio.move_on_after(seconds):
            await self.ended.wait()
        return self.ended.is_set()


class ObjectDaemons:
    """Running daemons and timers of one object, and the live view of the object that they share.

    ``changes`` counts how often others have changed the object's essence; ``changed_at`` is the time of the last change
    on Trio's clock. ``renewals`` counts the newer states, from the first timer on whose rhythm depends on the object.
    It observes the pending patch of the object: the view shows pending changes as if they were stored.
    """

    __slots__ = (
        "_digest",
        "_digest_of",
        "_is_opaque",
        "cause",
        "changed_at",
        "changes",
        "is_waiting",
        "matched",
        "others",
        "renewals",
        "running",
        "state",
    )

    def __init__(self, state: ObjectState, digest_of: Callable[[Mapping[str, Any]], int] | None) -> None:
        self.state = state
        self.running: dict[Hashable, Daemon] = {}
        self.others: Sequence[Daemon] = ()  # that ran in other versions of the kind when the filters were matched
        self.cause: DaemonCause | None = None
        self.changes = 0
        self.changed_at = trio.current_time()
        self.renewals: int | None = None
        self.matched: Mapping[str, Any] | None = None  # the body that the filters have seen last
        self.is_waiting = False  # a daemon cannot be spawned before the finalizer is on the object
        self._digest_of = digest_of  # for timers with idle= only
        self._digest: int | None = None
        self._is_opaque = False  # functions of patches are pending, and their effect is not known yet

    @property
    def block_deletion(self) -> bool:
        """Whether the object must not be deleted because of a daemon."""
        return self.is_waiting or any(
            daemon.blocks_deletion for daemon in (*self.running.values(), *self.others) if not daemon.ended.is_set()
        )

    @property
    def present(self) -> set[Hashable]:
        """The keys of what runs for the object, in whatever version of its kind."""
        return {*self.running, *(daemon.key for daemon in self.others if not daemon.ended.is_set())}

    @property
    def is_used(self) -> bool:
        """Whether anything runs for the object, in whatever version of its kind."""
        return bool(self.running) or any(not daemon.ended.is_set() for daemon in self.others)

    @property
    def raw(self) -> Mapping[str, Any] | None:
        """The newest body of the object, as long as a daemon uses it."""
        return None if self.cause is None else self.cause.raw

    def match(self, body: Mapping[str, Any], others: Sequence[Daemon] = ()) -> None:
        """Note which body the filters see, what runs in other versions, and that no daemon waits for the finalizer."""
        self.matched = body
        self.others = others
        self.is_waiting = False

    def invalidate(self) -> None:
        """Match the filters again with the next reconcile: a daemon may begin, as one or a pause has ended."""
        self.matched = None

    def wait_for_finalizer(self) -> None:
        """Note that a daemon cannot be spawned before the finalizer is on the object."""
        self.is_waiting = True

    def add(self, daemon: Daemon, key: Hashable) -> None:
        """Add a daemon that is being spawned."""
        self.running[key] = daemon
        if self.renewals is None and daemon.is_variable:
            self.renewals = 0

    def remove(self, key: Hashable) -> None:
        """Remove a daemon that has ended."""
        del self.running[key]
        self.invalidate()

    def begin(self, cause: DaemonCause) -> None:
        """Begin a live view for the first daemon."""
        self.cause = cause
        self.changed_at = trio.current_time()
        self._digest = None if self._digest_of is None else self._digest_of(cause.raw)

    def end(self) -> None:
        """End the live view: no daemon uses it."""
        self.cause = self.matched = None

    def contributed(self, patch: Mapping[str, Any], *, opaque: bool) -> None:
        """Show what is going to be stored as if it were stored. With *opaque* there are functions in it."""
        self._is_opaque = self._is_opaque or opaque
        if self.cause is not None and patch:
            shown = self.cause.body._raw
            self.cause.body._replace_raw(conserve(apply_merge(outline_of(shown), patch), like=shown))

    def stored(self, body: Mapping[str, Any], pending: Mapping[str, Any] | None) -> None:
        """Show the state to which an own write has led."""
        self.renew(body, pending=pending, own=True)

    def renew(self, body: Mapping[str, Any], *, pending: Mapping[str, Any] | None, own: bool) -> None:
        """Show a newer state, with what is to be stored on top of it. With *own* an own write has led to it."""
        cause = self.cause
        if cause is None or cause.raw is body:
            return
        shown = cause.body._raw
        cause.raw = body
        cause.body._replace_raw(conserve(apply_merge(outline_of(body), pending), like=body) if pending else body)
        if self._digest_of is not None:
            before, self._digest = self._digest, self._digest_of(body)
            if self._digest != before and not (own and (self._is_opaque or self._digest == self._digest_of(shown))):
                self._count_change()
        if self.renewals is not None:
            self.renewals += 1
            for daemon in self.running.values():
                daemon.tell(News.RENEWAL)
        self._is_opaque = self._is_opaque and not own

    def _count_change(self) -> None:
        self.changes += 1
        self.changed_at = trio.current_time()
        for daemon in self.running.values():
            daemon.tell(News.CHANGE)

    def unwanted(self, wanted: Collection[Hashable]) -> list[Daemon]:
        """Return the running daemons that are no longer wanted."""
        return [daemon for key, daemon in self.running.items() if key not in wanted]
