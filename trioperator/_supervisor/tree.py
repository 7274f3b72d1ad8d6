"""Supervisor of an operator: its nursery tree, in the order of starting and stopping.

::

    supervise()
    ├─ signals                     first signal: stop in order; second: end at once
    ├─ watchdog                    reports functions that block the event loop
    ├─ startup activities          before anything talks to the API server
    ├─ session                     connections and credentials: login activities
    │  └─ support                  (stops last)    renewal of credentials, probes, webhooks, elections, events
    │     └─ workers               (stops third)   reconciles of objects
    │        └─ companions         (stops second)  daemons and timers
    │           └─ intake          (stops first)   scopes: reflectors of resource kinds
    └─ cleanup activities          after everything else

Tasks start from top to bottom, and stop from bottom to top. Stopping in order takes at most ``settings.process.grace``
seconds, whatever handlers do.

When the operator is paused, all below support stops in the same order, and starts again: as a standby, which watches
but handles nothing until the pause is over. If the objects are divided into shards, there are workers and companions
for each shard that this replica owns, and the intake is for all of them (see :mod:`trioperator._supervisor.sharding`).
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import trio

from trioperator._concurrency.core_tasks import CoreTasks, keep
from trioperator._coordination.leadership import Leadership
from trioperator._coordination.pauses import Pauses
from trioperator._coordination.peerings import Peerings
from trioperator._handling.arguments.cause import ActivityCause
from trioperator._handling.arguments.stopping import DaemonStoppingReason
from trioperator._handling.calls.invoke import Invoker
from trioperator._handling.calls.thread_limiter import ThreadLimiter
from trioperator._handling.handlers.handler import Activity
from trioperator._kube.api_client import ApiClient
from trioperator._kube.connection import load_connection
from trioperator._kube.credential_store import Login, login_in_thread, login_with
from trioperator._logs import get_logger
from trioperator._recorder.recorder import EventRecorder
from trioperator._runtime.activities import run_activity
from trioperator._runtime.authentication import make_login
from trioperator._runtime.cache import ObjectCache, Queue
from trioperator._runtime.daemons.manager import DaemonManager
from trioperator._runtime.kind import Memory
from trioperator._runtime.object_state import ObjectState
from trioperator._runtime.takeover import Takeover
from trioperator._runtime.watchdog import Watchdog
from trioperator._runtime.watching.targets import Requirements
from trioperator._runtime.watching.view import Stage, Unindexed, open_indexing
from trioperator._runtime.watching.watch_manager import WatchManager
from trioperator._runtime.watching.watch_set import StopsDaemons, WatchSet
from trioperator._runtime.workqueue import WorkQueue, open_workqueue
from trioperator._supervisor import assembly
from trioperator._supervisor.endpoints import Endpoints
from trioperator._supervisor.health import Health
from trioperator._supervisor.plan import Flag, Plan
from trioperator._supervisor.sharding import ShardContext, Sharding
from trioperator._supervisor.shutdown import InFlight, Shutdown, drain, report_awaited, unwrap_group
from trioperator._supervisor.signals import HINT, handle_signals
from trioperator._telemetry.inspector import Inspector
from trioperator.client.session import Session
from trioperator.errors import ApiError, ConnectionLostError

if TYPE_CHECKING:
    from trioperator._webhooks.service import Admission

__all__ = ["Flag", "Plan", "supervise"]

# At most this many problems of a ready operator are logged and shown by probes.
_MAX_PROBLEMS = 20
# Delay before another attempt to start again after a pause, in seconds.
_RESTART_DELAY = 5.0


async def supervise(plan: Plan, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Run an operator until it is stopped by a signal, its stop flag or cancellation.

    It has started when all objects are listed. Raises the error that has kept it from starting or running.
    """
    plan.registry.check()
    stop = Shutdown(lambda: plan.settings.process.grace)
    operator = _Operator(plan, stop)
    signals = handle_signals(stop, describe=operator.work.describe) if plan.handle_signals else None
    try:
        with signals or contextlib.nullcontext(), operator.core.active():
            async with trio.open_nursery() as edge:
                await edge.start(Watchdog(plan.settings).serve, name="watchdog")
                await edge.start(operator.endpoints.serve, name="endpoints")
                if plan.stop_flag is not None:
                    edge.start_soon(stop.request_on, plan.stop_flag)
                with stop.everything:
                    async with contextlib.aclosing(operator.session):
                        await operator.run(task_status)
                edge.cancel_scope.cancel(reason="the operator has ended")
    except BaseExceptionGroup as group:
        error = unwrap_group(group)
        raise error from error.__cause__  # without the exception groups of the nurseries
    finally:
        if not isinstance(sys.exception(), Exception):  # an error is what the caller reports, as the last line
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
        self.work = InFlight(stop)
        self._instruments = assembly.make_instruments(plan)
        self._announce_change = _do_nothing if self._instruments is None else self._instruments.announce
        self._pauses = Pauses(self._announce_change)
        self._lost: trio.Event | None = None  # what is being handled is to be cancelled at once
        self.core = CoreTasks()
        self._health = Health(self._pauses, stop, self.core)
        self._make_queue = open_workqueue if self._instruments is None else self._instruments.open_workqueue
        self._parts = Inspector(plan.settings, self._pauses, self.work.running, self._instruments, plan.registry)
        self.endpoints = Endpoints(plan, self._health, self._parts)
        self._sharding: Sharding | None = None
        self._memories: dict[str, Memory] = {}
        self._admission: Admission | None = None
        self._announced = False
        self.session = Session(
            self._make_login,
            settings=plan.settings,
            transport=plan.transport,
            fence=self._pauses.check_write,
            wrap=None if self._instruments is None else self._instruments.wrap_client,
        )

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
            if cleaning.cancelled_caught and self._plan.registry.activities(Activity.CLEANUP):
                why = "by the second signal" if self._stop.everything.cancel_called else "the grace period is over"
                self._logger.warning("The cleanup handlers were cancelled: %s.", why)

    async def _serve(self, task_status: trio.TaskStatus[None]) -> None:
        plan = self._plan
        if plan.registry.webhook_handlers():
            assembly.check_webhooks(plan)
        with self._stop.starting():
            client = await self.session.open()
        if self._stop.requested.is_set():
            return
        elections = assembly.make_elections(client, self._pauses, plan)
        fenced = client.fenced(self._pauses.check_write)
        recorder = EventRecorder(fenced, plan.settings, identity=plan.identity)
        if plan.registry.webhook_handlers():
            self._admission = self._build_admission(client)
        try:
            with recorder.active():
                failure = await self._serve_support(fenced, recorder, elections, task_status)
        finally:
            if self._admission is not None:
                await self._admission.release()
            await self._release(elections)
        if failure is not None:
            raise failure

    @staticmethod
    async def _release(elections: list[Leadership | Peerings]) -> None:
        """Let others take over, once: nothing is handled any more."""
        while elections:
            await elections.pop().release()

    def _build_admission(self, client: ApiClient) -> Admission:
        admission = assembly.build_admission(
            self._plan,
            client,
            self._make_invoker(self._plan.settings.admission.max_workers),
            indices=self._indices,
            find=self._find_state,
            stopping=self._stop.requested,
            instruments=self._instruments,
        )
        self._health.update_admission(admission)
        return admission

    async def _serve_support(
        self,
        client: ApiClient,
        recorder: EventRecorder,
        elections: list[Leadership | Peerings],
        task_status: trio.TaskStatus[None],
    ) -> Exception | None:
        """Serve probes and webhooks, until the operator stops or fails. Returns the error, if any.

        Others take over as soon as nothing is handled any more, while webhooks are still served.
        """
        async with trio.open_nursery() as support:
            support.start_soon(keep, "credentials", client.keep_credentials, name="credentials")
            support.start_soon(keep, "post events", recorder.serve, name="post events")
            if self._plan.liveness_endpoint:
                await support.start(keep, "probes", self._serve_probes, name="probes")
            with self._stop.starting():
                await support.start(keep, "client libraries", self.session.serve_libraries, name="client libraries")
                if self._admission is not None:
                    await support.start(keep, "webhooks", self._admission.serve, name="webhooks")
            failure = await self._serve_elected(client, elections, task_status)
            if self._admission is not None:
                await recorder.flush(self._stop.remaining, last=False)  # those who may write no more post nothing
                await self._release(elections)
                await self._admission.release()  # while its webhooks are still served
                await self._admission.linger(self._stop.requested_at, self._stop.remaining)
            await recorder.flush(self._stop.remaining)
            support.cancel_scope.cancel(reason="the operator is stopping")
        return failure

    async def _serve_elected(
        self, client: ApiClient, elections: list[Leadership | Peerings], task_status: trio.TaskStatus[None]
    ) -> Exception | None:
        """Take part in elections, and handle objects between pauses, until the operator stops or fails."""
        failure: Exception | None = None
        async with trio.open_nursery() as electing:
            with self._stop.starting():
                for election in elections:
                    await electing.start(election.serve)
            serve = self._serve_shards if self._plan.settings.leadership.shards > 1 else self._serve_until_paused
            while failure is None and not self._stop.requested.is_set():
                failure = await serve(client, task_status)
                if failure is not None and not self._stop.requested.is_set():
                    await self._back_off(failure)  # after a pause, the API server is not there just now
                    failure = None
            electing.cancel_scope.cancel(reason="nothing is handled any more")
        return failure

    async def _back_off(self, error: Exception) -> None:
        """Back off before another attempt to start again after a pause."""
        self._logger.warning("Starting again after a pause in %g s, as it failed: %s", _RESTART_DELAY, error)
        with trio.move_on_after(_RESTART_DELAY):
            await self._stop.requested.wait()

    async def _serve_until_paused(self, client: ApiClient, task_status: trio.TaskStatus[None]) -> Exception | None:
        """Watch as a standby, and handle objects while the operator is active, until it is paused or stops."""
        stopping, invoker = trio.Event(), self._make_invoker()
        views = assembly.build_read_caches(self._plan, self._indices, invoker)
        built = assembly.build_reconciling(self._plan, client, views, invoker, stopping=stopping)
        running = self._make_queue(built.reconciler, limit=self._plan.settings.queueing.worker_limit)
        async with trio.open_nursery() as reporting:
            async with open_indexing() as unindexed, running as queue, trio.open_nursery() as companions:
                await companions.start(built.daemons.serve)
                stage = views.make_stage(unindexed, self._instruments)
                watches = self._make_watch_manager(client, queue, built.daemons, views=views, stage=stage)
                self._parts.replace(queue, watches, built.daemons, lambda _: built.reconciler)
                failure = await self._watch(watches, task_status, built.reconciler.takeover)
                stopping.set()
                draining = functools.partial(self._drain, queue, built.daemons, unindexed)
                draining()
                reporting.start_soon(self._report_awaited, name="report")
                reporting.start_soon(self._call_when_lost, draining, name="give up when others take over")
            reporting.cancel_scope.cancel(reason="nothing is waited for any more")
        self._memories = watches.watches.remember(self._memories)
        if not self._stop.requested.is_set():  # else admission handlers still use them
            views.indexing.clear()
        return failure

    async def _serve_shards(self, client: ApiClient, task_status: trio.TaskStatus[None]) -> Exception | None:
        """Watch everything, and handle the objects of some shards, until the operator is paused or stops."""
        invoker = self._make_invoker()
        views = assembly.build_read_caches(self._plan, self._indices, invoker)
        tools = ShardContext(client, views, invoker, self.session.make_clients, self._make_queue)
        self._sharding = Sharding(self._plan, tools, self._stop)
        async with trio.open_nursery() as reporting:
            async with open_indexing() as unindexed, self._sharding.running() as router:
                stage, make_cache = views.make_stage(unindexed, self._instruments), router.make_cache
                watches = self._make_watch_manager(
                    client, router, router.daemons, views=views, stage=stage, make_cache=make_cache
                )
                self._parts.replace(router, watches, router.daemons, router.find_reconciler)
                failure = await self._watch(watches, task_status)
                until = trio.current_time() + self._stop.remaining
                unindexed.close(give_up_at=until)
                self.work.limit(router, workers_until=until, daemons_until=until)
                reporting.start_soon(self._report_awaited, name="report")
                if self._lost is not None:
                    reporting.start_soon(self._sharding.give_up_when, self._lost, name="give up when others take over")
            reporting.cancel_scope.cancel(reason="nothing is waited for any more")
        self._memories = watches.watches.remember(self._memories)
        if not self._stop.requested.is_set():  # else admission handlers still use them
            views.indexing.clear()
        return failure

    async def _watch(
        self, watches: WatchManager, task_status: trio.TaskStatus[None], takeover: Takeover | None = None
    ) -> Exception | None:
        """Watch until a pause or a stop. Returns an error that ends it: what is at work stops in order, then, too.

        A pause ends it at any time after objects have begun to be handled, as in the middle of the first lists. Those
        that have come by then are drained, and what is watched after that is watched as a standby.
        """
        restarting, self._lost = self._announced, None
        try:
            async with trio.open_nursery() as intake:
                intake.start_soon(self._stop.cancel_when_requested, intake.cancel_scope)
                if not self._pauses.reasons:
                    self._activate(watches, intake)  # each kind is handled as soon as it is listed
                await intake.start(watches.serve)
                if self._admission is not None:
                    await self._admission.wait_configured()
                restarting = False
                self._announce(task_status)
                if self._lost is None:
                    self._pauses.report()
                    await self._pauses.wait_active()
                    self._activate(watches, intake)
                    if takeover is not None:
                        takeover.begin(watches.watches.caches_by_path())
                        intake.start_soon(takeover.find_versions, name="find versions")
                if self._sharding is not None:
                    self._sharding.begin(watches.watches)
                await trio.sleep_forever()
        except Exception as error:  # noqa: BLE001 -- it is raised when everything has stopped
            only = unwrap_group(error)
            is_temporary = restarting and isinstance(only, ApiError | ConnectionLostError)
            if not is_temporary and not self._stop.requested.is_set():
                self._stop.request("an error")
            return only if isinstance(only, Exception) else error
        if self._pauses.reasons and not self._stop.requested.is_set():
            self._pauses.report()  # only now, as no more objects come in
        return None

    def _activate(self, watches: WatchManager, intake: trio.Nursery) -> None:
        """Let objects be handled, until the operator is paused. Nothing waits here: there is no pause meanwhile."""
        self._pauses.report_end()
        self._lost = self._pauses.lost
        intake.start_soon(_cancel_when, self._pauses.paused, intake.cancel_scope, name="wait for a pause")
        watches.activate()

    def _announce(self, task_status: trio.TaskStatus[None]) -> None:
        if self._announced:
            return
        self._announced = True
        self._health.announce()
        self._parts.announce()
        problems = self._problems
        if problems:
            self._logger.warning("The operator is ready. It does not handle everything: %s", " ".join(problems))
        else:
            self._logger.info("The operator is ready.")
        task_status.started()
        if self._plan.ready_flag is not None:
            self._plan.ready_flag.set()

    @property
    def _problems(self) -> Sequence[str]:
        """What a ready operator does not handle, in one sentence each."""
        problems = () if self._watches is None else self._watches.problems
        problems += () if self._admission is None else self._admission.problems
        more = len(problems) - _MAX_PROBLEMS
        return problems if more <= 0 else (*problems[:_MAX_PROBLEMS], f"And {more} more.")

    def _make_watch_manager(
        self,
        client: ApiClient,
        queue: Queue,
        daemons: StopsDaemons,
        *,
        views: assembly.ReadCaches,
        stage: Stage,
        make_cache: Callable[..., ObjectCache] = ObjectCache,
    ) -> WatchManager:
        plan = self._plan
        make_cache = functools.partial(
            make_cache,
            queue=queue,
            memo=plan.memo,
            consistency_timeout=plan.settings.persistence.consistency_timeout,
            backlog_limit=plan.settings.queueing.backlog_limit,
            indices=self._indices,
            memories=self._memories,
        )
        watches = WatchSet(client, stage, make_cache=make_cache, daemons=daemons, announce=self._announce_change)
        requirements = Requirements.of(plan.registry, plan.settings)
        self._watches = WatchManager(
            client,
            watches,
            requirements=requirements,
            related=views.related,
            scope=plan.scope,
            webhooks=self._admission,
        )
        self._health.update_watches(self._watches)
        return self._watches

    def _find_state(self, uid: str) -> ObjectState | None:
        return None if self._watches is None else self._watches.watches.find(uid)

    def _drain(self, queue: WorkQueue[ObjectState], daemons: DaemonManager, unindexed: WorkQueue[Unindexed]) -> None:
        """Limit how long objects are handled, by why the operator does not handle them any more."""
        stopping, lost = self._stop.requested.is_set(), self._lost is not None and self._lost.is_set()
        reason = DaemonStoppingReason.OPERATOR_EXITING if stopping else DaemonStoppingReason.OPERATOR_PAUSING
        seconds = 0.0 if lost else self._stop.remaining
        workers_until, daemons_until = drain(queue, daemons, seconds=seconds, reason=reason)
        unindexed.close(give_up_at=workers_until)
        self.work.limit(queue, workers_until=workers_until, daemons_until=daemons_until)

    async def _call_when_lost(self, draining: Callable[[], None]) -> None:
        """Cancel what is at work when others may take over while it is given time to end."""
        if self._lost is not None:
            await self._lost.wait()
            draining()

    async def _report_awaited(self) -> None:
        await report_awaited(self.work.list_awaited, hint=HINT if self._plan.handle_signals else "")

    async def _serve_probes(self, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        from trioperator._endpoints.probes import serve_probes  # saves loading a web server without probes

        assert self._plan.liveness_endpoint is not None
        await serve_probes(self._plan.liveness_endpoint, self._probe, task_status=task_status)

    async def _probe(self) -> dict[str, Any]:
        found = await self._run_activity(Activity.PROBE)
        results = {name: result for name, result in found.items() if result is not None}  # None is no result
        problems = self._problems
        return {"problems": problems, **results} if problems else results

    async def _run_activity(self, activity: Activity, *, deadline: float = math.inf) -> dict[str, Any]:
        handlers = self._plan.registry.activities(activity)
        if not handlers:
            return {}
        return await run_activity(handlers, self._make_cause(activity), self._make_invoker(), deadline=deadline)

    def _make_cause(self, activity: Activity) -> ActivityCause:
        return ActivityCause(
            activity=activity,
            settings=self._plan.settings,
            memo=self._plan.memo,
            logger=get_logger(f"trioperator.activities.{activity}"),
            indices=self._indices,
        )

    def _make_login(self) -> Login:
        """Return how the operator logs in: by the given connection, by login handlers, or as kubectl does."""
        connection = self._plan.connection
        if connection is not None:
            return login_with(connection)
        handlers = self._plan.registry.activities(Activity.AUTHENTICATION)
        if handlers:
            return make_login(handlers, self._make_cause(Activity.AUTHENTICATION), self._make_invoker(connected=False))
        return login_in_thread(load_connection)

    def _make_invoker(self, threads: int | None = None, *, connected: bool = True) -> Invoker:
        execution = self._plan.settings.execution
        limiter = ThreadLimiter(threads or execution.max_workers)
        make = Invoker if self._instruments is None else self._instruments.make_invoker
        backoff, clients = execution.default_backoff, self.session.clients if connected else None
        return make(limiter=limiter, backoff=backoff, running=self.work.running, clients=clients)


def _do_nothing() -> None:
    """Announce nothing: nobody watches the operator live."""


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel(reason="the operator is paused")
