"""Objects that are paused, on both API servers: nothing is done for them meanwhile, and everything afterwards.

In each scenario, another object is handled meanwhile: what comes of that shows that the operator has seen it all. Each
write since the pause is in the history of the server, and must be one of the scenario's own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeAlias

import pytest
import trio

import trioperator
from tests.both.conftest import Body, Server
from tests.both.kinds import CONFIGMAPS, GROUP, OPEN, define, manifest
from trioperator import on
from trioperator._kube.watch import open_watch
from trioperator._model.resource import Resource
from trioperator.errors import NotFoundError
from trioperator.settings import OperatorSettings

LAMPS: Final = Resource(GROUP, "v1", "lamps", kind="Lamp")
OLD_LAMPS: Final = Resource(GROUP, "v1beta1", "lamps", kind="Lamp")
CONDITIONS: Final = {"type": "object", "properties": {"conditions": {"type": "array", "items": OPEN}}}
SCHEMA: Final = {"type": "object", "properties": {"spec": OPEN, "status": {**OPEN, **CONDITIONS}}}
PAUSED: Final = "trioperator.dev/paused"
# Seconds of a short pause, and of a retry.
SHORTLY: Final = 3.0
POKED: Final = "trioperator.dev/reconcile-requested-at"


def condition(body: Body) -> Body:
    """Return the condition of the pause, empty if there is none."""
    found = (body.get("status") or {}).get("conditions") or ()
    return next((each for each in found if each["type"] == "Paused"), {})


class World:
    """The lamp ``one``, a proof that others are handled, replicas of their operator, and what these have done."""

    def __init__(self, server: Server, nursery: trio.Nursery) -> None:
        self.server = server
        self.settings: dict[str, Any] = {}
        self.calls: list[str] = []  # for the lamp
        self.mark = 0  # how many of these were before the pause
        self.companions = 0  # the lamp's daemons
        self.failing: tuple[str, ...] = ()
        self.seconds = 0.0  # that a handler takes, or a daemon to stop
        self.value = 1
        self.since = ""  # the version of the lamp when the pause came into effect
        self.own: set[str | None] = set()  # the versions that the scenario has written since then
        self._nursery = nursery
        self._replicas: dict[str, tuple[trio.Event, trio.CancelScope, trio.Event]] = {}
        self._declare(server.registry)

    def _declare(self, registry: trioperator.OperatorRegistry) -> None:
        where: dict[str, Any] = {"registry": registry}

        @on.create(LAMPS.plural, **where)
        @on.update(LAMPS.plural, **where)
        async def change(name: str, spec: Any, patch: Any, **_: Any) -> None:
            await self._note("change", name)
            patch.status["size"] = spec["size"]

        @on.update(LAMPS.plural, field="spec.parts", **where)
        async def assemble(name: str, new: Any, **_: Any) -> None:
            for part in new:

                @trioperator.subhandler(id=part)
                async def attach(part: str = part, **_: Any) -> None:
                    await self._note(part, name)

        @on.reconcile(LAMPS.plural, owns=["configmaps"], **where)
        async def reconcile(name: str, spec: Any, **_: Any) -> Any:
            await self._note("reconcile", name)
            return [
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": name},
                    "data": {"size": f"{spec['size']}"},
                }
            ]

        @on.event(LAMPS.plural, **where)
        async def event(name: str, **_: Any) -> None:
            await self._note("event", name)

        @on.delete(LAMPS.plural, **where)
        async def delete(name: str, **_: Any) -> None:
            await self._note("delete", name)

        @on.timer(LAMPS.plural, interval=0.2, **where)
        async def tick(name: str, **_: Any) -> None:
            await self._note("tick", name)

        @on.daemon(LAMPS.plural, **where)
        async def accompany(name: str, stopped: Any, **_: Any) -> None:
            await self._note("daemon", name)
            self.companions += name == "one"
            try:
                await stopped.wait()
                await trio.sleep(self.seconds)
            finally:
                self.companions -= name == "one"

    async def _note(self, what: str, name: str) -> None:
        self.server.notes.add(what, name)
        if name != "one":
            return
        self.calls.append(what)
        if what in ("change", "reconcile", "left"):
            await trio.sleep(self.seconds)
        if what in self.failing:
            raise trioperator.TemporaryError("not yet", delay=1)

    # Operators.

    async def start(self, name: str = "one") -> None:
        """Start a replica."""
        await self._nursery.start(self._operate, name)

    async def _operate(self, name: str, *, task_status: trio.TaskStatus[None]) -> None:
        settings, stop, ended = OperatorSettings(), trio.Event(), trio.Event()
        settings.leadership.namespace, settings.leadership.name = self.server.namespace, "lamps"
        settings.leadership.lease_duration, settings.leadership.renew_deadline = 3, 2
        settings.leadership.retry_period = 0.3
        settings.pausing.holds_deletion = self.settings.get("holds_deletion", False)
        settings.pausing.condition = self.settings.get("condition", "Paused")
        settings.leadership.enabled = self.settings.get("elects", False)
        settings.leadership.shards = self.settings.get("shards", 1)
        with trio.CancelScope() as scope:
            self._replicas[name] = stop, scope, ended
            await trioperator.operator(
                registry=self.server.registry,
                settings=settings,
                namespaces=(self.server.namespace,),
                connection=self.server.connection,
                identity=name,
                standalone=True,
                handle_signals=False,
                stop_flag=stop,
                task_status=task_status,
            )
        ended.set()

    async def stop(self, name: str = "one", *, at_once: bool = False) -> None:
        """Stop a replica, in order or at once."""
        stop, scope, ended = self._replicas.pop(name)
        if at_once:
            scope.cancel()
        stop.set()
        await ended.wait()

    @property
    def is_running(self) -> bool:
        """Whether there is a replica."""
        return bool(self._replicas)

    async def stop_all(self) -> None:
        for name in list(self._replicas):
            await self.stop(name)

    # What users do.

    async def edit(self, patch: Body, *, resource: Resource = LAMPS, subresource: str | None = None) -> None:
        found = await self.server.patch(resource, "one", patch, subresource=subresource)
        self.own.add(found["metadata"]["resourceVersion"])

    async def annotate(self, **annotations: str | None) -> None:
        await self.edit({"metadata": {"annotations": annotations}})

    async def resize(self, size: int) -> None:
        await self.edit({"spec": {"size": size}})

    async def drift(self) -> None:
        found = await self.server.patch(CONFIGMAPS, "one", {"data": {"size": "9"}})
        self.own.add(found["metadata"]["resourceVersion"])

    async def remove_child(self) -> None:
        await self.server.delete(CONFIGMAPS, "one")
        await self.server.until_gone(CONFIGMAPS, "one")
        self.own.add(None)

    async def pause(self, value: str = "true") -> None:
        """Pause the lamp, and wait until that is in effect."""
        await self.annotate(**{PAUSED: value})
        await self.until_paused(value.partition("reason=")[2])

    async def until_paused(self, text: str = "") -> None:
        found = await self.server.until(
            LAMPS, "one", lambda body: condition(body).get("status") == "True" and text in condition(body)["message"]
        )
        self._begin(found)

    def _begin(self, body: Body) -> None:
        self.since, self.own, self.mark = body["metadata"]["resourceVersion"], set(), len(self.calls)

    async def pause_silently(self) -> None:
        """Pause the lamp without a condition, so that only the end of its daemon shows that this is in effect."""
        await self.annotate(**{PAUSED: "true"})
        while self.companions:
            await self.prove()
        self._begin(await self.server.get(LAMPS, "one"))

    async def create_paused(self) -> None:
        body = manifest(LAMPS, "one")
        body["metadata"]["annotations"] = {PAUSED: "true"}
        await self.server.create(LAMPS, body)
        await self.until_paused()

    # What is to be seen.

    async def prove(self) -> None:
        """Wait until another object was changed and handled, so that all that was there before has been seen."""
        self.value += 1
        await self.server.patch(LAMPS, "proof", {"spec": {"size": self.value}})
        await self.until_done("proof", self.value)
        begun = self.server.notes.all.count(("tick", "proof"))
        await self.server.notes.until(lambda notes: notes.count(("tick", "proof")) > begun + 1)

    async def until_done(self, name: str, size: int) -> None:
        """Wait until an object is as its spec wants it, and so is its child."""
        await self.server.until(LAMPS, name, lambda body: (body.get("status") or {}).get("size") == size)
        await self.server.until(CONFIGMAPS, name, lambda body: body["data"]["size"] == str(size))

    async def assert_untouched(self) -> None:
        """Check that nobody else has written to the lamp or to its child, and that nothing runs or was called."""
        for resource in (LAMPS, CONFIGMAPS):
            assert await self._list_writes(resource) <= self.own
        assert self.calls[self.mark :] == []
        assert not self.companions

    async def _list_writes(self, resource: Resource) -> set[str | None]:
        """Return the versions that an object has got since the pause, with None if it was deleted."""
        found: set[str | None] = set()
        last = await self.server.patch(resource, "proof", {"metadata": {"labels": {"last": self.server.mark}}})
        path = resource.get_path(namespace=self.server.namespace)
        async with open_watch(self.server.admin, path, resource_version=self.since) as watch:
            async for line in watch:
                if line.type != "BOOKMARK" and line.object.name == "one":
                    found.add(None if line.type == "DELETED" else line.object.resource_version)
                elif line.type != "BOOKMARK" and line.object.resource_version == last["metadata"]["resourceVersion"]:
                    return found
        raise AssertionError(f"The watch of {path} has ended.")


Step: TypeAlias = Callable[[World], Awaitable[None]]


async def nothing(world: World) -> None:
    """Let everything be."""


def each(*steps: Step) -> Step:
    """Return a step of several."""

    async def do(world: World) -> None:
        for step in steps:
            await step(world)

    return do


def resize(size: int) -> Step:
    return lambda world: world.resize(size)


def annotate(**annotations: str | None) -> Step:
    return lambda world: world.annotate(**annotations)


def pause(value: str = "true") -> Step:
    return lambda world: world.pause(value)


def start(name: str = "one") -> Step:
    return lambda world: world.start(name)


def stop(name: str = "one", *, at_once: bool = False) -> Step:
    return lambda world: world.stop(name, at_once=at_once)


def begin(what: str, *, failing: tuple[str, ...] = (), seconds: float = 0, **spec: Any) -> Step:
    """Return a step in which the lamp is edited, and a handler fails, or takes time and is being called."""

    async def do(world: World) -> None:
        begun, world.failing, world.seconds = world.calls.count(what), failing, seconds
        await world.edit({"spec": {"size": 2, **spec}})
        await world.server.notes.until(lambda _: world.calls.count(what) > begun)

    return do


def until_called(what: str) -> Step:
    """Return a step in which a handler is called after the pause."""

    async def do(world: World) -> None:
        await world.server.notes.until(lambda _: what in world.calls[world.mark :])

    return do


async def succeed(world: World) -> None:
    world.failing, world.seconds = (), 0


async def tarry(world: World) -> None:
    """Let the daemon take time to stop."""
    world.seconds = 0.5


async def until_attached(world: World) -> None:
    """Wait until nothing is left of the sub-handlers, of which the first has not run again."""
    await world.server.until_handled(LAMPS, "one", parts=["left", "right"])
    assert world.calls.count("left") == 1


async def edit_old_version(world: World) -> None:
    await world.edit({"spec": {"size": 2}}, resource=OLD_LAMPS)


async def pause_old_version(world: World) -> None:
    await world.edit({"metadata": {"annotations": {PAUSED: "true"}}}, resource=OLD_LAMPS)
    await world.until_paused()


async def set_status(world: World) -> None:
    await world.edit({"status": {"theirs": 1}}, subresource="status")


async def expire(world: World) -> None:
    """Wait until a short pause is over, which nobody shows who is down."""
    await trio.sleep(SHORTLY)


async def delete(world: World) -> None:
    await world.server.delete(LAMPS, "one")


async def note_deleting(world: World) -> None:
    await delete(world)
    world.own.add((await world.server.get(LAMPS, "one"))["metadata"]["resourceVersion"])


async def until_gone(world: World) -> None:
    await world.server.until_gone(LAMPS, "one")
    assert world.calls.count("delete") == 1


async def remove_orphan(world: World) -> None:
    """Delete what was the lamp's child, unless the garbage collector was faster, which takes its time."""
    with contextlib.suppress(NotFoundError):
        await world.remove_child()


def in_seconds(seconds: float) -> str:
    return f"until={(datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)).isoformat()}"


async def pause_shortly(world: World) -> None:
    await world.annotate(**{PAUSED: in_seconds(SHORTLY)})
    await world.until_paused()


FAILURE: Final = begin("change", failing=("change", "reconcile"))
unpause: Final = annotate(**{PAUSED: None})
poke: Final = annotate(**{POKED: "now"})


@dataclasses.dataclass(kw_only=True)
class Scenario:
    """A pause: what happens before it, meanwhile, and at its end, and as what size the lamp ends, if at all."""

    before: Step = nothing
    pause: Step = dataclasses.field(default_factory=pause)
    meanwhile: Step = nothing
    end: Step = unpause
    size: int | None = 1
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)


SCENARIOS: Final = {
    "nothing happens": Scenario(),
    "it is edited": Scenario(meanwhile=resize(2), size=2),
    "it is edited twice": Scenario(meanwhile=each(resize(2), resize(3)), size=3),
    "it is edited and set back": Scenario(meanwhile=each(resize(2), resize(1))),
    "others write its status": Scenario(meanwhile=set_status),
    "others annotate it": Scenario(meanwhile=annotate(theirs="1")),
    "it is poked": Scenario(meanwhile=poke, end=each(unpause, until_called("reconcile"))),
    "it is paused and poked at once": Scenario(
        pause=each(annotate(**{PAUSED: "true", POKED: "now"}), World.until_paused),
        end=each(unpause, until_called("reconcile")),
    ),
    "it is paused again": Scenario(pause=each(pause(), unpause, pause("reason=again")), meanwhile=resize(2), size=2),
    "it is created so": Scenario(
        before=each(delete, until_gone, remove_orphan), pause=World.create_paused, meanwhile=resize(2), size=2
    ),
    "it is paused and edited in another version": Scenario(pause=pause_old_version, meanwhile=edit_old_version, size=2),
    "it has no condition": Scenario(
        settings={"condition": None}, pause=World.pause_silently, meanwhile=each(resize(2), World.drift), size=2
    ),
    "its daemon takes time to stop": Scenario(before=tarry, meanwhile=each(succeed, resize(2)), size=2),
    "its child has drifted": Scenario(meanwhile=World.drift),
    "its child is deleted": Scenario(meanwhile=World.remove_child),
    "it is edited, and its child has drifted": Scenario(meanwhile=each(resize(2), World.drift), size=2),
    "it is edited, and its child is deleted": Scenario(meanwhile=each(World.remove_child, resize(2)), size=2),
    "its reason is changed": Scenario(
        pause=pause("reason=one"),
        meanwhile=each(annotate(**{PAUSED: "reason=two"}), lambda world: world.until_paused("two")),
    ),
    "its annotation is invalid": Scenario(pause=pause("until=tomorrow"), meanwhile=resize(2), size=2),
    "the operator is restarted": Scenario(meanwhile=each(stop(), start())),
    "it is edited, and the operator is restarted": Scenario(meanwhile=each(resize(2), stop(), start()), size=2),
    "it is edited while the operator is down": Scenario(meanwhile=each(stop(), resize(2), start()), size=2),
    "its child is deleted while the operator is down": Scenario(meanwhile=each(stop(), World.remove_child, start())),
    "the operator is killed": Scenario(meanwhile=each(resize(2), stop(at_once=True), start()), size=2),
    "it is unpaused while the operator is down": Scenario(
        meanwhile=each(resize(2), stop()), end=each(unpause, start()), size=2
    ),
    "it is poked while the operator is down": Scenario(meanwhile=each(stop(), poke, start())),
    "the leader changes": Scenario(settings={"elects": True}, meanwhile=each(start("two"), resize(2), stop()), size=2),
    "the leader is killed": Scenario(
        settings={"elects": True}, meanwhile=each(start("two"), stop(at_once=True), resize(2)), size=2
    ),
    "its shard moves": Scenario(settings={"shards": 2}, meanwhile=each(start("two"), resize(2), stop()), size=2),
    "its shard moves back": Scenario(
        settings={"shards": 2}, meanwhile=each(start("two"), resize(2), stop(), start(), stop("two")), size=2
    ),
    "it expires": Scenario(pause=pause_shortly, meanwhile=resize(2), end=nothing, size=2),
    "it expires while the operator is down": Scenario(
        pause=pause_shortly,
        meanwhile=each(resize(2), stop()),
        end=each(expire, start()),
        size=2,
    ),
    "it is extended": Scenario(
        pause=each(pause_shortly, pause("reason=longer")), meanwhile=each(resize(2), expire), size=2
    ),
    "it is unpaused between two attempts": Scenario(
        before=FAILURE, meanwhile=World.prove, end=each(unpause, succeed), size=2
    ),
    "a retry is due meanwhile": Scenario(before=FAILURE, meanwhile=each(succeed, expire), size=2),
    "a retry is due meanwhile, and it is poked": Scenario(
        before=FAILURE, meanwhile=each(succeed, poke, stop(), start()), size=2
    ),
    "a sub-handler is tried again": Scenario(
        before=begin("right", failing=("right",), parts=["left", "right"]),
        meanwhile=each(succeed, expire),
        end=each(unpause, until_called("right"), until_attached),
        size=2,
    ),
    "a sub-handler is at work": Scenario(
        before=begin("left", seconds=0.5, parts=["left", "right"]),
        meanwhile=succeed,
        end=each(unpause, until_called("right"), until_attached),
        size=2,
    ),
    "a reconcile is at work": Scenario(before=begin("reconcile", seconds=0.5), meanwhile=succeed, size=2),
    "it is deleted": Scenario(meanwhile=resize(2), end=each(delete, until_gone), size=None),
    "its deletion is held": Scenario(
        settings={"holds_deletion": True}, meanwhile=note_deleting, end=each(unpause, until_gone), size=None
    ),
    "its deletion is held over a restart": Scenario(
        settings={"holds_deletion": True},
        meanwhile=each(note_deleting, stop(), start()),
        end=each(unpause, until_gone),
        size=None,
    ),
}


@pytest.fixture
async def world(server: Server) -> AsyncIterator[World]:
    await server.define(define(LAMPS, schema=SCHEMA, older=(OLD_LAMPS.version,)))
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            world = World(server, nursery)
            yield world
            await world.stop_all()


@pytest.mark.parametrize("name", SCENARIOS)
async def test_nothing_is_done_for_a_paused_object_and_everything_afterwards(name: str, world: World) -> None:
    scenario = SCENARIOS[name]
    world.settings = scenario.settings
    for lit in ("one", "proof"):
        await world.server.create_soon(LAMPS, manifest(LAMPS, lit))
    await world.start()
    for lit in ("one", "proof"):
        await world.until_done(lit, 1)
    await scenario.before(world)
    await scenario.pause(world)
    await scenario.meanwhile(world)
    if world.is_running and scenario.end is not nothing:
        await world.prove()
    await world.assert_untouched()
    await scenario.end(world)
    if scenario.size is not None:
        await world.until_done("one", scenario.size)
        await world.server.until(LAMPS, "one", lambda body: not condition(body))
        await world.server.notes.until(lambda _: {"event", "tick", "daemon"} <= set(world.calls[world.mark :]))
