"""Sharding: each shard that a replica owns has a work queue, a reconciler and a daemon manager of its own.

They are opened when the shard is acquired, and drained before it is released, as those of an operator that stops. The
watches and the indices are for all objects.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

import msgspec
import trio

from trioperator._coordination.shards import ShardOwnership, Shards
from trioperator._handling.arguments.stopping import DaemonStoppingReason
from trioperator._handling.calls.invoke import Clients, Invoker
from trioperator._kube.api_client import ApiClient
from trioperator._runtime.object_state import ObjectState
from trioperator._runtime.sharding import Shard, ShardRouter
from trioperator._runtime.watching.watch_set import WatchSet
from trioperator._runtime.workqueue import WorkQueue
from trioperator._supervisor.assembly import ReadCaches, build_reconciling
from trioperator._supervisor.plan import Plan
from trioperator._supervisor.shutdown import Shutdown, drain

__all__ = ["ShardContext", "Sharding"]


class ShardContext(msgspec.Struct, frozen=True, eq=False):
    """What all shards of a replica have in common. ``make_clients`` returns clients of handlers, with a fence."""

    client: ApiClient
    views: ReadCaches
    invoker: Invoker
    make_clients: Callable[[Callable[[], None]], Clients]
    open_workqueue: Callable[..., contextlib.AbstractAsyncContextManager[WorkQueue[ObjectState]]]


class Sharding:
    """The shards of one replica, from when it is active until it stops or is paused."""

    def __init__(self, plan: Plan, tools: ShardContext, stop: Shutdown) -> None:
        self._plan = plan
        self._tools = tools
        self._stop = stop
        self._begun = trio.Event()
        self._watches: WatchSet | None = None
        self._lost = trio.Event()
        # Without a fence: shards are released while the operator is paused.
        settings, client = plan.settings.leadership, tools.client.reserved().fenced(lambda: None)
        self._shards = Shards(client, settings=settings, identity=plan.identity, serve=self._serve_shard)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[ShardRouter]:
        """Route the objects of the shards in the block, after which all shards are drained and released."""
        async with trio.open_nursery() as nursery:
            self._router = ShardRouter(self._plan.settings.leadership.shards)
            nursery.start_soon(self._take_part, name="share the objects")
            yield self._router
            self._shards.stop()
            self.begin()

    def begin(self, watches: WatchSet | None = None) -> None:
        """Acquire shards from now on: all objects are listed."""
        self._watches = watches or self._watches
        self._begun.set()

    async def give_up_when(self, lost: trio.Event) -> None:
        """Cancel what is being done for all shards as soon as *lost* is set: others may take over."""
        await lost.wait()
        self._lost.set()

    async def _take_part(self) -> None:
        await self._begun.wait()
        await self._shards.serve()

    async def _serve_shard(self, term: ShardOwnership) -> None:
        """Handle the objects of a shard until its term is ending, and what is at work to its end."""
        stopping, tools = trio.Event(), self._tools
        fence = self._make_fence(term)
        client = tools.client.fenced(fence)
        invoker = tools.invoker.with_clients(tools.make_clients(fence))
        machinery = build_reconciling(self._plan, client, tools.views, invoker, stopping=stopping)
        running = tools.open_workqueue(machinery.reconciler, limit=self._plan.settings.queueing.worker_limit)
        try:
            async with trio.open_nursery() as limits:
                async with running as queue, trio.open_nursery() as companions:
                    await companions.start(machinery.daemons.serve)
                    shard = Shard(queue, machinery.daemons, machinery.reconciler)
                    if self._watches is not None:
                        machinery.reconciler.takeover.begin(self._watches.caches_by_path())
                    self._router.open(term.shard, shard)
                    limits.start_soon(machinery.reconciler.takeover.find_versions, name="find versions")
                    await term.ending.wait()
                    self._router.withdraw(term.shard)
                    stopping.set()
                    self._drain(shard, self._stop.remaining)
                    for lost in (term.lost, self._lost):
                        limits.start_soon(self._give_up_when, lost, shard)
                limits.cancel_scope.cancel(reason="the shard is drained")
        finally:
            self._router.close(term.shard)
            tools.views.related.triggers.remove(machinery.level)

    def _drain(self, shard: Shard, seconds: float) -> None:
        is_exiting = self._stop.requested.is_set()
        reason = DaemonStoppingReason.OPERATOR_EXITING if is_exiting else DaemonStoppingReason.OPERATOR_PAUSING
        drain(shard.queue, shard.daemons, seconds=seconds, reason=reason)

    async def _give_up_when(self, lost: trio.Event, shard: Shard) -> None:
        await lost.wait()
        self._drain(shard, 0.0)

    def _make_fence(self, term: ShardOwnership) -> Callable[[], None]:
        """Return what raises PausedError if the replica must not write: as it has lost the shard, or is paused."""
        others = self._tools.client.fence

        def check_write() -> None:
            term.check_write()
            if others is not None:
                others()

        return check_write
