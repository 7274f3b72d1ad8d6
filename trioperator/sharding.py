"""Sharding: each shard that a replica owns has a work queue, a reconciler and a daemon manager of its own.

They are opened when the shard is acquired, and drained before it is released, as those of an operator that stops. The
watches and the indices are for all objects.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

import msgspec
import trio

from trioperator.coordination.shards import Shards, Term
from trioperator.handling.invoke import Clients, Invoker
from trioperator.handling.stopping import DaemonStoppingReason
from trioperator.kube.client import Client
from trioperator.machinery import Views, build_machinery
from trioperator.plan import Plan
from trioperator.runtime.cache import ObjectState
from trioperator.runtime.sharding import Follower, Shard, ShardRouter
from trioperator.runtime.workqueue import WorkQueue, open_workqueue
from trioperator.shutdown import Shutdown, drain

__all__ = ["Sharding", "Tools"]

# So many objects of other replicas are indexed at the same time.
_FOLLOWERS = 16


class Tools(msgspec.Struct, frozen=True, eq=False):
    """What all shards of a replica have in common. ``make_clients`` returns clients of handlers, with a fence."""

    client: Client
    views: Views
    invoker: Invoker
    make_clients: Callable[[Callable[[], None]], Clients]
    open_workqueue: Callable[..., contextlib.AbstractAsyncContextManager[WorkQueue[ObjectState]]]


class Sharding:
    """The shards of one replica, from when it is active until it stops or is paused."""

    def __init__(self, plan: Plan, tools: Tools, stop: Shutdown) -> None:
        self._plan = plan
        self._tools = tools
        self._stop = stop
        self._begun = trio.Event()
        settings = plan.settings.leadership
        self._shards = Shards(tools.client, settings=settings, identity=plan.identity, serve=self._serve_shard)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[ShardRouter]:
        """Route the objects of the shards in the block, after which all shards are drained and released."""
        running = open_workqueue(Follower(self._tools.views.indexing), limit=_FOLLOWERS)
        async with running as followers, trio.open_nursery() as nursery:
            count = self._plan.settings.leadership.shards
            self._router = ShardRouter(count, followers, forget=self._tools.views.indexing.forget)
            nursery.start_soon(self._take_part, name="share the objects")
            yield self._router
            followers.give_up_at(trio.current_time() + self._stop.remaining)
            self._shards.stop()
            self.begin()

    def begin(self) -> None:
        """Acquire shards from now on: all objects are listed."""
        self._begun.set()

    async def _take_part(self) -> None:
        await self._begun.wait()
        await self._shards.serve()

    async def _serve_shard(self, term: Term) -> None:
        """Handle the objects of a shard until its term is ending, and what is at work to its end."""
        stopping, tools = trio.Event(), self._tools
        client = tools.client.fenced(term.check_write)
        invoker = tools.invoker.with_clients(tools.make_clients(term.check_write))
        machinery = build_machinery(self._plan, client, tools.views, invoker, stopping=stopping)
        running = tools.open_workqueue(machinery.reconciler, limit=self._plan.settings.queueing.worker_limit)
        try:
            async with trio.open_nursery() as limits:
                async with running as queue, trio.open_nursery() as companions:
                    await companions.start(machinery.daemons.serve)
                    shard = Shard(queue, machinery.daemons, machinery.reconciler)
                    self._router.open(term.shard, shard)
                    await term.ending.wait()
                    self._router.withdraw(term.shard)
                    stopping.set()
                    self._drain(shard, self._stop.remaining)
                    limits.start_soon(self._give_up_when_lost, term, shard)
                limits.cancel_scope.cancel(reason="the shard is drained")
        finally:
            self._router.close(term.shard)
            tools.views.related.triggers.remove(machinery.level)

    def _drain(self, shard: Shard, seconds: float) -> None:
        is_exiting = self._stop.requested.is_set()
        reason = DaemonStoppingReason.OPERATOR_EXITING if is_exiting else DaemonStoppingReason.OPERATOR_PAUSING
        drain(shard.queue, shard.daemons, seconds=seconds, reason=reason)

    async def _give_up_when_lost(self, term: Term, shard: Shard) -> None:
        await term.lost.wait()
        self._drain(shard, 0.0)
