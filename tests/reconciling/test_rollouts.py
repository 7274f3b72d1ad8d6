"""Tests for :mod:`trioperator._reconciling.rollouts`: several children are changed one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from trio.testing import MockClock

import trioperator
from tests.client.conftest import deployment
from tests.reconciling.conftest import config_map, requests_of
from tests.runtime.conftest import Bench, settle, widget
from trioperator import on
from trioperator.apiserver import Cluster

NAMES = ["a", "b", "c"]


def is_ready(body: Mapping[str, Any]) -> bool:
    return bool(body.get("status", {}).get("readyReplicas") == body["spec"]["replicas"])


class Parts:
    """A handler whose children are Deployments with the replicas of the object, and a ConfigMap.

    The object may name ``chains`` of Deployments: each depends on the one before. By default, there are three alone.
    """

    def __init__(self, bench: Bench, *, strategy: Any = "rolling") -> None:
        self.bench = bench
        owned = trioperator.Owned("deployments", bodies=True, strategy=strategy)

        @on.reconcile("widgets", owns=[owned, "configmaps"], registry=bench.registry)
        async def reconcile(spec: Mapping[str, Any]) -> list[Any]:
            parts: list[trioperator.Child] = []
            for chain in spec.get("chains", NAMES):
                before: list[trioperator.Child] = []
                for name in chain:
                    part = deployment(name, spec["replicas"])
                    before = [trioperator.Child(part, ready=is_ready, depends_on=before)]
                    parts += before
            last = config_map("last", replicas=str(spec["replicas"]))
            return [*parts, trioperator.Child(last, depends_on=parts)]

    async def start(self) -> None:
        """Let all be created and ready, with one replica."""
        await settle(1)
        for name in NAMES:
            await set_ready(self.bench.cluster, name, 1)
        await settle(1)
        self.bench.cluster.requests.clear()

    async def change(self, **spec: Any) -> None:
        await self.bench.cluster.patch("widgets", "w", {"spec": spec})
        await settle(1)

    async def replicas(self) -> dict[str, int]:
        found = await self.bench.cluster.list("deployments", "default")
        return {each["metadata"]["name"]: each["spec"]["replicas"] for each in found}


async def set_ready(cluster: Cluster, name: str, ready: int, **others: int) -> None:
    """Do what the controller of Deployments does when so many replicas are ready."""
    generation = (await cluster.get("deployments", name))["metadata"]["generation"]
    counts = {"replicas": ready, "updatedReplicas": ready, "readyReplicas": ready} | others
    status = {"observedGeneration": generation, **counts}
    await cluster.patch("deployments", name, {"status": status}, subresource="status")
    await settle(1)


@pytest.fixture
async def parts(bench: Bench) -> Parts:
    await bench.cluster.create(widget(replicas=1))
    return Parts(bench)


async def test_all_are_created_at_once(parts: Parts, autojump_clock: MockClock) -> None:
    async with parts.bench.running():
        await settle(1)
        assert await parts.replicas() == {"a": 1, "b": 1, "c": 1}


async def test_each_is_changed_when_the_one_before_is_ready(parts: Parts, autojump_clock: MockClock) -> None:
    cluster = parts.bench.cluster
    async with parts.bench.running():
        await parts.start()
        await parts.change(replicas=2)
        assert await parts.replicas() == {"a": 2, "b": 1, "c": 1}
        await settle(3600)
        assert await parts.replicas() == {"a": 2, "b": 1, "c": 1}, "as long as it takes"
        await set_ready(cluster, "a", 2)
        assert await parts.replicas() == {"a": 2, "b": 2, "c": 1}
        await set_ready(cluster, "b", 2)
        assert (await cluster.get("configmaps", "last"))["data"] == {"replicas": "1"}, "it depends on all of them"
        await set_ready(cluster, "c", 2)
        assert await parts.replicas() == {"a": 2, "b": 2, "c": 2}
        assert (await cluster.get("configmaps", "last"))["data"] == {"replicas": "2"}
        assert requests_of(parts.bench) == ["patch a", "patch b", "patch c", "patch last"]


async def test_the_pods_of_the_template_before_do_not_make_a_child_ready(
    parts: Parts, autojump_clock: MockClock
) -> None:
    cluster = parts.bench.cluster
    async with parts.bench.running():
        await parts.start()
        await parts.change(replicas=2)
        await set_ready(cluster, "a", 2, updatedReplicas=0)  # the controller has just seen it
        await set_ready(cluster, "a", 2, replicas=3, updatedReplicas=1)  # the first new pod does not become ready
        await settle(3600)
        assert await parts.replicas() == {"a": 2, "b": 1, "c": 1}
        await set_ready(cluster, "a", 2, replicas=3, updatedReplicas=2)
        assert await parts.replicas() == {"a": 2, "b": 1, "c": 1}, "one of those before is still there"
        await set_ready(cluster, "a", 2)
        assert await parts.replicas() == {"a": 2, "b": 2, "c": 1}


async def test_what_is_not_ready_goes_first(parts: Parts, autojump_clock: MockClock) -> None:
    async with parts.bench.running():
        await parts.start()
        await set_ready(parts.bench.cluster, "c", 0)
        await parts.change(replicas=2)
        assert await parts.replicas() == {"a": 1, "b": 1, "c": 2}
        await set_ready(parts.bench.cluster, "c", 2)
        assert await parts.replicas() == {"a": 2, "b": 1, "c": 2}


async def test_a_bad_change_can_be_replaced_while_it_rolls(parts: Parts, autojump_clock: MockClock) -> None:
    async with parts.bench.running():
        await parts.start()
        await parts.change(replicas=2)
        await set_ready(parts.bench.cluster, "a", 0)
        await parts.change(replicas=3)
        assert await parts.replicas() == {"a": 3, "b": 1, "c": 1}


async def test_several_that_are_broken_are_repaired_one_after_the_other(
    parts: Parts, autojump_clock: MockClock
) -> None:
    async with parts.bench.running():
        await parts.start()
        for name in NAMES:
            await set_ready(parts.bench.cluster, name, 0)
        await parts.change(replicas=2)
        assert await parts.replicas() == {"a": 2, "b": 1, "c": 1}
        await set_ready(parts.bench.cluster, "a", 2)
        assert await parts.replicas() == {"a": 2, "b": 2, "c": 1}


async def test_a_rollout_goes_on_after_a_restart(parts: Parts, autojump_clock: MockClock) -> None:
    async with parts.bench.running():
        await parts.start()
        await parts.change(replicas=2)
    async with parts.bench.running():
        await settle(60)
        assert await parts.replicas() == {"a": 2, "b": 1, "c": 1}
        await set_ready(parts.bench.cluster, "a", 2)
        assert await parts.replicas() == {"a": 2, "b": 2, "c": 1}


async def test_a_missing_child_holds_up_the_others(parts: Parts, autojump_clock: MockClock) -> None:
    async with parts.bench.running():
        await parts.start()
        await parts.bench.cluster.delete("deployments", "c")
        await parts.change(replicas=2)
        assert await parts.replicas() == {"a": 1, "b": 1, "c": 2}, "it is created at once"
        await set_ready(parts.bench.cluster, "c", 2)
        assert await parts.replicas() == {"a": 2, "b": 1, "c": 2}


@pytest.mark.parametrize("ready", [1, 0])
async def test_a_child_does_not_wait_for_a_new_one_that_depends_on_it(
    bench: Bench, autojump_clock: MockClock, ready: int
) -> None:
    await bench.cluster.create(widget(replicas=1, chains=["a"]))
    parts = Parts(bench)
    async with bench.running():
        await settle(1)
        await set_ready(bench.cluster, "a", ready)
        await parts.change(replicas=2, chains=["ab"])
        assert await parts.replicas() == {"a": 2}
        await set_ready(bench.cluster, "a", 2)
        assert await parts.replicas() == {"a": 2, "b": 2}


async def test_what_broken_children_depend_on_goes_first(bench: Bench, autojump_clock: MockClock) -> None:
    await bench.cluster.create(widget(replicas=1, chains=["ab", "cd", "e"]))
    parts = Parts(bench)
    async with bench.running():
        await settle(1)
        for name in "acebd":
            await set_ready(bench.cluster, name, 1)
        for name in "bd":
            await set_ready(bench.cluster, name, 0)
        await parts.change(replicas=2)
        assert await parts.replicas() == {"a": 2, "b": 1, "c": 1, "d": 1, "e": 1}
        for name in "abcde":
            await set_ready(bench.cluster, name, 2)
        assert set((await parts.replicas()).values()) == {2}


async def test_a_child_that_cannot_be_created_does_not_hold_up_a_repair(
    bench: Bench, autojump_clock: MockClock
) -> None:
    await bench.cluster.create(widget(replicas=1, chains=["b"]))
    parts = Parts(bench)
    async with bench.running():
        await settle(1)
        await set_ready(bench.cluster, "b", 0)
        await parts.change(replicas=2, chains=["b", ["Not_A_Name"]])
        assert await parts.replicas() == {"b": 2}


async def test_children_that_are_ready_at_once_are_followed_by_those_that_depend_on_them(
    bench: Bench, autojump_clock: MockClock
) -> None:
    owned = trioperator.Owned("configmaps", bodies=True, strategy="rolling")

    @on.reconcile("widgets", owns=[owned, "secrets"], registry=bench.registry)
    async def reconcile(spec: Mapping[str, Any]) -> list[trioperator.Child]:
        maps = [config_map(name, size=str(spec["size"])) for name in spec["names"]]
        parts = [trioperator.Child(each, ready=lambda body: True) for each in maps]
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "last"}, "data": {}}
        return [*parts, trioperator.Child(secret, depends_on=parts[:1])] if spec["size"] > 1 else parts

    await bench.cluster.create(widget(size=1, names=["a"]))
    async with bench.running():
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2, "names": ["a", "b"]}})
        await settle(1)
        assert await bench.cluster.get("secrets", "last")


async def test_children_that_are_ready_at_once_are_changed_at_once(bench: Bench, autojump_clock: MockClock) -> None:
    owned = trioperator.Owned("configmaps", bodies=True, strategy="rolling")

    @on.reconcile("widgets", owns=[owned], registry=bench.registry)
    async def reconcile(spec: Mapping[str, Any]) -> list[trioperator.Child]:
        maps = [config_map(name, size=str(spec["size"])) for name in NAMES]
        return [trioperator.Child(each, ready=lambda body: True) for each in maps]

    await bench.cluster.create(widget(size=1))
    async with bench.running():
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1)
        for name in NAMES:
            assert (await bench.cluster.get("configmaps", name))["data"] == {"size": "2"}


async def test_a_child_may_have_a_strategy_of_its_own(bench: Bench, autojump_clock: MockClock) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile(spec: Mapping[str, Any]) -> list[Any]:
        size = str(spec["size"])
        return [trioperator.Child(config_map("kept", size=size), strategy="on_delete"), config_map("new", size=size)]

    await bench.cluster.create(widget(size=1))
    async with bench.running():
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1)
        sizes = {name: (await bench.cluster.get("configmaps", name))["data"]["size"] for name in ("kept", "new")}
    assert sizes == {"kept": "1", "new": "2"}


async def test_rolling_needs_to_know_what_is_ready(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile() -> trioperator.Child:
        return trioperator.Child(config_map("x"), strategy="rolling")

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(1)
    assert "ConfigMap default/x has the strategy 'rolling', which needs ready=" in caplog.text


def test_strategies_of_children_are_checked() -> None:
    with pytest.raises(ValueError, match="'rolling'"):
        trioperator.Child({}, strategy="canary")  # type: ignore[arg-type]
