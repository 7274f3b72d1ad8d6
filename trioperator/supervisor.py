"""Supervisor of an operator: its nursery tree, in the order of starting and stopping.

::

    supervise()
    ├─ signals                     first signal: stop in order; second: cancel everything
    ├─ startup activities          before anything talks to the API server
    ├─ client                      connections and credentials
    │  └─ support                  (stops last)    probes
    │     └─ workers               (stops third)   reconciles of objects
    │        └─ companions         (stops second)  daemons and timers
    │           └─ intake          (stops first)   scopes: reflectors of resource kinds
    └─ cleanup activities          after everything else

Tasks start from top to bottom, and stop from bottom to top. Stopping in order takes at most ``settings.process.grace``
seconds, whatever handlers do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import trio

from trioperator.handling.cause import ActivityCause
from trioperator.handling.diffbase import AnnotationsDiffBaseStorage
from trioperator.handling.guard import guarded
from trioperator.handling.handler import Activity
from trioperator.handling.indexing import Indices
from trioperator.handling.invoke import Invoker
from trioperator.handling.lifecycles import Lifecycle
from trioperator.handling.progress import SmartProgressStorage
from trioperator.handling.registry import OperatorRegistry
from trioperator.handling.stopping import DaemonStoppingReason
from trioperator.kube.client import Client, open_client
from trioperator.kube.connection_info import ConnectionInfo
from trioperator.logs import get_logger
from trioperator.runtime.activities import run_activity
from trioperator.runtime.cache import ObjectState
from trioperator.runtime.causes import CauseFactory, Essences
from trioperator.runtime.daemons.loops import DaemonLoops
from trioperator.runtime.daemons.manager import DaemonManager
from trioperator.runtime.execution import Executor
from trioperator.runtime.indexing import Indexing
from trioperator.runtime.patching.patcher import Patcher
from trioperator.runtime.patching.pending import PendingPatches
from trioperator.runtime.progress.progress import Progress
from trioperator.runtime.progress.records import Records
from trioperator.runtime.reconciler import Reconciler
from trioperator.runtime.scope import Scope
from trioperator.runtime.watches import WatchManager
from trioperator.runtime.workqueue import WorkQueue, open_workqueue
from trioperator.settings import OperatorSettings

if TYPE_CHECKING:
    import httpx

__all__ = ["Flag", "Plan", "supervise"]

Flag: TypeAlias = trio.Event | threading.Event

# Of the problems of a ready operator, so many are logged and shown by probes.
_MAX_PROBLEMS = 20
# Share of the grace for running handlers; the rest is for cancelled ones to exit.
_WORKERS_SHARE = 0.6
# Share of the grace for daemons and timers; the rest is for storing their last patches.
_DAEMONS_SHARE = 0.5


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Plan:
    """Parts and options of an operator."""

    registry: OperatorRegistry
    settings: OperatorSettings
    memo: Any
    scope: Scope
    connect: Callable[[], ConnectionInfo]
    lifecycle: Lifecycle | None = None
    transport: httpx.AsyncBaseTransport | None = None
    liveness_endpoint: str | None = None
    stop_flag: Flag | None = None
    ready_flag: Flag | None = None


class _Stop:
    """Request to stop the operator, and its deadline."""

    def __init__(self, grace: Callable[[], float]) -> None:
        self.requested = trio.Event()
        self.everything = trio.CancelScope()
        self.cleaning = trio.CancelScope(shield=True)  # gets its deadline when it is entered
        self.deadline: float | None = None
        self._grace = grace
        self._starting: trio.CancelScope | None = None

    def request(self, reason: str) -> None:
        """Request a stop in order; when requested again, cancel everything."""
        if self.requested.is_set():
            self.everything.cancel(reason=f"{reason}, again")
            self.cleaning.cancel(reason=f"{reason}, again")
            return
        self.deadline = trio.current_time() + self._grace()
        self.requested.set()
        if self._starting is not None:
            self._starting.cancel(reason=reason)

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


async def supervise(plan: Plan, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Run an operator until it is stopped by a signal, its stop flag or cancellation.

    It has started when all objects are listed. Raises the error that has kept it from starting or running.
    """
    plan.registry.check()
    stop = _Stop(lambda: plan.settings.process.grace)
    try:
        async with trio.open_nursery() as edge:
            await edge.start(_serve_signals, stop)
            if plan.stop_flag is not None:
                edge.start_soon(_serve_flag, plan.stop_flag, stop)
            with stop.everything:
                await _Operator(plan, stop).run(task_status)
            edge.cancel_scope.cancel(reason="the operator has ended")
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from error.__cause__  # without the exception groups of the nurseries
    if stop.everything.cancel_called:
        raise KeyboardInterrupt("The operator was stopped again before it had stopped in order.")


class _Operator:
    def __init__(self, plan: Plan, stop: _Stop) -> None:
        self._plan = plan
        self._stop = stop
        self._logger = get_logger("trioperator.supervisor")
        self._indices = plan.registry.make_indices()
        self._watches: WatchManager | None = None

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        try:
            with self._stop.starting():
                await self._run_activity(Activity.STARTUP)
            if not self._stop.requested.is_set():
                await self._serve(task_status)
        finally:
            # Also after cancellation from outside: without a stop request, the grace begins now.
            cleaning = self._stop.cleaning
            cleaning.deadline = trio.current_time() + self._stop.remaining
            with cleaning:
                await self._run_activity(Activity.CLEANUP)
            if cleaning.cancelled_caught:
                self._logger.warning("The cleanup handlers were cancelled: the grace period is over.")

    async def _serve(self, task_status: trio.TaskStatus[None]) -> None:
        plan, settings = self._plan, self._plan.settings
        connection = open_client(plan.connect, settings=settings, transport=plan.transport)
        async with connection as client, trio.open_nursery() as support:
            if plan.liveness_endpoint:
                await support.start(self._serve_probes, plan.liveness_endpoint)
            machinery = _build_machinery(plan, client, self._indices, stopping=self._stop.requested)
            running = open_workqueue(machinery.reconciler, limit=settings.queueing.worker_limit)
            async with running as queue, trio.open_nursery() as companions:
                await companions.start(machinery.daemons.serve)
                failure = await self._watch(self._make_watch_manager(client, queue, machinery), task_status)
                self._drain(queue, machinery.daemons)
            support.cancel_scope.cancel(reason="the operator is stopping")
        if failure is not None:
            raise failure

    async def _watch(self, watches: WatchManager, task_status: trio.TaskStatus[None]) -> Exception | None:
        """Watch until a stop is requested. Returns an error that ends it: what is at work stops in order, then, too."""
        try:
            async with trio.open_nursery() as intake:
                with self._stop.starting():
                    await intake.start(watches.serve)
                    self._announce(task_status)
                await self._stop.requested.wait()
                intake.cancel_scope.cancel(reason="the operator is stopping")
        except Exception as error:  # noqa: BLE001 -- it is raised when everything has stopped
            if not self._stop.requested.is_set():
                self._stop.request("an error")
            return error
        return None

    def _announce(self, task_status: trio.TaskStatus[None]) -> None:
        problems = self._problems
        if problems:
            self._logger.info("The operator is ready. It does not handle everything: %s", " ".join(problems))
        else:
            self._logger.info("The operator is ready.")
        task_status.started()
        if self._plan.ready_flag is not None:
            self._plan.ready_flag.set()

    @property
    def _problems(self) -> Sequence[str]:
        """What a ready operator does not handle, in one sentence each."""
        problems = () if self._watches is None else self._watches.problems
        if len(problems) <= _MAX_PROBLEMS:
            return problems
        return (*problems[:_MAX_PROBLEMS], f"And {len(problems) - _MAX_PROBLEMS} more.")

    def _make_watch_manager(self, client: Client, queue: WorkQueue[ObjectState], machinery: _Machinery) -> WatchManager:
        plan = self._plan
        self._watches = WatchManager(
            client,
            queue,
            registry=plan.registry,
            settings=plan.settings,
            scope=plan.scope,
            memo=plan.memo,
            indexing=machinery.indexing,
            daemons=machinery.daemons,
        )
        return self._watches

    def _drain(self, queue: WorkQueue[ObjectState], daemons: DaemonManager) -> None:
        """Limit how long objects are handled. Daemons end first: what they want stored takes a reconcile."""
        now, remaining = trio.current_time(), self._stop.remaining
        queue.give_up_at(now + remaining * _WORKERS_SHARE)
        daemons.stop_all(DaemonStoppingReason.OPERATOR_EXITING, give_up_at=now + remaining * _DAEMONS_SHARE)

    async def _serve_probes(
        self, endpoint: str, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
    ) -> None:
        from trioperator.web.probes import serve_probes  # saves loading a web server without probes

        await serve_probes(endpoint, self._probe, task_status=task_status)

    async def _probe(self) -> dict[str, Any]:
        results = await self._run_activity(Activity.PROBE)
        problems = self._problems
        return {"problems": problems, **results} if problems else results

    async def _run_activity(self, activity: Activity) -> dict[str, Any]:
        handlers = self._plan.registry.activities(activity)
        if not handlers:
            return {}
        cause = ActivityCause(
            activity=activity,
            settings=self._plan.settings,
            memo=self._plan.memo,
            logger=get_logger(f"trioperator.activities.{activity}"),
            indices=self._indices,
        )
        return await run_activity(handlers, cause, _make_invoker(self._plan.settings))


class _Machinery(msgspec.Struct, frozen=True, eq=False):
    """What reconciles objects, wired together."""

    reconciler: Reconciler
    indexing: Indexing
    daemons: DaemonManager


def _build_machinery(plan: Plan, client: Client, indices: Indices, *, stopping: trio.Event) -> _Machinery:
    settings = plan.settings
    progress_storage = guarded(settings.persistence.progress_storage or SmartProgressStorage())
    diffbase_storage = guarded(settings.persistence.diffbase_storage or AnnotationsDiffBaseStorage())
    essences = Essences(progress=progress_storage, diffbase=diffbase_storage)
    causes = CauseFactory(essences, diffbase=diffbase_storage, finalizer=settings.persistence.finalizer)
    pending = PendingPatches()
    patcher = Patcher(client, pending)
    progress = Progress(Records(progress=progress_storage, diffbase=diffbase_storage), patcher)
    invoker = _make_invoker(settings)
    indexing = Indexing(indices, invoker, causes=causes)
    loops = DaemonLoops(settings, pending)
    daemons = DaemonManager(loops, pending=pending, causes=causes, essences=essences, settings=settings)
    executor = Executor(invoker, progress, pending, essences, settings, stopping)
    reconciler = Reconciler(
        executor, causes=causes, patcher=patcher, indexing=indexing, daemons=daemons, lifecycle=plan.lifecycle
    )
    return _Machinery(reconciler, indexing, daemons)


def _make_invoker(settings: OperatorSettings) -> Invoker:
    execution = settings.execution
    return Invoker(limiter=trio.CapacityLimiter(execution.max_workers), backoff=execution.default_backoff)


async def _serve_signals(stop: _Stop, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Request a stop for each signal. Do nothing outside the main thread, where Python delivers no signals."""
    logger = get_logger("trioperator.supervisor")
    if threading.current_thread() is not threading.main_thread():
        logger.debug("Signals are not handled: the operator does not run in the main thread.")
        task_status.started()
        return
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for number in signals:
            name = signal.Signals(number).name
            logger.info(
                "Signal %s is received: the operator %s.", name, "ends at once" if stop.requested.is_set() else "stops"
            )
            stop.request(name)


async def _serve_flag(flag: Flag, stop: _Stop) -> None:
    if isinstance(flag, trio.Event):
        await flag.wait()
    else:
        await trio.to_thread.run_sync(flag.wait, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1))
    stop.request("the stop flag")
