"""Supervisor of an operator: its nursery tree, in the order of starting and stopping.

::

    supervise()
    ├─ signals                     first signal: stop in order; second: end at once
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
import math
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import trio

from trioperator.handling.cause import ActivityCause
from trioperator.handling.diffbase import AnnotationsDiffBaseStorage
from trioperator.handling.guard import guarded
from trioperator.handling.handler import Activity, ActivityHandler, Handler, SpawningHandler
from trioperator.handling.invoke import Attempt, Invoker, RunningCall
from trioperator.handling.lifecycles import Lifecycle
from trioperator.handling.progress import SmartProgressStorage
from trioperator.handling.registry import OperatorRegistry
from trioperator.handling.stopping import DaemonStoppingReason
from trioperator.kube.client import Client, open_client
from trioperator.kube.connection_info import ConnectionInfo
from trioperator.logs import describe_ref, get_logger
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
from trioperator.shutdown import Awaited, Shutdown, report_awaited
from trioperator.signals import HINT, handle_signals

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
    handle_signals: bool = True


async def supervise(plan: Plan, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Run an operator until it is stopped by a signal, its stop flag or cancellation.

    It has started when all objects are listed. Raises the error that has kept it from starting or running.
    """
    plan.registry.check()
    stop = Shutdown(lambda: plan.settings.process.grace)
    operator = _Operator(plan, stop)
    signals = handle_signals(stop, describe=operator.describe_running) if plan.handle_signals else None
    try:
        with signals or contextlib.nullcontext():
            async with trio.open_nursery() as edge:
                if plan.stop_flag is not None:
                    edge.start_soon(_serve_flag, plan.stop_flag, stop)
                with stop.everything:
                    await operator.run(task_status)
                edge.cancel_scope.cancel(reason="the operator has ended")
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from error.__cause__  # without the exception groups of the nurseries
    finally:
        get_logger("trioperator.supervisor").info("The operator has stopped.")
    if stop.everything.cancel_called:
        raise KeyboardInterrupt("The operator was stopped again before it had stopped in order.")


class _Operator:
    def __init__(self, plan: Plan, stop: Shutdown) -> None:
        self._plan = plan
        self._stop = stop
        self._logger = get_logger("trioperator.supervisor")
        self._indices = plan.registry.make_indices()
        self._watches: WatchManager | None = None
        self._queue: WorkQueue[ObjectState] | None = None
        self._running: dict[Attempt, RunningCall] = {}
        self._workers_until = self._daemons_until = math.inf

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
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._report_awaited, name="report")
                    await self._run_activity(Activity.CLEANUP, deadline=cleaning.deadline)
                    nursery.cancel_scope.cancel(reason="the operator has cleaned up")
            if cleaning.cancelled_caught:
                self._logger.warning("The cleanup handlers were cancelled: the grace period is over.")

    async def _serve(self, task_status: trio.TaskStatus[None]) -> None:
        plan, settings = self._plan, self._plan.settings
        connection = open_client(plan.connect, settings=settings, transport=plan.transport)
        async with connection as client, trio.open_nursery() as support:
            if plan.liveness_endpoint:
                await support.start(self._serve_probes, plan.liveness_endpoint)
            machinery = self._build_machinery(client)
            running = open_workqueue(machinery.reconciler, limit=settings.queueing.worker_limit)
            async with running as queue, trio.open_nursery() as companions:
                await companions.start(machinery.daemons.serve)
                failure = await self._watch(self._make_watch_manager(client, queue, machinery), task_status)
                self._drain(queue, machinery.daemons)
                support.start_soon(self._report_awaited, name="report")
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
        self._queue = queue
        self._workers_until, self._daemons_until = now + remaining * _WORKERS_SHARE, now + remaining * _DAEMONS_SHARE
        queue.give_up_at(self._workers_until)
        daemons.stop_all(DaemonStoppingReason.OPERATOR_EXITING, give_up_at=self._daemons_until)

    async def _report_awaited(self) -> None:
        await report_awaited(self._list_awaited, hint=HINT if self._plan.handle_signals else "")

    def _list_awaited(self) -> list[Awaited]:
        """Return what the operator waits for while it stops: calls of handlers, and other work on objects."""
        awaited = [Awaited(str(call), self._find_limit(call.handler)) for call in self._list_calls()]
        called = {ref["uid"] for call in self._list_calls() if (ref := call.logger.object_ref) is not None}
        for state in () if self._queue is None else self._queue.at_work:
            if state.uid not in called:
                name = f"the state of {describe_ref(state.ref)} to be stored"
                awaited += [Awaited(name, self._workers_until)]
        return awaited

    def _find_limit(self, handler: Handler) -> float:
        if isinstance(handler, ActivityHandler):
            return self._stop.cleaning.deadline
        return self._daemons_until if isinstance(handler, SpawningHandler) else self._workers_until

    def _list_calls(self) -> list[RunningCall]:
        """Return the calls in progress, but those of probes. May be called in any thread."""
        calls = list(self._running.values())
        return [
            c for c in calls if not (isinstance(c.handler, ActivityHandler) and c.handler.activity is Activity.PROBE)
        ]

    def describe_running(self) -> str:
        """Return the calls in progress in words. May be called in any thread."""
        return ", ".join(map(str, self._list_calls())) or "no handlers"

    async def _serve_probes(
        self, endpoint: str, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
    ) -> None:
        from trioperator.web.probes import serve_probes  # saves loading a web server without probes

        await serve_probes(endpoint, self._probe, task_status=task_status)

    async def _probe(self) -> dict[str, Any]:
        results = await self._run_activity(Activity.PROBE)
        problems = self._problems
        return {"problems": problems, **results} if problems else results

    async def _run_activity(self, activity: Activity, *, deadline: float = math.inf) -> dict[str, Any]:
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
        return await run_activity(handlers, cause, self._make_invoker(), deadline=deadline)

    def _build_machinery(self, client: Client) -> _Machinery:
        plan, settings = self._plan, self._plan.settings
        progress_storage = guarded(settings.persistence.progress_storage or SmartProgressStorage())
        diffbase_storage = guarded(settings.persistence.diffbase_storage or AnnotationsDiffBaseStorage())
        essences = Essences(progress=progress_storage, diffbase=diffbase_storage)
        causes = CauseFactory(essences, diffbase=diffbase_storage, finalizer=settings.persistence.finalizer)
        pending = PendingPatches()
        patcher = Patcher(client, pending)
        progress = Progress(Records(progress=progress_storage, diffbase=diffbase_storage), patcher)
        invoker = self._make_invoker()
        indexing = Indexing(self._indices, invoker, causes=causes)
        loops = DaemonLoops(settings, pending, running=self._running)
        daemons = DaemonManager(loops, pending=pending, causes=causes, essences=essences, settings=settings)
        executor = Executor(invoker, progress, pending, essences, settings, self._stop.requested)
        reconciler = Reconciler(
            executor, causes=causes, patcher=patcher, indexing=indexing, daemons=daemons, lifecycle=plan.lifecycle
        )
        return _Machinery(reconciler, indexing, daemons)

    def _make_invoker(self) -> Invoker:
        execution = self._plan.settings.execution
        limiter = trio.CapacityLimiter(execution.max_workers)
        return Invoker(limiter=limiter, backoff=execution.default_backoff, running=self._running)


class _Machinery(msgspec.Struct, frozen=True, eq=False):
    """What reconciles objects, wired together."""

    reconciler: Reconciler
    indexing: Indexing
    daemons: DaemonManager


async def _serve_flag(flag: Flag, stop: Shutdown) -> None:
    if isinstance(flag, trio.Event):
        await flag.wait()
    else:
        await trio.to_thread.run_sync(flag.wait, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1))
    stop.request("the stop flag")
