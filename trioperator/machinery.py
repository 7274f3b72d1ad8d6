"""What reconciles objects, wired together from its parts."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from trioperator.coordination.leadership import Leadership
from trioperator.coordination.pauses import Pauses
from trioperator.coordination.peerings import Peerings
from trioperator.errors import ConfigError
from trioperator.handling.diffbase import AnnotationsDiffBaseStorage
from trioperator.handling.guard import guarded
from trioperator.handling.handler import Activity
from trioperator.handling.indexing import Indices
from trioperator.handling.invoke import Invoker
from trioperator.handling.progress import SmartProgressStorage
from trioperator.handling.reconciling import ReconcileHandler
from trioperator.kube.client import Client
from trioperator.logs import get_logger
from trioperator.model.keyed_digest import FieldDigests
from trioperator.plan import Plan
from trioperator.reconciling.applying import Applier
from trioperator.reconciling.level import Level
from trioperator.reconciling.watches import RelatedWatches
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
from trioperator.runtime.takeover import Takeover
from trioperator.runtime.view import Stage, Unindexed
from trioperator.runtime.workqueue import WorkQueue
from trioperator.settings import OperatorSettings

if TYPE_CHECKING:
    from trioperator.telemetry.instruments import Instruments
    from trioperator.telemetry.tracing import Tracing
    from trioperator.web.admission_service import Admission

__all__ = [
    "Machinery",
    "Views",
    "build_admission",
    "build_machinery",
    "build_views",
    "check_webhooks",
    "make_elections",
    "make_instruments",
]


class Machinery(msgspec.Struct, frozen=True, eq=False):
    """What reconciles objects: the reconciler, and its parts that others talk to."""

    reconciler: Reconciler
    daemons: DaemonManager
    level: Level


class Views(msgspec.Struct, frozen=True, eq=False):
    """What watches fill besides the caches of handled objects: indices, and caches of related objects."""

    indexing: Indexing
    related: RelatedWatches
    backlog_limit: int

    def make_stage(self, queue: WorkQueue[Unindexed]) -> Stage:
        """Return what indexes objects before anybody else sees them. The *queue* is that of :func:`open_indexing`."""
        return Stage(self.indexing, queue, self.backlog_limit, self.related.reindexed)


def build_views(plan: Plan, indices: Indices, invoker: Invoker) -> Views:
    """Build what keeps the indices of an operator and its caches of related objects up to date."""
    handlers = [handler for handler in plan.registry.resource_handlers() if isinstance(handler, ReconcileHandler)]
    related = RelatedWatches(handlers, settings=plan.settings, indices=indices, memo=plan.memo)
    indexing = Indexing(indices, invoker, causes=_build_records(plan.settings)[1])
    return Views(indexing, related, plan.settings.queueing.backlog_limit)


def _build_records(settings: OperatorSettings) -> tuple[Essences, CauseFactory, Records]:
    progress_storage = guarded(settings.persistence.progress_storage or SmartProgressStorage())
    diffbase_storage = guarded(settings.persistence.diffbase_storage or AnnotationsDiffBaseStorage())
    essences = Essences(progress=progress_storage, diffbase=diffbase_storage)
    digests = FieldDigests(settings.persistence.digest_key)
    finalizer = settings.persistence.finalizer
    causes = CauseFactory(essences, diffbase=diffbase_storage, finalizer=finalizer, digests=digests)
    return essences, causes, Records(progress=progress_storage, diffbase=diffbase_storage, digests=digests)


def build_machinery(plan: Plan, client: Client, views: Views, invoker: Invoker, *, stopping: trio.Event) -> Machinery:
    """Build the reconciler of an operator with all its parts. No further handlers are called once *stopping* is set.

    Where the *client* must not write any more, no handlers are called either, but those of indices.
    """
    settings, invoker = plan.settings, invoker.fenced(client.fence)
    essences, causes, records = _build_records(settings)
    pending = PendingPatches()
    patcher = Patcher(client, pending)
    progress = Progress(records, patcher)
    loops = DaemonLoops(settings, pending, invoker)
    daemons = DaemonManager(loops, pending=pending, causes=causes, essences=essences, settings=settings)
    executor = Executor(invoker, progress, pending, essences, patcher, settings, stopping)
    applier = Applier(client, views.related)
    level = Level(executor, views.related, applier, causes=causes, patcher=patcher)
    views.related.triggers.append(level)
    reconciler = Reconciler(
        executor,
        causes=causes,
        patcher=patcher,
        daemons=daemons,
        level=level,
        takeover=Takeover(client),
        lifecycle=plan.lifecycle,
    )
    return Machinery(reconciler, daemons, level)


def check_webhooks(plan: Plan) -> None:
    """Check the settings of webhooks, before anything is served. Raises ConfigError."""
    from trioperator.handling.webhook_configuration import describe_removal  # most operators have no webhooks
    from trioperator.web.admission_service import check_admission

    what = "Admission" if plan.registry.admission_handlers() else "Conversion"
    check_admission(plan.settings.admission, what=what)
    if plan.settings.admission.managed is not None and plan.settings.leadership.expects_replicas:
        for handler in plan.registry.admission_handlers():
            if problem := describe_removal(handler, has_replicas=True):
                get_logger("trioperator.web.admission").warning("%s", problem)


def build_admission(
    plan: Plan,
    client: Client,
    invoker: Invoker,
    *,
    indices: Indices,
    find: Callable[[str], ObjectState | None],
    stopping: trio.Event,
    instruments: Instruments | None = None,
) -> Admission:
    """Build the webhooks of an operator. *find* returns the state of a watched object by its uid."""
    from trioperator.web.admission import Reviewer
    from trioperator.web.admission_service import Admission
    from trioperator.web.conversion import Converter

    def find_memo(uid: str | None) -> Callable[[], Any]:
        state = None if uid is None else find(uid)
        return functools.partial(copy.copy, plan.memo) if state is None else state.get_memo

    handlers, conversions = plan.registry.admission_handlers(), plan.registry.conversion_handlers()
    reviewer = Reviewer(handlers, invoker, indices=indices, find_memo=find_memo, settings=plan.settings.admission)
    converter = Converter(conversions, invoker, indices=indices, find_memo=find_memo)
    settings = plan.settings
    has_replicas = settings.leadership.expects_replicas
    admission = Admission(client, settings.admission, reviewer, converter, stopping=stopping, has_replicas=has_replicas)
    if plan.replace_webhook_server is not None:
        admission.server = plan.replace_webhook_server(admission.server)
    if instruments is not None:
        ids = [handler.id for handler in handlers]
        admission.fn = instruments.count_reviews(admission, ids, converts=bool(conversions))
    return admission


def make_instruments(plan: Plan) -> Instruments | None:
    """Return what counts and traces what the operator does; None without metrics and traces. Raises ConfigError."""
    live, make = plan.live_view_endpoint is not None or plan.live_view_app is not None, plan.instruments
    if make is None:
        if plan.metrics_endpoint is None and not plan.tracing and not live:
            return None
        from trioperator.telemetry.instruments import Instruments  # nobody else needs it

        make = Instruments
    registry = plan.registry
    activities = [handler for activity in Activity for handler in registry.activities(activity)]
    handlers = (*registry.resource_handlers(), *registry.webhook_handlers(), *activities)
    tracing = _make_tracing() if plan.tracing else None
    return make([handler.id for handler in handlers], tracing, live=live)


def _make_tracing() -> Tracing:
    try:
        from trioperator.telemetry.tracing import Tracing
    except ImportError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ConfigError("Traces need OpenTelemetry: pip install 'trioperator[tracing]'.") from None
    return Tracing()


def make_elections(client: Client, pauses: Pauses, plan: Plan) -> list[Leadership | Peerings]:
    """Return what pauses and resumes the operator."""
    settings, client = plan.settings, client.reserved()
    elections: list[Leadership | Peerings] = []
    if settings.leadership.expects_replicas:
        settings.leadership.check()
    if settings.leadership.enabled and settings.leadership.shards == 1:
        elections.append(Leadership(client, pauses, settings=settings.leadership, identity=plan.identity))
    if plan.registry.resource_handlers() and not settings.peering.standalone:
        elections.append(Peerings(client, pauses, scope=plan.scope, settings=settings, identity=plan.identity))
    return elections
