"""Stages: the cluster and the operator of one play, one step after another."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import math
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import Any, Final

import httpx
import trio

from trioperator._handling.arguments.reconciling import ReconcileHandler
from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator._handling.handlers.handler import SpawningHandler
from trioperator.apiserver import Cluster
from trioperator.errors import ApiError
from trioperator.settings import OperatorSettings
from trioperator.testing.effects import Outside
from trioperator.testing.exploring.app import App, find_kopf
from trioperator.testing.exploring.history import WORKLOADS, History, find_lies, find_outdated
from trioperator.testing.exploring.snapshots import UNCOMPARED, Snapshot, list_written, take_snapshot
from trioperator.testing.exploring.steps import Step
from trioperator.testing.exploring.subjects import State, Subject, World
from trioperator.testing.exploring.watches import WatchTransport
from trioperator.testing.exploring.worlds import scale_targets, set_statuses
from trioperator.testing.operator_runner import OperatorRunner
from trioperator.testing.plans import FaultPlan
from trioperator.testing.records import Call
from trioperator.testing.transport import FaultyTransport

# Virtual seconds without any change after which a step has come to rest, and those that it may take.
_CALM: Final = 90.0
_LIMIT: Final = 900.0
# Writes of one step from which on they are slow, in virtual seconds: time does not pass in a loop without pauses.
_MANY_WRITES: Final = 300
_SLOW: Final = 10.0
# Calls of timers after which nothing new is to be seen.
_MANY_CALLS: Final = 150
_FOREVER: Final = 7 * 24 * 3600.0  # of a watch, which need not be opened again during a play
# Seconds of leases, of attempts to renew them, and between these: long, as hours pass, but less than it takes to rest.
_LEASE: Final = (45.0, 35.0, 20.0)

Send = Callable[[], Awaitable[httpx.Response]]


class _Writes:
    """The writes of the operator in one step: how many, what is claimed too early, and what is undone by the end."""

    def __init__(self, cluster: Cluster) -> None:
        self.count = 0
        self.lies: list[str] = []
        self.history = History(cluster)

    async def begin(self) -> None:
        """Count a write, and slow down many."""
        self.count += 1
        if self.count > _MANY_WRITES:
            await trio.sleep(_SLOW)


@dataclasses.dataclass
class _Omissions:
    """What snapshots leave out: kinds of objects with random names, uids from before, and results of handlers.

    Those of reconcile handlers are children, and not stored.
    """

    anonymous: Collection[str] = ()
    before: Collection[str] = ()
    reconciling: Collection[str] = ()


class Stage:
    """The cluster and the operator of a play. *around_write* is called in place of sending each write."""

    def __init__(self, cluster: Cluster, operator: OperatorRunner, app: App, *, subject: Subject, world: World) -> None:
        self.cluster = cluster
        self.operator = operator
        self.outside = Outside()
        self.subject = subject
        self.omissions = _Omissions()
        self.around_write: Callable[[Send], Awaitable[httpx.Response]] | None = None
        self.watches = WatchTransport(cluster.transport(), set())
        self._app = app
        self._world = world
        self._exists = False
        self._writes = _Writes(cluster)
        self._spawned: frozenset[str] = frozenset()
        operator.on_write = self._on_write

    async def start(self, plan: FaultPlan) -> None:
        """Start the operator, with its handlers as a new process has them. Raises ConfigError and what it raises."""
        registry = self._app.load()
        self._learn(registry)
        kopf = find_kopf()
        settings = OperatorSettings() if kopf is None else kopf.OperatorSettings()
        options = {} if kopf is None else {"lifecycle": kopf.get_default_lifecycle()}
        settings.watching.server_timeout = settings.watching.inactivity_timeout = _FOREVER
        leadership = settings.leadership
        leadership.lease_duration, leadership.renew_deadline, leadership.retry_period = _LEASE
        self.watches = WatchTransport(self.cluster.transport(), self.watches.heard)
        transport = FaultyTransport(self.watches, plan)
        await self.operator.start(registry, settings=settings, transport=transport, **options)

    def _learn(self, registry: OperatorRegistry) -> None:
        ids = {handler: handler.id.rpartition(".<locals>.")[2] for handler in registry}
        self._spawned = frozenset(ids[each] for each in registry if isinstance(each, SpawningHandler))
        self.omissions.reconciling = frozenset(ids[each] for each in registry if isinstance(each, ReconcileHandler))

    async def prepare(self) -> None:
        """Wait until the operator is at rest, and note what there is."""
        await self.settle()
        self.omissions.before = {obj["metadata"]["uid"] for obj in self.cluster.objects(without=UNCOMPARED)}

    def list_outside(self) -> dict[str, dict[str, Any]]:
        """Return what is kept outside of the cluster, by names as in snapshots."""
        return {f"Outside {name}": copy.deepcopy(kept) for name, kept in self.outside.stores.items() if kept}

    async def change(self, state: State, *, then: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint) -> Step:
        """Create the object or replace its state, do something, and wait until all is at rest."""
        with self._recording(state) as step:
            step.rejected = await self._request(functools.partial(self.put, state), then)
            if step.rejected is None:
                step.has_settled = await self._come_to_rest(state)
                if (obj := await self.find()) is not None:
                    self._writes.lies += find_outdated(obj)
        return step

    async def _request(
        self, send: Callable[[], Awaitable[object]], then: Callable[[], Awaitable[object]]
    ) -> str | None:
        """Send a change, and do something. Returns why the server rejects it, if it does.

        It may reject what the operator would have reviewed: as soon as that is up again, the change is sent again.
        """
        try:
            await send()
        except ApiError as error:
            if not self.operator.is_running:
                await then()
                if self.operator.is_running:
                    return await self._request(send, trio.lowlevel.checkpoint)
            return error.message
        await then()
        return None

    async def _come_to_rest(self, state: State) -> bool:
        """Wait until all is at rest, also with an object that is created again as somebody has deleted it."""
        if not self.operator.is_running:
            return True
        has_settled = await self.settle()
        if await self.find() is None:
            self._exists = False
            await self.put(state)
            has_settled = await self.settle()
        return has_settled

    async def find(self) -> dict[str, Any] | None:
        """Return the object; None if it does not exist."""
        return await self.cluster.find(self.subject.resource, self.subject.name)

    async def put(self, state: State) -> None:
        """Create the object or replace its state. Raises ApiError if the server rejects that."""
        made = self.subject.make_object(state)
        if not self._exists:
            await self.cluster.create(made)
            self._exists = True
            return
        current = await self.cluster.get(self.subject.resource, self.subject.name)
        kept: dict[str, Any] = {key: current[key] for key in ("metadata", "status") if key in current}
        await self.cluster.replace({**made, **kept})

    async def wait(self, seconds: float) -> Step:
        """Let time pass; less of it with timers that are called often."""
        with self._recording(None) as step:
            calls, end = len(self.operator.calls), trio.current_time() + seconds
            for _ in range(math.ceil(seconds / _CALM)):
                await trio.sleep(min(_CALM, end - trio.current_time()))
                if len(self.operator.calls) - calls >= _MANY_CALLS:
                    break
        return step

    async def delete(self, *, then: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint) -> Step:
        """Delete the object, do something, and wait until all is at rest."""
        with self._recording(None) as step:
            delete = functools.partial(self.cluster.delete, self.subject.resource, self.subject.name)
            step.rejected = await self._request(delete, then)
            step.has_settled = await self.settle()
        return step

    def list_leftovers(self) -> list[str]:
        """Describe what still exists after the deletion."""
        left = []
        for obj in list_written(self.cluster, self.omissions.before):
            kind, namespace, name = _key(obj)
            if obj["kind"] == self.subject.kind and name == self.subject.name:
                finalizers = ", ".join(obj["metadata"].get("finalizers", ()))
                left.append(f"{kind} {name} itself is not deleted: it is kept by the finalizers {finalizers}")
            elif obj["metadata"]["uid"] not in self.omissions.before:
                left.append(f"{kind} {f'{namespace}/' if namespace else ''}{name} is left behind")
        left += [f"{name}: {', '.join(map(str, kept))} is left behind" for name, kept in self.list_outside().items()]
        running = [call for call in self.operator.calls if call.ended is None and call.name == self.subject.name]
        return left + [f"{call.handler} is still running" for call in running]

    async def settle(self) -> bool:
        """Wait until nothing has changed for a while; return whether that was in time."""
        deadline = trio.current_time() + _LIMIT
        start, calls, revision = len(self.operator.calls), -1, -1
        while trio.current_time() < deadline:
            recent = self._last_calls(calls)
            is_failing = any(call.error is not None for call in recent)
            is_only_timers = len(self.operator.calls) - start > _MANY_CALLS and not recent
            if (revision == self.cluster.revision and not self._is_busy() and not is_failing) or is_only_timers:
                return True
            calls, revision = len(self.operator.calls), self.cluster.revision
            await trio.sleep(_CALM)
            await self._take_care()
        return False

    async def _take_care(self) -> None:
        """Do what nobody else does in this cluster."""
        await scale_targets(self.cluster)
        for rule in self._world.statuses:
            await set_statuses(self.cluster, rule)

    def _last_calls(self, since: int) -> Collection[Call]:
        if since < 0:
            return ()
        recent = [*self.operator.calls][since:]
        return {call.handler: call for call in recent if call.handler not in self._spawned}.values()

    def _is_busy(self) -> bool:
        return any(self._is_pending(call) for call in self.operator.calls)

    def _is_pending(self, call: Call) -> bool:
        return call.ended is None and call.handler not in self._spawned

    async def _on_write(self, send: Send) -> httpx.Response:
        """Send a write, and look at what the object claims after it."""
        path = self.operator.writes[-1].path
        await self._writes.begin()
        response = await (send() if self.around_write is None else self.around_write(send))
        if "/apis/apps/" in path:
            self._writes.history.note(self.cluster)
        is_own = f"/{self.subject.resource.partition('.')[0]}/{self.subject.name}" in path
        if is_own and (obj := await self.find()) is not None:
            self._writes.lies += find_lies(obj, self.cluster.objects(WORKLOADS))
        return response

    @contextlib.contextmanager
    def _recording(self, state: State | None) -> Iterator[Step]:
        """Yield a step that gets what happens in the context."""
        operator, cluster = self.operator, self.cluster
        step = Step(state=state, spawned=self._spawned)
        calls, logs, writes = len(operator.calls), len(operator.logs), len(operator.writes)
        requests, self._writes = len(cluster.requests), _Writes(cluster)
        try:
            yield step
        finally:
            step.calls, step.logs = [*operator.calls][calls:], [*operator.logs][logs:]
            step.writes = [*operator.writes][writes:]
            step.responses = [
                (record.verb, f"{record.resource} {record.name}", record.status)
                for record in [*cluster.requests][requests:]
                if record.verb in ("create", "update", "patch", "delete") and "dryRun" not in record.query
            ]
            step.lies, step.undone = self._writes.lies, list(self._writes.history.find_undone(cluster))
            step.is_blind = not operator.is_running or self.watches.is_cut
            since = trio.current_time() - _CALM  # those that were called later may return yet, in a loop
            step.pending = [call.handler for call in step.calls if self._is_pending(call) and call.started <= since]
            step.snapshot = self.take_snapshot()

    def take_snapshot(self) -> Snapshot:
        """Return all that there is of the operator's, in the cluster and outside."""
        left_out, kind = self.omissions, self.subject.kind
        snapshot = take_snapshot(self.cluster, subject=kind, anonymous=left_out.anonymous, before=left_out.before)
        returned = {call.handler for call in self.operator.calls if call.result is not None} - {*left_out.reconciling}
        results = {handler.partition("/")[0] for handler in returned}
        return {**_without_results(snapshot, results), **self.list_outside()}


def _key(obj: Mapping[str, Any]) -> tuple[str, str, str]:
    meta = obj["metadata"]
    return obj["kind"], meta.get("namespace", ""), meta["name"]


def _without_results(snapshot: Snapshot, handlers: Collection[str]) -> Snapshot:
    """Return a snapshot without the results of handlers in statuses: they tell what was called, not what is."""
    for obj in snapshot.values():
        status: Any = obj.get("status")
        if isinstance(status, dict):
            for key in [key for key in status if key.partition("/")[0] in handlers]:
                del status[key]
    return snapshot
