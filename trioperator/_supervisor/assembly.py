"""Composition of an operator: the parts that live as long as it does, and those that reconcile objects."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from trioperator._concurrency.core_tasks import CoreTasks
from trioperator._coordination.leadership import Leadership
from trioperator._coordination.pauses import Pauses
from trioperator._coordination.peerings import Peerings
from trioperator._handling.arguments.indexing import Indices
from trioperator._handling.arguments.reconciling import ReconcileHandler
from trioperator._handling.calls.invoke import Clients, Invoker
from trioperator._handling.calls.thread_limiter import ThreadLimiter
from trioperator._handling.guard import guarded
from trioperator._handling.handlers.handler import Activity
from trioperator._handling.handlers.lifecycles import get_default_lifecycle
from trioperator._handling.storages.diffbase import AnnotationsDiffBaseStorage
from trioperator._handling.storages.progress import SmartProgressStorage
from trioperator._kube.api_client import ApiClient
from trioperator._kube.status_schemas import StatusSchemas
from trioperator._logs import get_logger
from trioperator._model.keyed_digest import FieldDigests
from trioperator._model.memo import Memo
from trioperator._runtime.cache.cache import ObjectCache
from trioperator._runtime.cache.kind import Memory
from trioperator._runtime.causes import CauseFactory, Essences
from trioperator._runtime.daemons.loops import DaemonLoops
from trioperator._runtime.daemons.manager import DaemonManager
from trioperator._runtime.execution.execution import Executor
from trioperator._runtime.execution.indexing import Indexing
from trioperator._runtime.patching.contention_guard import ContentionGuard
from trioperator._runtime.patching.patcher import Patcher
from trioperator._runtime.patching.pending import PendingPatches
from trioperator._runtime.pokes import Pokes
from trioperator._runtime.progress.progress import Progress
from trioperator._runtime.progress.records import RecordStore
from trioperator._runtime.reconciler.pauses import ObjectPauses
from trioperator._runtime.reconciler.reconciler import Reconciler
from trioperator._runtime.reconciler.takeover import Takeover
from trioperator._runtime.sharding import ShardRouter
from trioperator._runtime.watching.index_gate import MissingIndices
from trioperator._runtime.watching.targets import Requirements
from trioperator._runtime.watching.view import Batch, Stage, Unindexed
from trioperator._runtime.watching.watch_manager import WatchManager
from trioperator._runtime.watching.watch_set import WatchSet
from trioperator._runtime.workqueue import WorkQueue
from trioperator._supervisor.activities import Activities
from trioperator._supervisor.health import Health
from trioperator._supervisor.no_level import NoLevel, NoRelated
from trioperator._supervisor.plan import Plan
from trioperator._supervisor.shutdown import InFlight, Shutdown
from trioperator._supervisor.signals import HINT
from trioperator._telemetry.inspector import Inspector
from trioperator.client.session import Session
from trioperator.errors import ConfigError
from trioperator.settings import OperatorSettings

if TYPE_CHECKING:
    from trioperator._reconciling.level_reconciler import LevelReconciler
    from trioperator._reconciling.watches import RelatedWatches
    from trioperator._telemetry.instruments import Instruments
    from trioperator._telemetry.tracing import Tracing
    from trioperator._webhooks.service import Admission


class Operator(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The parts of an operator that live as long as it does. None of them runs by itself: see the tree of tasks."""

    plan: Plan
    stop: Shutdown
    pauses: Pauses
    core: CoreTasks
    indices: Indices
    missing: MissingIndices
    work: InFlight
    instruments: Instruments | None
    make_invoker: Callable[..., Invoker]
    activities: Activities
    session: Session
    inspector: Inspector
    health: Health


def build_operator(plan: Plan) -> Operator:
    """Build the parts of an operator that live as long as it does. Raises ConfigError."""
    stop, core, indices = Shutdown(lambda: plan.settings.process.grace), CoreTasks(), plan.registry.make_indices()
    work = InFlight(stop, hint=HINT if plan.handle_signals else "")
    instruments = _make_instruments(plan)
    pauses = Pauses(_get_announcer(instruments))

    def make_invoker(threads: int | None = None, *, connected: bool = True) -> Invoker:
        return _make_invoker(plan, work, instruments, threads=threads, clients=session.clients if connected else None)

    activities = Activities(plan, indices, make_invoker)
    session = Session(
        activities.make_login,
        settings=plan.settings,
        transport=plan.transport,
        fence=pauses.check_write,
        wrap=functools.partial(_wrap_client, plan, instruments),
    )
    inspector = Inspector(plan.settings, pauses, work.running, instruments, plan.registry, plan.ledger)
    return Operator(
        plan=plan,
        stop=stop,
        pauses=pauses,
        core=core,
        indices=indices,
        missing=MissingIndices(),
        work=work,
        instruments=instruments,
        make_invoker=make_invoker,
        activities=activities,
        session=session,
        inspector=inspector,
        health=Health(inspector, stop, core),
    )


def _wrap_client(plan: Plan, instruments: Instruments | None, client: ApiClient) -> ApiClient:
    noting = client.noting_requests(plan.ledger.requested)
    return noting if instruments is None else instruments.wrap_client(noting)


def _make_invoker(
    plan: Plan, work: InFlight, instruments: Instruments | None, *, threads: int | None, clients: Clients | None
) -> Invoker:
    execution = plan.settings.execution
    limiter = ThreadLimiter(threads or execution.threads)
    make = Invoker if instruments is None else instruments.make_invoker
    log, backoff = plan.ledger, execution.default_backoff
    invoker = make(limiter=limiter, backoff=backoff, running=work.running, clients=clients, log=log)
    return invoker.with_pool(lambda: execution.executor)  # startup handlers may set it


def _get_announcer(instruments: Instruments | None) -> Callable[[], None]:
    """Return the function that notifies live views of a change."""
    return (lambda: None) if instruments is None else instruments.announce


class Reconciling(msgspec.Struct, frozen=True, eq=False):
    """The reconciler, and its parts that others talk to."""

    reconciler: Reconciler
    daemons: DaemonManager
    level: LevelReconciler | NoLevel
    guard: ContentionGuard
    takeover: Takeover


class ReadCaches(msgspec.Struct, frozen=True, eq=False):
    """The readers of watches besides the caches of handled objects: indices, and caches of related objects."""

    indexing: Indexing
    missing: MissingIndices
    related: RelatedWatches | NoRelated
    backlog_limit: int

    def make_stage(self, queue: WorkQueue[Unindexed | Batch], instruments: Instruments | None = None) -> Stage:
        """Return what indexes objects before anybody else sees them. *queue* is from :func:`open_indexing`."""
        stage = Stage(self.indexing, queue, self.backlog_limit, self.related.reindexed, self.missing)
        return stage if instruments is None else msgspec.structs.replace(stage, observe=instruments.observe)


def build_read_caches(plan: Plan, indices: Indices, invoker: Invoker, missing: MissingIndices) -> ReadCaches:
    """Build what keeps the indices of an operator and its caches of related objects up to date."""
    indexing = Indexing(indices, invoker.unlogged(), by_id=plan.settings.share_ids)
    return ReadCaches(indexing, missing, _build_related(plan, indices), plan.settings.queueing.backlog_limit)


def _build_related(plan: Plan, indices: Indices) -> RelatedWatches | NoRelated:
    handlers = [handler for handler in plan.registry.resource_handlers() if isinstance(handler, ReconcileHandler)]
    if not handlers:
        return NoRelated()
    from trioperator._reconciling.watches import RelatedWatches  # saves 0.6 MiB of memory where there are none

    return RelatedWatches(handlers, settings=plan.settings, indices=indices, memo=plan.memo)


def build_watch_manager(
    operator: Operator,
    client: ApiClient,
    router: ShardRouter,
    reads: ReadCaches,
    unindexed: WorkQueue[Unindexed | Batch],
    *,
    admission: Admission | None,
    memories: dict[str, Memory],
) -> WatchManager:
    """Build what watches for an operator. *memories* are what it remembers of objects from before a pause."""
    plan, settings = operator.plan, operator.plan.settings
    make_cache = functools.partial(
        ObjectCache,
        queue=router,
        memo=plan.memo,
        consistency_timeout=settings.persistence.consistency_timeout,
        backlog_limit=settings.queueing.backlog_limit,
        indices=operator.indices,
        memories=memories,
    )
    stage, announce = reads.make_stage(unindexed, operator.instruments), _get_announcer(operator.instruments)
    watches = WatchSet(client, stage, make_cache=make_cache, shards=router, announce=announce)
    requirements = Requirements.of(plan.registry, settings)
    return WatchManager(
        client, watches, requirements=requirements, related=reads.related, scope=plan.scope, webhooks=admission
    )


def _build_records(settings: OperatorSettings, pokes: Pokes) -> tuple[Essences, CauseFactory, RecordStore]:
    progress_storage = guarded(settings.persistence.progress_storage or SmartProgressStorage())
    diffbase_storage = guarded(settings.persistence.diffbase_storage or AnnotationsDiffBaseStorage())
    pausing = settings.pausing
    ignored = frozenset(filter(None, (pausing.annotation, *pokes.annotations)))
    essences = Essences(progress=progress_storage, diffbase=diffbase_storage, ignored=ignored)
    digests = FieldDigests(settings.persistence.digest_key)
    finalizer = settings.persistence.finalizer
    causes = CauseFactory(essences, diffbase=diffbase_storage, finalizer=finalizer, digests=digests)
    records = RecordStore(progress=progress_storage, diffbase=diffbase_storage, digests=digests, pokes=pokes)
    return essences, causes, records


def build_reconciling(
    plan: Plan, client: ApiClient, views: ReadCaches, invoker: Invoker, *, stopping: trio.Event
) -> Reconciling:
    """Build the reconciler of an operator with all its parts. No further handlers are called once *stopping* is set.

    Where the *client* must no longer write, no handlers are called either, except for indices.
    """
    settings, invoker = plan.settings, invoker.fenced(client.options.fence)
    pokes = Pokes(settings.pausing.poke_annotation)
    essences, causes, records = _build_records(settings, pokes)
    pending, schemas = PendingPatches(), StatusSchemas(client)
    guard = ContentionGuard(settings, pending, plan.ledger, stopping=stopping, schemas=schemas)
    takeover = Takeover(client)
    patcher = Patcher(client, pending, guard)
    progress = Progress(records, patcher)
    loops = DaemonLoops(settings, pending, invoker)
    daemons = DaemonManager(loops, pending=pending, essences=essences, settings=settings)
    pauses = ObjectPauses(settings.pausing, schemas, pending=pending, progress=progress, daemons=daemons)
    lifecycle = get_default_lifecycle() if plan.lifecycle is None else plan.lifecycle
    executor = Executor(invoker, progress, pending, essences, causes, patcher, settings, stopping, lifecycle)
    level = _build_level(client, views.related, executor, guard, schemas)
    reconciler = Reconciler(
        executor,
        daemons=daemons,
        level=level,
        takeover=takeover,
        pauses=pauses,
        pokes=pokes,
        guard=guard,
    )
    return Reconciling(reconciler, daemons, level, guard, takeover)


def _build_level(
    client: ApiClient,
    related: RelatedWatches | NoRelated,
    executor: Executor,
    guard: ContentionGuard,
    schemas: StatusSchemas,
) -> LevelReconciler | NoLevel:
    if isinstance(related, NoRelated):
        return NoLevel()
    from trioperator._reconciling.kstatus import StatusReporter
    from trioperator._reconciling.level_reconciler import LevelReconciler

    status = StatusReporter(schemas, executor.pending)
    return LevelReconciler(executor, related, client, status=status, guard=guard)


def check_webhooks(plan: Plan) -> None:
    """Check the settings of webhooks, before anything is served. Raises ConfigError."""
    from trioperator._handling.reviews.webhook_configuration import describe_removal  # most operators have no webhooks
    from trioperator._webhooks.service import check_admission

    what = "Admission" if plan.registry.admission_handlers() else "Conversion"
    check_admission(plan.settings.admission, what=what)
    if plan.settings.admission.managed is not None and plan.settings.leadership.expects_replicas:
        for handler in plan.registry.admission_handlers():
            if problem := describe_removal(handler, has_replicas=True):
                get_logger("trioperator.webhooks").warning("%s", problem)


def build_admission(operator: Operator, client: ApiClient) -> Admission:
    """Build the webhooks of an operator."""
    from trioperator._webhooks.converter import Converter
    from trioperator._webhooks.reviewer import Reviewer
    from trioperator._webhooks.service import Admission

    plan, settings, instruments = operator.plan, operator.plan.settings, operator.instruments
    indices, invoker = operator.indices, operator.make_invoker(settings.admission.max_workers).unlogged()

    make_memo = functools.partial(Memo if type(plan.memo) is Memo else copy.copy, plan.memo)  # which takes longer

    def find_memo(uid: str | None) -> Callable[[], Any]:
        state = None if uid is None else operator.inspector.find_state(uid)
        return make_memo if state is None else state.get_memo

    handlers, conversions = plan.registry.admission_handlers(), plan.registry.conversion_handlers()
    reviewer = Reviewer(
        handlers,
        invoker,
        indices=indices,
        missing=operator.missing,
        find_memo=find_memo,
        settings=settings.admission,
    )
    converter = Converter(conversions, invoker, indices=indices, find_memo=find_memo)
    admission = Admission(client, settings, reviewer, converter, stopping=operator.stop.requested)
    if plan.replace_webhook_server is not None:
        admission.server = plan.replace_webhook_server(admission.server)
    if instruments is not None:
        ids = [handler.id for handler in handlers]
        admission.fn = instruments.count_reviews(admission, ids, converts=bool(conversions))
    return admission


def _make_instruments(plan: Plan) -> Instruments | None:
    """Return the instruments for metrics and traces; None if there are neither. Raises ConfigError."""
    live, make = plan.live_view_endpoint is not None or plan.live_view_app is not None, plan.instruments
    if make is None:
        if plan.metrics_endpoint is None and not plan.tracing and not live:
            return None
        from trioperator._telemetry.instruments import Instruments  # nobody else needs it

        make = Instruments
    registry = plan.registry
    activities = [handler for activity in Activity for handler in registry.activities(activity)]
    handlers = (*registry.resource_handlers(), *registry.webhook_handlers(), *activities)
    tracing = _make_tracing() if plan.tracing else None
    return make([handler.id for handler in handlers], tracing, live=live)


def _make_tracing() -> Tracing:
    try:
        from trioperator._telemetry.tracing import Tracing
    except ImportError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ConfigError("Traces need OpenTelemetry: pip install 'trioperator[tracing]'.") from None
    return Tracing()


def make_elections(client: ApiClient, pauses: Pauses, plan: Plan) -> list[Leadership | Peerings]:
    """Return what pauses and resumes the operator."""
    settings, client = plan.settings, client.reserved()
    elections: list[Leadership | Peerings] = []
    if settings.leadership.expects_replicas:
        settings.leadership.check()
    if settings.leadership.shards > 1 and settings.watching.shard_selectors:
        raise ConfigError("Objects are divided by --shards or by settings.watching.shard_selectors, not by both.")
    if settings.leadership.enabled and settings.leadership.shards == 1:
        elections.append(Leadership(client, pauses, settings=settings.leadership, identity=plan.identity))
    if plan.registry.resource_handlers() and not settings.peering.standalone:
        elections.append(Peerings(client, pauses, scope=plan.scope, settings=settings, identity=plan.identity))
    return elections
