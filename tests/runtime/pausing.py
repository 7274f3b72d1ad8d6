"""Operators whose objects are paused by annotations."""

from __future__ import annotations

import contextlib
import copy
import json
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import trio
import trio.lowlevel

import trioperator
from tests.runtime.conftest import CRD, Bench, settle, widget
from trioperator import on
from trioperator.apiserver import Cluster
from trioperator.testing import FaultPlan, FaultyTransport

PAUSED = "trioperator.dev/paused"
POKED = "trioperator.dev/reconcile-requested-at"
WIDGET = "http://cluster/apis/example.com/v1/namespaces/default/widgets/w"
WRITTEN = ("widgets.example.com", "configmaps")


def crd_with_conditions() -> dict[str, Any]:
    """Return the CRD of widgets, whose status has conditions."""
    crd = copy.deepcopy(CRD)
    (version,) = crd["spec"]["versions"]
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    status = {**free, "properties": {"conditions": {"type": "array", "items": free}}}
    version["schema"]["openAPIV3Schema"]["properties"] = {"spec": free, "status": status}
    return crd


def config_map(name: str, size: int) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"size": str(size)}}


class World:
    """A cluster with one widget, replicas of its operator, and what these have done."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.calls: list[str] = []
        self.running: list[str] = []
        self.stopped: list[Any] = []
        self.fail: set[str] = set()
        self.slow: dict[str, float] = {}
        self.hold = threading.Event()
        self.plan = FaultPlan()
        self.scope = trio.CancelScope()

    def settings(self, name: str) -> trioperator.OperatorSettings:
        settings = trioperator.OperatorSettings()
        settings.leadership.identity = name
        return settings

    async def note(self, name: str) -> None:
        self.calls.append(name)
        await trio.sleep(self.slow.get(name, 0))
        if name in self.fail:
            raise trioperator.TemporaryError("not yet", delay=60)

    def registry(self) -> trioperator.OperatorRegistry:
        """Return handlers of all sorts."""
        registry = trioperator.OperatorRegistry()
        note = self.note

        @on.create("widgets", registry=registry)
        async def create(**_: Any) -> None:
            await note("create")

        @on.update("widgets", registry=registry, timeout=300)
        async def update(spec: Any, patch: Any, **_: Any) -> None:
            await note("update")
            patch.status["size"] = spec["size"]

        @on.delete("widgets", registry=registry)
        async def delete(**_: Any) -> None:
            await note("delete")

        @on.resume("widgets", registry=registry)
        async def resume(**_: Any) -> None:
            await note("resume")

        @on.field("widgets", field="metadata.labels", registry=registry)
        async def field(**_: Any) -> None:
            await note("field")

        @on.event("widgets", registry=registry)
        async def event(type: str | None, **_: Any) -> None:
            await note(f"event {type}")

        @on.daemon("widgets", registry=registry)
        async def daemon(stopped: Any, **_: Any) -> None:
            self.running.append("daemon")
            try:
                await stopped.wait()
                await trio.sleep(self.slow.get("daemon", 0))
            finally:
                self.running.remove("daemon")
                self.stopped.append(stopped.reason)

        @on.timer("widgets", interval=10, registry=registry)
        async def timer(**_: Any) -> None:
            await note("timer")

        @on.reconcile("widgets", owns=["configmaps"], registry=registry)
        async def reconcile(name: str, spec: Any, **_: Any) -> Any:
            await note("reconcile")
            return [config_map(f"{name}-{part}", spec["size"]) for part in "ab"]

        @trioperator.index("widgets", registry=registry)
        def sizes(name: str, spec: Any, **_: Any) -> Any:
            return {name: spec["size"]}

        @on.event("configmaps", registry=registry, labels={"probe": "yes"})
        async def look(sizes: Any, **_: Any) -> None:
            self.calls.append(f"index {next(iter(sizes['w']))}")

        return registry

    @contextlib.asynccontextmanager
    async def running_operator(
        self,
        name: str = "one",
        registry: trioperator.OperatorRegistry | None = None,
        settings: trioperator.OperatorSettings | None = None,
        plan: FaultPlan | None = None,
        **options: Any,
    ) -> AsyncIterator[Callable[[], None]]:
        bench = Bench(self.cluster, registry or self.registry(), settings or self.settings(name))
        transport = FaultyTransport(self.cluster.transport(), plan or self.plan)
        async with bench.running(transport=transport, **options) as stop:
            yield stop

    async def pause(self, value: str = "true") -> None:
        await self.annotate({PAUSED: value})
        await settle(1)

    async def unpause(self) -> None:
        await self.annotate({PAUSED: None})
        await settle(1)

    async def annotate(self, annotations: dict[str, str | None]) -> None:
        await self.cluster.patch("widgets", "w", {"metadata": {"annotations": annotations}})

    async def apply_by(self, manager: str, metadata: dict[str, Any]) -> None:
        """Let somebody else apply metadata of the widget, which removes what they have applied before."""
        body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", **metadata}}
        query = {"fieldManager": manager, "force": "true"}
        async with httpx.AsyncClient(transport=self.cluster.transport()) as client:
            headers = {"Content-Type": "application/apply-patch+yaml"}
            response = await client.patch(WIDGET, params=query, content=json.dumps(body), headers=headers)
            response.raise_for_status()

    async def edit(self, size: int) -> None:
        await self.cluster.patch("widgets", "w", {"spec": {"size": size}})
        await settle(1)

    async def get(self) -> dict[str, Any]:
        return await self.cluster.get("widgets", "w")

    async def condition(self, type: str = "Paused") -> tuple[str, str, str] | None:
        conditions = (await self.get()).get("status", {}).get("conditions", [])
        found = [(each["status"], each["reason"], each["message"]) for each in conditions if each["type"] == type]
        return found[0] if found else None

    def writes(self) -> list[str]:
        """Return the writes of operators but those of Events and Leases."""
        return [
            f"{each.verb} {each.resource.partition('.')[0]}/{each.name} {each.subresource}".rstrip()
            for each in self.cluster.requests
            if each.verb in ("create", "patch", "update", "delete") and each.resource in WRITTEN
        ]

    async def children(self) -> dict[str, str]:
        found = await self.cluster.list("configmaps", "default")
        return {each["metadata"]["name"]: each["data"]["size"] for each in found if "size" in each.get("data", {})}

    async def events(self) -> list[tuple[str, str, str]]:
        found = await self.cluster.list("events", "default")
        kept = [each for each in found if each["reason"] in ("Paused", "Resumed")]
        return sorted(((each["type"], each["reason"], each.get("message", "")) for each in kept), key=lambda e: e[1])

    @contextlib.asynccontextmanager
    async def quiet(self, *expected: str) -> AsyncIterator[None]:
        """Expect only these writes in the block, and no calls."""
        before, calls = len(self.writes()), len(self.calls)
        yield
        await settle(1)
        assert self.writes()[before:] == list(expected)
        assert self.calls[calls:] == []

    def since(self, mark: int) -> list[str]:
        return [call for call in self.calls[mark:] if call != "timer"]


async def make_settled(world: World) -> None:
    """Create the widget, and wait until all is done for it."""
    await world.cluster.create(widget())
    await settle(15)
    assert world.running == ["daemon"]
    assert await world.children() == {"w-a": "1", "w-b": "1"}
