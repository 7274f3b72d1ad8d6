"""Tests for :mod:`trioperator._runtime.watching.watch_manager`: what is watched, as CRDs come, change and go."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, Bench, settle, widget
from tests.runtime.watching.conftest import crd, thing, warnings, watch
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on


async def test_a_kind_that_is_added_later_is_warned_of_once_and_served_then(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    seen = watch(bench, "later.example.com", "v1", "things")
    async with bench.running():
        await settle(1000)
        assert len(warnings(caplog, "The resource later.example.com/v1/things")) == 1
        await bench.cluster.apply(crd("others", "Other"))
        await settle(10)
        assert len(warnings(caplog, "The resource later.example.com/v1/things")) == 1
        await bench.cluster.apply(crd("things", "Thing"))
        await settle(10)
        await bench.cluster.create(thing("Thing"))
        await settle(10)
    assert seen == ["things.v1.later.example.com t"]


async def test_a_kind_that_is_removed_is_not_watched_any_more_and_served_when_it_is_added_again(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen = watch(bench, "things")
    await bench.cluster.apply(crd("things", "Thing"))
    async with bench.running():
        await bench.cluster.create(thing("Thing"))
        await settle(10)
        await bench.cluster.delete("customresourcedefinitions", "things.later.example.com")
        await settle(60)
        bench.cluster.requests.clear()
        await settle(600)
        assert bench.cluster.requests.count(resource="things") == 0
        await bench.cluster.apply(crd("things", "Thing"))
        await settle(10)
        await bench.cluster.create(thing("Thing", name="again"))
        await settle(10)
    name = "things.v1.later.example.com"
    assert seen == [f"{name} t", f"{name} t DELETED", f"{name} again"]


async def test_a_new_preferred_version_is_watched_instead(bench: Bench, autojump_clock: MockClock) -> None:
    seen = watch(bench, "things")
    definition = crd("things", "Thing")
    definition["spec"]["versions"][0]["name"] = "v1beta1"
    await bench.cluster.apply(definition)
    async with bench.running():
        await bench.cluster.create(thing("Thing", version="v1beta1"))
        await settle(10)
        assert seen == ["things.v1beta1.later.example.com t"]
        newer = copy.deepcopy(definition)
        newer["spec"]["versions"].append({**copy.deepcopy(CRD["spec"]["versions"][0]), "storage": False})
        await bench.cluster.patch("customresourcedefinitions", "things.later.example.com", {"spec": newer["spec"]})
        await settle(10)
        seen.clear()
        bench.cluster.requests.clear()
        await bench.cluster.create(thing("Thing", name="u"))
        await settle(600)
        assert seen == ["things.v1.later.example.com u"]
        paths = {request.path for request in bench.cluster.requests.select(resource="things") if request.user_agent}
        assert paths <= {"/apis/later.example.com/v1/things"}


@pytest.mark.parametrize("change", ["version", "category"])
async def test_objects_that_are_not_watched_any_more_are_not_gone(
    change: str, bench: Bench, autojump_clock: MockClock
) -> None:
    gone: list[str] = []

    @on.delete(category="toys", optional=True, id="gone", registry=bench.registry)
    async def delete(name: str, **_: Any) -> None:
        gone.append(name)

    definition = crd("things", "Thing", categories=["toys"])
    definition["spec"]["versions"][0]["name"] = "v1beta1"
    await bench.cluster.apply(definition)
    async with bench.running():
        await bench.cluster.create(thing("Thing", version="v1beta1"))
        await settle(10)
        patch: dict[str, Any] = {"spec": {"names": {"categories": None}}}
        if change == "version":
            newer = {**copy.deepcopy(CRD["spec"]["versions"][0]), "storage": False}
            patch = {"spec": {"versions": [*definition["spec"]["versions"], newer]}}
        await bench.cluster.patch("customresourcedefinitions", "things.later.example.com", patch)
        await settle(10)
    assert gone == []


async def test_a_version_that_is_asked_for_is_watched_whatever_is_preferred(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen = watch(bench, "later.example.com", "v1beta1", "things")
    definition = crd("things", "Thing")
    version = definition["spec"]["versions"][0]
    definition["spec"]["versions"].append({**copy.deepcopy(version), "name": "v1beta1", "storage": False})
    await bench.cluster.apply(definition)
    async with bench.running():
        await bench.cluster.create(thing("Thing"))
        await settle(10)
    assert seen == ["things.v1beta1.later.example.com t"]


@pytest.mark.parametrize("before", [True, False])
async def test_a_status_subresource_that_is_added_or_removed_is_respected(
    before: bool, bench: Bench, autojump_clock: MockClock
) -> None:
    @on.create("things", id="create", registry=bench.registry)
    async def create(name: str, **_: Any) -> str:
        return name

    definition = crd("things", "Thing")
    definition["spec"]["versions"][0]["subresources"] = {"status": {}} if before else {}
    await bench.cluster.apply(definition)
    async with bench.running():
        await bench.cluster.create(thing("Thing", name="one"))
        await settle(10)
        changed = copy.deepcopy(definition["spec"]["versions"])
        changed[0]["subresources"] = {} if before else {"status": {}}
        patch = {"spec": {"versions": changed}}
        await bench.cluster.patch("customresourcedefinitions", "things.later.example.com", patch)
        await settle(10)
        await bench.cluster.create(thing("Thing", name="two"))
        await settle(10)
    for name in ("one", "two"):
        assert (await bench.cluster.get("things", name))["status"] == {"create": name}


async def test_a_crd_that_is_not_established_is_not_watched_yet(bench: Bench, autojump_clock: MockClock) -> None:
    seen = watch(bench, "later.example.com", "v1", "others")
    await bench.cluster.apply(crd("things", "Thing"))
    conflicting = crd("others", "Other")
    conflicting["spec"]["names"]["singular"] = "thing"  # which is taken
    async with bench.running():
        await bench.cluster.apply(conflicting)
        await settle(250)
        assert bench.cluster.requests.count(resource="others") == 0
        await bench.cluster.delete("customresourcedefinitions", "things.later.example.com")
        await bench.cluster.patch(
            "customresourcedefinitions", "others.later.example.com", {"metadata": {"labels": {"touched": "yes"}}}
        )
        await settle(5)
        await bench.cluster.create(thing("Other"))
        await settle(5)
    assert seen == ["others.v1.later.example.com t"]


async def test_objects_of_a_crd_that_is_not_established_any_more_are_not_gone(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen = watch(bench, "things")
    name, plan = "things.later.example.com", FaultPlan()
    await bench.cluster.apply(crd("things", "Thing"))
    definition = await bench.cluster.get("customresourcedefinitions", name)
    definition["status"]["conditions"] = [{"type": "Established", "status": "False"}]
    listed = {"metadata": {"resourceVersion": definition["metadata"]["resourceVersion"]}, "items": [definition]}
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(thing("Thing"))
        crds, answer = "customresourcedefinitions", Fault.answer(200, json.dumps(listed).encode())
        plan.add(Fault.error_event(410), resource=crds, watch=True, times=1)
        plan.add(answer, resource=crds, watch=False, times=1)
        await settle(700)  # until the watch of CRDs has ended
        bench.cluster.requests.clear()
        await settle(1000)
        assert bench.cluster.requests.count(resource="things") == 0
        assert seen == ["things.v1.later.example.com t"]
        await bench.cluster.patch("customresourcedefinitions", name, {"metadata": {"labels": {"touched": "yes"}}})
        await settle(10)
        await bench.cluster.create(thing("Thing", name="u"))
        await settle(10)
    assert set(seen) == {"things.v1.later.example.com t", "things.v1.later.example.com u"}


@pytest.mark.parametrize("namespaces", [(), ("default",), ("def*",)])
async def test_a_kind_that_is_created_again_in_another_scope_is_served_there(
    namespaces: tuple[str, ...], bench: Bench, autojump_clock: MockClock
) -> None:
    handled: list[str] = []

    @on.create("things", id="create", registry=bench.registry)
    async def create(name: str, namespace: str | None, **_: Any) -> str:
        handled.append(f"{namespace} {name}")
        return name

    await bench.cluster.apply(crd("things", "Thing"))
    definition = crd("things", "Thing")
    definition["spec"]["scope"] = "Cluster"
    async with bench.running(namespaces=namespaces):
        for scoped in (thing("Thing"), {**thing("Thing"), "metadata": {"name": "t"}}, thing("Thing")):
            await bench.cluster.create(scoped)
            await settle(10)
            await bench.cluster.delete("customresourcedefinitions", "things.later.example.com")
            await bench.cluster.apply(definition)
            definition = crd("things", "Thing")
            await settle(60)
    assert handled == ["default t", "None t", "default t"]


async def test_objects_are_not_gone_with_a_version_where_namespaces_must_not_be_listed(
    bench: Bench, autojump_clock: MockClock
) -> None:
    gone: list[str] = []

    @on.delete("things", optional=True, id="gone", registry=bench.registry)
    async def delete(name: str, **_: Any) -> None:
        gone.append(name)

    definition = crd("things", "Thing")
    definition["spec"]["versions"][0]["name"] = "v1beta1"
    await bench.cluster.apply(definition)
    plan = FaultPlan()
    plan.add(Fault.status(403), resource="namespaces")
    transport = FaultyTransport(bench.cluster.transport(), plan)
    async with bench.running(transport=transport, namespaces=["default"]):
        await bench.cluster.create(thing("Thing", version="v1beta1"))
        await settle(10)
        newer = {**copy.deepcopy(CRD["spec"]["versions"][0]), "storage": False}
        patch = {"spec": {"versions": [*definition["spec"]["versions"], newer]}}
        await bench.cluster.patch("customresourcedefinitions", "things.later.example.com", patch)
        await settle(10)
    assert gone == []


async def test_an_ambiguous_name_is_warned_of_and_served_when_it_is_clear(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    seen = watch(bench, "things")
    await bench.cluster.apply(crd("things", "Thing"))
    await bench.cluster.apply(crd("things", "Thing", group="too.example.com"))
    await bench.cluster.create(thing("Thing"))
    async with bench.running():
        await settle(60)
        assert seen == []
        (text,) = warnings(caplog, "ambiguous")
        assert "things.v1.later.example.com" in text
        assert "things.v1.too.example.com" in text
        await bench.cluster.delete("customresourcedefinitions", "things.too.example.com")
        await settle(60)
    assert seen == ["things.v1.later.example.com t"]


async def test_the_core_group_wins_over_others(bench: Bench, autojump_clock: MockClock) -> None:
    await bench.cluster.apply(crd("configmaps", "ConfigMap"))
    seen = watch(bench, "configmaps")
    async with bench.running():
        await bench.cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}})
        await settle(5)
    assert seen == ["configmaps.v1 c"]


async def test_a_category_stands_for_all_its_kinds_also_for_those_to_come(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen = watch(bench, category="toys")
    await bench.cluster.create(widget())
    async with bench.running():
        await settle(5)
        await bench.cluster.apply(crd("things", "Thing", categories=["toys"]))
        await bench.cluster.create(thing("Thing"))
        await settle(5)
    assert sorted(seen) == ["things.v1.later.example.com t", "widgets.v1.example.com w"]


async def test_a_kind_that_leaves_a_category_has_its_other_handlers_only(
    bench: Bench, autojump_clock: MockClock
) -> None:
    by_category = watch(bench, category="toys")
    by_name = watch(bench, "things")
    await bench.cluster.apply(crd("things", "Thing", categories=["toys"]))
    async with bench.running():
        await settle(5)
        await bench.cluster.patch(
            "customresourcedefinitions", "things.later.example.com", {"spec": {"names": {"categories": None}}}
        )
        await settle(5)
        await bench.cluster.create(thing("Thing"))
        await settle(5)
    assert (by_category, by_name) == ([], ["things.v1.later.example.com t"])


async def test_everything_is_everything_that_can_be_watched_but_kubernetes_events(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen = watch(bench, trioperator.EVERYTHING)
    async with bench.running():
        await settle(5)
        seen.clear()
        await bench.cluster.create(widget())
        await bench.cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}})
        event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}}
        await bench.cluster.create({**event, "involvedObject": {"kind": "Widget", "name": "w", "namespace": "default"}})
        await settle(5)
        assert sorted(seen) == ["configmaps.v1 c", "widgets.v1.example.com w"]


async def test_kinds_that_cannot_be_patched_have_handlers_of_events_only(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    readonly = {"list", "watch", "get"}

    def is_readonly(resource: trioperator.Resource) -> bool:
        return resource.plural == "widgets"

    seen = watch(bench, is_readonly)

    @on.create(is_readonly, id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        raise AssertionError

    class ReadOnly(FaultyTransport):
        async def handle_async_request(self, request: Any) -> Any:
            response = await super().handle_async_request(request)
            if request.url.path in ("/api", "/apis"):
                text = (await response.aread()).decode()
                for verb in ("patch", "update", "create", "delete", "deletecollection"):
                    text = text.replace(f'"{verb}",', "").replace(f',"{verb}"', "")
                assert all(verb in text for verb in readonly)
                headers = {"Content-Type": response.headers["Content-Type"]}
                return type(response)(response.status_code, headers=headers, stream=_bytes(text))
            return response

    bench.settings.scanning.disabled = True  # what CRDs define can always be patched
    await bench.cluster.create(widget())
    async with bench.running(transport=ReadOnly(bench.cluster.transport(), FaultPlan())):
        await settle(5)
    assert seen == ["widgets.v1.example.com w"]
    assert "cannot be patched" in caplog.text
    assert bench.writes() == []


def _bytes(text: str) -> Any:
    import httpx

    return httpx.ByteStream(text.encode())


async def test_without_handlers_nothing_is_asked(bench: Bench, autojump_clock: MockClock) -> None:
    async with bench.running():
        await settle(60)
    assert len(bench.cluster.requests) == 0


async def test_a_pause_in_which_an_api_group_was_not_available_makes_nothing_forgotten(
    bench: Bench, autojump_clock: MockClock
) -> None:
    ran: list[float] = []

    @trioperator.daemon("widgets", registry=bench.registry)
    async def run_once(**_: Any) -> None:
        ran.append(trio.current_time())

    @on.event("configmaps", registry=bench.registry)
    async def observe(**_: Any) -> None: ...

    bench.settings.scanning.disabled = True  # so that only discovery tells what kinds there are
    bench.settings.leadership.enabled = True
    bench.settings.networking.error_backoffs = ()
    plan, began = FaultPlan(), trio.current_time()
    groups = {"kind": "APIGroupList", "groups": [{"name": "example.com", "versions": [{"version": "v1"}]}]}
    plan.add(Fault.answer(200, msgspec.json.encode(groups)), path="^/apis$", since=began + 10, until=began + 90)
    plan.add(Fault.status(503), path="^/apis/example.com/v1$", since=began + 10, until=began + 90)
    for second in (15, 60):  # then the lease is lost
        plan.add(Fault.refuse(), resource="leases", since=began + second, until=began + second + 15)
    await bench.cluster.create(widget())
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(300)
        assert len(ran) == 1
