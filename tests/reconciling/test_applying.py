"""Tests for :mod:`trioperator._reconciling.applying`: the children of an object become what its handler returns."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Final

import httpx
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.reconciling.conftest import children_of, config_map, names_of, requests_of
from tests.runtime.conftest import CRD, Bench, settle, widget
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on

# A cluster-scoped kind.
TENANTS: Final = {
    **CRD,
    "metadata": {"name": "tenants.example.com"},
    "spec": {**CRD["spec"], "scope": "Cluster", "names": {"kind": "Tenant", "plural": "tenants"}},
}


@pytest.fixture
async def maps(bench: Bench) -> Bench:
    """Return a bench with a handler whose children are those in ``spec.maps``."""

    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
        return children_of(spec)

    return bench


async def test_children_are_applied_and_owned(maps: Bench, autojump_clock: MockClock) -> None:
    async with maps.running():
        parent = await maps.cluster.create(widget(maps={"one": {"size": "1"}, "two": {}}))
        await settle(1)
        child = await maps.cluster.get("configmaps", "one")
    assert child["data"] == {"size": "1"}
    assert child["metadata"]["ownerReferences"][0]["uid"] == parent["metadata"]["uid"]
    assert await names_of(maps.cluster) == ["one", "two"]


@pytest.mark.parametrize("names", [(), ("team",)])
async def test_children_get_those_labels_of_their_owner_that_a_setting_names(
    maps: Bench, names: tuple[str, ...], autojump_clock: MockClock
) -> None:
    settings = trioperator.OperatorSettings()
    settings.persistence.owner_labels = frozenset(names)
    owner = widget(maps={"one": {}})
    owner["metadata"]["labels"] = {"team": "red", "app": "w", "pod-security.kubernetes.io/enforce": "privileged"}
    async with maps.running(settings=settings):
        await maps.cluster.create(owner)
        await settle(1)
        child = await maps.cluster.get("configmaps", "one")
    assert child["metadata"].get("labels", {}) == {name: owner["metadata"]["labels"][name] for name in names}


async def test_a_converged_object_costs_no_request(maps: Bench, autojump_clock: MockClock) -> None:
    for number in range(20):
        await maps.cluster.create(widget(f"w{number}", maps={f"w{number}-{part}": {} for part in "abc"}))
    async with maps.running():
        await settle(10)
        assert len(await names_of(maps.cluster)) == 60
        maps.cluster.requests.clear()
        await settle(3600)
        assert requests_of(maps) == []


async def test_children_are_requested_once_each(maps: Bench, autojump_clock: MockClock) -> None:
    async with maps.running():
        maps.cluster.requests.clear()
        await maps.cluster.create(widget(maps={"one": {}, "two": {}, "three": {}}))
        await settle(60)
        assert requests_of(maps) == ["patch one", "patch two", "patch three"]


async def test_an_apply_that_arrives_late_is_undone(maps: Bench, autojump_clock: MockClock) -> None:
    sent: list[httpx.Request] = []

    class Recorder(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if request.method == "PATCH":
                sent.append(request)
            return await inner.handle_async_request(request)

    inner = maps.cluster.transport()
    async with maps.running(transport=Recorder()):
        await maps.cluster.create(widget(maps={"one": {"size": "1"}}))
        for size in "23":
            await settle(5)
            await maps.cluster.patch("widgets", "w", {"spec": {"maps": {"one": {"size": size}}}})
        await settle(5)
        late = sent[1]  # as if another replica had sent it before it lost its lease
        response = await inner.handle_async_request(
            httpx.Request("PATCH", late.url, headers=late.headers, content=late.content)
        )
        assert b'"size":"2"' in await response.aread()
        await settle(5)
        assert (await maps.cluster.get("configmaps", "one"))["data"] == {"size": "3"}
        assert len(sent) == 4


async def test_only_what_has_changed_is_applied(maps: Bench, autojump_clock: MockClock) -> None:
    await maps.cluster.create(widget(maps={"one": {"a": "1", "b": "1"}, "two": {}}))
    async with maps.running():
        await settle(1)
        maps.cluster.requests.clear()
        await maps.cluster.patch("widgets", "w", {"spec": {"maps": {"one": {"b": None}}}})
        await settle(1)
        assert requests_of(maps) == ["patch one"]
        assert (await maps.cluster.get("configmaps", "one"))["data"] == {"a": "1"}


async def test_drift_is_put_right(maps: Bench, autojump_clock: MockClock) -> None:
    await maps.cluster.create(widget(maps={"one": {"size": "1"}}))
    async with maps.running():
        await settle(1)
        await maps.cluster.patch("configmaps", "one", {"data": {"size": "2", "other": "3"}})
        await settle(1)
        child = await maps.cluster.get("configmaps", "one")
    assert child["data"] == {"size": "1", "other": "3"}, "what others have added is theirs"


async def test_what_others_add_to_a_child_is_no_drift(maps: Bench, autojump_clock: MockClock) -> None:
    await maps.cluster.create(widget(maps={"one": {"size": "1"}}))
    async with maps.running():
        await settle(1)
        maps.cluster.requests.clear()
        await maps.cluster.patch("configmaps", "one", {"metadata": {"labels": {"x": "y"}}})
        await settle(1)
        assert requests_of(maps) == []


async def test_drift_while_the_operator_is_down_is_put_right(maps: Bench, autojump_clock: MockClock) -> None:
    await maps.cluster.create(widget(maps={"one": {"size": "1"}}))
    async with maps.running():
        await settle(1)
    await maps.cluster.patch("configmaps", "one", {"data": {"size": "2"}})
    async with maps.running():
        await settle(1)
    assert (await maps.cluster.get("configmaps", "one"))["data"] == {"size": "1"}


async def test_after_a_restart_children_are_applied_once_and_do_not_change(
    maps: Bench, autojump_clock: MockClock
) -> None:
    await maps.cluster.create(widget(maps={"one": {"size": "1"}}))
    async with maps.running():
        await settle(1)
    before = await maps.cluster.get("configmaps", "one")
    maps.cluster.requests.clear()
    async with maps.running():
        await settle(60)
        assert [each for each in requests_of(maps) if each.startswith("patch")] == ["patch one"]
    assert await maps.cluster.get("configmaps", "one") == before


async def test_a_deleted_child_comes_back(maps: Bench, autojump_clock: MockClock) -> None:
    await maps.cluster.create(widget(maps={"one": {}}))
    async with maps.running():
        await settle(1)
        await maps.cluster.delete("configmaps", "one")
        await settle(1)
        assert await names_of(maps.cluster) == ["one"]


async def test_what_is_not_desired_any_more_is_deleted(maps: Bench, autojump_clock: MockClock) -> None:
    await maps.cluster.create(widget(maps={"one": {}, "two": {}}))
    async with maps.running():
        await settle(1)
        maps.cluster.requests.clear()
        await maps.cluster.patch("widgets", "w", {"spec": {"maps": {"one": None}}})
        await settle(1)
        assert await names_of(maps.cluster) == ["two"]
        assert requests_of(maps) == ["delete one"]


async def test_what_is_not_desired_after_a_restart_is_deleted(maps: Bench, autojump_clock: MockClock) -> None:
    await maps.cluster.create(widget(maps={"one": {}, "two": {}}))
    async with maps.running():
        await settle(1)
    await maps.cluster.patch("widgets", "w", {"spec": {"maps": {"one": None}}})
    async with maps.running():
        await settle(1)
    assert await names_of(maps.cluster) == ["two"]


async def test_a_child_that_somebody_else_made_for_the_object_is_not_pruned(
    maps: Bench, autojump_clock: MockClock
) -> None:
    parent = await maps.cluster.create(widget(maps={"one": {}}))
    other = config_map("other")
    trioperator.append_owner_reference(other, parent)
    async with maps.running():
        await maps.cluster.create(other)
        await settle(1)
    assert await names_of(maps.cluster) == ["one", "other"]


async def test_a_foreign_object_of_the_same_name_is_not_touched(
    maps: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = await maps.cluster.create(config_map("one", size="9"))
    await maps.cluster.create(widget(maps={"one": {"size": "1"}, "two": {}}))
    async with maps.running():
        await settle(10)
        assert await maps.cluster.get("configmaps", "one") == foreign
        assert await names_of(maps.cluster) == ["one", "two"], "the others are applied"
        assert "ConfigMap default/one" in caplog.text
        assert "is not owned by Widget w: it is left as it is" in caplog.text
        await maps.cluster.delete("configmaps", "one")
        await settle()
        assert (await maps.cluster.get("configmaps", "one"))["data"] == {"size": "1"}


async def test_children_go_with_their_parent(maps: Bench, autojump_clock: MockClock) -> None:
    await maps.cluster.create(widget(maps={"one": {}}))
    async with maps.running():
        await settle(1)
        await maps.cluster.delete("widgets", "w")
        await settle(60)
        assert await names_of(maps.cluster) == []
        assert await maps.cluster.find("widgets", "w") is None, "there is no finalizer"


async def test_a_successor_of_the_parent_gets_children_of_its_own(maps: Bench, autojump_clock: MockClock) -> None:
    await maps.cluster.create(widget(maps={"one": {}}))
    async with maps.running():
        await settle(1)
        await maps.cluster.delete("widgets", "w")
        successor = await maps.cluster.create(widget(maps={"one": {}}))
        await settle(60)
        child = await maps.cluster.get("configmaps", "one")
    assert [each["uid"] for each in child["metadata"]["ownerReferences"]] == [successor["metadata"]["uid"]]


async def test_a_child_that_was_disowned_is_owned_again(maps: Bench, autojump_clock: MockClock) -> None:
    parent = await maps.cluster.create(widget(maps={"one": {}}))
    async with maps.running():
        await settle(1)
        await maps.cluster.patch("configmaps", "one", {"metadata": {"ownerReferences": None}})
        await settle(1)
        child = await maps.cluster.get("configmaps", "one")
    assert [each["uid"] for each in child["metadata"]["ownerReferences"]] == [parent["metadata"]["uid"]]


async def test_a_child_that_is_being_deleted_comes_back_when_it_is_gone(maps: Bench, autojump_clock: MockClock) -> None:
    await maps.cluster.create(widget(maps={"one": {}}))
    async with maps.running():
        await settle(1)
        await maps.cluster.patch("configmaps", "one", {"metadata": {"finalizers": ["example.com/other"]}})
        await maps.cluster.delete("configmaps", "one")
        await settle(1)
        maps.cluster.requests.clear()
        await settle(60)
        assert requests_of(maps) == []
        old = (await maps.cluster.get("configmaps", "one"))["metadata"]
        await maps.cluster.patch("configmaps", "one", {"metadata": {"finalizers": None}})
        await settle(1)
        assert (await maps.cluster.get("configmaps", "one"))["metadata"]["uid"] != old["uid"]


async def test_a_child_that_a_former_parent_of_the_name_leaves_behind_is_waited_for(
    maps: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    await maps.cluster.create(widget(maps={"one": {}}))
    async with maps.running():
        await settle(1)
        await maps.cluster.patch("configmaps", "one", {"metadata": {"finalizers": ["example.com/other"]}})
        await maps.cluster.delete("widgets", "w")
        await settle(1)
        assert "deletionTimestamp" in (await maps.cluster.get("configmaps", "one"))["metadata"]
        maps.cluster.requests.clear()
        successor = await maps.cluster.create(widget(maps={"one": {}}))
        await settle(60)
        assert requests_of(maps) == []
        assert [record for record in caplog.records if record.levelname in {"ERROR", "WARNING"}] == []
        await maps.cluster.patch("configmaps", "one", {"metadata": {"finalizers": None}})
        await settle()
        child = await maps.cluster.get("configmaps", "one")
    assert [each["uid"] for each in child["metadata"]["ownerReferences"]] == [successor["metadata"]["uid"]]


@pytest.mark.parametrize("by_name", [False, True], ids=["the same parent", "a successor of the parent"])
async def test_children_in_a_namespace_that_is_a_child_wait_until_it_has_ended(
    by_name: bool, bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.cluster.apply(TENANTS)

    @on.reconcile("tenants", owns=["namespaces", "configmaps"], registry=bench.registry)
    async def reconcile(name: str) -> list[dict[str, Any]]:
        return [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
            {**config_map("x"), "metadata": {"name": "settings", "namespace": name}},
            {**config_map("x"), "metadata": {"name": "others", "namespace": name}},
        ]

    tenant = {"apiVersion": "example.com/v1", "kind": "Tenant", "metadata": {"name": "a"}}
    await bench.cluster.create(tenant)
    async with bench.running():
        await settle(1)
        await bench.cluster.patch("configmaps", "settings", {"metadata": {"finalizers": ["example.com/other"]}}, "a")
        if by_name:
            await bench.cluster.delete("tenants", "a")
            await settle(1)
            await bench.cluster.create(tenant)
        else:
            await bench.cluster.delete("namespaces", "a")
        await settle(60)
        assert [record for record in caplog.records if record.levelname in {"ERROR", "WARNING"}] == []
        await bench.cluster.patch("configmaps", "settings", {"metadata": {"finalizers": None}}, "a")
        await settle(10)
        child = await bench.cluster.get("configmaps", "settings", "a")
        assert "finalizers" not in child["metadata"]
        assert await bench.cluster.find("configmaps", "others", "a") is not None
        assert "deletionTimestamp" not in (await bench.cluster.get("namespaces", "a"))["metadata"]


async def test_a_cluster_scoped_parent_has_children_in_any_namespace(bench: Bench, autojump_clock: MockClock) -> None:
    await bench.cluster.apply(TENANTS)
    seen: list[Any] = []

    @on.reconcile("tenants", owns=[trioperator.Owned("configmaps", bodies=True)], registry=bench.registry)
    async def reconcile(children: Any) -> dict[str, Any]:
        seen.append(set(children["configmaps"]))
        return {**config_map("x"), "metadata": {"name": "settings", "namespace": "kube-system"}}

    tenant = {"apiVersion": "example.com/v1", "kind": "Tenant", "metadata": {"name": "t"}}
    await bench.cluster.create(tenant)
    async with bench.running():
        await settle(1)
        await bench.cluster.delete("configmaps", "settings", "kube-system")
        await settle(1)
        assert await bench.cluster.find("configmaps", "settings", "kube-system") is not None
        await bench.cluster.patch("tenants", "t", {"metadata": {"labels": {"a": "b"}}})
        await settle(1)
    assert seen[-1] == {"kube-system/settings"}


async def test_a_requeue_without_children_leaves_them_as_they_are(bench: Bench, autojump_clock: MockClock) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
        if spec.get("busy"):
            raise trioperator.Requeue(after=5)
        return children_of(spec)

    await bench.cluster.create(widget(maps={"one": {}}))
    async with bench.running():
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"spec": {"busy": True}})
        await settle(60)
        assert await names_of(bench.cluster) == ["one"]


async def test_a_child_waits_for_those_that_it_depends_on(bench: Bench, autojump_clock: MockClock) -> None:
    def is_ready(body: Mapping[str, Any]) -> bool:
        return bool(body["metadata"].get("annotations", {}).get("ready"))

    @on.reconcile("widgets", owns=[trioperator.Owned("configmaps", bodies=True)], registry=bench.registry)
    async def reconcile() -> list[trioperator.Child]:
        database = trioperator.Child(config_map("database"), ready=is_ready)
        return [trioperator.Child(config_map("web"), depends_on=[database]), database]

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(60)
        assert await names_of(bench.cluster) == ["database"]
        await bench.cluster.patch("configmaps", "database", {"metadata": {"annotations": {"ready": "yes"}}})
        await settle()
        assert await names_of(bench.cluster) == ["database", "web"]


async def test_bodies_of_children_are_an_argument(bench: Bench, autojump_clock: MockClock) -> None:
    seen: list[dict[str, Any]] = []

    @on.reconcile("widgets", owns=[trioperator.Owned("configmaps", bodies=True), "secrets"], registry=bench.registry)
    async def reconcile(children: Any) -> dict[str, Any]:
        seen.append(children)
        return config_map("one", size="1")

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(1)
        await bench.cluster.patch("configmaps", "one", {"data": {"more": "2"}})
        await settle(1)
    assert seen[0] == {"configmaps": {}}
    assert seen[-1]["configmaps"]["one"]["data"] == {"size": "1", "more": "2"}
    assert seen[-1]["configmaps"]["one"]["kind"] == "ConfigMap"


def of_gizmos(group: str) -> dict[str, Any]:
    """Return the definition of the kind Gizmo in a group."""
    names = {"kind": "Gizmo", "plural": "gizmos", "singular": "gizmo"}
    spec = {**CRD["spec"], "group": group, "names": names}
    return {**CRD, "metadata": {"name": f"gizmos.{group}"}, "spec": spec}


def owned(child: dict[str, Any], owner: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """Return a child that names an owner."""
    reference = {**{key: owner[key] for key in ("apiVersion", "kind")}, "name": "w", "uid": owner["metadata"]["uid"]}
    return {**child, "metadata": {**child["metadata"], "ownerReferences": [reference], **metadata}}


async def test_objects_of_other_namespaces_are_no_children_whatever_they_say(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen: list[Any] = []

    @on.reconcile("widgets", owns=[trioperator.Owned("configmaps", bodies=True)], registry=bench.registry)
    async def reconcile(children: Any) -> dict[str, Any]:
        seen.append(children)
        return config_map("one", ready="no")

    cluster = bench.cluster
    await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "evil"}})
    owner = await cluster.create(widget())
    evil = owned(config_map("two", ready="spoofed"), owner, namespace="evil", finalizers=["evil.example/stay"])
    async with bench.running():
        await settle(1)
        number = len(seen)
        await cluster.create(evil)
        await settle(1)
        assert len(seen) == number, "it calls nobody"
        await cluster.patch("configmaps", "one", {"data": {"more": "2"}})
        await settle(1)
    assert list(seen[-1]["configmaps"]) == ["one"]
    assert seen[-1]["configmaps"]["one"]["data"] == {"ready": "no", "more": "2"}
    assert await cluster.find("configmaps", "two", "evil"), "nor is it deleted"


async def test_a_child_that_is_being_deleted_does_not_replace_another_of_its_name(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen: list[Any] = []
    groups = ("first.com", "second.com")
    kinds = [trioperator.Owned(f"gizmos.{group}", bodies=True) for group in groups]

    @on.reconcile("widgets", owns=kinds, registry=bench.registry)
    async def reconcile(children: Any) -> trioperator.Requeue:
        seen.append(children)
        return trioperator.Requeue(after=60)

    for group in groups:
        await bench.cluster.apply(of_gizmos(group))
    owner = await bench.cluster.create(widget())
    for group in groups:
        child = owned(widget("one", kind="Gizmo", group=group), owner, finalizers=["example.com/stay"])
        await bench.cluster.create({**child, "apiVersion": f"{group}/v1"})
    await bench.cluster.delete("gizmos.second.com", "one")
    async with bench.running():
        await settle(1)
    assert seen[-1]["gizmos"]["one"]["spec"]["group"] == "first.com"


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("labels", [{}, {"part": "web"}])
async def test_an_object_that_comes_while_a_child_is_applied_is_left_alone(
    bench: Bench,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    labels: dict[str, str],
    *,
    is_known: bool,
) -> None:
    @on.reconcile("widgets", owns=[trioperator.Owned("configmaps", labels=labels)], registry=bench.registry)
    async def reconcile(spec: Any) -> list[dict[str, Any]]:
        return children_of(spec)

    plan = FaultPlan()
    await bench.cluster.create(widget(maps={"one": {"mine": "1"}} if is_known else {}))
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(1)
        plan.add(Fault.delay(before=10), path="/configmaps/one", verb="patch", times=1)
        await bench.cluster.patch("widgets", "w", {"spec": {"maps": {"one": {"mine": "2"}}}})
        await settle(5)
        if is_known:
            await bench.cluster.delete("configmaps", "one")
        foreign = await bench.cluster.create(config_map("one", payroll="secret"))
        await settle(60)
        assert await bench.cluster.get("configmaps", "one") == foreign
        assert "is not owned by Widget w: it is left as it is" in caplog.text
        await bench.cluster.delete("configmaps", "one")
        await settle(300)
        assert (await bench.cluster.get("configmaps", "one"))["data"] == {"mine": "2"}


async def test_a_child_that_goes_while_it_is_applied_is_created_anew(
    maps: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    plan = FaultPlan()
    await maps.cluster.create(widget(maps={"one": {"mine": "1"}}))
    async with maps.running(transport=FaultyTransport(maps.cluster.transport(), plan)):
        await settle(1)
        plan.add(Fault.delay(before=10), path="/configmaps/one", verb="patch", times=1)
        await maps.cluster.patch("widgets", "w", {"spec": {"maps": {"one": {"mine": "2"}}}})
        await settle(5)
        await maps.cluster.delete("configmaps", "one")
        await settle(6)
        assert (await maps.cluster.get("configmaps", "one"))["data"] == {"mine": "2"}
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


async def test_a_child_whose_creation_was_not_answered_is_applied(maps: Bench, autojump_clock: MockClock) -> None:
    plan = FaultPlan()
    plan.add(Fault.lose_answer(), path="/configmaps/one", verb="patch", times=1)
    await maps.cluster.create(widget(maps={"one": {"mine": "1"}}))
    async with maps.running(transport=FaultyTransport(maps.cluster.transport(), plan)):
        await settle(10)
        maps.cluster.requests.clear()
        await settle(60)
        assert requests_of(maps) == []
    assert (await maps.cluster.get("configmaps", "one"))["data"] == {"mine": "1"}


async def test_a_child_that_the_server_rejects_is_tried_again_with_a_growing_backoff(
    bench: Bench, autojump_clock: MockClock
) -> None:
    times: list[float] = []

    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile() -> list[dict[str, Any]]:
        times.append(trio.current_time())
        return [config_map("Not A Name")]

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(2.5)
    assert [round(later - earlier, 3) for earlier, later in itertools.pairwise(times)] == [0.1, 0.2, 0.4, 0.8]


@pytest.mark.parametrize("number", range(4))
async def test_a_crash_at_any_write_converges(maps: Bench, autojump_clock: MockClock, number: int) -> None:
    await maps.cluster.create(widget(maps={"old": {}}))
    async with maps.running():
        await settle(1)
    await maps.cluster.patch("widgets", "w", {"spec": {"maps": {"old": None, "one": {}, "two": {"a": "b"}}}})
    plan = FaultPlan()
    with trio.CancelScope() as scope:
        crash = Fault.call(scope.cancel)
        plan.add(crash, skip=number, verb=["patch", "delete"])
        async with maps.running(transport=FaultyTransport(maps.cluster.transport(), plan)):
            await settle(60)
    assert scope.cancelled_caught is (number < 3), "there are three writes in all"
    async with maps.running():
        await settle(60)
        maps.cluster.requests.clear()
        assert await names_of(maps.cluster) == ["one", "two"]
        await settle(3600)
        assert requests_of(maps) == []
