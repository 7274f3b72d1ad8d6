"""What those who may patch an object can do to its handling, and to nothing else: docs/security.md."""

from __future__ import annotations

import contextlib
import json
import random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator.errors import ConflictError, NotFoundError
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on
PREFIX = "trioperator.dev"


@pytest.fixture
def calls(bench: Bench) -> list[str]:
    """Add handlers, and return a list of their calls."""
    calls: list[str] = []

    @on.update("widgets", id="update", retries=3, registry=bench.registry)
    async def update(name: str, old: Any, **_: Any) -> None:
        calls.append(f"{name} {old['spec']['size']}")

    @on.delete("widgets", id="delete", registry=bench.registry)
    async def delete(name: str, **_: Any) -> None:
        calls.append(f"deleted {name}")

    return calls


async def patch(bench: Bench, annotations: dict[str, Any], size: int = 2) -> None:
    patch = {"metadata": {"annotations": annotations}, "spec": {"size": size}}
    await bench.cluster.patch("widgets", "tenant", patch)
    await bench.cluster.patch("widgets", "other", {"spec": {"size": 2}})
    await settle(30)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({}, ["other 1", "tenant 1"]),
        ({"success": True}, ["other 1"]),
        ({"failure": True}, ["other 1"]),
        ({"retries": 3}, ["other 1"]),
        ({"delayed": "9999-01-01T00:00:00+00:00"}, ["other 1"]),
        ({"delayed": 5, "retries": "many", "started": [], "subrefs": 7}, ["other 1", "tenant 1"]),
    ],
)
async def test_a_record_affects_the_handler_of_that_object_only(
    record: dict[str, Any], expected: list[str], bench: Bench, calls: list[str], autojump_clock: MockClock
) -> None:
    async with bench.running():
        for name in ("tenant", "other"):
            await bench.cluster.create(widget(name))
        await settle(30)
        await patch(bench, {f"{PREFIX}/update": json.dumps({"purpose": "update", **record})})
        assert sorted(calls) == expected


@pytest.mark.parametrize(("stored", "expected"), [(7, ["other 1", "tenant 7"]), (2, ["other 1"])])
async def test_the_last_handled_configuration_decides_what_has_changed(
    stored: int, expected: list[str], bench: Bench, calls: list[str], autojump_clock: MockClock
) -> None:
    async with bench.running():
        for name in ("tenant", "other"):
            await bench.cluster.create(widget(name))
        await settle(30)
        await patch(bench, {f"{PREFIX}/last-handled-configuration": json.dumps({"spec": {"size": stored}}) + "\n"})
        assert sorted(calls) == expected


async def test_without_the_finalizer_an_object_is_gone_before_its_delete_handlers_are_called(
    bench: Bench, calls: list[str], autojump_clock: MockClock
) -> None:
    async with bench.running():
        await bench.cluster.create(widget("tenant"))
        await settle(30)
    await bench.cluster.patch("widgets", "tenant", {"metadata": {"finalizers": None}})
    await bench.cluster.delete("widgets", "tenant")
    async with bench.running():
        await settle(30)
    assert calls == []


class Neighbour:
    """Somebody who creates and deletes objects that are named like a tenant's, at any time."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self._cluster = bench.cluster
        self._random = random.Random(seed)
        self._own: dict[tuple[str, str], dict[str, Any]] = {}
        self.created = 0

    async def wait(self) -> None:
        """Do nothing for a while."""
        await trio.sleep(self._random.choice([0.1, 1, 2, 5]))

    async def act(self) -> None:
        """Let the tenant or the neighbour do anything; then check that the objects of the neighbour are untouched."""
        plural, name = self._random.choice(["configmaps", "secrets"]), self._random.choice(["one", "two"])
        with contextlib.suppress(ConflictError, NotFoundError):
            match self._random.randrange(6):
                case 0 | 1:
                    await self._cluster.create(widget(name))
                case 2:
                    await self._cluster.delete("widgets", name, "default")
                case 3:
                    await self._cluster.patch("widgets", name, {"spec": {"size": self._random.random()}}, "default")
                case _:
                    await self._create_or_delete(plural, name)
        for (plural, name), before in self._own.items():
            assert await self._cluster.get(plural, name, "default") == before

    async def _create_or_delete(self, plural: str, name: str) -> None:
        if (plural, name) in self._own:
            del self._own[plural, name]
            await self._cluster.delete(plural, name, "default")
            return
        kind = {"configmaps": "ConfigMap", "secrets": "Secret"}[plural]
        metadata = {"name": name, "namespace": "default"}
        body = {"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": {"payroll": "c2VjcmV0"}}
        self._own[plural, name] = await self._cluster.create(body)
        self.created += 1


def make_unreliable(seed: int) -> FaultPlan:
    """Return a plan by which requests are slow, fail, and are answered by nobody."""
    plan = FaultPlan(seed=seed)
    for fault in (Fault.delay(before=3), Fault.delay(after=3), Fault.lose_answer(), Fault.status(500)):
        plan.add(fault, verb=("get", "create", "patch", "delete"), chance=0.15)
    plan.add(Fault.lag(5), watch=True, chance=0.5)
    return plan


@pytest.mark.parametrize("seed", range(4))
async def test_objects_of_others_are_left_alone_whatever_happens_at_the_same_time(
    bench: Bench, autojump_clock: MockClock, seed: int
) -> None:
    neighbour = Neighbour(bench, seed)

    @on.create("widgets", id="apply", backoff=3, registry=bench.registry)
    @on.update("widgets", id="apply", backoff=3, registry=bench.registry)
    @trioperator.timer("widgets", id="tick", interval=7, backoff=3, registry=bench.registry)
    async def apply(name: str, spec: Any, client: trioperator.Client, **_: Any) -> None:
        data = {"by": "tenant", "size": str(spec["size"])}
        child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        await client.apply(child, force=True)

    @on.reconcile("widgets", owns=["secrets"], registry=bench.registry)
    async def reconcile(name: str, **_: Any) -> Any:
        return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"by": "tenant"}}

    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), make_unreliable(seed))):
        for _ in range(150):
            await neighbour.wait()
            await neighbour.act()
        await trio.sleep(300)
        await neighbour.act()
    assert neighbour.created > 5
