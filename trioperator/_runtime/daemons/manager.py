"""The daemon manager: which daemons and timers run for which objects, and how they end.

At most one task runs for an object and a function, also while an old one is still ending, perhaps one that was spawned
in another version of the kind: there the object has another state. The patch of a daemon is stored by a reconcile of
its object, which is requeued for that; it is requeued at the end of a daemon, too.
"""

from __future__ import annotations

import collections
import contextlib
import math
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final

import trio

from trioperator._concurrency.core_tasks import keep
from trioperator._concurrency.pulse import Pulse
from trioperator._handling.arguments.cause import DaemonCause
from trioperator._handling.arguments.stopping import DaemonStoppingReason
from trioperator._handling.declaring.registry import handler_identity
from trioperator._handling.handlers.filters import matches
from trioperator._handling.handlers.handler import SpawningHandler, TimerHandler
from trioperator._model.finalizer import has_finalizer, is_deleting
from trioperator._runtime.cache.kind import Memory
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.causes import Essences, make_cause
from trioperator._runtime.daemons.daemon import Daemon, ObjectDaemons
from trioperator._runtime.daemons.loops import DaemonLoops
from trioperator._runtime.daemons.stopping import has_timeout, stop_in_stages, warn_of_abandoned
from trioperator._runtime.patching.pending import PendingPatches
from trioperator.errors import UserCodeError
from trioperator.settings import OperatorSettings

_CLOCK: Final = "alarm clock"
_Job = tuple[Callable[[Daemon], Awaitable[None]], Daemon, str]


class DaemonManager:
    """Spawns and stops daemons and timers. ``match`` and the like never wait; ``serve`` runs the tasks."""

    def __init__(
        self,
        loops: DaemonLoops,
        *,
        pending: PendingPatches,
        essences: Essences,
        settings: OperatorSettings,
    ) -> None:
        self._loops = loops
        self._pending = pending
        self._essences = essences
        self._settings = settings
        self._finalizer = settings.persistence.finalizer
        self._objects: dict[str, tuple[ObjectDaemons, ...]] = {}  # by uids: one for each state
        self._running: dict[tuple[str, Hashable], Daemon] = {}
        self._jobs: collections.deque[_Job] = collections.deque()
        self._jobs_added = Pulse()
        self._scope = trio.CancelScope()
        self._closed = False

    def __len__(self) -> int:
        return len(self._running)

    # The interface of the reconciler.

    def match(self, state: ObjectState) -> bool:
        """Stop what does not match the newest state of an object, spawn what does. Returns whether deletion is blocked.

        Tasks that need a finalizer are spawned as soon as that is on the object.
        """
        body = state.body
        assert body is not None
        state.cache.serve()
        daemons = self._find(state)
        if daemons is not None and daemons.matched is body:
            return daemons.block_deletion
        others = self._take_over(state)
        if others and daemons is None:  # at their end, the object is matched again
            daemons = self._add_object(state, body)
            daemons.begin(make_cause(DaemonCause, state, body, local=False))
        if daemons is not None:
            daemons.renew(body, pending=self._pending.get(state), own=False)
            daemons.match(body, others)
        if is_deleting(body):
            self.stop(state, DaemonStoppingReason.RESOURCE_DELETED)
            return self.block_deletion(state)
        cause = None if daemons is None else daemons.cause
        if cause is None:
            cause = make_cause(DaemonCause, state, body, local=False)
        wanted = self._select(state, cause)
        if daemons is None:
            if not wanted:
                return False
            daemons = self._add_object(state, body)
            daemons.match(body, others)
        for daemon in daemons.unwanted(wanted.keys()):
            self._stop(daemon, DaemonStoppingReason.FILTERS_MISMATCH)
        self._spawn_missing(state, daemons, wanted, cause)
        return daemons.block_deletion

    def block_deletion(self, state: ObjectState) -> bool:
        """Check whether an object must not be deleted because of what still runs for it."""
        daemons = self._find(state)
        return daemons is not None and daemons.block_deletion

    def changed_body(self, state: ObjectState) -> Mapping[str, Any] | None:
        """Return the body of an object that was requeued by its daemons: one has ended, or wants something stored."""
        daemons = self._find(state)
        if daemons is None or (daemons.matched is not None and not self._pending.get(state)):
            return None
        return daemons.raw

    def runs_any(self, state: ObjectState) -> bool:
        """Check whether any daemon or timer runs for an object."""
        daemons = self._find(state)
        return daemons is not None and daemons.is_used

    def schedule(self, state: ObjectState | None = None) -> Iterator[tuple[ObjectState, SpawningHandler, float | None]]:
        """Yield the daemons and timers of an object, or all, with when they are called next; None if they are at work.

        Times are on Trio's clock.
        """
        daemons = self._running if state is None else self._find_running(state)
        times = self._loops.clock.times() if daemons else {}
        for daemon in daemons.values():
            yield daemon.state, daemon.handler, daemon.find_due(times)

    def body_of(self, state: ObjectState) -> Mapping[str, Any] | None:
        """Return the newest body of an object, as long as a daemon or a timer uses it."""
        daemons = self._find(state)
        return None if daemons is None else daemons.raw

    def stop(self, state: ObjectState, reason: DaemonStoppingReason) -> None:
        """Stop all daemons and timers of an object."""
        for daemon in self._find_running(state).values():
            self._stop(daemon, reason)

    def pause(self, state: ObjectState) -> None:
        """Stop all daemons and timers of an object that is paused. They are spawned again when it is matched again."""
        daemons = self._find(state)
        if daemons is None or state.body is None:
            return
        daemons.renew(state.body, pending=self._pending.get(state), own=False)
        daemons.match(state.body, self._take_over(state))
        self.stop(state, DaemonStoppingReason.FILTERS_MISMATCH)
        if not daemons.is_used:
            daemons.end()

    def resume(self, state: ObjectState) -> None:
        """Let an object that is no longer paused be matched again, though its state may be the one that was paused."""
        if (daemons := self._find(state)) is not None:
            daemons.invalidate()

    def has_unended(self, state: ObjectState) -> bool:
        """Check whether a daemon or a timer runs for an object, and was not abandoned."""
        return any(not daemon.abandoned for daemon in self._find_running(state).values())

    def expedite(self, state: ObjectState) -> None:
        """Let timers and retries be due now for an object. Timers with a schedule keep that."""
        for daemon in self._find_running(state).values():
            daemon.expedite()

    def forget(self, state: ObjectState) -> None:
        """Forget an object that is gone or is no longer handled, as soon as its last daemon has ended."""
        daemons = self._find(state)
        if daemons is not None and not daemons.running:
            self._objects[state.uid] = tuple(each for each in self._objects[state.uid] if each is not daemons)
            if not self._objects[state.uid]:
                del self._objects[state.uid]
            self._pending.unobserve(state, daemons)

    def _find(self, state: ObjectState) -> ObjectDaemons | None:
        for daemons in self._objects.get(state.uid, ()):
            if daemons.state is state:
                return daemons
        return None

    def _find_running(self, state: ObjectState) -> Mapping[Hashable, Daemon]:
        daemons = self._find(state)
        return {} if daemons is None else daemons.running

    def _take_over(self, state: ObjectState) -> Sequence[Daemon]:
        """Return what runs for an object in other versions of its kind. Where their watch has ended, it moves here."""
        found = self._objects.get(state.uid, ())
        others = [each for daemons in found if daemons.state is not state for each in daemons.running.values()]
        for daemon in others:
            if daemon.state.cache.kind.retired:
                daemon.move_to(state)
        return others

    def _add_object(self, state: ObjectState, body: Mapping[str, Any]) -> ObjectDaemons:
        timers = [handler for handler in state.cache.kind.handlers.spawning if isinstance(handler, TimerHandler)]
        is_idle_needed = any(timer.idle is not None for timer in timers)
        daemons = ObjectDaemons(state, (lambda raw: self._essences.digest(state, raw)) if is_idle_needed else None)
        self._objects[state.uid] = (*self._objects.get(state.uid, ()), daemons)
        self._pending.observe(state, daemons)
        return daemons

    def _select(self, state: ObjectState, cause: DaemonCause) -> dict[Hashable, SpawningHandler]:
        """Select the daemons and timers of an object. Where a filter fails, all stays as it is."""
        selected: dict[Hashable, SpawningHandler] = {}
        for handler in state.cache.kind.handlers.spawning:
            key = handler_identity(handler, by_id=self._settings.share_ids)
            try:
                wanted = matches(handler, cause)
            except UserCodeError as error:
                cause.logger.error("%s", error, exc_info=error.__cause__)
                wanted = key in self._find_running(state)
            if wanted:
                selected.setdefault(key, handler)
        return selected

    def _spawn_missing(
        self,
        state: ObjectState,
        daemons: ObjectDaemons,
        wanted: Mapping[Hashable, SpawningHandler],
        cause: DaemonCause,
    ) -> None:
        present = state.remember().ended | daemons.present
        missing = {key: handler for key, handler in wanted.items() if key not in present}
        if (missing or daemons.is_used) and daemons.cause is None:
            daemons.begin(cause)
        finalized = has_finalizer(cause.raw, self._finalizer)
        for key, handler in missing.items():
            if finalized or not handler.finalizer:
                self._spawn(state, daemons, handler, key)
            else:
                daemons.wait_for_finalizer()
        if not (missing or daemons.is_used):
            daemons.end()

    def _spawn(self, state: ObjectState, daemons: ObjectDaemons, handler: SpawningHandler, key: Hashable) -> None:
        if not self._closed:
            daemon = self._running[state.uid, key] = Daemon(state, handler, key, daemons)
            daemons.add(daemon, key)
            self._add_job(self._run, daemon, handler.id)

    # The tasks.

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run daemons and timers, until all have been stopped."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(keep, _CLOCK, self._loops.clock.serve, name=_CLOCK)
                task_status.started()
                while not self._closed:
                    self._start_jobs(nursery)
                    await self._jobs_added.wait()
                self._start_jobs(nursery)
                nursery.start_soon(self._cancel_late, name="cancel late daemons")

    def stop_all(self, reason: DaemonStoppingReason, *, give_up_at: float = math.inf) -> None:
        """Stop all daemons and timers, spawn no more, and end ``serve`` when the last one has ended.

        Tasks that have not ended at a time on Trio's clock are cancelled then, and threads are abandoned.
        """
        self._closed = True
        self._scope.deadline = give_up_at
        for daemon in self._running.values():
            self._stop(daemon, reason)
        self._jobs_added.set()
        self._end_if_drained()

    def _add_job(self, work: Callable[[Daemon], Awaitable[None]], daemon: Daemon, name: str) -> None:
        self._jobs.append((work, daemon, name))
        self._jobs_added.set()

    def _start_jobs(self, nursery: trio.Nursery) -> None:
        while self._jobs:
            work, daemon, name = self._jobs.popleft()
            nursery.start_soon(work, daemon, name=name)

    async def _run(self, daemon: Daemon) -> None:
        """Run a daemon or a timer, from its first call to its last."""
        try:
            with daemon.canceller if isinstance(daemon.canceller, trio.CancelScope) else contextlib.nullcontext():
                await self._loops.serve(daemon)
        except Exception as error:
            daemon.logger.error("%s could not be run, and is not started again.", daemon.handler, exc_info=error)
        finally:
            self._end(daemon)

    def _end(self, daemon: Daemon) -> None:
        """Note that a daemon has ended, and requeue its object."""
        daemons, state = daemon.daemons, daemon.state
        stopped = daemon.stopper.is_set and not daemon.is_finished
        daemon.stop(DaemonStoppingReason.DONE)
        daemon.ended.set()
        del self._running[state.uid, daemon.key]
        daemons.remove(daemon.key)
        if not stopped:
            ended = Memory(memo=None, initial=True, ended=frozenset({daemon.key}))
            for each in {state, *(daemons.state for daemons in self._objects.get(state.uid, ()))}:
                each.inherit(ended)  # in whatever version
        how = "on request" if stopped else "on its own"
        daemon.logger.debug("%s has exited %s and will not be retried or restarted.", daemon.handler, how)
        if daemons.state.gone or daemons.state is not state:
            self.forget(daemons.state)  # else this is done by the reconcile, after the last patch
        if self._pending.get(state) or not self._closed:
            self._requeue(daemon)
        self._end_if_drained()

    def _requeue(self, daemon: Daemon) -> None:
        """Match the object of a daemon again, in whatever version."""
        for daemons in self._objects.get(daemon.state.uid, ()):
            daemons.invalidate()
            daemons.state.requeue(at_once=True)
        daemon.state.requeue(at_once=True)

    def _stop(self, daemon: Daemon, reason: DaemonStoppingReason) -> None:
        stopping = daemon.stopper.is_set
        daemon.stop(reason)
        if not stopping:
            self._add_job(self._stop_in_stages, daemon, "stop a daemon")

    async def _stop_in_stages(self, daemon: Daemon) -> None:
        if await stop_in_stages(daemon, polling=self._settings.background.cancellation_polling):
            return
        daemon.abandon()  # should it end one day, it may be spawned again
        self._requeue(daemon)
        self._end_if_drained()
        warn_of_abandoned(daemon)

    async def _cancel_late(self) -> None:
        """Cancel the daemons without a timeout that have not ended in time when the operator stops."""
        with trio.move_on_after(self._settings.background.exit_timeout):
            for daemon in list(self._running.values()):
                await daemon.ended.wait()
        for daemon in self._running.values():
            if not has_timeout(daemon):
                daemon.cancel("the operator is stopping")

    def _end_if_drained(self) -> None:
        if self._closed and all(daemon.abandoned for daemon in self._running.values()):
            self._scope.cancel(reason="only abandoned daemons are left")
