"""Sequences of states on a real control plane, many at the same time, as exploring plays them on the embedded one."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import uuid
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import trio

import trioperator
from tests.controlplane import ControlPlane
from trioperator._kube.api_client import ApiClient, open_client
from trioperator._kube.connection import load_connection
from trioperator._kube.discovery import discover
from trioperator._model.resource import Resource
from trioperator.apiserver import Cluster
from trioperator.client.client import Client
from trioperator.settings import OperatorSettings
from trioperator.testing.exploring.plays import Player
from trioperator.testing.exploring.snapshots import Mask, Snapshot, take_snapshot
from trioperator.testing.exploring.subjects import State, Subject

# How often there must be no change within how many seconds, for a state to count as reached. All operators share one
# event loop: where that is busy for a while, only one of these times passes.
_CALM: Final = 8
_SHORT: Final = 0.5
# Seconds that a state may take.
_PATIENCE: Final = 40.0
_USER: Final = {"fieldManager": "user"}
#: What controllers create in each namespace.
_IS_NEW: Final = {"default", "kube-root-ca.crt"}


class Replay(NamedTuple):
    """What is replayed: an operator, and the states of its object."""

    player: Player
    states: Sequence[State]


class Result(NamedTuple):
    """How a replay ends: what exploring compares, and all objects of its namespace."""

    snapshot: Snapshot
    objects: Sequence[Mapping[str, Any]]

    def find(self, kind: str, name: str = "example") -> Any:
        """Return an object; None if there is none of this kind and name."""
        found = (obj for obj in self.objects if (obj["kind"], obj["metadata"]["name"]) == (kind, name))
        return next(found, None)


def replay(plane: ControlPlane, replays: Mapping[str, Replay]) -> dict[str, Result]:
    """Replay sequences of states, each with an operator and a namespace of its own, at the same time."""
    results: dict[str, Result] = {}

    async def play(world: _World, name: str) -> None:
        results[name] = await _Stage(world, replays[name]).play()

    async def play_all() -> None:
        async with _open_world(plane) as world, trio.open_nursery() as nursery:
            for name in replays:
                nursery.start_soon(play, world, name, name=name)

    trio.run(play_all)
    return results


class _World:
    """All objects of the cluster, as watches tell of them."""

    def __init__(self, plane: ControlPlane, admin: ApiClient, resources: Iterable[Resource]) -> None:
        self.admin = admin
        self.connection = load_connection([plane.folder / "operator.kubeconfig"])
        self.resources = {f"{each.plural}.{each.group}".rstrip("."): each for each in resources}
        self._objects: dict[str, dict[str, Mapping[str, Any]]] = {}
        self._changes: dict[str, trio.Event] = {}

    async def follow(self, resource: Resource) -> None:
        """Watch the objects of a kind."""
        async with Client(self._connect).watch(resource, all_namespaces=True) as events:
            async for event in events:
                meta = event.object["metadata"]
                objects = self._objects.setdefault(meta["namespace"], {})
                if event.type == "DELETED":
                    objects.pop(meta["uid"], None)
                else:
                    objects[meta["uid"]] = event.object
                self._changes.pop(meta["namespace"], trio.Event()).set()

    async def _connect(self) -> ApiClient:
        return self.admin

    async def settle(self, namespace: str) -> None:
        """Wait until nothing has changed in a namespace for a while, or long enough."""
        with trio.move_on_after(_PATIENCE):
            calm = 0
            while calm < _CALM:
                with trio.move_on_after(_SHORT) as scope:
                    await self._wait_changed(namespace)
                calm = calm + 1 if scope.cancelled_caught else 0

    async def until(self, namespace: str, names: Collection[str]) -> None:
        """Wait until there are objects with these names in a namespace."""
        while not {obj["metadata"]["name"] for obj in self._objects.get(namespace, {}).values()} >= {*names}:
            await self._wait_changed(namespace)

    async def _wait_changed(self, namespace: str) -> None:
        await self._changes.setdefault(namespace, trio.Event()).wait()

    def list_objects(self, namespace: str) -> list[dict[str, Any]]:
        """Return the objects of a namespace, which is named as in plays."""
        text = json.dumps(list(self._objects.get(namespace, {}).values()))
        return cast(list[dict[str, Any]], json.loads(text.replace(namespace, "default")))


@contextlib.asynccontextmanager
async def _open_world(plane: ControlPlane) -> AsyncIterator[_World]:
    settings = OperatorSettings()
    settings.watching.inactivity_timeout = math.inf
    async with open_client(lambda: load_connection([plane.kubeconfig]), settings=settings) as admin:
        resources = [each for each in (await discover(admin)).resources if _is_followed(each)]
        world = _World(plane, admin, resources)
        async with trio.open_nursery() as nursery:
            for resource in resources:
                nursery.start_soon(world.follow, resource)
            yield world
            nursery.cancel_scope.cancel(reason="all has been replayed")


def _is_followed(resource: Resource) -> bool:
    is_kept = resource.verbs >= {"list", "watch", "create"} and resource.plural not in ("events", "leases")
    return bool(resource.namespaced and resource.preferred and is_kept)


class _Stage:
    """A namespace in which the object of a subject goes from state to state."""

    def __init__(self, world: _World, replay: Replay) -> None:
        self._world, self._replay = world, replay
        self._subject: Subject = replay.player.subject
        self._namespace = f"replay-{uuid.uuid4().hex[:8]}"
        self._path = world.resources[self._subject.resource].get_path(self._namespace)

    async def play(self) -> Result:
        """Start the operator, and put the object into the states, one after another."""
        admin, world = self._world.admin, self._world
        await admin.post("/api/v1/namespaces", {"metadata": {"name": self._namespace}})
        await world.until(self._namespace, _IS_NEW)
        before = {obj["metadata"]["uid"] for obj in self.objects()}
        async with trio.open_nursery() as nursery:
            run = functools.partial(
                trioperator.operator,
                registry=self._replay.player.app.load(),
                namespaces=[self._namespace],
                connection=world.connection,
                handle_signals=False,
            )
            await nursery.start(run)
            for state in self._replay.states:
                await self._put(state)
                await world.settle(self._namespace)
            snapshot = take_snapshot(cast(Cluster, self), subject=self._subject.kind, before=before)
            result = Result(snapshot, self.objects())
            nursery.cancel_scope.cancel(reason="the states have been replayed")
        return result

    def objects(self, *, without: Collection[str] = ()) -> list[dict[str, Any]]:
        """Return the objects of the namespace, but not those of the kinds *without*."""
        return [obj for obj in self._world.list_objects(self._namespace) if obj["kind"] not in without]

    async def _put(self, state: State) -> None:
        made = self._subject.make_object(state)
        found = (await self._world.admin.list_page(self._path)).items
        if not found:
            await self._world.admin.post(self._path, made, params=_USER)
            return
        current = found[0].decode()
        made |= {key: current[key] for key in ("metadata", "status") if key in current}
        await self._world.admin.put(f"{self._path}/{self._subject.name}", made, params=_USER)


def mask_results(player: Player) -> Collection[Mask]:
    """Return masks for the results of handlers in the status, which plays leave out."""
    ids = {handler.id.partition("/")[0] for handler in player.app.load()}
    return {(player.subject.kind, ("status", each)) for each in ids}
