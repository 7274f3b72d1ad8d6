"""Plays: one run of the operator, in virtual time, with an object that goes through a sequence of states."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import math
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import httpx
import trio
import trio.testing

from trioperator._concurrency.clock import wall_now, wall_starts_at
from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator._handling.handlers.handler import SpawningHandler
from trioperator.apiserver import Cluster
from trioperator.errors import ApiError, ConfigError, PermanentError, TrioperatorError
from trioperator.settings import OperatorSettings
from trioperator.testing.determinism import deterministic
from trioperator.testing.exploring.app import App
from trioperator.testing.exploring.history import History, find_lies, find_outdated
from trioperator.testing.exploring.outside import Deadline, OutsideCallError, refuse_outside_calls
from trioperator.testing.exploring.snapshots import Snapshot, list_written, take_snapshot
from trioperator.testing.exploring.subjects import State, Subject, World
from trioperator.testing.exploring.worlds import scale_targets, set_statuses
from trioperator.testing.operator_runner import OperatorRunner, open_unchecked_runner
from trioperator.testing.records import Call, LogLine, Write

__all__ = ["Play", "Player", "Step"]

# Virtual seconds without any change after which a step has come to rest, and those that it may take.
_CALM: Final = 90.0
_LIMIT: Final = 900.0
_HOUR: Final = 3600.0
# Calls of timers after which nothing new is to be seen.
_MANY_CALLS: Final = 150
_FOREVER: Final = 7 * 24 * _HOUR  # of a watch, which need not be opened again during a play
# Real seconds of a play, after which it hangs.
_PATIENCE: Final = 30.0
_START: Final = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


@dataclasses.dataclass(kw_only=True)
class Step:
    """What has happened between a change of the object and rest. *rejected* is why the server did not accept it."""

    state: State | None
    rejected: str | None = None
    snapshot: Snapshot = dataclasses.field(default_factory=dict)
    calls: Sequence[Call] = ()
    logs: Sequence[LogLine] = ()
    writes: Sequence[Write] = ()
    responses: Sequence[tuple[str, str, int]] = ()  # verb, path and status code of each write of the operator
    lies: Sequence[str] = ()
    undone: Sequence[str] = ()  # what was there before and after, and not in between
    has_settled: bool = True
    pending: Collection[str] = ()  # handlers that are still called at the end
    spawned: Collection[str] = frozenset()  # ids of daemons and timers

    @property
    def last_calls(self) -> Mapping[str, Call]:
        """The last call of each handler."""
        return {call.handler: call for call in self.calls if call.handler not in self.spawned}

    @property
    def rejections(self) -> Mapping[str, int]:
        """The writes that the server has not accepted, by path, with the status code; none if later ones were."""
        last = {path: code for verb, path, code in self.responses if verb != "delete"}
        return {path: code for path, code in last.items() if code in (400, 403, 422)}

    @property
    def is_failing(self) -> bool:
        """Whether the operator has not done what it should by the end of the step."""
        return any(call.error is not None for call in self.last_calls.values()) or bool(self.rejections)

    @property
    def is_refused(self) -> bool:
        """Whether handlers have refused the state for good, by an error of their own for that."""
        errors = [call.error for call in self.last_calls.values() if call.error is not None]
        return bool(errors) and not self.rejections and all(isinstance(each, PermanentError) for each in errors)


@dataclasses.dataclass(kw_only=True)
class Play:
    """What is kept of a play: its steps, two quiet hours, and what is left after the deletion."""

    seed: int
    steps: list[Step] = dataclasses.field(default_factory=list)
    hours: list[Step] = dataclasses.field(default_factory=list)
    release: Step | None = None
    leftovers: Sequence[str] = ()
    problems: Sequence[str] = ()
    calls: Collection[Call] = ()
    rejected: list[Step] = dataclasses.field(default_factory=list)

    @property
    def last(self) -> Step:
        """The last step that the server has accepted."""
        return self.steps[-1]


class Player:
    """Plays sequences of states of one subject. *on_blocked* is for operators that block the event loop."""

    def __init__(
        self, app: App, subject: Subject, world: World, *, on_blocked: Callable[[str], object] | None = None
    ) -> None:
        self._app = app
        self.subject = subject
        self.world = world
        self._on_blocked = on_blocked
        self.anonymous: set[str] = set()  # kinds whose objects have names that are never the same
        self.transitions = 0

    def play(self, states: Sequence[State], *, seed: int = 0, to_the_end: bool = True) -> Play:
        """Return what happens in a sequence of states; another *seed* has other times, names, passwords and orders.

        *to_the_end* adds two quiet hours and the deletion. Raises ConfigError for operators that do not start or
        that hang, and OutsideCallError for those that reach for the outside.
        """
        performance = _Performance(self, states, seed=seed, to_the_end=to_the_end)
        self.transitions += len(states)
        deadline = Deadline(_PATIENCE, on_blocked=self._on_blocked)
        start = _START + datetime.timedelta(days=seed, seconds=seed * 7.5)
        with deterministic(seed), wall_starts_at(start), refuse_outside_calls() as refused:
            try:
                clock = trio.testing.MockClock(autojump_threshold=0)
                trio.run(performance.run, self._app, self.world, deadline, clock=clock)
            except BaseExceptionGroup as group:
                raise _find_cause(group) from None
        if refused:
            raise OutsideCallError(
                f"{refused[0]}. Plays do not reach the outside: fake what it calls in a file, --setup FILE."
            )
        if deadline.place is not None:
            raise ConfigError(_describe_hang(performance.result, deadline.place))
        return performance.result


def _describe_hang(play: Play, place: str) -> str:
    """Return that a play has not ended, with where it is and what was called most."""
    text = f"A play has not ended within {_PATIENCE:g} s of real time"
    text += f": a handler is at {place}, and does not return." if place else "."
    counts = collections.Counter(call.handler for call in play.calls)
    most = ", ".join(f"{handler} {count} times" for handler, count in counts.most_common(3))
    return f"{text} Handlers were called in it: {most or 'none'}."


def _find_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return what ends the exploration: an interrupt, an error of the user's, or all as it is."""
    leaves = list(_iterate_leaves(group))
    for wanted in (KeyboardInterrupt, TrioperatorError):
        for leaf in leaves:
            if isinstance(leaf, wanted):
                return leaf
    return leaves[0] if len(leaves) == 1 else group


def _iterate_leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _iterate_leaves(part)
    else:
        yield error


class _Performance:
    """One play while it goes on."""

    def __init__(self, player: Player, states: Sequence[State], *, seed: int, to_the_end: bool) -> None:
        self._player = player
        self._subject = player.subject
        self._states = states
        self._to_the_end = to_the_end
        self.result = Play(seed=seed)

    async def run(self, app: App, world: World, deadline: Deadline) -> None:
        """Play from the start of the operator to its end."""
        with trio.CancelScope() as scope, deadline.guard(scope):
            cluster = Cluster(clock=wall_now, seed=self.result.seed)
            async with contextlib.AsyncExitStack() as stack:
                await _furnish(cluster, world)
                if world.controllers:
                    await stack.enter_async_context(cluster.open_controllers(*world.controllers))
                operator = await stack.enter_async_context(open_unchecked_runner(cluster))
                self.result.calls = operator.calls
                registry = app.load()
                settings = OperatorSettings()
                settings.watching.server_timeout = _FOREVER
                stage = _Stage(cluster, operator, registry, self._player)
                await operator.start(registry, settings=settings, transport=_CalmTransport(cluster.transport()))
                await self._perform(stage)
            if any(call.failed or call.denied for call in operator.calls):
                operator.expect_failures()  # which the steps have
            self.result.problems = operator.problems

    async def _perform(self, stage: _Stage) -> None:
        if self.result.seed:
            await trio.sleep(self.result.seed % 7 + 0.5)
        await stage.settle()
        stage.before = {obj["metadata"]["uid"] for obj in stage.cluster.objects()}
        for state in self._states:
            step = await stage.change(state)
            (self.result.steps if step.rejected is None else self.result.rejected).append(step)
        if self._to_the_end and self.result.steps:
            self.result.hours = [await stage.wait(_HOUR), await stage.wait(_HOUR)]
            self.result.release = await stage.delete()
            self.result.leftovers = _list_leftovers(stage, self._subject)


class _CalmTransport(httpx.AsyncBaseTransport):
    """Transport of watches without bookmarks: in the hours of a play, they would be most of what happens."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and return the response."""
        if b"allowWatchBookmarks" in request.url.query:
            request.url = request.url.copy_remove_param("allowWatchBookmarks")
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._inner.aclose()


async def _furnish(cluster: Cluster, world: World) -> None:
    """Create the kinds and objects of the world. Raises ConfigError for what the API server rejects."""
    for obj in (*world.definitions, *world.objects):
        try:
            await cluster.apply(obj)
        except ApiError as error:
            name = obj.get("metadata", {}).get("name")
            raise ConfigError(f"The API server rejects {obj.get('kind')} {name}: {error.message}") from error


def _key(obj: Mapping[str, Any]) -> tuple[str, str, str]:
    meta = obj["metadata"]
    return obj["kind"], meta.get("namespace", ""), meta["name"]


def _list_leftovers(stage: _Stage, subject: Subject) -> list[str]:
    """Return in words what is still there after the deletion."""
    left = []
    for obj in list_written(stage.cluster, stage.before):
        kind, namespace, name = _key(obj)
        if obj["kind"] == subject.kind and name == subject.name:
            finalizers = ", ".join(obj["metadata"].get("finalizers", ()))
            left.append(f"{kind} {name} itself is not deleted: it is kept by the finalizers {finalizers}")
        elif obj["metadata"]["uid"] not in stage.before:
            left.append(f"{kind} {f'{namespace}/' if namespace else ''}{name} is left behind")
    running = [call for call in stage.operator.calls if call.ended is None and call.name == subject.name]
    left += [f"{call.handler} is still running" for call in running]
    return left


def _without_results(snapshot: Snapshot, handlers: Collection[str]) -> Snapshot:
    """Return a snapshot without the results of handlers in statuses: they tell what was called, not what is."""
    for obj in snapshot.values():
        status: Any = obj.get("status")
        if isinstance(status, dict):
            for key in [key for key in status if key.partition("/")[0] in handlers]:
                del status[key]
    return snapshot


class _Stage:
    """The cluster and the operator of a play, and one step after another."""

    def __init__(self, cluster: Cluster, operator: OperatorRunner, registry: OperatorRegistry, player: Player) -> None:
        self.cluster = cluster
        self.operator = operator
        self._player = player
        self._subject = player.subject
        self._exists = False
        self.before: Collection[str] = ()  # uids of the objects that were there before
        operator.on_write = self._on_write
        self._lies: list[str] = []
        self._history = History(cluster)
        ids = {handler: handler.id.rpartition(".<locals>.")[2] for handler in registry}
        self._spawned = frozenset(ids[each] for each in registry if isinstance(each, SpawningHandler))
        self._results = frozenset(ids[each].partition("/")[0] for each in registry)

    async def change(self, state: State) -> Step:
        """Create the object or replace its state, and wait until all is at rest."""
        with self._recording(state) as step:
            try:
                await self._put(state)
            except ApiError as error:
                step.rejected = error.message
            else:
                self._exists = True
                step.has_settled = await self.settle()
                if (obj := await self.cluster.find(self._subject.resource, self._subject.name)) is not None:
                    self._lies += find_outdated(obj)
        return step

    async def _put(self, state: State) -> None:
        subject = self._subject
        made = subject.make_object(state)
        if not self._exists:
            await self.cluster.create(made)
            return
        current = await self.cluster.get(subject.resource, subject.name)
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

    async def delete(self) -> Step:
        """Delete the object, and wait until all is at rest."""
        with self._recording(None) as step:
            await self.cluster.delete(self._subject.resource, self._subject.name)
            step.has_settled = await self.settle()
        return step

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
        for rule in self._player.world.statuses:
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

    async def _on_write(self, send: Callable[[], Awaitable[httpx.Response]]) -> httpx.Response:
        """Send a write, and look at what the object claims after it."""
        path = self.operator.writes[-1].path
        response = await send()
        if "/apis/apps/" in path:
            self._history.note(self.cluster)
        if f"/{self._subject.resource.partition('.')[0]}/{self._subject.name}" in path:
            obj = await self.cluster.find(self._subject.resource, self._subject.name)
            if obj is not None:
                self._lies += find_lies(obj, self.cluster.objects())
        return response

    @contextlib.contextmanager
    def _recording(self, state: State | None) -> Iterator[Step]:
        """Yield a step that gets what happens in the context."""
        operator, cluster = self.operator, self.cluster
        step = Step(state=state, spawned=self._spawned)
        calls, logs, writes = len(operator.calls), len(operator.logs), len(operator.writes)
        requests, self._lies = len(cluster.requests), []
        self._history = History(cluster)
        try:
            yield step
        finally:
            step.calls, step.logs = [*operator.calls][calls:], [*operator.logs][logs:]
            step.writes = [*operator.writes][writes:]
            step.responses = [
                (record.verb, f"{record.resource} {record.name}", record.status)
                for record in [*cluster.requests][requests:]
                if record.verb in ("create", "update", "patch", "delete")
            ]
            step.lies, step.undone = self._lies, list(self._history.find_undone(cluster))
            step.pending = [call.handler for call in step.calls if self._is_pending(call)]
            anonymous = self._player.anonymous
            snapshot = take_snapshot(cluster, subject=self._subject.kind, anonymous=anonymous, before=self.before)
            step.snapshot = _without_results(snapshot, self._results)
