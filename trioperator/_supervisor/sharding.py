"""Workers, as a ring of the task tree: what handles objects, for each shard that this replica owns.

Theory of operation
===================

A shard has a work queue, a reconciler, and a daemon manager of its own. They are opened when the shard is acquired, and
drained before it is released. The watches, the caches and the indices are for all objects; a router takes each object
to the queue of its shard. So nothing in the work queue, the reconciler or the daemon manager knows of shards.

An operator whose objects are not divided has one shard, which it owns whenever it is active: from its start, so that
each kind is handled as soon as it is listed, or from the end of a pause. Shards that replicas divide are acquired
later, when all kinds are listed: a replica that cannot list must not take them from others.

From the point of view of one shard:

============ =============================== ============== =================== ==================================
state        since                           its objects    handlers            writes
============ =============================== ============== =================== ==================================
not owned    the start; or ``close()``       are followed   none                none
owned        ``open()``: all that was        are handled    are called          while the ownership is valid, and
             followed counts as listed now                                      the operator is not paused
draining     ``ending``: released, a pause,  are followed   go on within a      as before: what has been done is
             a stop                                         part of the grace   stored
given up     ``lost``, at any time: others   are followed   are cancelled       are refused
             may own it soon
============ =============================== ============== =================== ==================================

*Followed* means that the newest state is cached and indexed, and nothing else. Two things can take a shard away at
once, so that there are two events ``lost``: its ownership ends, as the replica's session has lapsed, or the period in
which the operator is active ends, as the lease or the peering record has.

What is drained may last as long as the grace period, and all of that can change meanwhile: a shard that is draining may
be lost, and an operator that stops may lose its lease. An ownership that is ending never comes back, not even if the
pause is over before the shard is drained: then it is closed first, and acquired again.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from trioperator._coordination.pauses import Period
from trioperator._coordination.shards import ShardOwnership, Shards
from trioperator._handling.arguments.stopping import DaemonStoppingReason
from trioperator._handling.calls.invoke import Invoker
from trioperator._kube.api_client import ApiClient
from trioperator._runtime.cache.cache import ObjectCache
from trioperator._runtime.cache.kind import Memory
from trioperator._runtime.reconciler.takeover import Takeover
from trioperator._runtime.sharding import Shard, ShardRouter
from trioperator._runtime.watching.view import Batch, Unindexed, open_indexing
from trioperator._runtime.watching.watch_manager import WatchManager
from trioperator._runtime.workqueue import WorkQueue, open_workqueue
from trioperator._supervisor.assembly import (
    Operator,
    ReadCaches,
    build_read_caches,
    build_reconciling,
    build_watch_manager,
)
from trioperator._supervisor.plan import Plan
from trioperator._supervisor.shutdown import Limits, drain

if TYPE_CHECKING:
    from trioperator._webhooks.service import Admission


@contextlib.asynccontextmanager
async def open_workers(
    operator: Operator, client: ApiClient, admission: Admission | None, memories: dict[str, Memory]
) -> AsyncIterator[Workers]:
    """Open what handles objects. Nothing is handled before it begins; at the end of the block, all is drained."""
    client, invoker = client.fenced(operator.pauses.check_write), operator.make_invoker()
    reads = build_read_caches(operator.plan, operator.indices, invoker, operator.missing)
    router = ShardRouter(operator.plan.settings.leadership.shards)
    async with trio.open_nursery() as draining:
        # Indexing has limits of its own: what cancels it must not cancel the shards, too.
        async with trio.open_nursery() as shards, open_indexing() as unindexed:
            manager = build_watch_manager(
                operator, client, router, reads, unindexed, admission=admission, memories=memories
            )
            operator.inspector.replace(router, manager)
            workers = Workers(operator, client, invoker, reads, router=router, manager=manager, nursery=shards)
            yield workers
            if not operator.stop.requested.is_set():
                operator.missing.update(None)  # indices do not follow any more: reviews wait for the next lists
            workers.stop()
            shards.cancel_scope.deadline = trio.current_time() + operator.stop.remaining
            _limit(operator, workers, unindexed)
            draining.start_soon(operator.work.report, name="report")
            draining.start_soon(_limit_when_lost, operator, workers, unindexed, name="give up when others take over")
        draining.cancel_scope.cancel(reason="nothing is left to wait for")
    if not operator.stop.requested.is_set():  # else admission handlers still use them
        reads.indexing.clear()


def _limit(operator: Operator, workers: Workers, unindexed: WorkQueue[Unindexed | Batch]) -> None:
    """Limit how long queued objects are still indexed, and report what is being drained."""
    limits = Limits.within(workers.grace)
    unindexed.close(give_up_at=limits.workers_until)
    operator.work.limit(workers.router, limits)


async def _limit_when_lost(operator: Operator, workers: Workers, unindexed: WorkQueue[Unindexed | Batch]) -> None:
    await workers.period.lost.wait()
    _limit(operator, workers, unindexed)


class Workers:
    """Handling of objects, for the shards that are owned, from when the operator is active until it stops or pauses.

    Set ``listed`` when all kinds are listed, or cannot be for now.
    """

    def __init__(
        self,
        operator: Operator,
        client: ApiClient,
        invoker: Invoker,
        reads: ReadCaches,
        *,
        router: ShardRouter,
        manager: WatchManager,
        nursery: trio.Nursery,
    ) -> None:
        self.router = router
        self.manager = manager
        self.watches = manager.watches
        self.period = Period()
        self.listed = trio.Event()
        self._operator = operator
        self._client = client
        self._invoker = invoker
        self._reads = reads
        self._nursery = nursery
        self._owner = self._make_owner(operator.plan)

    def _make_owner(self, plan: Plan) -> Shards | _OnlyShard:
        settings = plan.settings.leadership
        if settings.shards == 1:
            return _OnlyShard(self._serve_shard)
        # Without a fence: shards are released while the operator is paused.
        client = self._client.reserved().fenced(lambda: None)
        return Shards(client, settings=settings, identity=plan.identity, serve=self._serve_shard)

    async def begin(self) -> None:
        """Begin to handle objects, for the period that has begun. Undivided kinds are handled when this returns."""
        await self._nursery.start(self._own_shards, name="own shards")

    async def _own_shards(self, *, task_status: trio.TaskStatus[None]) -> None:
        if isinstance(self._owner, Shards):
            task_status.started()
            await self.listed.wait()  # a replica that cannot list must not take shards from others
            await self._owner.serve()
        else:
            await self._owner.serve(task_status=task_status)

    def stop(self) -> None:
        """Drain and release all shards. No further handlers are called."""
        self._owner.stop()
        self.listed.set()  # nobody needs to wait for it now

    @property
    def grace(self) -> float:
        """Seconds for what is running, if it is to be drained now."""
        return 0.0 if self.period.lost.is_set() else self._operator.stop.remaining

    async def _serve_shard(
        self, term: ShardOwnership, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Handle the objects of a shard until its ownership is ending, and what is running to its end."""
        plan, instruments = self._operator.plan, self._operator.instruments
        client = self._client.fenced(self._make_fence(term))
        invoker = self._invoker.with_clients(self._operator.session.make_clients(self._make_fence(term)))
        parts = build_reconciling(plan, client, self._reads, invoker, stopping=term.ending)
        open_queue = open_workqueue if instruments is None else instruments.open_workqueue
        try:
            async with trio.open_nursery() as limits:
                queueing = plan.settings.queueing
                running = open_queue(parts.reconciler, limit=queueing.worker_limit, window=queueing.batch_window)
                async with running as queue, trio.open_nursery() as companions:
                    await companions.start(parts.daemons.serve)
                    shard = Shard(queue, parts.daemons, parts.reconciler)
                    self._open(term, shard, parts.takeover, limits)
                    if term.shard == 0 and plan.settings.crds.migrate:  # one replica owns this one
                        limits.start_soon(self._migrate, term, name="migrate stored objects")
                    task_status.started()
                    await term.ending.wait()
                    self.router.withdraw(term.shard)
                    self._drain(term, shard)
                    for lost in (term.lost, self.period.lost):
                        limits.start_soon(self._drain_when, lost, term, shard, name="give up when others take over")
                limits.cancel_scope.cancel(reason="the shard is drained")
        finally:
            self.router.close(term.shard, self._caches())
            self.watches.select_shards()
            parts.level.close()
            parts.guard.close()

    async def _migrate(self, term: ShardOwnership) -> None:
        """Write what is stored in other versions in the storage versions of declared kinds, while the shard is owned.

        It begins when all kinds are listed: by then, the operator converts their objects, if it does.
        """
        from trioperator._supervisor.storage_migration import migrate_declared  # few operators need it

        plan = self._operator.plan
        names = sorted({f"{plural}.{group}" for group, plural in plan.registry.declared_kinds()})
        client = self._operator.session.make_client(self._make_fence(term))
        await self.listed.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when, term.ending, nursery.cancel_scope)
            await migrate_declared(client, names, rate=plan.settings.crds.migration_rate)
            nursery.cancel_scope.cancel(reason="all is migrated")

    def _open(self, term: ShardOwnership, shard: Shard, takeover: Takeover, nursery: trio.Nursery) -> None:
        if term.ending.is_set():  # it has been released while it was being opened
            return
        takeover.begin(self.watches.caches_by_path())
        self.router.open(term.shard, shard, self._caches())
        self.watches.select_shards()
        nursery.start_soon(takeover.find_versions, name="find versions")

    def _caches(self) -> list[ObjectCache]:
        return [cache for cache, _ in self.watches.caches()]

    def _drain(self, term: ShardOwnership, shard: Shard) -> None:
        """Limit how long the objects of a shard are still handled, depending on why the shard was given up."""
        is_exiting = self._operator.stop.requested.is_set()
        reason = DaemonStoppingReason.OPERATOR_EXITING if is_exiting else DaemonStoppingReason.OPERATOR_PAUSING
        drain(shard.queue, shard.daemons, seconds=0.0 if term.lost.is_set() else self.grace, reason=reason)

    async def _drain_when(self, lost: trio.Event, term: ShardOwnership, shard: Shard) -> None:
        await lost.wait()
        self._drain(term, shard)

    def _make_fence(self, term: ShardOwnership) -> Callable[[], None]:
        """Return a function that raises PausedError if the replica must not write: it lost the shard, or is paused."""
        check_pauses = self._operator.pauses.check_write
        if not isinstance(self._owner, Shards):  # no other replica can take the only shard
            return check_pauses

        def check_write() -> None:
            term.check_write()
            check_pauses()

        return check_write


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel(reason="the shard is released")


class _OnlyShard:
    """The ownership of all objects as one shard, where they are not divided."""

    def __init__(self, serve: Callable[..., Awaitable[None]]) -> None:
        self._serve = serve
        self._term = ShardOwnership(0)

    async def serve(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Own the shard until :meth:`stop`, and until it is drained then."""
        await self._serve(self._term, task_status=task_status)

    def stop(self) -> None:
        """Release the shard."""
        self._term.end()
