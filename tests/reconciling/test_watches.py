"""Tests for :mod:`trioperator._reconciling.watches`: which related objects are watched, and whom they concern."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.reconciling.calls import Calls
from tests.reconciling.conftest import config_map, names_of
from tests.runtime.conftest import Bench, settle, widget
from trioperator._reconciling.related import Target
from trioperator._reconciling.watches import read_targets
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on

GADGETS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "gizmos.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "Gizmo", "plural": "gizmos"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@pytest.mark.parametrize(
    ("found", "targets"),
    [
        (None, []),
        ([], []),
        ("w", [("default", "w")]),
        (("other", "w"), [("other", "w")]),
        ((None, "w"), [("", "w")]),
        (["a", ("b", "c"), ["d"]], [("default", "a"), ("b", "c"), ("default", "d")]),
        ({"metadata": {"name": "w", "namespace": "n"}}, [("n", "w")]),
        ({"a": 1}, None),
        (3, None),
        (("a", "b", "c"), None),
    ],
)
def test_a_mapper_names_objects_in_many_forms(found: Any, targets: list[tuple[str, str]] | None) -> None:
    if targets is None:
        with pytest.raises(TypeError, match="A mapper has returned"):
            list(read_targets(found, namespace="default"))
    else:
        assert list(read_targets(found, namespace="default")) == [Target(*target) for target in targets]


async def test_a_mapped_object_calls_the_handler_of_the_objects_that_it_names(
    bench: Bench, autojump_clock: MockClock
) -> None:
    def find_widgets(body: trioperator.Body, **_: Any) -> Iterator[str]:
        yield from body["data"].values()

    calls = Calls(bench, watches={"configmaps": find_widgets})
    await bench.cluster.create(widget("a"))
    await bench.cluster.create(widget("b"))
    await bench.cluster.create(config_map("settings", first="a"))
    async with bench.running():
        await settle(1)
        calls.names.clear()
        await bench.cluster.patch("configmaps", "settings", {"data": {"second": "b", "third": "nobody"}})
        await settle(1)
        assert sorted(calls.names) == ["a", "b"]
        calls.names.clear()
        await bench.cluster.patch("configmaps", "settings", {"data": {"first": None}})
        await settle(1)
        assert sorted(calls.names) == ["a", "b"], "the one that it does not name any more is concerned, too"
        calls.names.clear()
        await bench.cluster.delete("configmaps", "settings")
        await settle(1)
        assert calls.names == ["b"]


async def test_a_mapper_can_use_indices(bench: Bench, autojump_clock: MockClock) -> None:
    @on.index("widgets", registry=bench.registry)
    async def by_settings(spec: Any, name: str) -> dict[str, str]:
        return {spec["settings"]: name}

    def find_widgets(name: str, by_settings: trioperator.Index[str, str]) -> list[str]:
        return list(by_settings.get(name, []))

    calls = Calls(bench, watches={"configmaps": find_widgets})
    await bench.cluster.create(widget("a", settings="red"))
    await bench.cluster.create(widget("b", settings="blue"))
    async with bench.running():
        await settle(1)
        calls.names.clear()
        await bench.cluster.create(config_map("red"))
        await settle(1)
    assert calls.names == ["a"]


@pytest.mark.parametrize("relisted", [False, True])
async def test_a_mapper_is_called_for_an_object_that_is_gone_as_what_it_looks_up_has_changed(
    bench: Bench, autojump_clock: MockClock, relisted: bool
) -> None:
    @on.index("widgets", registry=bench.registry)
    async def by_settings(spec: Any, name: str) -> dict[str, str]:
        return {spec["settings"]: name}

    def find_widgets(name: str, by_settings: trioperator.Index[str, str]) -> list[str]:
        return list(by_settings.get(name, []))

    calls = Calls(bench, watches={"configmaps": find_widgets})
    await bench.cluster.create(config_map("red"))
    plan = FaultPlan()
    if relisted:  # the watch is silent, until it breaks and has to begin anew
        plan.add(Fault.silence(), verb="watch", resource="configmaps", times=1)
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(1)
        await bench.cluster.create(widget("a", settings="red"))  # the mapper has found nobody before
        await settle(1)
        calls.names.clear()
        await bench.cluster.delete("configmaps", "red")
        if relisted:
            bench.cluster.compact()
        await settle(1000 if relisted else 1)
    assert calls.names == ["a"]


def losing_the_watch(bench: Bench) -> httpx.AsyncBaseTransport:
    """Return a transport by which the first watch of ConfigMaps is silent, until it breaks and has to begin anew."""
    plan = FaultPlan()
    plan.add(Fault.silence(), verb="watch", resource="configmaps", times=1)
    return FaultyTransport(bench.cluster.transport(), plan)


async def test_what_a_mapper_of_bodies_has_named_is_reconciled_when_a_list_shows_that_the_object_is_gone(
    bench: Bench, autojump_clock: MockClock
) -> None:
    def find_widgets(body: trioperator.Body) -> list[str]:
        return [body["data"]["widget"]]

    calls = Calls(bench, watches={"configmaps": find_widgets})
    for name in ("a", "b"):
        await bench.cluster.create(widget(name))
    await bench.cluster.create(config_map("red", widget="a"))
    async with bench.running(transport=losing_the_watch(bench)):
        await settle(1)
        calls.names.clear()
        await bench.cluster.delete("configmaps", "red")
        bench.cluster.compact()
        await settle(1000)
    assert calls.names == ["a"]


async def test_all_are_reconciled_when_a_list_shows_that_an_object_is_gone_whose_mapper_looks_things_up_by_its_body(
    bench: Bench, autojump_clock: MockClock
) -> None:
    @on.index("widgets", registry=bench.registry)
    async def by_settings(spec: Any, name: str) -> dict[str, str]:
        return {spec["settings"]: name}

    def find_widgets(body: trioperator.Body, by_settings: trioperator.Index[str, str]) -> list[str]:
        return list(by_settings.get(body["data"]["color"], []))

    calls = Calls(bench, watches={"configmaps": find_widgets})
    await bench.cluster.create(config_map("one", color="red"))
    async with bench.running(transport=losing_the_watch(bench)):
        await settle(1)
        for name, color in (("a", "red"), ("b", "blue")):  # the mapper has found nobody before
            await bench.cluster.create(widget(name, settings=color))
        await settle(1)
        calls.names.clear()
        await bench.cluster.delete("configmaps", "one")
        bench.cluster.compact()
        await settle(1000)
    assert sorted(calls.names) == ["a", "b"]


async def test_what_a_mapper_has_named_before_it_failed_is_reconciled_when_the_object_is_gone(
    bench: Bench, autojump_clock: MockClock
) -> None:
    def find_widgets(body: trioperator.Body) -> list[str]:
        return [body["data"]["widget"]]

    calls = Calls(bench, watches={"configmaps": find_widgets})
    for name in ("a", "b"):
        await bench.cluster.create(widget(name))
    await bench.cluster.create(config_map("red", widget="a"))
    async with bench.running():
        await settle(1)
        await bench.cluster.patch("configmaps", "red", {"data": None})
        await settle(1)
        calls.names.clear()
        await bench.cluster.delete("configmaps", "red")
        await settle(1)
        assert calls.names == ["a"]
        await bench.cluster.create(config_map("red", widget="b"))
        await settle(1)
        assert calls.names == ["a", "b"]


@pytest.mark.parametrize("kind", ["owned", "mapped"])
async def test_an_object_that_is_deleted_while_its_kind_gets_another_version_is_noticed(
    kind: str, bench: Bench, autojump_clock: MockClock
) -> None:
    def find_widgets(name: str) -> str:
        return name

    calls: list[str] = []
    options: Any = {"owns": ["gizmos"]} if kind == "owned" else {"watches": {"gizmos": find_widgets}}

    @on.reconcile("widgets", registry=bench.registry, **options)
    async def reconcile(name: str) -> list[Any]:
        calls.append(name)
        return [dash(name)] if kind == "owned" else []

    await bench.cluster.apply(GADGETS)
    for name in ("a", "b"):
        await bench.cluster.create(widget(name))
        await bench.cluster.create(dash(name)) if kind == "mapped" else None
    plan = FaultPlan()
    plan.add(Fault.delay(before=5), path="/apis/example.com/v2/gizmos", verb="list")
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(1)
        [version] = GADGETS["spec"]["versions"]
        versions = [{**version, "name": "v2"}, {**version, "storage": False}]
        await bench.cluster.patch("customresourcedefinitions", "gizmos.example.com", {"spec": {"versions": versions}})
        await settle(2)
        calls.clear()
        await bench.cluster.delete("gizmos", "a")
        await settle(60)
        assert "a" in calls
        assert len(await bench.cluster.list("gizmos")) == (2 if kind == "owned" else 1)


@pytest.mark.parametrize("pause", [0, 5])
async def test_children_are_made_again_when_their_kind_was_gone_while_a_handler_was_called(
    pause: float, bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @on.reconcile("widgets", owns=["gizmos"], registry=bench.registry)
    async def reconcile(name: str) -> dict[str, Any]:
        await trio.sleep(2)
        return dash(name)

    crd = "customresourcedefinitions", "gizmos.example.com"
    await bench.cluster.apply(GADGETS)
    await bench.cluster.create(widget("w"))
    async with bench.running():
        await settle(10)
        await bench.cluster.delete(*crd)  # which deletes the child, for which the handler is called again
        await bench.cluster.wait_deleted(*crd)
        await trio.sleep(pause)
        await bench.cluster.apply(GADGETS)
        await settle(60)
        assert [each["metadata"]["name"] for each in await bench.cluster.list("gizmos")] == ["w"]
    assert "owns=" not in caplog.text


def dash(name: str) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Gizmo", "metadata": {"name": name, "namespace": "default"}}


async def test_what_a_handler_writes_is_news_to_the_mappers_of_others_only(
    bench: Bench, autojump_clock: MockClock
) -> None:
    sizes: list[int] = []
    dashes: list[str] = []

    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def write(spec: Any) -> dict[str, Any]:
        sizes.append(spec["size"])
        return config_map("one", size=str(spec["size"]))

    def find_dashes(body: trioperator.Body) -> str:
        return f"size-{body['data'].get('size')}"

    @on.reconcile("gizmos", watches={"configmaps": find_dashes}, registry=bench.registry)
    async def look(name: str) -> list[Any]:
        dashes.append(name)
        return []

    await bench.cluster.apply(GADGETS)
    for name in ("size-1", "size-2"):
        await bench.cluster.create(dash(name))
    async with bench.running():
        await settle(1)
        dashes.clear()
        await bench.cluster.create(widget("w"))
        await settle(1)
        assert dashes == ["size-1"]
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1)
        assert sorted(dashes[1:]) == ["size-1", "size-2"]
    assert sizes == [1, 2], "its own writes are no news to the writer"


async def test_what_a_handler_writes_is_news_to_other_owners(bench: Bench, autojump_clock: MockClock) -> None:
    owners: dict[str, str] = {}
    seen: list[dict[str, str]] = []

    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def write(spec: Any) -> dict[str, Any]:
        child = config_map("one", size=str(spec["size"]))
        reference = {"apiVersion": "example.com/v1", "kind": "Gizmo", "name": "d", "uid": owners["d"]}
        child["metadata"]["ownerReferences"] = [reference]
        return child

    @on.reconcile("gizmos", owns=[trioperator.Owned("configmaps", bodies=True)], registry=bench.registry)
    async def look(children: Any) -> trioperator.Requeue:
        seen.append({name: child["data"]["size"] for name, child in children["configmaps"].items()})
        return trioperator.Requeue(after=100_000)

    await bench.cluster.apply(GADGETS)
    async with bench.running():
        owners["d"] = (await bench.cluster.create(dash("d")))["metadata"]["uid"]
        await settle(1)
        await bench.cluster.create(widget("w"))
        await settle(1)
        assert seen[-1] == {"one": "1"}
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1)
        assert seen[-1] == {"one": "2"}


async def test_a_child_that_is_deleted_before_the_response_to_its_creation_is_created_again(
    bench: Bench, autojump_clock: MockClock
) -> None:
    plan = FaultPlan()
    plan.add(Fault.delay(after=5), verb="patch", resource="configmaps", times=1)

    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile() -> dict[str, Any]:
        return config_map("one")

    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget("w"))
        await settle(1)
        assert await names_of(bench.cluster) == ["one"]
        await bench.cluster.delete("configmaps", "one")
        await settle(60)
        assert await names_of(bench.cluster) == ["one"]


async def test_a_mapper_that_fails_is_logged_and_the_operator_goes_on(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def find_widgets(data: Any = None, **_: Any) -> str:
        raise RuntimeError("boom")

    calls = Calls(bench, watches={"configmaps": find_widgets})
    async with bench.running():
        await bench.cluster.create(config_map("one"))
        await bench.cluster.create(widget())
        await settle(1)
    assert "The function watches= of Handler" in caplog.text
    assert "boom" in caplog.text
    assert calls.names == ["w"]


async def test_a_handler_waits_until_its_kinds_exist(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls(bench, owns=["configmaps", ("example.com/v1", "Gizmo")])
    await bench.cluster.create(widget())
    async with bench.running():
        await settle(10)
        assert calls.take() == 0
        assert "Reconcile handlers that own such objects are not called until then." in caplog.text
        await bench.cluster.apply(GADGETS)
        await settle(10)
        assert calls.take() == 1


async def test_a_handler_waits_until_its_kinds_can_be_listed(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls(bench, owns=["configmaps"])
    await bench.cluster.create(widget())
    plan = FaultPlan()
    plan.add(Fault.status(403), resource="configmaps", until=30)
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(10)
        assert calls.take() == 0
        assert "Reconcile handlers that own or watch it are not called until then." in caplog.text
        await settle(60)
        assert calls.take() == 1


async def test_an_operator_of_some_namespaces_watches_children_there(bench: Bench, autojump_clock: MockClock) -> None:
    calls = Calls(bench, owns=["configmaps"])
    for name in ("one", "two", "three"):
        await bench.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    parent = widget()
    parent["metadata"]["namespace"] = "two"
    owner = await bench.cluster.create(parent)
    async with bench.running(namespaces=["one", "tw*"]):
        await settle(1)
        assert calls.take() == 1
        child = config_map("child")
        trioperator.append_owner_reference(child, owner)
        await bench.cluster.create(child, "two")
        await settle(1)
        assert calls.take() == 1
        watched = {
            record.namespace
            for record in bench.cluster.requests
            if record.verb == "watch" and record.resource == "configmaps"
        }
        assert watched == {"one", "two"}


def cluster_scoped(crd: dict[str, Any]) -> dict[str, Any]:
    return {**crd, "spec": {**crd["spec"], "scope": "Cluster"}}


@contextlib.asynccontextmanager
async def running_without(bench: Bench, fault: Fault) -> AsyncIterator[None]:
    """Run an operator in the namespaces *good* and *bad*, where the list of ConfigMaps in the latter has a fault."""
    for name in ("good", "bad"):
        await bench.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    plan = FaultPlan()
    plan.add(fault, verb="list", resource="configmaps", namespace="bad")
    transport = FaultyTransport(bench.cluster.transport(), plan)
    async with bench.running(namespaces=["good", "ba*"], transport=transport):
        yield


@pytest.mark.parametrize("fault", [Fault.status(403), Fault.stall()], ids=["refused", "stalled"])
async def test_a_namespace_that_cannot_be_listed_holds_up_no_other(
    bench: Bench, autojump_clock: MockClock, fault: Fault
) -> None:
    calls = Calls(bench, owns=["configmaps"])
    async with running_without(bench, fault):
        for namespace in ("good", "bad"):
            await bench.cluster.create({**widget(namespace), "metadata": {"name": namespace, "namespace": namespace}})
        await settle(60)
        assert calls.names == ["good"]


async def test_an_owner_in_no_namespace_waits_for_all_of_them_until_they_are_gone(
    bench: Bench, autojump_clock: MockClock
) -> None:
    await bench.cluster.apply(cluster_scoped(GADGETS))
    calls: list[str] = []

    @on.reconcile("gizmos", owns=["configmaps"], registry=bench.registry)
    async def reconcile(name: str) -> list[Any]:
        calls.append(name)
        return []

    async with running_without(bench, Fault.status(403)):
        await bench.cluster.create({"apiVersion": "example.com/v1", "kind": "Gizmo", "metadata": {"name": "g"}})
        await settle(60)
        assert calls == [], "its children may be in any namespace"
        await bench.cluster.delete("namespaces", "bad")
        await settle(60)
        assert calls == ["g"]


async def test_shards_are_triggered_by_children_of_their_objects(bench: Bench, autojump_clock: MockClock) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile(name: str) -> dict[str, Any]:
        return config_map(name)

    bench.settings.leadership.shards = 4
    bench.settings.leadership.namespace = "default"
    names = [f"w{number}" for number in range(8)]
    for name in names:
        await bench.cluster.create(widget(name))
    async with bench.running():
        await settle(60)
        assert await names_of(bench.cluster) == names
        for name in names:
            await bench.cluster.delete("configmaps", name)
        await settle(1)
        assert await names_of(bench.cluster) == names


async def test_only_the_metadata_of_children_is_requested(bench: Bench, autojump_clock: MockClock) -> None:
    @on.reconcile("widgets", owns=["configmaps", trioperator.Owned("secrets", bodies=True)], registry=bench.registry)
    async def reconcile() -> dict[str, Any]:
        return config_map("one", size="1")

    accepts: dict[str, set[str]] = {}
    await bench.cluster.create(widget())
    async with bench.running(transport=NotingTransport(bench.cluster.transport(), accepts)):
        await settle(1)
        await bench.cluster.patch("configmaps", "one", {"data": {"size": "2"}})
        await settle(1)
        assert (await bench.cluster.get("configmaps", "one"))["data"] == {"size": "1"}, "drift is seen all the same"
    assert all("as=PartialObjectMetadata" in accept for accept in accepts["configmaps"])
    assert accepts["secrets"] == accepts["widgets"] == {"application/json"}


@pytest.mark.parametrize("argument", ["body", "spec", "status", "**_", "labels"])
async def test_mappers_get_what_they_ask_for(bench: Bench, autojump_clock: MockClock, argument: str) -> None:
    mappers: dict[str, Any] = {
        "body": lambda body: "w" if body["data"] else None,
        "spec": lambda spec: "w",
        "status": lambda status: "w",
        "**_": lambda **_: "w" if _["body"]["data"] else None,
        "labels": lambda labels: labels.get("for"),
    }
    calls = Calls(bench, watches={"configmaps": mappers[argument]})
    accepts: dict[str, set[str]] = {}
    await bench.cluster.create(widget("w"))
    async with bench.running(transport=NotingTransport(bench.cluster.transport(), accepts)):
        await settle(1)
        calls.names.clear()
        settings = config_map("settings", key="value")
        await bench.cluster.create({**settings, "metadata": {"name": "settings", "labels": {"for": "w"}}})
        await settle(1)
    assert calls.names == ["w"]
    assert {accept == "application/json" for accept in accepts["configmaps"]} == {argument != "labels"}


class NotingTransport(httpx.AsyncBaseTransport):
    """A transport that notes what lists and watches accept, by the plurals of the kinds."""

    def __init__(self, inner: httpx.AsyncBaseTransport, accepts: dict[str, set[str]]) -> None:
        self.inner = inner
        self.accepts = accepts

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            self.accepts.setdefault(request.url.path.rpartition("/")[2], set()).add(request.headers["Accept"])
        return await self.inner.handle_async_request(request)


LABELS = {"team": "a"}


def own_map_with_labels(bench: Bench) -> None:
    @on.reconcile("widgets", owns=[trioperator.Owned("configmaps", labels=LABELS)], registry=bench.registry)
    async def reconcile() -> dict[str, Any]:
        return config_map("one")


async def test_only_children_with_the_labels_are_watched(bench: Bench, autojump_clock: MockClock) -> None:
    own_map_with_labels(bench)
    await bench.cluster.create(widget("w"))
    async with bench.running():
        await settle(1)
        assert (await bench.cluster.get("configmaps", "one"))["metadata"]["labels"] == LABELS
        (request,) = bench.cluster.requests.select(verb="list", resource="configmaps")
        assert request.query["labelSelector"] == "team=a"
        await bench.cluster.delete("configmaps", "one")
        await settle(1)
        assert await names_of(bench.cluster) == ["one"]
        await bench.cluster.patch("configmaps", "one", {"metadata": {"labels": {"team": "b"}}})
        await settle(1)
        assert (await bench.cluster.get("configmaps", "one"))["metadata"]["labels"] == LABELS, "it is still a child"
        bench.cluster.requests.clear()
        await settle(3600)
        assert not [each for each in bench.cluster.requests if each.verb != "watch"]


async def test_an_object_without_the_labels_is_not_taken_over(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    own_map_with_labels(bench)
    foreign = await bench.cluster.create(config_map("one", key="value"))
    await bench.cluster.create(widget("w"))
    async with bench.running():
        await settle(1)
        assert await bench.cluster.get("configmaps", "one") == foreign
        assert "is not owned by Widget w: it is left as it is" in caplog.text


async def test_a_kind_can_be_owned_with_several_labels(bench: Bench, autojump_clock: MockClock) -> None:
    kinds = [trioperator.Owned("configmaps", bodies=True, labels={"part": part}) for part in ("web", "data")]
    seen: list[set[str]] = []

    @on.reconcile("widgets", owns=kinds, registry=bench.registry)
    async def reconcile(children: Any) -> list[dict[str, Any]]:
        seen.append(set(children["configmaps"]))
        return [{**config_map(part), "metadata": {"name": part, "labels": {"part": part}}} for part in ("web", "data")]

    await bench.cluster.create(widget("w"))
    async with bench.running():
        await settle(1)
        await bench.cluster.patch("configmaps", "data", {"data": {"other": "x"}})
        await settle(1)
    assert seen[-1] == {"web", "data"}


def test_labels_of_children_are_strings() -> None:
    with pytest.raises(TypeError, match="labels="):
        trioperator.Owned("pods", labels={"a": 1})  # type: ignore[dict-item]
