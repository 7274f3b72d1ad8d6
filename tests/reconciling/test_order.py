"""Order of what is seen: an index has a state of an object before mappers and reconcile handlers are called for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.reconciling.conftest import config_map
from tests.runtime.conftest import Bench, settle, widget
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on
Index = trioperator.Index


async def index_at_once(name: str, **_: Any) -> dict[str, str]:
    return {name: name}


async def index_slowly(name: str, **_: Any) -> dict[str, str]:
    await trio.sleep(1)
    return {name: name}


def index_in_a_thread(name: str, **_: Any) -> dict[str, str]:
    return {name: name}


INDEXED = [index_at_once, index_slowly, index_in_a_thread]


class Looks:
    """A reconcile handler of widgets that notes what the index ``known`` has, and what its mapper has found there."""

    def __init__(self, bench: Bench, *, owns: tuple[Any, ...] = (), kind: str = "configmaps", **options: Any) -> None:
        self.mapped: list[tuple[str, list[str]]] = []
        self.seen: list[list[str]] = []

        def mapper(name: str, known: Index[str, str]) -> str:
            self.mapped.append((name, sorted(known)))
            return "w"

        @on.reconcile("widgets", owns=owns, watches={kind: mapper}, registry=bench.registry, **options)
        async def reconcile(name: str, known: Index[str, str]) -> list[Any]:
            if name == "w":
                self.seen.append(sorted(known))
            return []


def fill(bench: Bench, fn: Callable[..., Any], kind: str = "configmaps", **filters: Any) -> None:
    on.index(kind, id="known", registry=bench.registry, **filters)(fn)


PARTS = {"part": "settings"}


def settings(name: str) -> dict[str, Any]:
    return {**config_map(name), "metadata": {"name": name, "labels": PARTS}}


@pytest.mark.parametrize("fn", INDEXED)
@pytest.mark.parametrize("owns", [(), ("configmaps",), (trioperator.Owned("configmaps", labels={"a": "b"}),)])
async def test_mappers_and_handlers_find_an_object_in_the_index(
    bench: Bench, autojump_clock: MockClock, fn: Callable[..., Any], owns: tuple[Any, ...]
) -> None:
    fill(bench, fn, labels=PARTS)
    looks = Looks(bench, owns=owns)
    await bench.cluster.create(widget("w"))
    async with bench.running():
        await settle(5)
        for name in "abc":
            looks.mapped.clear()
            await bench.cluster.create(settings(name))
            await settle(5)
            (found,) = looks.mapped
            assert found[0] == name
            assert name in found[1]
            assert name in looks.seen[-1]


@pytest.mark.parametrize("fn", INDEXED)
async def test_handlers_do_not_find_what_is_deleted(
    bench: Bench, autojump_clock: MockClock, fn: Callable[..., Any]
) -> None:
    fill(bench, fn, labels=PARTS)
    looks = Looks(bench)
    await bench.cluster.create(widget("w"))
    await bench.cluster.create(settings("a"))
    async with bench.running():
        await settle(5)
        assert looks.seen[-1] == ["a"]
        await bench.cluster.delete("configmaps", "a")
        await bench.cluster.create(settings("b"))
        await settle(5)
        assert looks.seen[-1] == ["b"]
        await bench.cluster.patch("configmaps", "b", {"metadata": {"labels": {"part": None}}})
        await settle(5)
        assert looks.seen[-1] == []


@pytest.mark.parametrize("fn", INDEXED)
async def test_what_a_list_does_not_have_any_more_is_not_in_the_index_either(
    bench: Bench, autojump_clock: MockClock, fn: Callable[..., Any]
) -> None:
    fill(bench, fn, labels=PARTS)
    looks = Looks(bench)
    await bench.cluster.create(widget("w"))
    await bench.cluster.create(settings("a"))
    plan = FaultPlan()
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(5)
        plan.add(Fault.stall(), watch=True, resource="configmaps")
        plan.add(Fault.status(503), verb=["list", "watch"], resource="configmaps", until=30)
        await bench.cluster.delete("configmaps", "a")
        await bench.cluster.create(settings("b"))
        await settle(300)
        assert looks.seen[-1] == ["b"]


async def test_objects_can_be_mapped_to_others_of_their_kind(bench: Bench, autojump_clock: MockClock) -> None:
    fill(bench, index_slowly, "widgets")
    looks = Looks(bench, kind="widgets")
    await bench.cluster.create(widget("w"))
    async with bench.running():
        await settle(5)
        await bench.cluster.create(widget("a"))
        await settle(5)
        assert looks.seen[-1] == ["a", "w"]
        await bench.cluster.delete("widgets", "a")
        await settle(5)
        assert looks.seen[-1] == ["w"]


async def test_an_index_function_that_has_failed_calls_mappers_and_handlers_again(
    bench: Bench, autojump_clock: MockClock
) -> None:
    fail = True

    async def index(name: str, **_: Any) -> dict[str, str]:
        if fail and name == "a":
            raise trioperator.TemporaryError("not yet", delay=30)
        return {name: name}

    fill(bench, index, labels=PARTS)
    looks = Looks(bench)
    await bench.cluster.create(widget("w"))
    async with bench.running():
        await settle(5)
        await bench.cluster.create(settings("a"))
        await settle(5)
        assert looks.seen[-1] == [], "an index function that fails holds up nobody"
        fail = False
        await settle(60)
        assert looks.seen[-1] == ["a"]
        assert looks.mapped == [("a", []), ("a", ["a"])]


async def test_an_index_function_that_has_failed_calls_the_handlers_of_its_object_again(
    bench: Bench, autojump_clock: MockClock
) -> None:
    fail = True
    seen: list[list[str]] = []

    async def index(name: str, **_: Any) -> dict[str, str]:
        if fail:
            raise trioperator.TemporaryError("not yet", delay=30)
        return {name: name}

    fill(bench, index, "widgets")

    @on.reconcile("widgets", registry=bench.registry)
    async def reconcile(known: Index[str, str]) -> list[Any]:
        seen.append(sorted(known))
        return []

    async with bench.running():
        await bench.cluster.create(widget("w"))
        await settle(5)
        fail = False
        await settle(60)
    assert seen == [[], ["w"]]


async def test_an_index_function_that_hangs_holds_up_no_other_object(bench: Bench, autojump_clock: MockClock) -> None:
    async def index(name: str, **_: Any) -> dict[str, str]:
        await trio.sleep(1e6 if name == "stuck" else 0)
        return {name: name}

    fill(bench, index, labels=PARTS)
    looks = Looks(bench)
    await bench.cluster.create(widget("w"))
    async with bench.running():
        await settle(5)
        for name in ("stuck", "a"):
            await bench.cluster.create(settings(name))
        await settle(5)
        assert looks.seen[-1] == ["a"]
        await bench.cluster.delete("configmaps", "a")
        await settle(5)
        assert looks.seen[-1] == []


async def test_a_handler_that_looks_up_its_own_children_in_an_index_finds_them(
    bench: Bench, autojump_clock: MockClock
) -> None:
    fill(bench, index_slowly)
    seen: list[list[str]] = []

    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile(known: Index[str, str]) -> list[Any]:
        seen.append(sorted(set(known) - {"kube-root-ca.crt"}))
        return [config_map("child")]

    async with bench.running():
        await bench.cluster.create(widget("w"))
        await settle(60)
    assert seen == [[], ["child"]]


async def test_the_objects_of_a_namespace_that_goes_leave_the_index_before_handlers_are_called(
    bench: Bench, autojump_clock: MockClock
) -> None:
    on.index("configmaps", id="known", registry=bench.registry, labels=PARTS)(index_at_once)
    seen: list[list[str]] = []

    def mapper() -> tuple[str, str]:
        return "default", "w"

    @on.reconcile("widgets", watches={"configmaps": mapper}, registry=bench.registry)
    async def reconcile(known: Index[str, str]) -> list[Any]:
        seen.append(sorted(known))
        return []

    await bench.cluster.create(widget("w"))
    async with bench.running(namespaces=["default", "team-*"]):
        for name in ("team-a", "team-b"):
            await bench.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            await settle(1)
            await bench.cluster.create(settings(name), name)
        await settle(5)
        assert seen[-1] == ["team-a", "team-b"]
        await bench.cluster.delete("namespaces", "team-a")
        await settle(60)
        assert seen[-1] == ["team-b"]


@pytest.mark.parametrize("namespaces", [None, ["default", "other"]])
async def test_whoever_reads_a_kind_shares_one_list_and_one_watch_of_it(
    bench: Bench, autojump_clock: MockClock, namespaces: list[str] | None
) -> None:
    fill(bench, index_at_once)
    Looks(bench, owns=("configmaps", trioperator.Owned("configmaps", labels={"a": "b"}, bodies=True)))

    @on.create("configmaps", registry=bench.registry)
    @on.event("configmaps", registry=bench.registry)
    @on.reconcile("configmaps", registry=bench.registry)
    async def fn(**_: Any) -> list[Any]:
        return []

    @trioperator.daemon("configmaps", registry=bench.registry)
    @trioperator.timer("configmaps", interval=5, registry=bench.registry)
    async def run(**_: Any) -> None:
        pass

    await bench.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    await bench.cluster.create(widget("w"))
    async with bench.running(namespaces=namespaces or [], clusterwide=namespaces is None):
        await settle(30)
        count = 1 if namespaces is None else len(namespaces)
        for verb in ("list", "watch"):
            for kind in ("configmaps", "widgets.example.com"):
                assert len(list(bench.cluster.requests.select(verb=verb, resource=kind))) == count


async def test_few_of_many_are_seen_as_such_where_others_see_them_all(bench: Bench, autojump_clock: MockClock) -> None:
    fill(bench, index_at_once)
    seen: list[set[str]] = []
    owned = trioperator.Owned("configmaps", labels=PARTS, bodies=True)

    @on.reconcile("widgets", owns=[owned], registry=bench.registry)
    async def reconcile(children: Any) -> list[Any]:
        seen.append(set(children["configmaps"]))
        return [config_map("child")]

    owner = await bench.cluster.create(widget("w"))
    async with bench.running():
        await settle(1)
        for name in ("with", "without"):
            child = settings(name) if name == "with" else config_map(name)
            trioperator.append_owner_reference(child, owner)
            await bench.cluster.create(child)
            await settle(1)
        assert seen[-1] == {"child", "with"}
        await bench.cluster.patch("configmaps", "with", {"metadata": {"labels": {"part": "other"}}})
        await settle(1)
        assert seen[-1] == {"child"}
        (request,) = bench.cluster.requests.select(verb="list", resource="configmaps")
        assert "labelSelector" not in request.query


async def test_a_kind_that_is_read_by_others_again_is_listed_for_them(bench: Bench, autojump_clock: MockClock) -> None:
    events: list[str] = []
    looks: list[str] = []

    @on.event("gizmos.example.com", registry=bench.registry)
    async def event(name: str, **_: Any) -> None:
        events.append(name)

    def mapper(name: str) -> str:
        looks.append(name)
        return "w"

    @on.reconcile("widgets", watches={"gizmos": mapper}, registry=bench.registry)
    async def reconcile() -> list[Any]:
        return []

    await bench.cluster.apply(gizmos("example.com"))
    await bench.cluster.create(gizmo("a"))
    async with bench.running():
        await settle(5)
        assert looks == events == ["a"]
        await bench.cluster.apply(gizmos("other.com"))  # now nobody knows which gizmos are meant
        await settle(5)
        await bench.cluster.create(gizmo("b"))
        await settle(5)
        assert looks == ["a"]
        assert events == ["a", "b"]
        await bench.cluster.delete("customresourcedefinitions", "gizmos.other.com")
        await settle(5)
        assert sorted(looks[1:]) == ["a", "b"]
        assert events == ["a", "b"], "for its handlers, nothing has changed"
        await bench.cluster.create(gizmo("c"))
        await settle(5)
        assert (looks[-1], events[-1]) == ("c", "c")


def gizmos(group: str) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gizmos.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Gizmo", "plural": "gizmos"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def gizmo(name: str) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Gizmo", "metadata": {"name": name, "namespace": "default"}}
